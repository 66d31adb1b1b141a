"""`LoadedSweep`: the results of one or more sweeps as frames, ranking, study or model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

import pandas as pd

from sweep.analysis import Sweep, lineage_of, make_sweep
from sweep.analysis.ranking import Ranking, make_columns, rank
from sweep.api.display import html, line
from sweep.errors import InputError
from sweep.spec import yaml_reader
from sweep.store.columns import NOT_MEASURED
from sweep.store.folder import ResultsFolder, name_uniquely
from sweep.store.log import read_output
from sweep.store.tables import Tables, make_param_array
from sweep.text import guess

if TYPE_CHECKING:
    from optuna.study import Study

    from sweep.api.running import How, Settings

Frame: TypeAlias = pd.DataFrame


def _convert_as_in_trials(values: Sequence[object], sweeps: Sequence[str | None]) -> pd.Series[Any]:
    """Convert the values of a parameter to the types that they have in the frame ``trials``.

    ``sweeps`` has the name of the sweep of each value. The values of one sweep become JSON texts if they have no common
    type. The result is in the order of ``values`` and is numbered from 0.
    """
    positions: dict[str | None, list[int]] = {}  # of the values of each sweep
    for position, name in enumerate(sweeps):
        positions.setdefault(name, []).append(position)
    if not positions:
        return pd.Series(dtype="object")
    # each sweep is converted alone, because its own values decide on the type
    frames = []
    for of_sweep in positions.values():
        column, _ = make_param_array([values[position] for position in of_sweep])
        frames.append(pd.DataFrame({"value": column.to_pandas()}))
    order = [position for of_sweep in positions.values() for position in of_sweep]
    return join_frames(frames)["value"].set_axis(order).sort_index()


def join_frames(frames: Sequence[Frame]) -> Frame:
    """Join the frames of several sweeps, at least one; True and False stay what they are beside numbers.

    Rows are in the order of ``frames`` and are numbered again. Columns that a frame lacks have missing values in its
    rows, which turn whole numbers into floats. A single frame is returned itself, not a copy.
    """
    if len(frames) == 1:
        return frames[0]
    # pd.concat turns True into 1 if another frame's column has integers.
    kept = [
        one.astype(dict.fromkeys(one.columns[one.dtypes == "bool"], "object")) for one in frames
    ]
    return pd.concat(kept, ignore_index=True).infer_objects()


def curves_frame(of_trials: Frame, of_epochs: Frame, metric: str) -> Frame:
    """Return one metric with a row per epoch, from 1, and a column per trial, in the order of ``of_trials``.

    ``of_trials`` and ``of_epochs`` are the frames `trials` and `metrics` of a `LoadedSweep` with a column ``sweep``.
    ``metric`` is the name of a metric or of a measure, with or without ``metric.`` in front. The columns of several
    sweeps are pairs of sweep and trial. Values are NaN after a trial's last epoch; trials without epochs have a column,
    too. There are no rows if ``of_epochs`` has none. Raises InputError, which names the known metrics, if no trial has
    reported this one.
    """
    measured = [name for name in of_epochs.columns if name not in NOT_MEASURED]
    known = {name.removeprefix("metric."): name for name in measured}
    # A metric takes precedence over a measure of the same name, such as the cost.
    known |= {name.removeprefix("metric."): name for name in measured if name.startswith("metric.")}
    column = known.get(metric.removeprefix("metric."))
    if column is None:
        hint = f"{guess(metric, known)} there are: {', '.join(known)}".lstrip()
        raise InputError.one("curves", f"no trial has reported {metric!r}", hint)
    by = ["sweep", "trial"] if of_trials["sweep"].nunique() > 1 else "trial"
    wide = of_epochs.pivot(index="epoch", columns=by, values=column)
    # the pivot lacks trials without epochs, and epochs that no trial has reported; they are added
    order = of_trials[by] if isinstance(by, str) else pd.MultiIndex.from_frame(of_trials[by])
    wide = wide.reindex(columns=order)
    wide.columns.names = [by] if isinstance(by, str) else by
    if not len(wide):
        return wide
    return wide.reindex(range(1, int(wide.index.max()) + 1)).rename_axis("epoch")


@dataclass(frozen=True, eq=False, repr=False)
class LoadedSweep:
    """The results of one sweep, or of several together, as they were when loaded; load again to get newer ones.

    ``trials`` and ``metrics`` are frames with the columns of results/README.md. If several sweeps are loaded, the
    column ``sweep`` says which one a row belongs to.
    """

    folders: tuple[ResultsFolder, ...]
    trials: Frame
    metrics: Frame
    _tables: Sequence[Tables] = field(repr=False)
    # the class or function that this process ran, if no module contains it
    _trainable: object = None

    @cached_property
    def sweeps(self) -> tuple[Sweep, ...]:
        """The sweeps with their trials, as a ranking needs them; made at the first access and kept.

        Raises `StoreError` if a sweep.json cannot be read.
        """
        each = zip(self.folders, self._tables, name_uniquely(self.folders), strict=True)
        return tuple(make_sweep(*one) for one in each)

    @property
    def name(self) -> str:
        """The name of the sweep, or those of several sweeps, joined by commas.

        Sweeps with the same name are given by their paths or URLs instead.
        """
        return ", ".join(name_uniquely(self.folders))

    @property
    def info(self) -> dict[str, object]:
        """The content of sweep.json: the resolved sweep file and where it ran. For several sweeps a dict by name.

        Sweeps with the same name are there by their paths or URLs. The file is read each time, so it may be newer than
        the other results. Raises `StoreError` if it cannot be read.
        """
        if len(self.folders) == 1:
            return dict(self.folders[0].read_info().content)
        return {
            name: dict(folder.read_info().content)
            for name, folder in name_uniquely(self.folders).items()
        }

    def ranking(self) -> Ranking:
        """Return all configurations, best first, with the statistics of their repeats.

        Raises `InputError` if several sweeps are loaded that have different objectives, and `StoreError` if a
        sweep.json cannot be read.
        """
        return rank(self.sweeps)

    def configurations(self) -> Frame:
        """Return the ranking as a frame: one row per configuration with its ``verdict``, p-values and intervals.

        Raises the errors of `ranking`.
        """
        columns = make_columns(self.ranking())  # by name, each with its kind and a value per row
        _, sweeps = columns["sweep"]
        dtypes = {"number": "float64", "integer": "Int64", "text": "str"}
        series = {}
        for name, (kind, values) in columns.items():
            if kind == "param":
                series[name] = _convert_as_in_trials(values, sweeps)
            else:
                series[name] = pd.Series(values, dtype=dtypes[kind])
        return pd.DataFrame(series)

    def best(self, n: int = 1) -> Frame:
        """Return all trials of the ``n`` best configurations, with the column ``rank`` in front.

        A configuration has several rows if it was trained several times. If there are fewer than ``n`` configurations,
        all are returned, and those without a completed trial count too. The other columns are those of ``trials``.
        Raises the errors of `ranking`.
        """
        # by id() of a trial, its row in `self.trials`, which has the same order
        positions: dict[int, int] = {}
        for sweep in self.sweeps:
            for trial in sweep.trials:
                positions[id(trial)] = len(positions)
        ranks = []
        chosen_positions = []
        for row in self.ranking().rows[:n]:
            for trial in row.trials:
                ranks.append(row.rank)
                chosen_positions.append(positions[id(trial)])
        chosen = self.trials.iloc[chosen_positions].reset_index(drop=True)
        chosen.insert(0, "rank", ranks)
        return chosen

    def output(self, trial: int) -> str:
        """Return what a trial has printed up to now, as text; "" if nothing, or if it was trained with ``inline``.

        The log is read each time. Raises `InputError` if several sweeps are loaded, or if the sweep had no such trial
        when it was loaded, and `StoreError` if the log is damaged.
        """
        folder = self._get_only_folder("output()")
        numbers = self.trials["trial"].tolist()
        if trial not in numbers:
            raise folder.make_no_trial_error(trial, numbers)
        return read_output(folder.log, trial)

    def curves(self, metric: str | None = None) -> Frame:
        """Return one metric, by default the objective: one row per epoch, one column per trial, NaN after its end.

        The default is the first objective of the first sweep. ``metric`` may also be a measure such as ``time_s``. The
        columns of several sweeps are pairs of sweep and trial. Raises `InputError`, which names the known metrics, if
        no trial has reported ``metric``, or if it is None and the sweep has no objective.
        """
        if metric is None:
            objectives = self.folders[0].read_info().objectives
            metric = objectives[0][0] if objectives else ""
        return curves_frame(self.trials, self.metrics, metric)

    def lineage(self, trial: int) -> Frame:
        """Return the ancestry of a trial of a population-based search: one row per trial that trained its epochs.

        The trial itself is the last row, and the only one if it is no copy; it has no row if it has trained no epoch
        itself. The columns are ``trial``, ``first_epoch`` and ``last_epoch``, which are the epochs that a row's trial
        contributed, and its parameters, as ``param.NAME``. Raises `InputError` if the trial does not exist, or if
        several sweeps are loaded, and `StoreError` if sweep.json cannot be read.
        """
        folder = self._get_only_folder("lineage()")
        trials = self.sweeps[0].trials
        numbers = {one.trial for one in trials}
        if trial not in numbers:
            raise folder.make_no_trial_error(trial, numbers)
        rows = []
        for step in lineage_of(trials, trial):
            row: dict[str, object] = {
                "trial": step.trial,
                "first_epoch": step.first,
                "last_epoch": step.last,
            }
            for name, value in step.params.items():
                row[f"param.{name}"] = value
            rows.append(row)
        if not rows:
            return pd.DataFrame(columns=["trial", "first_epoch", "last_epoch"])
        return pd.DataFrame(rows)

    def study(self) -> Study:
        """Return the sweep as an in-memory Optuna study, for Optuna's plots, importances and samplers.

        It has the trials of the time of loading, and later changes of it have no effect on the sweep. Raises
        `InputError` if several sweeps are loaded or the sweep has no objective, and `StoreError` if its sweep.json
        cannot be read.
        """
        from sweep.analysis import studies

        folder = self._get_only_folder("study()")
        return studies.convert_sweep(folder, self._tables[0])

    def model(
        self,
        trial: int | None = None,
        epoch: int | Literal["best", "last"] = "last",
        *,
        trainable: object = None,
    ) -> Any:
        """Return the Keras model of a trial with its weights.

        By default, it is that of the best trial that kept a checkpoint, among the repeats of the best configuration.
        ``epoch`` selects the checkpoint: the number of an epoch, by default the last one that was kept, or ``"best"``,
        the kept one with the lowest loss. ``trainable`` is needed only for a class that another notebook or script
        defined; the result of a run in this process knows its class. Warns if something has changed that may make it a
        different model. Raises `InputError` if there is no such checkpoint or it cannot be restored, if there is no
        single best configuration and no ``trial`` is given, if the trainable makes no Keras model, or if several sweeps
        are loaded, and `StoreError` if the log or the checkpoint cannot be read.
        """
        from sweep.api.trainables import model

        return model(
            self._get_only_folder("model()"),
            trial,
            epoch,
            self._trainable if trainable is None else trainable,
        )

    def confirm(
        self,
        *,
        seeds: int | None = None,
        finalists: int | None = None,
        budget: str | None = None,
        trainable: object = None,
        **how: Unpack[How],
    ) -> LoadedSweep:
        """Call `sweep.confirm` on this sweep and return its new results; this object keeps the old ones.

        ``trainable`` defaults to the sweep's own, if this process has run the sweep; all other arguments are as there.
        Raises the errors of `sweep.confirm`, and `InputError` if several sweeps are loaded.
        """
        from sweep.api.running import confirm

        folder = self._get_only_folder("confirm()").path
        given = self._trainable if trainable is None else trainable
        return confirm(
            folder, seeds=seeds, finalists=finalists, budget=budget, trainable=given, **how
        )

    def retrain(
        self,
        *,
        trial: int | None = None,
        epochs: int | None = None,
        seeds: int = 1,
        all_data: bool = False,
        into: str | None = None,
        set: Settings = (),
        trainable: object = None,
        **how: Unpack[How],
    ) -> LoadedSweep:
        """Call `sweep.retrain` on this sweep and return the results of the new one.

        ``trainable`` defaults to the sweep's own, if this process has run the sweep; all other arguments are as there.
        Raises the errors of `sweep.retrain`, and `InputError` if several sweeps are loaded.
        """
        from sweep.api.running import retrain

        folder = self._get_only_folder("retrain()").path
        given = self._trainable if trainable is None else trainable
        return retrain(
            folder,
            trial=trial,
            epochs=epochs,
            seeds=seeds,
            all_data=all_data,
            into=into,
            set=set,
            trainable=given,
            **how,
        )

    def add(self, *configurations: Mapping[str, Any]) -> None:
        """Add configurations to the sweep, which are tried next, as `sweep add` does.

        Each configuration is a mapping from parameters to values. Fixed parameters, and those that do not apply, may be
        left out. A sweep that does not run tries them when it is resumed; if it runs in another process, the call waits
        until that process has answered. Raises `InputError` with all mistakes, or if several sweeps are loaded, and
        `StoreError` if the log cannot be read or written.
        """
        from sweep.runner.steering import Add
        from sweep.runner.steering_requests import steer

        given = yaml_reader.make_document({"add": list(configurations)}, "add()")
        given.check()
        steer(self._get_only_folder("add()"), Add.of(given.data["add"], "add()"))  # type: ignore[arg-type]  # mappings, as given

    def change(self, set: Settings) -> None:
        """Change the space, the limits, the stopping rule or the repeats of the sweep, as `sweep change` does.

        ``set`` is a dict of keys of the sweep file and their values, or a list of texts ``key=value``. If the sweep
        runs in another process, the call waits until that process has answered. Raises `InputError` for what would make
        the trials so far mean something else, or if several sweeps are loaded, and `StoreError` if the log cannot be
        read or written.
        """
        from sweep.api.running import make_assignments
        from sweep.runner.steering import Change
        from sweep.runner.steering_requests import steer

        steer(self._get_only_folder("change()"), Change(tuple(make_assignments(set))))

    def note(self, text: str, trial: int | None = None) -> None:
        """Write a note on the sweep, or on one of its trials; it replaces the earlier one, and "" removes it.

        ``trial`` is None for a note on the sweep. This object still shows the earlier note. If the sweep runs in
        another process, the call waits until that process has answered. Raises `InputError` if there is no such trial,
        or if several sweeps are loaded, and `StoreError` if the log cannot be read or written.
        """
        from sweep.runner.steering import Note
        from sweep.runner.steering_requests import steer

        steer(self._get_only_folder("note()"), Note(text, trial))

    def star(self, trial: int, *, remove: bool = False) -> None:
        """Give a trial a star, or with ``remove`` take it away.

        This object does not show the change. If the sweep runs in another process, the call waits until that process
        has answered. Raises `InputError` if there is no such trial, or if several sweeps are loaded, and `StoreError`
        if the log cannot be read or written.
        """
        from sweep.runner.steering import Star
        from sweep.runner.steering_requests import steer

        steer(self._get_only_folder("star()"), Star(trial, starred=not remove))

    def _get_only_folder(self, what: str) -> ResultsFolder:
        """Return the folder of the sweep.

        If several sweeps are loaded, raises InputError, which names the called method, ``what``, such as ``"study()"``.
        """
        if len(self.folders) == 1:
            return self.folders[0]
        # the hint takes the first sweep as an example
        names = [*name_uniquely(self.folders)]
        hint = f"load one of them, as in sweep.load({self.folders[0].called!r}).{what}"
        raise InputError.one(
            what, f"{len(names)} sweeps are loaded ({', '.join(names)}), expected one", hint
        )

    def __repr__(self) -> str:
        return line(self.sweeps)

    def _repr_html_(self) -> str:
        return html(self.sweeps)
