"""What a search was worth, and what its held-out examples hide."""

from __future__ import annotations

import pytest

from sweep.analysis import make_sweep, ranking, search_efficiency
from sweep.analysis.ranking import make_columns, rank
from sweep.events import Status
from sweep.store import reading

DONE = Status.COMPLETED


def of(folder) -> search_efficiency.SearchEfficiency | None:
    read = reading.read_tables(folder)
    return search_efficiency.measure_search_efficiency(
        folder.name, rank([make_sweep(folder, read)]), read
    )


def curve(*values: float) -> list[dict[str, float]]:
    return [{"acc": value} for value in values]


def test_the_control_of_one_epoch_and_the_rungs(sweep_of) -> None:
    runs = [
        ({"a": 1}, DONE, curve(0.5, 0.5, 0.6, 0.6, 0.61)),
        ({"a": 2}, DONE, curve(0.1, 0.6, 0.7, 0.9, 0.91)),
        ({"a": 3}, DONE, curve(0.2, 0.3, 0.4, 0.5, 0.51)),
        ({"a": 4}, Status.PRUNED, curve(0.4, 0.2)),
    ]
    found = of(sweep_of(runs))
    assert found is not None
    control = found.control
    assert control is not None
    assert (control.rank, control.score, control.behind) == (2, 0.61, pytest.approx(0.3))
    assert (control.epochs, control.of_epochs) == (4 + 4, 17)
    assert [(rung.epoch, rung.of_best, rung.configurations) for rung in found.rungs] == [
        (1, 4, 4),
        (2, 1, 4),
        (4, 1, 3),
    ]
    assert found.rungs[0].correlation.value == pytest.approx(-0.5)
    epochs, hours = found.budgets
    assert (epochs.unit, epochs.budgets[-1], epochs.found[-1], hours.unit) == (
        "epochs",
        17,
        0.91,
        "hours",
    )
    assert hours.budgets[-1] == pytest.approx(17 / 3600)


def test_too_little_to_order(sweep_of) -> None:
    assert of(sweep_of([({"a": 1}, DONE, curve(0.5)), ({"a": 2}, DONE, curve(0.6))])) is None
    assert of(sweep_of([], "none")) is None
    assert of(sweep_of([({"a": a}, Status.FAILED, []) for a in range(4)], "failed")) is None


def test_accuracies_have_the_noise_of_their_examples() -> None:
    noise = ranking.compute_sampling_error("val_accuracy", 0.9, 1000)
    assert noise is not None
    assert (noise.low, noise.high) == (
        pytest.approx(0.8799, abs=1e-4),
        pytest.approx(0.9171, abs=1e-4),
    )
    assert noise.difference == pytest.approx(1.96 * (2 * 0.09 / 1000) ** 0.5, rel=1e-4)
    enough = ranking.compute_sampling_error(
        "val_accuracy", 0.9, ranking.count_needed_examples(0.01, 0.3)
    )
    assert enough is not None
    assert 0.0099 < enough.difference <= 0.01
    names = (
        "val_accuracy",
        "acc",
        "sparse_categorical_accuracy",
        "error_rate",
        "val_loss",
        "mean_absolute_error",
        "accent",
    )
    assert [ranking.is_share(name) for name in names] == [
        True,
        True,
        True,
        True,
        False,
        False,
        False,
    ]


def test_configurations_as_columns(sweep_of) -> None:
    runs = [
        ({"a": a, "b.c": [a]}, DONE, curve(0.1 * a + 0.01 * ((3 * seed * a) % 4)))
        for a in (1, 5)
        for seed in range(6)
    ]
    found = make_columns(
        rank([make_sweep(folder := sweep_of(runs, seeds=6), reading.read_tables(folder))])
    )
    assert found["verdict"] == ("text", ["best", "worse"])
    assert found["trials"] == ("text", ["6 7 8 9 10 11", "0 1 2 3 4 5"])
    assert found["seeds"] == ("integer", [6, 6])
    assert found["param.b.c"] == ("param", [[5], [1]])
    kind, differences = found["difference"]
    assert (kind, differences[0]) == ("number", None)
    assert differences[1] == pytest.approx(-0.4, abs=0.03)


def test_losses_have_the_noise_of_their_examples() -> None:
    noise = ranking.compute_sampling_error("val_loss", 0.3, 400, 0.8)
    assert noise is not None
    assert (noise.low, noise.high) == (
        pytest.approx(0.3 - 1.96 * 0.04, rel=1e-4),
        pytest.approx(0.3 + 1.96 * 0.04, rel=1e-4),
    )
    assert noise.difference == pytest.approx(1.96 * 0.8 * (2 / 400) ** 0.5, rel=1e-4)
    assert ranking.compute_sampling_error("val_loss", 0.3, 400) is None
    assert ranking.compute_sampling_error("val_auc", 0.3, 400, 0.8) is None
    assert ranking.compute_sampling_error("val_loss", 0.3, 0, 0.8) is None


@pytest.mark.parametrize("level", [0.0, 1.0])
def test_if_all_examples_are_right_or_wrong_others_may_not_be(level: float) -> None:
    noise = ranking.compute_sampling_error("val_accuracy", level, 360)
    assert noise is not None
    assert noise.deviation == 0
    near = ranking.compute_sampling_error("val_accuracy", abs(level - 1 / 360), 360)
    assert near is not None
    assert near.difference < noise.difference < 2 * near.difference
