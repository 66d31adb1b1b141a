"""Adapts a function ``train(hp, report)`` to the `Trainable` contract, and loads what a sweep file names as trainable.

The function runs in a thread of its own and blocks inside `report` until its trial is to continue. While it waits
there, a step of the worker ends or a checkpoint is taken; if the trial must not continue, `report` returns False. The
function knows neither Ray nor the driver.

A target ``module:Name``, class or function, becomes a trainable in the process that needs it.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import inspect
import json
import os
import random
import shutil
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, TypeAlias, cast

from sweep import garbage
from sweep.author_code import note_trainable
from sweep.contract import (
    Assignment,
    Devices,
    EpochReported,
    Facts,
    Incompatible,
    Report,
    Stopped,
    Trainable,
)
from sweep.errors import InputError, TrainableError, in_short
from sweep.events import Value
from sweep.hyperparameters import Hyperparameters, RecordedParams
from sweep.patience import Plateau, is_exhausted
from sweep.read_recorder import recorder
from sweep.state import imports, namespaces
from sweep.state.recorded_values import RecordedValues, self_changing
from sweep.state.trials import StartingValues
from sweep.text import shortened

Checkpoint: TypeAlias = "Callable[[Path], object] | str | Path"
"""How a function saves: a callable that writes into the folder passed to it, or a file or folder to be copied."""

UNREAD_FOLD = (
    "the file asks for {folds} folds, and the function reports without having read report.fold, so all folds would "
    "train on the same examples; leave fold report.fold of report.folds out of training and validate with it, or use "
    "repeats in place of folds"
)
_ABOUT = "sweep_function.json"
_LISTEN_S = 0.5


class _TrialOver(BaseException):
    """Raised in the thread of a function that reports again after its trial has ended, to end the function."""


class Reporter:
    """The second argument of a function trainable: describes its trial, and is called to report one epoch."""

    def __init__(
        self, assignment: Assignment, restored: Path | None, epoch: int, trained_s: float = 0.0
    ) -> None:
        self.seed: int = assignment.seed
        self.minutes: float | None = assignment.minutes
        """The minutes of training after which the trial is complete; None if only its epochs end it."""
        self.epoch: int = epoch  # epochs reported so far; those before a restored checkpoint count
        self.devices: Devices = assignment.devices
        self.training_read: set[str] = set()
        """The keys of the file's ``training`` block that the function has read."""
        self._assignment = assignment
        self._trained_s = trained_s  # until the last report
        self._training = RecordedParams(assignment.training, self.training_read)
        self._fold = assignment.fold
        self._number_read = False  # whether the function has read `trial`
        # whether the function has read `fold`, or need not
        self._fold_read = assignment.fold is None
        self._restored_folder = restored
        self._accumulate = assignment.accumulate
        self._objective = assignment.objective
        self._restored_read = (
            restored is None
        )  # whether the function has read `restored`, or need not
        self._accumulate_read = False  # whether the function has read `accumulate`
        self._last_checkpoint: Checkpoint | None = None  # as passed to the last report
        self._must_end = False  # whether the trial is to end
        self._messages: SimpleQueue[EpochReported | _End] = SimpleQueue()
        self._answers: SimpleQueue[bool] = SimpleQueue()
        self._process = os.getpid()  # the only one in which reports are taken
        self._since = time.perf_counter()  # when the last report returned

    @property
    def trial(self) -> int:
        """The number of the trial in its sweep.

        Once it is read, later sweeps reuse the result of this trial only for a trial of the same number.
        """
        self._number_read = True
        return self._assignment.trial

    @property
    def epochs(self) -> int:
        """The number of epochs to train; raises Incompatible if the sweep file has minutes and no epochs."""
        if not self._assignment.counts_epochs:
            raise Incompatible(
                "the function reads report.epochs, and the sweep file has minutes and no epochs; train until report() "
                "returns False, and let schedules go by report.share",
                about=("minutes",),
            )
        return self._assignment.epochs

    @property
    def share(self) -> float:
        """The share of the trial's epochs or of its minutes that is used, whichever is larger: from 0 to 1.

        The minutes are those of training, with the time since the last report and that before a restored checkpoint.
        """
        return self._assignment.share_used(
            self.epoch, self._trained_s + time.perf_counter() - self._since
        )

    @property
    def restored(self) -> Path | None:
        """The folder of this trial's checkpoint to continue from; None if the trial starts from the beginning.

        If there is one, it must be read before the first report.
        """
        self._restored_read = True
        return self._restored_folder

    @property
    def accumulate(self) -> int:
        """The number of micro-batches to split each batch into; more than 1 after the trial ran out of memory.

        Reading it tells sweep that the function can split its batches.
        """
        self._accumulate_read = True
        return self._accumulate

    @property
    def training(self) -> Mapping[str, Value]:
        """The ``training`` block of the sweep file; each key that is read from it is added to `training_read`."""
        return self._training

    @property
    def fold(self) -> int | None:
        """The number of the fold to leave out of training and to validate with, from 0; None if there are no folds.

        If there are folds, it must be read before the first report.
        """
        self._fold_read = True
        if self._fold is None:
            return None
        return self._fold.number

    @property
    def folds(self) -> int | None:
        """The number of folds; None if the sweep file has no ``folds``."""
        if self._fold is None:
            return None
        return self._fold.of

    def __call__(
        self,
        metrics: Mapping[str, float] | None = None,
        /,
        *,
        checkpoint: Checkpoint | None = None,
        learning_rate: float | None = None,
        examples_per_s: float | None = None,
        **more: float,
    ) -> bool:
        """Report one epoch, and wait for the decision on it; return whether to continue training.

        Pass metrics by name or as a mapping; of a metric that is in both, the one by name counts. ``checkpoint`` saves
        this epoch if a checkpoint is due: a callable that writes into the folder passed to it, or the path of a file or
        folder to copy. After False, the function must return; its next report ends it by an exception of sweep.

        Raises TypeError if no metric is passed or a value is not a number, ValueError if a value is too large for a
        float or ``checkpoint`` is a path that does not exist, RuntimeError if the function has not read the checkpoint
        that it must continue from (`restored`) or calls this in a process that it has forked, and Incompatible if the
        file asks for folds and the function has not read `fold`. None of these counts as an epoch.
        """
        if os.getpid() != self._process:  # nobody would answer there
            raise RuntimeError(
                "report() is called in a process that the function has forked, expected in the trial's own process"
            )
        # an earlier report has returned False, or the trial was ended between two reports
        if self._must_end:
            raise _TrialOver
        values = {}
        for name, value in {**(metrics or {}), **more}.items():
            values[str(name)] = _convert_to_float(name, value)
        if not values:
            raise TypeError("report() got no metric, expected some by name, as in report(loss=0.5)")
        rate = _convert_if_given("learning_rate", learning_rate)
        speed = _convert_if_given("examples_per_s", examples_per_s)
        if not self._restored_read:
            raise RuntimeError(
                f"trial {self._assignment.trial} goes on after epoch {self.epoch}, and its function has not read "
                "report.restored, the folder that it saved its checkpoint into"
            )
        if not self._fold_read and self._fold is not None:
            raise Incompatible(UNREAD_FOLD.format(folds=self._fold.of), about=("folds",))
        if checkpoint is not None and not callable(checkpoint) and not Path(checkpoint).exists():
            raise ValueError(f"report(checkpoint={str(checkpoint)!r}): no such file or folder")
        self.epoch += 1
        self._last_checkpoint = checkpoint
        time_s = time.perf_counter() - self._since
        self._trained_s += time_s
        self._messages.put(
            EpochReported(
                trial=self._assignment.trial,
                epoch=self.epoch,
                metrics=values,
                time=time.time(),
                time_s=time_s,
                learning_rate=rate,
                examples_per_s=speed,
            )
        )
        self._must_end = not self._answers.get()  # waits for the decision
        self._since = time.perf_counter()  # waiting is no training time
        return not self._must_end

    def _wait_for_message(self) -> EpochReported | _End:
        """Wait for the next message of the function's thread, without a limit, and return it.

        It is a reported epoch or the end of the function. The wait is in short intervals, so that Ctrl-C is handled.
        """
        while True:
            try:
                return self._messages.get(timeout=_LISTEN_S)
            except Empty:
                continue

    def _report_returned(self, value: object) -> None:
        """Report ``value``, which the function returned without having reported: its metrics, or only the objective.

        A mapping is reported as one epoch's metrics, and any other value as the objective of one epoch. None, True and
        False are ignored, and so is a single value if the sweep has no objective. Waits as a report does. Raises
        TrainableError if it is a model, and the errors of a report, such as TypeError for a value that is not a number.
        """
        if callable(getattr(value, "fit", None)) and callable(getattr(value, "compile", None)):
            raise TrainableError(
                f"the function returned a model ({type(value).__name__}), expected its metrics. For a function that "
                "makes a model, as KerasTuner's do: python -m sweep init --from-hypermodel MODULE:NAME"
            )
        if isinstance(value, Mapping):
            self(value)
        elif self._objective and value is not None and not isinstance(value, bool):
            self({self._objective: value})  # type: ignore[dict-item]  # the call checks the type


