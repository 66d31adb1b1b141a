"""A configuration of a sweep at full length: a sweep of its own, with several seeds and nothing that ends it early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweep.errors import InputError
from sweep.events import Params, Value
from sweep.inspection import KERAS_TRAINABLE, Source
from sweep.runner import restoring
from sweep.runner.resuming import Reopened, reopen
from sweep.space.expressions import Expression
from sweep.spec import Spec, parse, resolved
from sweep.spec.sweep_file import MAX_EPOCHS
from sweep.store.folder import ResultsFolder, free_name

LONGEST = 80  # characters that the name of the sweep before has in that of this one
UNTOLD = "no data is held out: {} is measured on training examples and says nothing about new ones"


@dataclass(frozen=True, slots=True)
class Retraining:
    """A sweep that can be run, and where it comes from."""

    spec: Spec
    text: str  # its file
    sweep: Reopened  # the one that it is made of
    trial: int
    origin: dict[str, object]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be trained again, and how."""

    trial: int | None = None  # None: the first of the best configuration
    epochs: int | None = None  # None: the trial's
    seeds: int = 1  # counted on from the trial's own
    all_data: bool = False  # nothing is held out
    name: str | None = None  # of the new sweep
    assignments: Sequence[str] = ()  # changes to keys of its file


def prepare(folder: ResultsFolder, wanted: Wanted) -> Retraining:
    """Return the sweep file of a trial, or of the best configuration, at another length. Raises `InputError`."""
    sweep = reopen(folder.path.parent, str(folder.path))
    trial, epochs, seeds, all_data = wanted.trial, wanted.epochs, wanted.seeds, wanted.all_data
    if trial is None:
        trial = min(one.trial for one in restoring.best_configuration(folder))
    state, _ = restoring.history(folder, trial)
    started = state.start
    if started.parent is not None:
        what = f"is a copy: trial {started.parent} has trained its first {started.parent_epoch} epochs otherwise"
        hint = f"its model is there: python -m sweep best {folder.name} --trial {trial} --export keras"
        raise InputError.one(f"{folder.name}, trial {trial}", what, hint)
    length = sweep.spec.trial_epochs(started.params) if epochs is None else epochs
    if length > MAX_EPOCHS:
        raise InputError.one("--epochs", f"{length:,}, expected at most {MAX_EPOCHS:,}")
    name = wanted.name or free_name(folder.path.parent, f"{folder.name[:LONGEST]}-retrain")
    keys = resolved.trial_file(sweep.spec, started.params, started.seed, name)
    keys |= _lengthened(started.params, length, keys)
    keys |= {"repeats": seeds} if seeds > 1 else {}
    keys["description"] = f"Trial {trial} of {folder.name}, trained again for {length} epochs"
    for metric in _metrics(keys):
        metric.pop("target", None)  # it would end a trial early
    if all_data:
        _check_all_data(sweep, started.params, wanted.assignments)
        _hold_nothing_out(keys, sweep.spec.constraints)
    times = "once" if seeds == 1 else f"with {seeds} seeds"
    comments = [f"Trial {trial} of the sweep {folder.name}, trained again for {length} epochs, {times}."]
    comments += ["Trained on all data: no data is held out."] if all_data else []
    text = resolved.file_text(keys, comments)
    spec = parse(text, "retrain", wanted.assignments)
    origin: dict[str, object] = {
        "command": "retrain",
        "sweep": folder.name,
        "folder": str(folder.path.absolute()) if folder.store is None else folder.place,
        "trial": trial,
        "all_data": bool(spec.training.get("all_data")),
    }
    notes = [UNTOLD.format(spec.objectives[0].name)] if origin["all_data"] else []
    if left := [one.text for one in sweep.spec.constraints if one not in spec.constraints]:
        notes.append(f"nothing is held out to measure {', '.join(left)} on: left out")
    if patience := spec.training.get("patience"):
        notes.append(f"training.patience {patience} of the sweep still ends a trial that gets no better")
    return Retraining(spec, text, sweep, trial, origin, tuple(notes))


def _lengthened(params: Params, epochs: int, keys: dict[str, Value]) -> dict[str, Value]:
    if "epochs" not in params:
        return {"epochs": epochs}
    parameters = keys["parameters"]
    return {"parameters": {**(parameters if isinstance(parameters, dict) else {}), "epochs": {"value": epochs}}}


def _check_all_data(sweep: Reopened, params: Params, assignments: Sequence[str]) -> None:
    """Raise `InputError` where something waits for a validation that there will not be."""
    name = sweep.spec.objectives[0].name
    reason = f"it watches {name}, and with --all-data no data is held out"
    is_lifted = any(one.partition("=")[0] == "training.patience" for one in assignments)
    if sweep.spec.training.get("patience") is not None and not is_lifted:
        hint = "retrain without --all-data, or give --epochs and --set training.patience=null"
        raise InputError.one("--all-data", f"the sweep has training.patience: {reason}", hint)
    if params.get("lr_schedule") == "plateau":
        raise InputError.one("--all-data", f"the trial has lr_schedule plateau: {reason}", "retrain without --all-data")


def check_joins(source: Source) -> None:
    """Raise `InputError` for a trainable that no loop of ours trains: it would leave its validation data out."""
    if not source.derives_from(KERAS_TRAINABLE):
        what = f"{source.trainable} is not a KerasTrainable, so sweep cannot join its training and validation data"
        raise InputError.one("--all-data", what, "add a parameter that makes it train on all data")


def _hold_nothing_out(keys: dict[str, Value], constraints: Sequence[Expression]) -> None:
    """Train on all data; what was measured on held-out data is measured on that, and nothing constrains it."""
    keys["constraints"] = [one.text for one in constraints if not any(name.startswith("val_") for name in one.names)]
    training = keys.get("training")
    keys["training"] = {**(training if isinstance(training, dict) else {}), "all_data": True}
    for metric in _metrics(keys):
        metric["name"] = str(metric["name"]).removeprefix("val_")


def _metrics(keys: dict[str, Value]) -> list[dict[str, Value]]:
    """Return the metrics of a file as they lie in it."""
    several = keys.get("metrics")
    found = [keys.get("metric"), *(several if isinstance(several, list) else [])]
    return [metric for metric in found if isinstance(metric, dict)]
