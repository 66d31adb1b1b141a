"""``status --watch``: the picture of a sweep that another process runs, from its log alone."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from sweep.analysis.progress import Follower
    from sweep.render.live import LiveView
    from sweep.runner.resuming import Reopened

LEFT = 130  # somebody did not wait for the end
PLAIN_WIDTH = 120  # of a picture that goes to no terminal


def watch(sweep: Reopened, interval_s: float) -> None:
    """Show where a sweep stands until it ends; one that does not run is shown once.

    Off a terminal: a picture at the beginning and at the end, and a line per trial that ends in between.
    Raises `StoreError` for a damaged log.
    """
    from sweep.analysis.outline import Outline
    from sweep.analysis.progress import Follower
    from sweep.render import formatting
    from sweep.render.live import LiveView
    from sweep.store.ledger import naming

    follower = Follower(sweep.folder)
    console = formatting.console(soft_wrap=True)
    view = LiveView(console, Outline.of(sweep.spec))
    left = False
    try:
        try:
            with naming(sweep.folder.log):
                running = _catch_up(view, follower, sweep)
                if running and view.plain:
                    _show(view, console, sweep)
                elif running:
                    view.start()
                while running:
                    time.sleep(interval_s)
                    running = sweep.folder.is_running()  # before the log is read: what comes last is not missed
                    _read_on(view, follower)
        finally:
            view.close()
    except KeyboardInterrupt:
        left = True
    _show(view, console, sweep)
    if left:
        sys.exit(LEFT)


def _catch_up(view: LiveView, follower: Follower, sweep: Reopened) -> bool:
    """Read what is in the log already, which may take its time; whether the sweep runs."""
    while True:
        running = sweep.folder.is_running()
        events = follower.more()
        if events is None:
            view.forget()
            continue
        view.observe(events)
        if follower.share >= 1 or not events:
            view.state = ""
            return running
        view.state = f"reading its log, {follower.share:.0%}"
        view.start()


def _read_on(view: LiveView, follower: Follower) -> None:
    while (events := follower.more()) != []:
        if events is None:
            view.forget()
            continue
        for event in events:
            view.on(event)


def _show(view: LiveView, console: Console, sweep: Reopened) -> None:
    """The picture as it is now, to stay."""
    from sweep.render.progress import Frame

    width = PLAIN_WIDTH if view.plain else console.size.width
    height = 23 if view.plain else console.size.height - 1
    running = sweep.folder.is_running()
    state = "" if running or view.over else "unfinished"
    for line in view.lines(Frame(width=width, height=height, ascii_only=view.ascii_only), running=running, state=state):
        console.print(line)
