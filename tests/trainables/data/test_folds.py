from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import Small, assignment, go_on, metrics, train

from sweep.contract import Fold
from trainables.data import folds
from trainables.data.sources import DataError

X, Y = np.arange(20.0).reshape(10, 2), np.arange(10)


@given(size=st.integers(2, 60), count=st.integers(2, 7), seed=st.integers(0, 2**32 - 1), classes=st.integers(1, 4))
@settings(max_examples=80, deadline=None)
def test_each_row_validates_in_one_fold_and_classes_are_spread(size: int, count: int, seed: int, classes: int) -> None:
    if size < count:
        return
    labels = np.arange(size) % classes
    parts = [folds.cut(labels, size, fold, count, seed) for fold in range(count)]
    assert sorted(row for _, held_out in parts for row in held_out) == list(range(size))
    for trained, held_out in parts:
        assert sorted([*trained, *held_out]) == list(range(size))
    sizes = [len(held_out) for _, held_out in parts]
    assert max(sizes) - min(sizes) <= 1
    for label in range(classes):
        found = [int((labels[held_out] == label).sum()) for _, held_out in parts]
        assert max(found) - min(found) <= 1


def test_the_cut_follows_the_seed_alone() -> None:
    one, same, other = (folds.cut(Y, 10, 0, 2, seed)[1].tolist() for seed in (1, 1, 2))
    assert one == same != other
    assert folds.cut(None, 10, 0, 2, 1)[1].tolist() == folds.cut(X, 10, 0, 2, 1)[1].tolist()


def test_training_and_validation_are_cut_as_one() -> None:
    x, y = folds.whole((X, Y), (X + 1, Y))
    assert x.shape == (20, 2)
    assert y.tolist() == [*range(10), *range(10)]
    whole = (X, Y)
    assert folds.whole(whole, None) is whole


@pytest.mark.parametrize(
    ("train_data", "held_out", "message"),
    [
        ((X, Y), (X[:, :1], Y), "not alike"),
        ((X, Y), (X, Y, Y), "not alike"),
        ([X, Y], None, "training data: list"),
    ],
)
def test_what_cannot_be_cut_is_refused(train_data: Any, held_out: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        folds.whole(train_data, held_out)


def test_fewer_rows_than_folds_are_refused() -> None:
    with pytest.raises(DataError, match="3 examples, expected at least one for each of 5 folds"):
        folds.cut(Y, 3, 0, 5, 0)


def _fold(number: int, epochs: int = 2, **params: Any) -> Any:
    return replace(assignment(epochs=epochs, **params), fold=Fold(number, 4, 7))


@pytest.mark.keras
def test_classes_of_a_fold_are_weighed_by_what_it_trains_on() -> None:
    class Rows(Small):
        def data(self, hp: Any) -> Any:
            x, y = folds.whole(*super().data(hp))
            return tuple((x[rows], y[rows]) for rows in folds.cut(y, 90, 2, 4, 7))

    used = Small()
    for number in (0, 2):
        found = metrics(train(used, _fold(number, class_weights="balanced")))
    assert len(used._session._programs._held) == 1
    for mine, theirs in zip(found, metrics(train(Rows(), assignment(class_weights="balanced"))), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)


@pytest.mark.keras
def test_a_fold_is_the_trial_on_its_rows(tmp_path: Path) -> None:
    class Rows(Small):
        """The rows of one fold, handed over by themselves."""

        def data(self, hp: Any) -> Any:
            x, y = folds.whole(*super().data(hp))
            return tuple((x[rows], y[rows]) for rows in folds.cut(y, 90, 2, 4, 7))

    used = Small()
    for number in (0, 2):
        found = metrics(train(used, _fold(number)))
    program = used._session.trial.program
    assert len(used._session._programs._held) == 1  # both in one program, traced once
    assert program.train_chunk.experimental_get_tracing_count() == 1
    assert found == metrics(train(Small(), _fold(2)))  # as in a fresh worker
    for mine, theirs in zip(found, metrics(train(Rows(), assignment())), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
    first, second = Small(), Small()
    first.begin(_fold(2))
    go_on(first, pause_after=1)
    first.save(tmp_path)()
    second.begin(_fold(2))
    second.restore(tmp_path)
    assert metrics(go_on(second)) == found[1:]


@pytest.mark.keras
def test_class_weights_weigh_what_is_trained_alone() -> None:
    class Uneven(Small):
        def data(self, hp: Any) -> Any:
            (x, y), (v, w) = super().data(hp)
            return (x, np.minimum(y, 1)), (v, np.minimum(w, 1))

        def class_weights(self, hp: Any, labels: Any) -> Any:
            return {0: 100.0, 1: 100.0} if hp.flag("weighed", default=False) else None

    one, other = (
        metrics(train(Uneven(), _fold(0, 1, weighed=weighed, learning_rate=0.0)))[0] for weighed in (True, False)
    )
    assert one["loss"] == pytest.approx(100 * other["loss"], rel=1e-5)
    assert one["val_loss"] == pytest.approx(other["val_loss"], rel=1e-5)