class _End:
    """Message of the function's thread that the function has returned or raised; ``error`` is None if it returned."""

    def __init__(self, error: BaseException | None) -> None:
        self.error = error


class FunctionTrainable:
    """A `Trainable` that runs a function ``train(hp, report)`` in a thread."""

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self._takes_report = takes_report(function)
        self._assignment: Assignment | None = None
        self._reporter: Reporter | None = None
        self._waits_in_report = False  # whether the function is blocked in its report
        self._restored_folder: Path | None = None
        self._epoch = 0  # of the checkpoint in `_restored_folder`
        self._plateau = Plateau(
            maximize=False
        )  # epochs without a better objective, for `training.patience`
        self._started: float | None = None  # when the function was called, in seconds since 1970
        self._train_s = 0.0  # in the epochs reported since then
        self._before_s = 0.0  # trained before the checkpoint that the trial continues from
        self._number_read_before = False  # and whether `Reporter.trial` was read by then
        # Undoes between trials what the function changes in the author's modules.
        self._starting_values = StartingValues()

    @property
    def depends_on(self) -> object:
        """The function's attribute ``depends_on``, files besides its code that its results depend on, or None."""
        return getattr(self._function, "depends_on", None)

    @property
    def saves(self) -> bool:
        """Whether the function passed a checkpoint to its last report; False before its first report."""
        return self._reporter is not None and self._reporter._last_checkpoint is not None

    @property
    def splits(self) -> bool:
        """Whether the function has read `Reporter.accumulate`, which means that it can split its batches."""
        return self._reporter is not None and self._reporter._accumulate_read

    @property
    def holds_memory(self) -> bool:
        """False: sweep keeps nothing of a function between trials."""
        return False

    @property
    def training_read(self) -> frozenset[str]:
        """The keys of the file's ``training`` block that the function has read in this trial, and ``patience``.

        ``patience`` applies to all functions automatically.
        """
        if self._reporter is None:
            read = set()
        else:
            read = self._reporter.training_read
        return frozenset({"patience", *read})

    def begin(self, assignment: Assignment) -> None:
        """End the previous trial, undo its changes to the author's modules as far as possible, and begin a new trial.

        If the function of the previous trial waits in a report, this waits until it has ended. The function is not
        called yet; the first call of `train` does so.
        """
        self.end_trial()
        self._starting_values.begin_trial(
            lambda: namespaces.list_namespaces_of_function(self._function),
            key=self,  # the same for all trials, so the values before the first one stay the recorded ones
            make_listener=_make_listener,
            before_end=lambda: None,
        )
        self._plateau = Plateau(assignment.maximize)
        self._assignment = assignment
        self._reporter = None
        self._restored_folder = None
        self._epoch = 0
        self._started = None
        self._train_s = 0.0
        self._before_s = 0.0
        self._number_read_before = False

    def train(self, report: Report) -> None:
        """Run the function until it returns, or until ``report`` returns False; it then waits inside its report.

        A further call lets it continue there; after the function has ended, it would wait forever. Raises Stopped if
        the objective has not improved for ``training.patience`` epochs, RuntimeError if no
        trial has begun, and whatever the function or ``report`` raises.
        """
        reporter = self._reporter or self._start_function()
        self._check_patience()  # it may be exhausted already, in a trial that was restored
        if self._waits_in_report:
            self._waits_in_report = False
            reporter._answers.put(True)
        while isinstance(message := reporter._wait_for_message(), EpochReported):
            self._waits_in_report = True
            self._train_s += message.time_s
            self._count_epoch(message)
            if not report(message):
                return
            self._check_patience()
            self._waits_in_report = False
            reporter._answers.put(True)
        if message.error is not None:
            raise message.error

    def _count_epoch(self, epoch: EpochReported) -> None:
        """Count a reported epoch for ``training.patience``, unless it lacks the objective or the sweep has none."""
        if self._assignment is None or self._assignment.objective is None:
            return
        value = epoch.metrics.get(self._assignment.objective)
        if value is not None:
            self._plateau.count_epoch(value)

    def _check_patience(self) -> None:
        """Raise Stopped if the file has ``training.patience`` and as many epochs brought no better objective."""
        training = {} if self._assignment is None else self._assignment.training
        if is_exhausted(self._plateau, training):
            raise Stopped(
                f"no better objective in {self._plateau.waited} epochs (training.patience)"
            )

    def end_trial(self) -> str:
        """End the function if it waits in a report, by returning False to it, and wait until it has ended.

        Returns a line about the error that the function then raised, or "". If it does not wait in a report, its next
        report ends it, and this returns "" at once.
        """
        reporter = self._reporter
        if reporter is None:
            return ""
        # it has ended, or runs on after an interruption: nothing waits for an answer
        if not self._waits_in_report:
            reporter._must_end = True
            return ""
        self._waits_in_report = False
        reporter._answers.put(False)
        message = reporter._wait_for_message()
        if isinstance(message, _End):  # always: after False, a further report sends no message
            error = message.error
        else:
            error = None
        if error is None:
            return ""
        return f"its function raised {type(error).__name__} when it was told to end: {error}"

    def save(self, folder: Path) -> None:
        """Write the checkpoint of the last report into the existing ``folder``, with a file about the trial's progress.

        Raises RuntimeError if there is no report or it had no checkpoint, and the errors of copying, of writing or of
        the function's own callable.
        """
        reporter = self._reporter
        if reporter is None or reporter._last_checkpoint is None:
            raise RuntimeError("the function has given no checkpoint for this epoch")
        checkpoint = reporter._last_checkpoint
        if callable(checkpoint):
            checkpoint(folder)
        elif Path(checkpoint).is_dir():
            shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
        else:
            shutil.copy2(checkpoint, folder)
        about: dict[str, object] = {"epoch": reporter.epoch, "waited": self._plateau.state()}
        if self._has_read_number():
            about["by_number"] = True
        if (
            reporter.minutes is not None
        ):  # without a limit, the epochs alone tell how far the trial is
            about["trained_s"] = self._before_s + self._train_s
        (folder / _ABOUT).write_text(json.dumps(about))

    def restore(self, folder: Path) -> int:
        """Make the checkpoint in ``folder`` available as `Reporter.restored`; return the epoch in which it was saved.

        The counts of ``training.patience`` and of the minutes continue from the checkpoint. Called after `begin` and
        before `train`. ``folder`` must stay until the function has read it. Raises OSError, ValueError or KeyError if
        its file about the trial's progress is missing or damaged.
        """
        self._restored_folder = folder
        about = json.loads((folder / _ABOUT).read_text())
        self._epoch = int(about["epoch"])
        self._number_read_before = bool(about.get("by_number"))
        # Checkpoints of earlier releases lack these two.
        self._before_s = float(about.get("trained_s", 0.0))
        if "waited" in about:
            self._plateau.restore(about["waited"])
        return self._epoch

    def facts(self) -> Facts:
        """Return facts about the trial: node, devices, training time, and whether it is reproducible.

        The training time is that of the epochs reported since `begin`, without those before a restored checkpoint. The
        data's fingerprint is the function's attribute ``data`` if that is a text, together with ``training.data_seed``
        if the file has one, by which the function may load its data; otherwise it is None. The trial is not
        reproducible if the author's modules are known to differ in a repetition, as after random draws at their import.
        """
        assignment = self._assignment
        devices = "cpu"
        if assignment is not None and assignment.devices.real_gpus:
            # the variable lists those that this process may use
            visible_gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
            if visible_gpus:
                devices = ",".join(f"gpu:{number}" for number in visible_gpus.split(","))
        data = getattr(self._function, "data", None)
        if isinstance(data, str) and assignment is not None:
            seed = assignment.training.get("data_seed")
            if seed is not None:
                data = f"{data}; data_seed {seed}"
        # what makes the trial differ when it is repeated; "" if nothing is known
        differs = self_changing.describe()
        if not differs and assignment is not None:
            differs = imports.explain_import_difference(assignment.data_seed)
        return Facts(
            data=data if isinstance(data, str) else None,
            data_reads="{}",  # no parameters: the attribute is the same for all trials
            started=self._started,
            node=socket.gethostname(),
            devices=devices,
            train_s=self._train_s,
            numerics={"differs": differs} if differs else {},
            reproducible=not differs,
            by_number=self._has_read_number(),
        )

    def _has_read_number(self) -> bool:
        """Return whether the function has read `Reporter.trial` in this trial, now or before a restored checkpoint."""
        if self._number_read_before:
            return True
        return self._reporter is not None and self._reporter._number_read

    def _start_function(self) -> Reporter:
        """Seed the global random generators, and start the function in a new thread; return its reporter at once.

        The reporter is kept in ``_reporter``. Raises RuntimeError if no trial has begun.
        """
        assignment = self._assignment
        if assignment is None:
            raise RuntimeError("no trial has begun")
        self._started = time.time()
        _seed_generators(assignment.seed)
        reporter = self._reporter = Reporter(
            assignment, self._restored_folder, self._epoch, self._before_s
        )
        hp = Hyperparameters(assignment.params)
        hp.set_lengths(epochs=assignment.epochs if assignment.counts_epochs else None)
        call_arguments: tuple[object, ...] = (hp, reporter) if self._takes_report else (hp,)

        def run_function() -> None:
            """Call the function, and report what it returned if it has reported nothing and was not told to end.

            Then put its end, or the error that it raised, into the messages of the reporter. A process that the
            function has forked, and in which it returns or raises as well, ends here.
            """
            process = os.getpid()
            error: BaseException | None = None
            try:
                returned = self._function(*call_arguments)
                is_child = os.getpid() != process
                has_reported = reporter.epoch != self._epoch
                if not has_reported and not reporter._must_end and not is_child:
                    reporter._report_returned(returned)
            except _TrialOver:  # it has reported again after False, and is ended by this
                pass
            except BaseException as caught:  # `train` raises it again
                error = caught
            if os.getpid() != process:
                _end_child(error)
            reporter._messages.put(_End(error))

        # a daemon, because a function that never returns must not keep the process from ending
        threading.Thread(target=run_function, name=f"trial-{assignment.trial}", daemon=True).start()
        return reporter


