"""Sixteen kinds of projects, written from the docs alone: two trials in one worker, the second as plain Keras.

Examples are not shuffled, and the plain model begins with the weights of the trial's seed, which our builder draws; all
else of the plain side is `compile` and `fit`.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sampling import chosen

import sweep

pytestmark = pytest.mark.keras

PROJECTS = [
    path.stem
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if path.stem not in (Path(__file__).stem, "words")
]
TOLERANCE = 2e-6


def test_all_kinds_are_there() -> None:
    assert len(PROJECTS) == 16


@pytest.mark.parametrize("name", chosen(PROJECTS, "experts", "scikit"))
def test_the_second_trial_of_a_worker_is_plain_keras(name: str, tmp_path: Path) -> None:
    project = importlib.import_module(name)
    done = sweep.run(
        project.SPACE,
        trainable=project.TRAINABLE,
        results=tmp_path,
        inline=True,
        memo=False,
        quiet=True,
    )
    assert list(done.trials["status"]) == ["completed", "completed"]
    ours = done.metrics[done.metrics["trial"] == 1].sort_values("epoch")
    assert np.isfinite(ours[f"metric.{project.SPACE['metric']['name']}"]).all()
    for metric, values in _plain(project, done.trials.set_index("trial").loc[1]).items():
        np.testing.assert_allclose(
            ours[f"metric.{metric}"], values, rtol=TOLERANCE, atol=TOLERANCE, err_msg=metric
        )


def _plain(project: Any, row: Any) -> dict[str, list[float]]:
    """What Keras or scikit-learn gives for the parameters of a trial, epoch by epoch."""
    if not hasattr(project, "fit"):
        return {}  # its draws are of our loop
    from sweep.hyperparameters import Hyperparameters

    given = {
        name.removeprefix("param."): row[name] for name in row.index if name.startswith("param.")
    }
    hp = Hyperparameters(
        {name: v.item() if isinstance(v, np.generic) else v for name, v in given.items()}
    )
    if not isinstance(project.TRAINABLE, type):
        return project.fit(None, int(row["seed"]), hp)
    import keras

    from trainables.loop import building

    author = project.TRAINABLE()
    data = author.data(hp)
    if isinstance(data[0], tuple):  # by which a subclassed model is built
        author.first_example = keras.tree.map_structure(lambda a: a[:1], data[0])
    elif isinstance(data[0], np.ndarray):
        author.first_example = (data[0][:1],)
    return project.fit(building.build_model(author, hp, int(row["seed"])), data, hp)
