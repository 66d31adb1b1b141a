"""``sweep.run``, ``sweep.resume``, ``sweep.confirm`` and ``sweep.retrain``: run sweeps from a script or a notebook.

Progress is shown in the notebook's cell, or on the terminal as the command line does. The only module that uses
IPython.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypedDict, Unpack

from rich.console import Console
from rich.text import Text

from sweep import analysis
from sweep import spec as specs
from sweep.api import LoadedSweep, trainables
from sweep.api.loading import load_folders
from sweep.api.trainables import NamedTrainable, claim_process, kept_process
from sweep.errors import (
    InputError,
    InterruptedByUser,
    Problem,
    StoppedAtOnce,
    StoreError,
    SweepError,
)
from sweep.events import Event
from sweep.export import create_followers
from sweep.render.live import LiveView, on_terminal
from sweep.render.status import Frame
from sweep.runner import Options, Outcome, checking, resuming, retraining, session, sweep_files
from sweep.runner.confirming import plan_confirmation
from sweep.runner.resuming import ResumableSweep
from sweep.runner.retraining import RetrainingOptions
from sweep.runner.session import SweepSource
from sweep.spec import Spec
from sweep.spec.yaml_reader import VARIABLE
from sweep.store.features import find_local_folder
from sweep.store.folder import ResultsFolder, free_name, require_locks
from sweep.text import did_you_mean, printable, shortened

if TYPE_CHECKING:
    from sweep.analysis.live_status import Standing
    from sweep.runner import View
    from sweep.runner.session import MakeView


DRAW_S = 0.5
SAID = 20  # lines of messages that stay visible
WIDTH, HEIGHT = 100, 24  # characters, lines


def is_here() -> bool:
    """Return whether this process is the kernel of a Jupyter notebook, whose cells can show HTML."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


def display() -> Callable[[str], None]:
    """Add an output area to the present cell; return a function that replaces its content by HTML.

    This process must be the kernel of a notebook (`is_here`).
    """
    from IPython.display import HTML
    from IPython.display import display as show

    handle: Any = show(HTML(""), display_id=True)  # type: ignore[no-untyped-call]  # IPython is untyped there
    return lambda html: handle.update(HTML(html))  # type: ignore[no-untyped-call]  # IPython is untyped there


def show_html(html: str) -> None:
    """Show HTML in the output of the present cell."""
    from IPython.display import HTML
    from IPython.display import display as show

    show(HTML(html))  # type: ignore[no-untyped-call]  # IPython is untyped there


class NotebookView:
    """Shows the progress of a session in the output area of a cell; a thread redraws it."""

    def __init__(self, watching: LiveView, draw: Callable[[str], None]) -> None:
        self._live_view = watching  # follows the events and makes the picture
        self._replace_output = draw  # shows an HTML text in place of the one before
        self._messages: deque[str] = deque(maxlen=SAID)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def standing(self) -> Standing:
        return self._live_view.standing

    def replay(self, events: Iterable[Event]) -> None:
        self._live_view.replay(events)

    def on(self, event: Event) -> None:
        with self._lock:
            self._live_view.on(event)
        self._start()

    def say(self, text: str) -> None:
        """Show a message above the picture; the last 20 messages remain visible.

        The message appears at once if there is no picture yet, otherwise when the picture is redrawn, which does not
        happen after `close`.
        """
        self._messages.append(text)
        if self._thread is None:
            self._show()

    def step(self, text: str) -> None:
        """Show ``text`` as the state of the session, such as what it is starting.

        It is shown until an epoch is reported or a trial or the session ends. Redrawing starts if it has not started
        yet.
        """
        self._live_view.state = text
        self._start()

    def close(self) -> None:
        """Draw the final state and stop redrawing; waits at most two seconds. Later calls do nothing."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._thread is not None:
            self._thread.join(DRAW_S * 4)
        self._live_view.close()
        self._show()

    def _start(self) -> None:
        """Start the thread that redraws, unless it was started or the view is closed."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._redraw, name="sweep-notebook", daemon=True)
            self._thread.start()

    def _redraw(self) -> None:
        """Redraw every half second until the view is closed."""
        while not self._closed.wait(DRAW_S):
            self._show()

    def _show(self) -> None:
        """Draw the messages and, once the thread that redraws has been started, the present picture."""
        # A copy, which is made at once, because other threads add messages.
        messages = [printable(text) for text in list(self._messages)]
        picture = ""
        with self._lock:
            if self._thread is not None:
                picture = as_html(self._live_view.lines(Frame(width=WIDTH, height=HEIGHT)))
        if messages:
            picture = f'<pre style="opacity:.7">{escape(chr(10).join(messages))}</pre>{picture}'
        self._replace_output(picture)


