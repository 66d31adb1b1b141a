"""Serves optuna-dashboard over the logs of sweeps; the one module that knows it.

What it shows is made of the log at each look, so that a sweep can be watched while it runs. Nothing can be edited:
there is no place but the log.
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
from sweep.store.folder import ResultsFolder, told_apart

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

HOST = "127.0.0.1"
_NAMES = (HOST, "localhost")
_READ_ONLY = "This dashboard shows the log of a sweep, which is not edited here."


class Server(socketserver.ThreadingMixIn, WSGIServer):
    """Answers each request in a thread of its own."""

    daemon_threads = True

    def server_bind(self) -> None:
        """Without asking the network for this machine's name."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = HOST, self.server_address[1]
        self.setup_environ()

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        return f"http://{HOST}:{self.server_port}/dashboard/"


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep requests off the terminal."""


def serve(folders: Iterable[ResultsFolder], port: int, say: Callable[[str], None]) -> Server:
    """Return a server for these sweeps, on this machine alone; port 0 is any that is free. Call its `serve_forever`.

    ``say`` hears what goes wrong later. Raises `InputError` for a taken port, a sweep that cannot be shown and where
    optuna-dashboard is not installed, `StoreError` for a damaged log.
    """
    library = runs.extra("optuna_dashboard", "optuna-dashboard", "dashboard")
    sweeps = [FollowedSweep(folder, say, name) for name, folder in told_apart(folders).items()]
    warnings.simplefilter("ignore")  # of Optuna, about what is experimental: not for those who look at a page
    try:
        server = Server((HOST, port), _Quiet)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise InputError.one(
            f"--port {port}", f"cannot listen on {HOST}:{port} ({why})", "give another --port"
        ) from error
    server.set_app(_guarded(library.wsgi(WatchedStudies(sweeps))))
    return server


def _guarded(app: WSGIApplication) -> WSGIApplication:
    """Read only, and only under this machine's own names.

    A page of somebody else's can let its name point to this machine, and a browser then lets it read what it finds
    there (DNS rebinding); the request still bears that name. The port is another one where it is forwarded.
    """

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ.get("HTTP_HOST", "").lower().partition(":")[0] not in _NAMES:
            reason = f"This dashboard answers to {' and '.join(_NAMES)} alone."
        elif environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return app(environ, start)
        else:
            reason = _READ_ONLY
        start("403 Forbidden", [("Content-Type", "application/json")])
        return [json.dumps({"reason": reason}).encode()]

    return answer
