"""Who watches a sweep that is run from Python: a notebook's cell, or the terminal as for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from sweep.api import notebook
from sweep.spec import Spec
from sweep.store.folder import ResultsFolder

if TYPE_CHECKING:
    from sweep.render.live import LiveView
    from sweep.runner.options import Options, View
    from sweep.runner.session import MakeView


def viewer(spec: Spec, notes: Sequence[str], how: Options) -> MakeView:
    """Makes the view of a session, which begins with these notes."""

    def made(folder: ResultsFolder, terminal: TextIO) -> View:
        view: View = _live(spec, quiet=how.quiet)
        if not how.quiet and notebook.is_here():
            view = notebook.NotebookView(drawing(spec), notebook.display())
        for note in () if how.quiet else notes:
            view.say(note)
        if how.verbose and not how.quiet:
            view.say(f"output of Ray and TensorFlow: {folder.debug_log}")
        return view

    return made


def drawing(spec: Spec) -> notebook.Drawing:
    """What counts a sweep's events and is drawn elsewhere."""
    return _live(spec, quiet=True)


def _live(spec: Spec, *, quiet: bool) -> LiveView:
    from sweep.analysis.outline import Outline
    from sweep.render.live import LiveView
    from sweep.render.terminal import console

    return LiveView(console(), Outline.of(spec), quiet=quiet)