def as_html(lines: Sequence[Text]) -> str:
    """Convert styled lines of a terminal to HTML; of lines over 100 characters, the end becomes an ellipsis."""
    # it prints into memory, from which the HTML is exported
    console = Console(
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        force_terminal=True,
        force_jupyter=False,
        color_system="256",
    )
    for line in lines:
        console.print(line, no_wrap=True, overflow="ellipsis")
    style = (
        "line-height:normal;font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace"
    )
    return console.export_html(
        inline_styles=True, code_format=f'<pre style="{style}">{{code}}</pre>'
    )


def make_viewer_here(spec: Spec, notes: Sequence[str], how: Options) -> MakeView:
    """Return a function that creates the view of a session, in the cell of a notebook or on the terminal.

    The view shows ``notes`` and the opening lines of the session when it is created, in a notebook in a new output area
    of the present cell. With the option ``quiet``, it shows none of this.
    """

    def make_view(folder: ResultsFolder, terminal: TextIO) -> View:
        """Create the view of the sweep, in the notebook or on the terminal, and show notes and opening lines in it.

        ``terminal``, which every function of this kind is given, has no effect: the view finds its terminal by itself.
        """
        view: View = on_terminal(spec, how)
        if not how.quiet and is_here():  # this is a notebook, in which the cell shows the view
            # the inner view only follows the events and makes the picture, which the outer one draws
            view = NotebookView(on_terminal(spec, replace(how, quiet=True)), display())
        for line in (*notes, *how.opening(folder)):
            view.say(line)  # with `quiet`, the view prints nothing of this
        return view

    return make_view


class How(TypedDict, total=False):
    """Options of a session that do not change what is trained; see the command line's options of the same names."""

    address: str | None
    max_concurrent: int | None
    reuse: bool
    inline: bool
    memo: bool
    quiet: bool
    verbose: bool
    tensorboard: bool


Settings: TypeAlias = "Mapping[str, Any] | Sequence[str]"
"""Changes to a sweep file: ``{"budget.hours": 8}``, or ``["budget.hours=8"]`` as on the command line."""

_SOURCE = "sweep.run"


def run(
    what: str | Path | Mapping[str, Any],
    *,
    trainable: object = None,
    name: str | None = None,
    results: str | Path = "results",
    set: Settings = (),
    simulate_gpus: int | None = None,
    run_cap: int | None = None,
    profile: bool = False,
    **how: Unpack[How],
) -> LoadedSweep:
    """Run a sweep to its end and return its results.

    ``what`` is a sweep file, or its content as a mapping. ``trainable`` is a class or a function ``train(hp, report)``,
    which may be defined anywhere, also in a notebook, or ``"module:Name"``; it takes precedence over the file's.
    ``name`` and ``set`` (a dict of keys and values, or texts ``key=value``) change the content. The other options are
    those of ``python -m sweep run``; ``how`` takes ``address``, ``max_concurrent``, ``reuse``, ``inline``, ``memo``,
    ``quiet``, ``verbose`` and ``tensorboard``. A mapping without a name gets that of the trainable, with a number
    appended if it is taken. Environment variables and ``sys.path`` are restored at the end.

    Raises `InputError` with all mistakes before anything starts, or if another sweep is running in this process. Raises
    KeyboardInterrupt if the sweep was interrupted; its message says how to resume. Raises `StoreError` if results could
    not be stored, `SweepError` if no trial has completed, and TypeError for an unknown option in ``how``.
    """
    options = replace(_make_options("run", how), simulated_gpus=simulate_gpus, profile=profile)
    require_locks()
    with claim_process():
        results_folder = find_local_folder(results, "results")
        given = None if trainable is None else trainables.accept_trainable(trainable)
        if isinstance(what, Mapping):
            of_mapping = what.get("trainable")  # may also be a class or function
            if given is None and of_mapping is not None and not isinstance(of_mapping, str):
                given = trainables.accept_trainable(of_mapping)
            new_name = name or what.get("name") or _choose_free_name(given, what, results_folder)
            what = {**what, "name": new_name}
        # not raised yet, so that the mistakes of the sweep file are reported together with these
        wrong = list(
            _list_wrong_counts(max_concurrent=options.max_concurrent, simulate_gpus=simulate_gpus)
        )
        changes = [*make_assignments(set), *_format_set_options(run_cap=run_cap, name=name)]
        try:
            spec, text, where, folders = _read_sweep(what, given, changes)
        except InputError as error:
            raise InputError([*wrong, *error.problems]) from None
        if wrong:
            raise InputError(wrong)
        given = given or trainables.find_resumed_trainable(spec.trainable)
        source = trainables.inspect_and_check(
            given, spec, where, folders, here=options.address is None
        )
        spec = checking.adapt_to_source(spec, source)
        notes = checking.list_notes(spec, source)
        training = SweepSource(spec=spec, source=source, import_folders=folders, given=given.itself)
        view = make_viewer_here(spec, notes, options)
        return _run_session(
            lambda: session.run_sweep(training, text, results_folder, options, view),
            ResultsFolder(results_folder / spec.name),
            given,
        )


