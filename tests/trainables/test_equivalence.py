"""The number of replicas changes the speed and nothing else.

Each optimizer, clipping, accumulation and averaging meets each other one in some row of the matrix (pairwise
coverage), and each row runs several schedules, which need no graph of their own. All combinations:
``pytest -m exhaustive tests/trainables/test_equivalence.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import pytest
from sampling import sampled
from small import Small, assignment, metrics, train

from sweep.contract import Value
from sweep.standard_hyperparameters import SCHEDULES
from trainables.keras_trainable import session_of

pytestmark = [pytest.mark.keras, pytest.mark.slow]

TOLERANCE = 1e-6  # on metrics and weights after 20 updates in float32
CLIPPING: dict[str, Mapping[str, Value]] = {
    "none": {},
    "clipnorm": {"clipnorm": 0.1},
    "global_clipnorm": {"global_clipnorm": 0.1},
    "clipvalue": {"clipvalue": 0.01},
}
ACCUMULATION: dict[str, Mapping[str, Value]] = {"whole": {}, "micro": {"micro_batches": 3}}
AVERAGING: dict[str, Mapping[str, Value]] = {"last": {}, "ema": {"ema_momentum": 0.9}}
EXTRA: Mapping[str, Mapping[str, Value]] = {
    "piecewise": {"lr_drop_epochs": [1, 3]},
    "plateau": {"lr_patience": 1},
}
OPTIMIZERS = ("sgd", "adam", "adamw", "lamb", "lion")  # the others are in test_optimizer_table.py
FACTORS = (OPTIMIZERS, tuple(CLIPPING), tuple(ACCUMULATION), tuple(AVERAGING))
OPTIMIZER, CLIPPED = 0, 1  # places in them
Row = tuple[str, ...]


def pairwise(factors: tuple[tuple[str, ...], ...]) -> list[Row]:
    """Rows in which each two values of different factors meet at least once, chosen greedily."""
    columns = list(itertools.combinations(range(len(factors)), 2))

    def pairs(row: Row) -> set[tuple[int, int, str, str]]:
        return {(a, b, row[a], row[b]) for a, b in columns}

    every = list(itertools.product(*factors))
    missing = set().union(*(pairs(row) for row in every))
    rows: list[Row] = []
    while missing:
        best = max(every, key=lambda row: len(pairs(row) & missing))
        rows.append(best)
        missing -= pairs(best)
    return rows


def parameters(row: Row, schedule: str) -> dict[str, Value]:
    optimizer, clipping, accumulation, averaging = row
    return {
        "optimizer": optimizer,
        "learning_rate": 0.03 if optimizer == "sgd" else 0.002,
        "weight_decay": 0.01,
        "lr_schedule": schedule,
        "warmup_steps": 3,
        "dropout": 0.3,
        **({"momentum": 0.9} if optimizer == "sgd" else {}),
        **EXTRA.get(schedule, {}),
        **CLIPPING[clipping],
        **ACCUMULATION[accumulation],
        **AVERAGING[averaging],
    }


class Weighted(Small):
    """Batch normalisation, dropout, sample weights, and 14 examples in the last batch of an epoch.

    With 6 a micro-batch would have two, over which batch normalisation blows rounding up: on one device another
    1e-7 of the initial weights is then 2e-4 after 20 updates of sgd.
    """

    def data(self, hp: Any) -> tuple[Any, Any]:
        (x, y), (x_val, y_val) = super().data(hp)
        x, y = np.concatenate([x, x_val[:8]]), np.concatenate([y, y_val[:8]])
        return (x, y, np.random.default_rng(1).uniform(0.5, 2.0, len(x)).astype(np.float32)), (
            x_val[8:],
            y_val[8:],
        )

    def model(self, hp: Any) -> keras.Model:
        return keras.Sequential(
            [
                keras.Input((6,)),
                keras.layers.Dense(
                    8, use_bias=False, kernel_regularizer=keras.regularizers.L2(1e-3)
                ),
                keras.layers.BatchNormalization(),
                keras.layers.Activation("tanh"),
                keras.layers.Dropout(hp.number("dropout")),
                keras.layers.Dense(3),
            ]
        )


@pytest.fixture(scope="module")
def trainables() -> dict[int, Small]:
    """One trainable for each number of replicas, with the programs that it has compiled."""
    return {gpus: Weighted() for gpus in (0, 2, 4, 8)}


def compare(trainables: Mapping[int, Small], params: dict[str, Value], *replicas: int) -> None:
    alone = metrics(train(trainables[0], assignment(0, epochs=4, **params)))
    for count in replicas:
        together = metrics(train(trainables[count], assignment(count, epochs=4, **params)))
        for a, b in zip(alone, together, strict=True):
            assert b == pytest.approx(a, abs=TOLERANCE, rel=0), f"{count} replicas, {params}"
        for ours, theirs in zip(values(trainables[0]), values(trainables[count]), strict=True):
            np.testing.assert_allclose(
                theirs, ours, atol=TOLERANCE, rtol=0, err_msg=f"{count} replicas, {params}"
            )


def values(trainable: Small) -> list[np.ndarray[Any, Any]]:
    """Weights, batch statistics and averaged weights; the optimizer's moments are of another scale."""
    program = session_of(trainable).trial.program
    averages = program.average.variables if program.average else []
    return [np.asarray(v) for v in (*program.model.variables, *averages)]


ROWS = pairwise(FACTORS)
DAILY = 10
"""After so many rows only optimizers and clippings have not all met. Clipping is over before any optimizer is called
(`recipe.optimizers.clip` takes gradients alone), so the rows that are left are ``exhaustive``."""
SCHEDULES_OF = {
    row: SCHEDULES[i % 5 :: 5] + SCHEDULES[(i // 5) % 10 :][:1] for i, row in enumerate(ROWS)
}


def test_rows_cover_all_pairs() -> None:
    for a, b in itertools.combinations(range(len(FACTORS)), 2):
        assert {(row[a], row[b]) for row in ROWS} == set(itertools.product(FACTORS[a], FACTORS[b]))
        if (a, b) != (OPTIMIZER, CLIPPED):
            assert {(row[a], row[b]) for row in ROWS[:DAILY]} == set(
                itertools.product(FACTORS[a], FACTORS[b])
            )
    assert set().union(*(SCHEDULES_OF[row] for row in ROWS[:DAILY])) == set(SCHEDULES)


EACH = [
    pytest.param(row, id="-".join(row), marks=() if place < DAILY else pytest.mark.exhaustive)
    for place, row in enumerate(ROWS)
]


@pytest.mark.parametrize("row", sampled(EACH, 1))
def test_two_replicas(row: Row, trainables: dict[int, Small]) -> None:
    for schedule in SCHEDULES_OF[row]:
        compare(trainables, parameters(row, schedule), 2)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("gpus", "row"),
    sampled([(4, ROWS[1]), (4, ROWS[-2]), (8, ROWS[0]), (8, ROWS[-1])], 1, several=True),
)
def test_four_and_eight_replicas(gpus: int, row: Row, trainables: dict[int, Small]) -> None:
    compare(trainables, parameters(row, "cosine"), gpus)


@pytest.mark.exhaustive
@pytest.mark.parametrize("row", list(itertools.product(*FACTORS)), ids="-".join)
def test_all_combinations(row: Row, trainables: dict[int, Small]) -> None:
    for schedule in SCHEDULES:
        compare(trainables, parameters(row, schedule), 2, 4, 8)