def _end_child(error: BaseException | None) -> NoReturn:
    """End this process, which a function has forked, as if the function were its main program.

    ``error`` is what the function raised, or None. It is printed, and the exit code is 1; for SystemExit, it is that of
    the error, and only a message is printed. Without an error, the exit code is 0. The process ends by `os._exit`:
    libraries such as Ray, whose threads it lacks, would wait for them in a normal exit.
    """
    code = 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        code = error.code or 0
    elif error is not None:
        code = 1
        with suppress(Exception):  # standard error may not be writable
            if isinstance(error, SystemExit):
                sys.stderr.write(f"{error.code}\n")
            else:
                traceback.print_exception(error)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 0xFF)


def _make_listener(recorded: RecordedValues) -> imports.Listener:
    """Return a function of a module, to be called after its import, that adds its starting values to ``recorded``."""
    return lambda module: recorded.record(namespaces.list_namespaces_of_module(module))


def takes_report(function: Callable[..., object]) -> bool:
    """Return whether a function can be called with two arguments, ``(hp, report)``; False if only with one, ``(hp)``.

    Return True if its signature is unknown. Raises TrainableError if it can be called with neither.
    """
    name = getattr(function, "__name__", repr(function))
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # the signature of a compiled function may be unknown
        return True
    for given in ((None, None), (None,)):  # `bind` checks arguments without calling the function
        try:
            signature.bind(*given)
        except TypeError:
            continue
        return len(given) == 2
    taken = ", ".join(signature.parameters)
    raise TrainableError(f"{name}({taken}) cannot be called as {name}(hp, report)")