def resume(
    name: str | Path,
    *,
    trainable: object = None,
    results: str | Path = "results",
    set: Settings = (),
    run_cap: int | None = None,
    retry_failed: bool = False,
    **how: Unpack[How],
) -> LoadedSweep:
    """Resume a sweep that was interrupted or killed, or extend a finished one; return its results.

    ``name`` is its name in ``results``, its folder or its URL. ``set`` and ``run_cap`` change the sweep first, and
    ``retry_failed`` tries failed trials again. ``trainable`` is needed only if the sweep ran with a class or function
    that another notebook or script defined; one of this process is looked up by its name. ``how`` is as in `run`.
    Raises the errors of `run`.
    """
    options = replace(_make_options("resume", how), retry_failed=retry_failed)
    require_locks()
    with claim_process():
        _refuse_wrong_counts(max_concurrent=options.max_concurrent)
        changes = [*make_assignments(set), *_format_set_options(run_cap=run_cap)]
        reopened = resuming.reopen(find_local_folder(results, "results"), str(name), changes)
        return _resume_session(reopened, trainable, options)


def confirm(
    name: str | Path,
    *,
    seeds: int | None = None,
    finalists: int | None = None,
    budget: str | None = None,
    trainable: object = None,
    results: str | Path = "results",
    **how: Unpack[How],
) -> LoadedSweep:
    """Train the best configurations of a sweep with fresh seeds to tell them apart; return the results.

    The trials are added to the sweep. Training ends when the configurations can be told apart, or at the limits:
    ``seeds`` for each of ``finalists`` configurations, within ``budget`` (``"20%"`` of the search's epochs, or
    ``"none"`` for no limit). Each of the three that is None is as in the ``confirm`` block of the sweep's file, or else
    the default. The other arguments are as in `resume`. Raises the errors of `run`.
    """
    options = replace(_make_options("confirm", how), confirming=True)
    require_locks()
    with claim_process():
        _refuse_wrong_counts(
            max_concurrent=options.max_concurrent, seeds=seeds, finalists=finalists
        )
        reopened = resuming.reopen_to_confirm(
            find_local_folder(results, "results"), str(name), seeds, finalists, budget
        )
        if not reopened.folder.is_running():  # otherwise, it is refused for that
            plan_confirmation(reopened)
        return _resume_session(reopened, trainable, options)


def retrain(
    name: str | Path,
    *,
    trial: int | None = None,
    epochs: int | None = None,
    seeds: int = 1,
    all_data: bool = False,
    into: str | None = None,
    set: Settings = (),
    trainable: object = None,
    results: str | Path = "results",
    **how: Unpack[How],
) -> LoadedSweep:
    """Train the winner of a sweep again at full length, as a new sweep beside it; return the new one's results.

    ``trial`` selects another trial than the winner, and ``into`` names the new sweep (by default ``NAME-retrain``). The
    configuration is trained for ``epochs`` epochs, by default as many as the trial, with ``seeds`` seeds, of which the
    first is the trial's. With ``all_data``, nothing is held out. ``set`` changes the new sweep's file as in `run`;
    ``trainable`` is as in `resume`, and ``how`` as in `run`. Raises the errors of `run`.
    """
    options = _make_options("retrain", how)
    require_locks()
    with claim_process():
        _refuse_wrong_counts(max_concurrent=options.max_concurrent, seeds=seeds, epochs=epochs)
        folder = ResultsFolder.open(find_local_folder(results, "results"), str(name))
        made = retraining.prepare_retraining(
            folder,
            RetrainingOptions(
                trial=trial,
                epochs=epochs,
                seeds=seeds,
                all_data=all_data,
                name=into,
                assignments=make_assignments(set),
            ),
        )
        given = trainables.accept_trainable(made.spec.trainable if trainable is None else trainable)
        spec = replace(made.spec, trainable=given.target)
        folders = _list_import_folders(made.sweep.import_folders, given)
        source = trainables.inspect_and_check(
            given, spec, "retrain", folders, here=options.address is None
        )
        if all_data:
            retraining.check_joins(source)
        options = replace(options, simulated_gpus=made.sweep.simulated_gpus)
        notes = [f"note: {note}" for note in made.notes]
        training = SweepSource(
            spec=spec,
            source=source,
            import_folders=folders,
            working_folder=made.sweep.working_folder,
            given=given.itself,
        )
        view = make_viewer_here(spec, notes, options)
        parent = folder.path.parent  # the new sweep is beside the old one
        return _run_session(
            lambda: session.run_sweep(training, made.text, parent, options, view, made.origin),
            ResultsFolder(parent / spec.name),
            given,
        )


