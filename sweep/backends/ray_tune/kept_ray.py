"""A local Ray that goes on running with its workers when a command ends, for the next command in the same process.

`sweep.keeper` runs one command after another in one process. In other processes, `get_kept_ray` returns None, and each
command starts its own Ray and ends it. This module imports Ray only when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweep.backends.ray_tune.cluster import Cluster
    from sweep.backends.ray_tune.kept_workers import KeptWorkers


@dataclass(slots=True)
class Listener:
    """The functions by which a kept Ray reports to the session that uses it; by default they do nothing."""

    say: Callable[[str], None] = lambda text: None
    lost: Callable[[], None] = lambda: None


@dataclass(slots=True)
class KeptRay:
    """A local Ray that stays between commands, with its fork server and its workers."""

    keep_s: float = 0.0
    """Seconds for which it goes on running after a command."""
    is_quiet: bool = False
    """Whether the last command asked for no progress."""
    terminal: int = 0
    """Process id of the command that a person has started and this process runs now; 0 if it is this process itself."""
    listener: Listener = field(default_factory=Listener)
    _contexts: ExitStack = field(default_factory=ExitStack)  # of the Ray and of `enter`
    _cluster: Cluster | None = None  # a connection to the Ray, once it was started
    _workers: KeptWorkers | None = None
    _made_for: Hashable = None  # the settings with which it was started
    _page_key: str = ""  # of the record of its page in the dashboard
    _is_lost: bool = False

    @property
    def is_running(self) -> bool:
        """Whether there is a Ray, which has not died, for the next command to use."""
        return self._cluster is not None and not self._is_lost

    @property
    def workers(self) -> KeptWorkers:
        """The workers that are kept while they have no trial: none at first and after `close`."""
        from sweep.backends.ray_tune.kept_workers import KeptWorkers

        if self._workers is None:
            self._workers = KeptWorkers()
        return self._workers

    def enter(self, context: AbstractContextManager[object]) -> None:
        """Enter a context manager now, and leave it in `close`, those entered last first.

        Raises what entering it raises, and then `close` does not leave it.
        """
        self._contexts.enter_context(context)

    @contextmanager
    def lend(
        self,
        made_for: Hashable,
        make_metadata: Callable[[], dict[str, str]],
        listener: Listener,
        start: Callable[[], AbstractContextManager[Cluster]],
    ) -> Iterator[Cluster]:
        """Yield a connection to the Ray for one session; start the Ray before if it does not run or has died.

        The Ray goes on running after the block, also if that is interrupted. If the start or the block raises an
        `Exception`, the Ray is ended and the exception raised.

        Arguments:
            made_for: the settings with which the Ray is started; a running Ray with other settings is replaced.
            make_metadata: returns the metadata of the session's page in the dashboard, empty for no page.
            listener: receives the Ray's reports during the session.
            start: returns a context manager that starts a Ray, which reports to `say` and `report_loss`.
        """
        if self._cluster is not None and (self._is_lost or self._made_for != made_for):
            self.close()
        self.listener = listener
        try:
            if self._cluster is None:
                self._cluster = self._contexts.enter_context(start())  # left in `close`
                self._made_for = made_for
                # `start` has made the page of this session. Later sessions write to the same record, because the
                # metadata with which this process has connected to Ray name it.
                self._page_key = self._read_page_key(make_metadata())
                yield self._cluster
            else:
                with self._open_page(self._cluster, make_metadata()) as cluster:
                    yield cluster
        except Exception:  # the Ray may be the cause, so the next command starts another one
            self.close()
            raise
        finally:
            self.listener = Listener()

    def _read_page_key(self, metadata: dict[str, str]) -> str:
        """Return the key of the dashboard page's record from the ``metadata`` of Ray's start; ``""`` if none."""
        from sweep.backends.ray_tune.dashboard import POINTER

        return metadata.get(POINTER, "")

    @contextmanager
    def _open_page(self, cluster: Cluster, metadata: dict[str, str]) -> Iterator[Cluster]:
        """Yield the cluster with a page for this session in the dashboard, which is closed after the block.

        The page replaces that of the session before, because all of them write to the record of the Ray's first
        session. If ``metadata`` is empty, the cluster is yielded without a page.
        """
        from sweep.backends.ray_tune.dashboard import POINTER, JobPage

        if not metadata:
            yield replace(cluster, page=None)
            return
        page = JobPage({**metadata, POINTER: self._page_key}, shared=False)
        try:
            yield replace(cluster, page=page)
        finally:
            page.close()

    def say(self, text: str) -> None:
        """Report a line to the session that uses the Ray now; do nothing if none does."""
        self.listener.say(text)

    def report_loss(self) -> None:
        """Record that the Ray has died, and report it to the session that uses it. Called from another thread."""
        self._is_lost = True
        self.listener.lost()

    def close(self) -> None:
        """End the kept workers and the Ray, if any, and leave the context managers of `enter`.

        `lend` can start another Ray afterwards.
        """
        # with a Ray that has died, its workers are gone, too
        if self._workers is not None and not self._is_lost:
            self._workers.end()
        self._workers = None
        self._contexts.close()  # ends the Ray
        self._cluster = None
        self._is_lost = False


_kept: KeptRay | None = None


def get_kept_ray() -> KeptRay | None:
    """Return the object that holds the Ray which this process keeps between its commands; None before `keep_ray`.

    The Ray need not run: the object exists before the first one is started.
    """
    return _kept


def keep_ray() -> KeptRay:
    """Make this process keep its local Ray between commands from now on; return the object that holds it.

    No Ray is started yet. Further calls return the same object.
    """
    global _kept
    if _kept is None:
        _kept = KeptRay()
    return _kept
