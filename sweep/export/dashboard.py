"""Serves optuna-dashboard for the logs of sweeps; the only module that knows it.

The studies are read from the logs at each request, so that a running sweep can be watched. Nothing can be edited,
because the log is the only storage.
"""

from __future__ import annotations

import json
import socketserver
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from sweep.analysis.studies import FollowedSweep
from sweep.errors import InputError
from sweep.export import runs
from sweep.searchers.optuna_storage import WatchedStudies
from sweep.store.folder import ResultsFolder, name_uniquely

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")
_READ_ONLY = "This dashboard shows the log of a sweep, which is not edited here."


class DashboardServer(socketserver.ThreadingMixIn, WSGIServer):
    """Answers each request in its own thread."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Bind the socket, and set the name and port of the server, without asking the network for this machine's name.

        The method of the base class asks for it, which can take long. Raises OSError if the port is taken.
        """
        socketserver.TCPServer.server_bind(self)
        self.server_name = HOST
        self.server_port = self.server_address[1]
        self.setup_environ()

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        return f"http://{HOST}:{self.server_port}/dashboard/"


class _Quiet(WSGIRequestHandler):
    """Handles requests without writing a line for each."""

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing, because the terminal shows only the address of the dashboard."""


def make_server(
    folders: Iterable[ResultsFolder], port: int, say: Callable[[str], None]
) -> DashboardServer:
    """Return a server of the dashboard for the sweeps in ``folders``, on this machine only; port 0 picks a free port.

    The sweeps are read once here. The server is bound, but answers only once `serve_forever` is called. Errors while it
    follows a sweep are passed to ``say``. Warnings are switched off in this process. Raises `InputError` if the port is
    taken or above 65535, a sweep cannot be shown or optuna-dashboard is not installed, and `StoreError` if a log is
    damaged.
    """
    library = runs.import_extra("optuna_dashboard", "optuna-dashboard", "dashboard")
    sweeps = []
    for name, folder in name_uniquely(folders).items():
        sweeps.append(FollowedSweep(folder, say, name))
    # because of Optuna's warnings about experimental features, which do not concern users of the page
    warnings.simplefilter("ignore")
    try:
        server = DashboardServer((HOST, port), _Quiet)
    except (OSError, OverflowError) as error:  # the port is taken, or is above 65535
        why = getattr(error, "strerror", None) or str(error)
        raise InputError.one(
            f"--port {port}", f"cannot listen on {HOST}:{port} ({why})", "give another --port"
        ) from error
    server.set_app(_guard_application(library.wsgi(WatchedStudies(sweeps))))
    return server


def _guard_application(app: WSGIApplication) -> WSGIApplication:
    """Wrap an application so that it answers only GET and HEAD requests to 127.0.0.1 or localhost.

    All other requests get status 403. A foreign web page can let its host name resolve to this machine, and the browser
    then lets it read the answers (DNS rebinding); the request still carries that host name. The port is not checked,
    because it may be forwarded.
    """

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        """Pass a request to the application and return its answer, or refuse it: 403 and the reason as JSON."""
        host = environ.get("HTTP_HOST", "").lower().partition(":")[0]
        if host not in _NAMES:
            reason = f"This dashboard answers to {' and '.join(_NAMES)} alone."
        elif environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return app(environ, start)
        else:
            reason = _READ_ONLY
        start("403 Forbidden", [("Content-Type", "application/json")])
        return [json.dumps({"reason": reason}).encode()]

    return answer