def _resume_session(reopened: ResumableSweep, trainable: object, how: Options) -> LoadedSweep:
    """Run one more session of a sweep and return its results.

    ``trainable`` is a class, a function or ``"module:Name"``; if it is None, the one that the sweep names is used.
    Before the session, the sweep is checked against the trainable's source. Raises the errors of `run`.
    """
    how = replace(how, simulated_gpus=reopened.simulated_gpus)
    given = trainables.accept_trainable(reopened.spec.trainable if trainable is None else trainable)
    folders = _list_import_folders(reopened.import_folders, given)
    reopened = replace(
        reopened, spec=replace(reopened.spec, trainable=given.target), import_folders=folders
    )
    where = str(reopened.folder.info)
    source = trainables.inspect_and_check(
        given, reopened.spec, where, folders, here=how.address is None
    )
    view = make_viewer_here(reopened.spec, (), how)
    return _run_session(
        lambda: session.resume_sweep(reopened, source, how, view, given.itself),
        reopened.folder,
        given,
    )


def _read_sweep(
    what: str | Path | Mapping[str, Any], given: NamedTrainable | None, changes: Sequence[str]
) -> tuple[Spec, str, str, tuple[Path, ...]]:
    """Read a sweep from a file or a mapping; return its spec, its text, its name in messages, and its import folders.

    The trainable ``given`` and the assignments ``changes``, texts ``key=value``, take precedence over the content, and
    ``changes`` over those in the environment variable ``SWEEP_SET``. The text of a mapping is JSON. Raises InputError
    if the file cannot be read, if the content has mistakes, or if ``what`` is neither a path nor a mapping.
    """
    if isinstance(what, str | Path):
        path = Path(what)
        named = [] if given is None else [f"trainable={json.dumps(given.target)}"]
        spec, text = specs.load_spec_with_text(path, [*named, *changes])
        return spec, text, str(path), _list_import_folders(sweep_files.import_folders(path), given)
    if not isinstance(what, Mapping):
        raise InputError.one(
            "sweep.run",
            f"got {shortened(repr(what), 60)}",
            "expected a sweep file or a mapping with its content",
        )
    content = {**what, "trainable": given.target} if given else what
    spec = specs.make_spec(content, _SOURCE, changes, os.environ.get(VARIABLE, ""))
    text = json.dumps(
        {key: value for key, value in spec.to_json_dict().items() if value is not None}, indent=2
    )
    return spec, text + "\n", _SOURCE, _list_import_folders((Path.cwd(),), given)


def _list_import_folders(first: Sequence[Path], given: NamedTrainable | None) -> tuple[Path, ...]:
    """Return the folders ``first``, and those of the trainable's module and of the running script, without duplicates.

    If the trainable is given as a class or function, its folders and the script's come before ``first``, as modules are
    found in this process: otherwise, workers could import others of the same names. With ``python -m``, the running
    script has no folder here.
    """
    main = sys.modules["__main__"]
    # with python -m, __main__ is a module and not a script
    script = getattr(main, "__file__", None) if getattr(main, "__spec__", None) is None else None
    scripts = (Path(script).resolve().parent,) if script else ()
    if given and (given.folders or given.itself is not None):
        found = (*given.folders, *scripts, *first)
    else:
        found = (*first, *scripts)
    return tuple(dict.fromkeys(found))


