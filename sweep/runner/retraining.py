"""Makes a new sweep that trains a configuration of another sweep again at full length, with one or several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweep.errors import InputError
from sweep.events import Params, Value
from sweep.inspection import KERAS_TRAINABLE, Source
from sweep.runner import restoring
from sweep.runner.resuming import ResumableSweep, reopen
from sweep.space.expressions import Expression
from sweep.spec import Spec, parse_spec, resolved
from sweep.spec.sweep_file import MAX_EPOCHS
from sweep.store.folder import ResultsFolder, free_name

LONGEST = 80  # longest part of the original sweep's name in the new name
UNTOLD = "no data is held out: {} is measured on training examples and says nothing about new ones"


@dataclass(frozen=True, slots=True)
class Retraining:
    """A new sweep that trains a configuration again, and the sweep and trial that the configuration is from."""

    spec: Spec
    text: str  # its sweep file
    sweep: ResumableSweep  # the original sweep
    trial: int
    origin: dict[str, object]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrainingOptions:
    """Options of a retraining."""

    trial: int | None = None  # None: the first trial of the best configuration
    epochs: int | None = None  # None: as many as the trial
    seeds: int = 1  # starting with the trial's own seed
    all_data: bool = False  # hold no data out
    name: str | None = None  # of the new sweep
    assignments: Sequence[str] = ()  # changes to keys of its file


def prepare_retraining(folder: ResultsFolder, wanted: RetrainingOptions) -> Retraining:
    """Return a new sweep that trains the configuration of a trial, or the best one, again; nothing is written.

    Its seeds begin with the trial's own. Without a trial, the first trial of the best configuration that completed is
    taken. Targets are left out, so that none ends a trial early; with ``all_data``, so is what needs held-out data. The
    assignments of ``wanted`` are applied to the spec, but are not in the text of the sweep file. Without a name, a free
    one is made from that of the original sweep.

    Raises:
        InputError: if the trial is unknown, is a copy in a population, or cannot be trained again as asked; if the
            assignments have mistakes; without a trial, if none has completed or there is no single best configuration.
        StoreError: if the log is missing or damaged, or sweep.json is.
    """
    sweep = reopen(folder.path.parent, str(folder.path))
    trial = wanted.trial
    epochs = wanted.epochs
    seeds = wanted.seeds
    all_data = wanted.all_data
    if trial is None:
        # of the best configuration's trials, the one with the first seed
        trial = min(one.trial for one in restoring.find_best_configuration(folder))
    state, _ = restoring.history(folder, trial)
    started = state.start
    if started.parent is not None:  # in a population, it began as a copy of that trial
        what = f"is a copy: trial {started.parent} has trained its first {started.parent_epoch} epochs otherwise"
        hint = f"its model is there: python -m sweep best {folder.address} --trial {trial} --export keras"
        raise InputError.one(f"{folder.name}, trial {trial}", what, hint)
    if epochs is not None and epochs > MAX_EPOCHS:
        raise InputError.one("--epochs", f"{epochs:,}, expected at most {MAX_EPOCHS:,}")
    name = wanted.name or free_name(folder.path.parent, f"{folder.name[:LONGEST]}-retrain")
    keys = resolved.make_trial_file(sweep.spec, started.params, started.seed, name)
    length = _set_length(keys, sweep.spec, started.params, epochs)
    if seeds > 1:
        keys["repeats"] = seeds  # the seeds that follow the trial's own
    keys["description"] = f"Trial {trial} of {folder.name}, trained again for {length}"
    for metric in _list_metrics(keys):
        metric.pop("target", None)  # a target would end a trial early
    if all_data:
        _check_all_data(sweep, started.params, wanted.assignments)
        _hold_nothing_out(keys, sweep.spec.constraints)
    times = "once" if seeds == 1 else f"with {seeds} seeds"
    comments = [f"Trial {trial} of the sweep {folder.name}, trained again for {length}, {times}."]
    if all_data:
        comments.append("Trained on all data: no data is held out.")
    text = resolved.format_sweep_file(keys, comments)
    spec = parse_spec(text, "retrain", wanted.assignments)
    origin: dict[str, object] = {
        "command": "retrain",
        "sweep": folder.name,
        "folder": str(folder.path.absolute()) if folder.store is None else folder.place,
        "trial": trial,
        # of the new sweep, in which an assignment may have set it
        "all_data": bool(spec.training.get("all_data")),
    }
    return Retraining(spec, text, sweep, trial, origin, _list_notes(spec, sweep.spec))


def _list_notes(spec: Spec, original: Spec) -> tuple[str, ...]:
    """Return notes for the user on what differs in the new sweep ``spec`` from the ``original`` one, or may surprise.

    They say that no data is held out, which constraints are left out, and that `training.patience` may end trials.
    """
    notes = []
    if spec.training.get("all_data"):
        notes.append(UNTOLD.format(spec.objectives[0].name))
    if left := [one.text for one in original.constraints if one not in spec.constraints]:
        notes.append(f"nothing is held out to measure {', '.join(left)} on: left out")
    if patience := spec.training.get("patience"):
        notes.append(
            f"training.patience {patience} of the sweep still ends a trial that gets no better"
        )
    return tuple(notes)


def _set_length(keys: dict[str, Value], spec: Spec, params: Params, epochs: int | None) -> str:
    """Set the length of trials in the keys of a new sweep file; return it in words, such as ``30 epochs``.

    If ``epochs`` is None, it is the length of the trial with ``params`` in the sweep ``spec``; if only minutes end that
    trial, ``keys`` has them already and is not changed. If ``epochs`` is given, the key `minutes` is removed.
    """
    if epochs is not None:
        keys.pop("minutes", None)
    elif spec.counts_epochs:
        epochs = spec.trial_epochs(params)
    else:  # only minutes end its trials, and `keys` has them
        return f"{spec.minutes:g} minutes"
    keys |= _make_length_keys(params, epochs, keys)
    return f"{epochs} epochs"


def _make_length_keys(params: Params, epochs: int, keys: dict[str, Value]) -> dict[str, Value]:
    """Return a dictionary of the one top-level key of a sweep file that sets the epochs, with its value.

    This is ``epochs`` or, if ``params``, the trial's parameters, has that name, ``parameters`` with a constant in its
    place and all other parameters as in ``keys``, which is not changed.
    """
    if "epochs" not in params:
        return {"epochs": epochs}
    parameters = keys["parameters"]
    return {
        "parameters": {
            **(parameters if isinstance(parameters, dict) else {}),
            "epochs": {"value": epochs},
        }
    }


def _check_all_data(sweep: ResumableSweep, params: Params, assignments: Sequence[str]) -> None:
    """Raise `InputError` if the sweep has `training.patience`, or the trial an ``lr_schedule`` of plateau.

    ``params`` are the trial's. Both need validation data. `training.patience` is not refused if one of ``assignments``,
    such as ``training.patience=null``, sets it to any value.
    """
    name = sweep.spec.objectives[0].name
    reason = f"it watches {name}, and with --all-data no data is held out"
    is_set_anew = any(one.partition("=")[0] == "training.patience" for one in assignments)
    if sweep.spec.training.get("patience") is not None and not is_set_anew:
        hint = "retrain without --all-data, or give --epochs and --set training.patience=null"
        raise InputError.one("--all-data", f"the sweep has training.patience: {reason}", hint)
    if params.get("lr_schedule") == "plateau":
        raise InputError.one(
            "--all-data",
            f"the trial has lr_schedule plateau: {reason}",
            "retrain without --all-data",
        )


def check_joins(source: Source) -> None:
    """Raise `InputError` unless the trainable is certainly a `KerasTrainable`, which can join its two parts of data."""
    if not source.derives_from(KERAS_TRAINABLE):
        what = f"{source.trainable} is not a KerasTrainable, so sweep cannot join its training and validation data"
        raise InputError.one("--all-data", what, "add a parameter that makes it train on all data")


def _hold_nothing_out(keys: dict[str, Value], constraints: Sequence[Expression]) -> None:
    """Set `training.all_data` in the keys of a sweep file, and change them so that nothing needs held-out data.

    Metrics lose their prefix ``val_``, and constraints over metrics with that prefix are removed. ``constraints`` are
    those of the file.
    """
    kept: list[Value] = []
    for constraint in constraints:
        if not any(name.startswith("val_") for name in constraint.names):
            kept.append(constraint.text)
    keys["constraints"] = kept
    training = keys.get("training")
    keys["training"] = {**(training if isinstance(training, dict) else {}), "all_data": True}
    for metric in _list_metrics(keys):
        metric["name"] = str(metric["name"]).removeprefix("val_")


def _list_metrics(keys: dict[str, Value]) -> list[dict[str, Value]]:
    """Return the metrics under the keys `metric` and `metrics` of a sweep file: the dicts themselves, not copies.

    That of `metric` comes first. A key that is missing adds nothing.
    """
    several = keys.get("metrics")
    found = [keys.get("metric"), *(several if isinstance(several, list) else [])]
    return [metric for metric in found if isinstance(metric, dict)]
