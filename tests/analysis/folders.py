"""Folders of sweeps that are written, not run."""

from collections.abc import Callable
from pathlib import Path

import pytest

from sweep.events import (
    EpochReported,
    Event,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
    Value,
)
from sweep.progress import SHARE
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.tables import build_tables, write

Run = tuple[dict[str, Value], Status, list[dict[str, float]]]
"""Parameters, what became of the trial, and the metrics of each epoch."""


def story(
    runs: list[Run], seeds: int | None = None, shares: list[list[float]] | None = None
) -> list[Event]:
    """The events of some trials; each ``seeds`` in a row have the same seeds, by default each trial has its own.

    ``shares``: of its budget that each trial had used after each epoch, in a sweep with minutes.
    """
    events: list[Event] = [SessionStarted(time=1_700_000_000.0, resumed=False, version="1")]
    for trial, (params, status, epochs) in enumerate(runs):
        time = 1_700_000_000.0 + 10 * trial
        repeat, seed = (0, trial) if seeds is None else (trial % seeds, trial % seeds)
        begun = TrialStarted(
            trial=trial, trial_id=f"t{trial}", params=params, seed=seed, repeat=repeat, time=time
        )
        events.append(begun)
        for epoch, metrics in enumerate(epochs, start=1):
            measures = {} if shares is None else {SHARE: shares[trial][epoch - 1]}
            reported = EpochReported(
                trial=trial,
                epoch=epoch,
                metrics=metrics,
                time=time + epoch,
                time_s=1.0,
                measures=measures,
            )
            events.append(reported)
        if status is not Status.RUNNING:
            events.append(TrialEnded(trial=trial, status=status, reason="", time=time + 9))
    return events


@pytest.fixture
def sweep_of(tmp_path: Path) -> Callable[..., ResultsFolder]:
    """Makes the folder of a sweep out of its runs, with Parquet files unless its driver was killed."""

    def make(
        runs: list[Run],
        name: str = "first",
        *,
        objectives: tuple[tuple[str, str], ...] = (("acc", "maximize"),),
        ended: str | None = "finished",
        seeds: int | None = None,
        shares: list[list[float]] | None = None,
    ) -> ResultsFolder:
        info = {"objectives": [{"name": metric, "goal": goal} for metric, goal in objectives]}
        folder = ResultsFolder.create(tmp_path / "results", name, "", info)
        events = story(runs, seeds, shares)
        if ended is not None:
            events.append(SessionEnded(time=1_700_000_100.0, reason=ended))
        with Log(folder.log) as log:
            log.append(events)
        if ended is not None:
            write(folder, build_tables(folder))
        return folder

    return make
