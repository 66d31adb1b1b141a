"""Sweeps as studies of Optuna: its importances, plots and samplers then work on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sweep.analysis.trials import Sweep, of_tables, varying
from sweep.errors import InputError
from sweep.events import Params, Status, Value
from sweep.searchers.optuna_study import Told, study
from sweep.space.domains import Domain, Tied, choices
from sweep.space.space import Space
from sweep.spec import parse
from sweep.store.folder import ResultsFolder
from sweep.store.sweep_info import Objectives

if TYPE_CHECKING:
    from optuna.study import Study

    from sweep.store.tables import Tables


def of(folder: ResultsFolder) -> Study:
    """The study of a sweep as its log stands now. Raises `StoreError`, and `InputError` without an objective."""
    from sweep.store import reading

    (first, _), *_ = objectives(folder)
    return of_read(folder, reading.read(folder, ["trial", "epoch", f"metric.{first}"]))


def of_read(folder: ResultsFolder, read: Tables) -> Study:
    """The study of a sweep of which the tables have been read: the trials, and of the metrics the first objective.

    A trial of the sweep is a trial of the study, repeats of a configuration each by itself. Its user attributes hold
    its number, repeat and seed in the sweep, its status with the reason, what else it reported last (``metric.NAME``)
    and parameters that follow from others (``param.NAME``). Interrupted trials are WAITING.
    """
    sweep = of_tables(folder, read)
    space = space_of(folder)
    return study(
        folder.name,
        objectives(folder),
        searched(space, [trial.params for trial in sweep.trials]),
        told(sweep, read, space),
        alive=folder.is_running(),
    )


def objectives(folder: ResultsFolder) -> Objectives:
    """The objectives of a sweep. Raises `InputError` where it has none: a study has one at least."""
    found = folder.objectives()
    if not found:
        raise InputError.one(str(folder.info), "names no objective, and a study has one at least")
    return found


def space_of(folder: ResultsFolder) -> Space | None:
    """The space that a sweep searches; None where its sweep.json holds no sweep file. Raises `InputError`."""
    info = folder.read_info()
    return parse(info.spec_text, str(folder.info)).space if "parameters" in info.spec else None


def searched(space: Space | None, seen: Sequence[Params]) -> dict[str, Domain | None]:
    """The parameters that are searched, with their domains; where the space is not known, those that vary."""
    if space is None:
        return dict.fromkeys(varying(seen))
    return {parameter.name: parameter.domain for parameter in space.parameters if parameter.drawn}


def told(sweep: Sweep, read: Tables, space: Space | None) -> Iterator[Told]:
    """The trials of a sweep as its study is told of them, by number."""
    from sweep.store import reading

    by_epoch = _by_epoch(read, sweep.objectives[0][0])
    times = reading.columns(read.trials, ("started_at", "ended_at"))
    for trial, started, ended in zip(sweep.trials, *times.values(), strict=True):
        params = with_nulls(space, trial.params)
        yield Told(
            params=params,
            status=Status(trial.status),
            reason=trial.status_reason,
            started=started.timestamp(),
            ended=None if ended is None else ended.timestamp(),
            metrics=trial.metrics,
            epochs=trial.epochs,
            by_epoch=by_epoch.get(trial.trial, {}),
            notes=notes(space, trial.trial, trial.trial_id, trial.repeat, trial.seed, params),
        )


def notes(space: Space | None, trial: int, trial_id: str, repeat: int, seed: int, params: Params) -> dict[str, Value]:
    """What tells a trial apart, and the parameters that follow from others (``param.NAME``)."""
    tied = () if space is None else (p.name for p in space.parameters if isinstance(p.domain, Tied))
    follows: dict[str, Value] = {f"param.{name}": params[name] for name in tied if name in params}
    return {"trial": trial, "trial_id": trial_id, "repeat": repeat, "seed": seed, **follows}


def with_nulls(space: Space | None, params: Params) -> Params:
    """Parameters out of a table, where one that is null is absent, with those whose value is None."""
    nullable = [] if space is None else [p for p in space.parameters if None in (choices(p.domain) or ())]
    absent = [parameter for parameter in nullable if parameter.name not in params]
    found = dict(params)
    for parameter in absent:
        if parameter.applies(found):
            found[parameter.name] = None
    return found


def _by_epoch(read: Tables, objective: str) -> Mapping[int, dict[int, float]]:
    found = defaultdict[int, dict[int, float]](dict)
    name = f"metric.{objective}"
    if name in read.metrics.column_names:
        columns = (read.metrics[column].to_pylist() for column in ("trial", "epoch", name))
        for trial, epoch, value in zip(*columns, strict=True):
            if value is not None:
                found[trial][epoch] = value
    return found