def _choose_free_name(given: NamedTrainable | None, what: Mapping[str, Any], results: Path) -> str:
    """Return a name for the new sweep that is not used in the folder ``results``.

    It is that of the trainable ``given``, or else of the one that ``what`` names, or "sweep", with a number if it is
    taken.
    """
    name = given.name if given else str(what.get("trainable", "")).rpartition(":")[2] or "sweep"
    return free_name(results, name)


def _refuse_wrong_counts(**counts: int | None) -> None:
    """Raise InputError that names all options in ``counts`` that are neither None nor whole numbers from 1."""
    if wrong := list(_list_wrong_counts(**counts)):
        raise InputError(wrong)


def _list_wrong_counts(**counts: int | None) -> Iterator[Problem]:
    """Yield a problem for each option, by its name, that is neither None nor a whole number from 1.

    True and False are no whole numbers here.
    """
    for name, value in counts.items():
        if value is not None and (
            not isinstance(value, int) or isinstance(value, bool) or value < 1
        ):
            yield Problem(name, f"{value!r}, expected a whole number from 1")


def make_assignments(given: Settings) -> list[str]:
    """Convert the argument ``set`` of `run` or `resume` to assignments ``key=value``.

    The values of a mapping become JSON; the texts of a list stay as they are. Raises InputError if ``given`` is a
    single string or has values that a sweep file cannot hold.
    """
    if isinstance(given, Mapping):
        return _format_assignments(given)
    if isinstance(given, str):
        raise InputError.one(
            "set", f"{given!r} is a text", 'expected a mapping, as in set={"epochs": 5}'
        )
    return list(map(str, given))


def _format_assignments(values: Mapping[str, object]) -> list[str]:
    """Return a mapping as assignments ``key=value``, in which the values are JSON.

    Raises InputError for values that JSON cannot hold, such as objects.
    """
    try:
        return [f"{key}={json.dumps(value)}" for key, value in values.items()]
    except (TypeError, ValueError) as error:
        raise InputError.one(
            "set", str(error), "expected values that a sweep file can hold"
        ) from None


def _format_set_options(**values: object) -> list[str]:
    """Return the options that are not None as assignments ``key=value``."""
    return _format_assignments({key: value for key, value in values.items() if value is not None})


def _make_options(function: str, how: How) -> Options:
    """Return the options of a session from the keyword arguments ``how`` of the function named ``function``.

    Raises TypeError for an unknown option, as Python does, and InputError if TensorBoard is asked for and not
    installed. If no address of Ray is given, it is that in the environment variable ``RAY_ADDRESS``, if any.
    """
    for name in how:
        if name not in How.__annotations__:
            hint = did_you_mean(name, How.__annotations__)
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}; {hint}")
    given: dict[str, Any] = {name: value for name, value in how.items() if name != "tensorboard"}
    given["address"] = how.get("address") or os.environ.get("RAY_ADDRESS") or None
    return Options(
        **given,
        followers=create_followers(tensorboard=how.get("tensorboard", False)),
        embedded=True,
    )


def _run_session(
    drive: Callable[[], Outcome], folder: ResultsFolder, given: NamedTrainable
) -> LoadedSweep:
    """Run a session by calling ``drive``, and return its results together with its trainable.

    ``folder`` is the sweep's folder, for messages. Environment variables and ``sys.path`` are restored. Raises
    KeyboardInterrupt if the session was interrupted, StoreError if its results could not be stored or it could not
    continue for another reason outside of its trials (`Outcome.fault`), SweepError if no trial has completed, and all
    other errors of ``drive``.
    """
    # the advice at the end of messages
    again = f"see sweep.load({folder.called!r}), go on with sweep.resume({folder.called!r})"
    with kept_process():
        try:
            outcome = drive()
        except (InterruptedByUser, StoppedAtOnce) as error:
            raise KeyboardInterrupt(
                f"{error}; {again if folder.info.exists() else 'start it again'}"
            ) from None
    if outcome.fault:
        raise StoreError(f"{outcome.fault}; {again}")
    if outcome.interrupted:
        raise KeyboardInterrupt(f"the sweep was interrupted; {again}")
    # with its class or function, which later calls such as `LoadedSweep.model` may need
    found = replace(load_folders([outcome.folder]), _trainable=given.itself)
    if not outcome.completed:
        raise SweepError(
            f"no trial has completed{analysis.first_failure(found.sweeps[0])}; see sweep.load({folder.called!r}).trials"
        )
    return found
