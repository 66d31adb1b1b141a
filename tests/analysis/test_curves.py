"""Curves of all trials as arrays, thinned where there are too many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sweep.analysis.curves import LEAST, of_table


def metrics(rows: list[tuple[int, int, float | None, float]]) -> pa.Table:
    names = ("trial", "epoch", "metric.acc", "metric.loss")
    return pa.table({name: [row[at] for row in rows] for at, name in enumerate(names)})


def test_rows_come_in_the_order_of_trials_and_epochs() -> None:
    found = of_table(
        metrics([(7, 2, 0.2, 1.0), (3, 1, None, 2.0), (7, 1, 0.1, 3.0), (9, 1, 0.5, 4.0)]), [7, 3, 1], ["acc"]
    )
    assert found.starts.tolist() == [0, 2, 3, 3]  # trial 9 was not asked for, 1 has no epoch
    assert found.epochs.tolist() == [1, 2, 1]
    np.testing.assert_array_equal(found.values["acc"], np.float32([0.1, 0.2, np.nan]))
    assert list(found.values) == ["acc", "loss"]
    assert (found.thinned, found.left_out) == (None, ())


def test_without_rows() -> None:
    assert of_table(metrics([]), [], ["acc"]).starts.tolist() == [0]
    assert of_table(metrics([]), [0, 1], ["acc"]).starts.tolist() == [0, 0, 0]
    assert of_table(pa.table({"trial": [0], "epoch": [1]}), [0], ["acc"]).values == {}


def test_other_metrics_give_way_first_then_epochs_but_not_the_best_nor_the_last() -> None:
    rows = [(n, epoch, float(epoch == 37 + n), 0.0) for n in range(4) for epoch in range(1, 101)]
    roomy = of_table(metrics(rows), range(4), ["acc"], points=400)
    assert (list(roomy.values), roomy.left_out, roomy.thinned) == (["acc"], ("loss",), None)
    found = of_table(metrics(rows), range(4), ["acc"], points=80)
    assert found.thinned == 20
    for n, (start, end) in enumerate(zip(found.starts, found.starts[1:], strict=False)):
        epochs = found.epochs[start:end].tolist()
        assert {1, 37 + n, 100} <= set(epochs)
        assert 20 <= len(epochs) <= 23
        assert found.values["acc"][start:end].max() == 1.0
    assert of_table(metrics(rows), range(4), ["acc"], points=8).thinned == LEAST