def _convert_if_given(name: str, value: Any) -> float | None:
    """Return ``value`` as a float, or None if it is None. Raises the errors of `_convert_to_float`."""
    if value is None:
        return None
    return _convert_to_float(name, value)


def _convert_to_float(name: object, value: Any) -> float:
    """Convert a number of any library to a float; NaN, infinities and booleans are accepted, texts are not.

    Raises TypeError for anything else, and ValueError for a whole number too large for a float; both name the metric
    ``name``.
    """
    try:
        if isinstance(value, str | bytes):  # float("0.5") would be accepted
            raise TypeError
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
        raise TypeError(
            f"report(): {name} is {shortened(repr(value), 200)}, expected a number"
        ) from None
    except OverflowError:  # an integer; its digits may be more than Python prints
        raise ValueError(
            f"report(): {name} is too large for a float, expected a number up to 1.8e308"
        ) from None


def _seed_generators(seed: int) -> None:
    """Seed the global generators of random and, if they have been imported, of NumPy and torch."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)


TRAINABLE_METHODS = ("begin", "train", "save", "restore", "facts")
RANKED_METHODS = ("join", "leave")  # of `sweep.contract.Ranked`


def load_trainable(
    trainable: str, folders: Sequence[Path], given: object = None, *, seed: int = 0
) -> Callable[[], Trainable]:
    """Import the class or function ``module:Name``; return a callable without arguments that creates trainables of it.

    ``folders`` are put at the front of the import path. ``seed`` determines the random numbers that modules draw while
    they are imported. ``given`` is the class or function itself if no module contains it; then ``trainable`` only names
    it, and nothing is imported.

    From then on, the package of the class or function counts as the author's, what the author's code reads is recorded
    if something was imported, and garbage is collected as usual (`garbage.collect_as_usual`). Raises TrainableError as
    `make_trainable_factory` does, or if this process has imported another module of that name, and whatever else the
    import raises.
    """
    garbage.collect_as_usual()  # models are about to be made in this process
    make_importable(folders)
    # before the import, which is seeded for it
    imports.treat_as_author_package(trainable.partition(":")[0])
    with imports.seed_imports(seed):
        if given is None:
            loaded = _import_target(trainable, folders)
        else:
            loaded = given
        # the module may only import the class from the one that defines it
        note_trainable(str(getattr(loaded, "__module__", trainable.partition(":")[0])))
        return make_trainable_factory(loaded, trainable)


def make_trainable_factory(target: object, name: str) -> Callable[[], Trainable]:
    """Return a callable without arguments that creates trainables of a class or function; ``name`` is for messages.

    If a class has ``__trainable__``, that is called with an instance of the class, and makes the trainable. Raises
    TrainableError if ``target`` is something else, a class that lacks methods of `Trainable`, or a function that cannot
    be called with ``(hp, report)`` or ``(hp)``.
    """
    if not isinstance(target, type):
        if not callable(target):
            raise TrainableError(
                f"{name} is {shortened(repr(target), 100)}, expected a class or a function"
            )
        takes_report(target)  # only to raise TrainableError; the trainable asks again
        return partial(FunctionTrainable, target)
    missing = list_missing_methods(target)
    if missing:
        raise TrainableError(
            f"{name} lacks the methods {', '.join(missing)} of sweep.contract.Trainable; "
            "derive it from trainables.keras_trainable.KerasTrainable"
        )
    make_trainable = getattr(target, "__trainable__", None)
    if make_trainable is None:
        return cast(type[Trainable], target)
    return lambda: cast(Trainable, make_trainable(target()))


def list_missing_methods(kind: type) -> list[str]:
    """Return the names of the methods of `Trainable` that a class lacks; [] if its ``__trainable__`` is callable."""
    if callable(getattr(kind, "__trainable__", None)):
        return []
    missing = []
    for method in TRAINABLE_METHODS:
        if not callable(getattr(kind, method, None)):
            missing.append(method)
    return missing


def offers_method(
    method: str, trainable: str, folders: Sequence[Path], given: object = None, *, seed: int = 0
) -> bool:
    """Return whether trainables have the optional method ``method`` of the contract, without creating a trainable.

    Also returns True if only a trainable itself could show it. The other arguments are those of `load_trainable`, and
    the module is imported as there. It stays imported, so ``seed`` must be the one that `load_trainable` gets later.
    Raises whatever the import raises, and TrainableError if this process has another module of that name.
    """
    make_importable(folders)
    imports.treat_as_author_package(trainable.partition(":")[0])
    with imports.seed_imports(seed):
        if given is None:
            loaded = _import_target(trainable, folders)
        else:
            loaded = given
    kind = getattr(loaded, "__trainable__", loaded)
    if kind is not loaded and not isinstance(kind, type):
        # `__trainable__` is a function: what it returns is not known without calling it
        return True
    return callable(getattr(kind, method, None))


def load_extension(
    target: str, folders: Sequence[Path], where: str, methods: Iterable[str], contract: str
) -> Any:
    """Import and return the searcher, scheduler or the like that a sweep file names as ``module:Name``.

    ``folders`` are put at the front of the import path. Raises InputError if it cannot be imported or called, or is a
    class that lacks one of ``methods``; what a function returns is not checked. ``where`` is the key of the file and
    ``contract`` the name of the required interface, both for the message.
    """
    found = import_target(target, folders, where)
    missing = []
    for method in methods:
        if not hasattr(found, method):
            missing.append(method)
    # a function may lack the methods, because what it returns is to have them
    if not callable(found) or (isinstance(found, type) and missing):
        if missing:
            what = f"lacks {', '.join(missing)}"
        else:
            what = "cannot be called"
        raise InputError.one(
            where, f"{target} {what}", f"expected a class with all of {contract}: docs/extending.md"
        )
    return found


def import_target(target: str, folders: Sequence[Path], where: str) -> Any:
    """Import ``module:Name`` and return the object, after putting ``folders`` at the front of the import path.

    Raises InputError about ``where``, a key of the sweep file, if that fails for any reason.
    """
    try:
        make_importable(folders)
        return _import_target(target, folders)
    except Exception as error:  # the user's code may raise anything while it is imported
        raise InputError.one(where, f"{target} cannot be imported: {in_short(error)}") from error


def make_importable(folders: Iterable[Path]) -> None:
    """Put ``folders`` at the front of ``sys.path``, in their order, and remove them further behind.

    `inspection` searches them in the same order.
    """
    front = list(dict.fromkeys(map(str, folders)))
    if sys.path[: len(front)] != front:
        sys.path[:] = [*front, *(entry for entry in sys.path if entry not in front)]


def _import_target(target: str, folders: Sequence[Path]) -> Any:
    """Import ``module:Name`` and return the object; from now on, the recorder records what the author's code reads.

    ``folders`` must be on the import path. Raises whatever the import raises, AttributeError if the module lacks the
    name, or TrainableError if this process has another module of that name.
    """
    recorder.resume()
    module, _, name = target.partition(":")
    loaded = importlib.import_module(module)
    _refuse_other_module(module, folders)
    return getattr(loaded, name)


def _refuse_other_module(module: str, folders: Sequence[Path]) -> None:
    """Raise TrainableError if a loaded module is not the one that is found in ``folders``, if any is.

    This process has then imported another one of that name before, for another sweep or as a part of Python. Of a
    module in a package, only the outermost package is compared. One without a file is not compared.
    """
    name = module.partition(".")[0]
    loaded = getattr(sys.modules[name], "__file__", None)
    found = importlib.machinery.PathFinder.find_spec(name, list(map(str, folders)))
    if loaded is None or found is None or found.origin is None:  # no file of one of them is known
        return
    if Path(loaded).resolve() != Path(found.origin).resolve():
        raise TrainableError(
            f"this process has imported {name} from {loaded}, and so cannot import {found.origin}; "
            "rename one of them, or run the sweep in another process"
        )
