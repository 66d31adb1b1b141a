"""Who watches a sweep that is run from Python: a notebook's cell, or the terminal as for the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from sweep.api import notebook
from sweep.spec import Spec
from sweep.store.folder import ResultsFolder

if TYPE_CHECKING:
    from sweep.render.live import LiveView
    from sweep.runner.options import View


def viewer(spec: Spec, notes: Sequence[str], *, quiet: bool, verbose: bool) -> Callable[[ResultsFolder, TextIO], View]:
    """Makes the view of a session, which begins with these notes."""

    def made(folder: ResultsFolder, terminal: TextIO) -> View:
        view: View = _live(spec, quiet=quiet)
        if not quiet and notebook.is_here():
            view = notebook.NotebookView(drawing(spec), notebook.display())
        for note in () if quiet else notes:
            view.say(note)
        if verbose and not quiet:
            view.say(f"output of Ray and TensorFlow: {folder.debug_log}")
        return view

    return made


def drawing(spec: Spec) -> notebook.Drawing:
    """What counts a sweep's events and is drawn elsewhere."""
    return _live(spec, quiet=True)


def _live(spec: Spec, *, quiet: bool) -> LiveView:
    from sweep.analysis.outline import Outline
    from sweep.render.formatting import console
    from sweep.render.live import LiveView

    return LiveView(console(), Outline.of(spec), quiet=quiet)
