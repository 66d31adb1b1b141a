"""What the processes of a parameter server are told by tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rank_processes import Here

from sweep.contract import Assignment
from trainables.click_through import ClickThrough

TRAINING = {"strategy": "parameter_server"}


def join(here: Here) -> str:
    ranks = here.devices.ranks
    here.kept["it"] = it = ClickThrough()
    it.join(here.devices, TRAINING)
    return "coordinator" if not ranks or not ranks.rank else "other"


def train(
    here: Here,
    params: dict[str, Any],
    epochs: int,
    save: Path | None = None,
    restore: Path | None = None,
    seed: int = 3,
) -> Any:
    if here.devices.ranks is None or here.devices.ranks.rank:
        return None
    it = here.kept["it"]
    it.begin(here.of(Assignment(trial=0, params=params, seed=seed, epochs=epochs, training=TRAINING)))
    at = it.restore(restore) if restore else 0
    reports: list[Any] = []
    it.train(lambda epoch: not reports.append(epoch))
    if save:
        write = it.save(save)
        write()
    program = it._trial.program
    tables = {n: [(p.start, p.stop, p.device) for p in ps] for n, ps in program.tables.items()}
    import numpy as np

    table = np.concatenate([p.variable.numpy() for p in next(iter(program.tables.values()))])
    dense = {v.path: v.numpy() for v in it._trial.program.model.variables}
    return at, [dict(r.metrics) for r in reports], it.facts(), tables, table, dense
