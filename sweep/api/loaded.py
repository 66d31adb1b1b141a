"""What Python gets of a sweep, or of several as one: frames, a ranking, a study, a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Unpack

from sweep.analysis import frames
from sweep.analysis.frames import Frame
from sweep.analysis.ranking import Ranking, rank
from sweep.analysis.trials import Sweep, of_tables
from sweep.api import summary
from sweep.errors import InputError
from sweep.store.folder import ResultsFolder
from sweep.store.tables import Tables

if TYPE_CHECKING:
    from optuna.study import Study

    from sweep.api.running import How, Settings


@dataclass(frozen=True, eq=False, repr=False)
class LoadedSweep:
    """One sweep, or several as one, as its log stood when it was read; load it again for what came since.

    ``trials`` and ``metrics`` are frames with the columns of results/README.md; of several sweeps, their column
    ``sweep`` tells them apart.
    """

    folders: tuple[ResultsFolder, ...]
    trials: Frame
    metrics: Frame
    _tables: Sequence[Tables] = field(repr=False)
    _trainable: object = None  # the class or function that was run here, where no module has it

    @cached_property
    def sweeps(self) -> tuple[Sweep, ...]:
        """Trial by trial, for a ranking."""
        return tuple(of_tables(folder, one) for folder, one in zip(self.folders, self._tables, strict=True))

    @property
    def name(self) -> str:
        """The sweep's name; of several, all of them."""
        return ", ".join(folder.name for folder in self.folders)

    @property
    def info(self) -> dict[str, object]:
        """sweep.json: the resolved sweep file and where it ran; of several sweeps, by name."""
        if len(self.folders) == 1:
            return dict(self.folders[0].read_info().content)
        return {folder.name: dict(folder.read_info().content) for folder in self.folders}

    def ranking(self) -> Ranking:
        """All configurations, the best first, with the statistics of their repeats.

        Raises `InputError` for several sweeps with different objectives.
        """
        return rank(self.sweeps)

    def configurations(self) -> Frame:
        """The ranking as a frame: a row per configuration with its ``verdict``, p-values and intervals."""
        return frames.configurations(self.ranking())

    def best(self, n: int = 1) -> Frame:
        """The trials of the ``n`` best configurations, all repeats of each, with their ``rank`` in front."""
        ranked = [(row.rank, row.trials) for row in self.ranking().rows[:n]]
        return frames.best(self.trials, self.sweeps, ranked)

    def curves(self, metric: str | None = None) -> Frame:
        """A metric, by default the objective: a row per epoch, a column per trial; NaN where a trial has ended.

        Columns of several sweeps are pairs of sweep and trial. Raises `InputError` that names the metrics there are.
        """
        if metric is None:
            objectives = self.folders[0].objectives()
            metric = objectives[0][0] if objectives else ""
        return frames.curves(self.trials, self.metrics, metric)

    def study(self) -> Study:
        """The sweep as a study of Optuna, in memory: for its plots, importances and samplers.

        Raises `InputError` for several sweeps.
        """
        from sweep.analysis import studies

        folder = self._only("study()")
        return studies.of_read(folder, self._tables[0])

    def model(
        self, trial: int | None = None, epoch: int | Literal["best", "last"] = "last", *, trainable: object = None
    ) -> Any:
        """The Keras model of a trial that kept a checkpoint, with its weights; by default of the best one.

        ``trainable`` is the class itself where that was defined in a notebook or script which is not this one; what
        was run here knows it. Raises `InputError` where there is no such checkpoint, or for several sweeps.
        """
        from sweep.api.models import model

        return model(self._only("model()"), trial, epoch, self._trainable if trainable is None else trainable)

    def confirm(
        self,
        *,
        seeds: int | None = None,
        finalists: int | None = None,
        budget: str | None = None,
        trainable: object = None,
        **how: Unpack[How],
    ) -> LoadedSweep:
        """As `sweep.confirm`, of this sweep and with what it has trained."""
        from sweep.api.running import confirm

        folder, given = self._only("confirm()").path, self._trainable if trainable is None else trainable
        return confirm(folder, seeds=seeds, finalists=finalists, budget=budget, trainable=given, **how)

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
        """As `sweep.retrain`, of this sweep and with what it has trained."""
        from sweep.api.running import retrain

        folder, given = self._only("retrain()").path, self._trainable if trainable is None else trainable
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

    def _only(self, what: str) -> ResultsFolder:
        if len(self.folders) == 1:
            return self.folders[0]
        names = [folder.name for folder in self.folders]
        hint = f"load one of them, as in sweep.load({names[0]!r}).{what}"
        raise InputError.one(what, f"{len(names)} sweeps are loaded ({', '.join(names)}), expected one", hint)

    def __repr__(self) -> str:
        return summary.line(self.sweeps)

    def _repr_html_(self) -> str:
        return summary.html(self.sweeps)
