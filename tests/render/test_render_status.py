"""Where a sweep stands, as lines."""

from __future__ import annotations

import math
import random
import time

import pytest
from rich.cells import cell_len

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.events import (
    EpochReported,
    Facts,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.render.status import Frame, bar, picture, sparkline


def test_a_curve_goes_from_its_least_to_its_greatest() -> None:
    assert sparkline([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) == "▁▂▃▄▅▆▇█"
    assert sparkline([7.0, 0.0], ascii_only=True) == "'_"
    assert sparkline([]) == ""


def test_what_is_no_number_is_marked_and_bends_nothing() -> None:
    assert sparkline([0.0, math.nan, math.inf, 1.0]) == "▁xx█"
    assert sparkline([math.nan], ascii_only=True) == "x"


def test_a_flat_curve_and_the_largest_numbers() -> None:
    assert sparkline([3.0, 3.0]) == "▅▅"
    assert sparkline([-1.7e308, 1.7e308]) == "▁█"


@pytest.mark.parametrize("share", [-1.0, 0.0, 0.013, 0.5, 0.99, 1.0, 7.0, math.nan])
@pytest.mark.parametrize("width", [0, 1, 2, 10, 33])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_bar_is_as_wide_as_told(share: float, width: int, ascii_only: bool) -> None:
    filled, empty = bar(share, width, ascii_only=ascii_only)
    assert len(filled) + len(empty) == (max(width, 2) if ascii_only else width)
    assert (filled + empty).isascii() is (ascii_only or not width)


def test_a_bar_grows_by_eighths() -> None:
    assert bar(0.5, 4) == ("██", "░░")
    assert bar(0.0625, 2) == ("▏", "░")
    assert bar(1.0, 6, ascii_only=True) == ("[####", "]")


ENDS = {
    3: (Status.FAILED, "ValueError: \x1b[31mbad\x1b[0m\nsecond \x07 line"),
    4: (Status.FAILED, "ValueError: bad"),
    5: (Status.DIVERGED, "the loss became NaN"),
    6: (Status.OOM, "out of memory: 3 GiB"),
    7: (Status.FAILED, "worker lost: killed"),
}


def some(
    trials: int = 20, running: int = 4, *, total: int | None = 27, name: str = "lr_wd_aug"
) -> Standing:
    """Trials that ended in all ways, some of which still run, after 100 s."""
    numbers = random.Random(0)
    standing = Standing(
        Outline(
            name=name,
            metric="val_accuracy",
            goal="maximize",
            total=total,
            epochs=10,
            varying=("learning_rate", "augmentation"),
            decisions=(1, 3, 9),
        )
    )
    standing.observe(SessionStarted(time=1000.0, resumed=False, version="1"))
    for trial in range(trials):
        params = {"learning_rate": numbers.random(), "augmentation": "高い\t\x1b[2J"}
        standing.observe(
            TrialStarted(trial=trial, trial_id="", params=params, seed=0, repeat=0, time=1000.0)
        )
        runs = trial >= trials - running
        epochs = numbers.choice([1, 3, 10]) if not runs else trial % 9
        for epoch in range(1, epochs + 1):
            standing.observe(
                EpochReported(
                    trial=trial,
                    epoch=epoch,
                    metrics={"val_accuracy": math.nan if trial == 5 else 1 - 1 / (epoch + 1)},
                    time=1090.0 + epoch,
                    time_s=1.0,
                    measures={"cpu_cores": 0.9, "gpu_utilization": 0.5, "memory_peak_bytes": 1.5e9},
                )
            )
        if not runs:
            status, reason = ENDS.get(
                trial, (Status.COMPLETED if epochs == 10 else Status.PRUNED, "")
            )
            facts = Facts(started=1000.0)
            standing.observe(
                TrialEnded(trial=trial, status=status, reason=reason, time=1095.0, facts=facts)
            )
    return standing


def drawn(
    standing: Standing, width: int = 80, height: int = 23, now: float = 1100.0, **how: object
) -> list[str]:
    frame = Frame(width=width, height=height, ascii_only=bool(how.pop("ascii_only", False)))
    return [line.plain for line in picture(standing, now, frame, **how)]


@pytest.mark.parametrize("width", [1, 5, 20, 40, 80, 120, 300])
@pytest.mark.parametrize("height", [0, 1, 2, 3, 5, 8, 12, 23, 50])
@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize("running", [0, 1, 4, 30])
def test_it_never_takes_more_room_than_there_is(
    width: int, height: int, ascii_only: bool, running: int
) -> None:
    lines = drawn(some(20 + running, running), width, height, ascii_only=ascii_only)
    assert len(lines) <= height
    assert all(cell_len(line) <= width for line in lines)
    assert all(line.isprintable() for line in lines)
    assert not ascii_only or all(line.isascii() for line in lines)
    assert lines or not height


def test_at_80_by_24_it_tells_all() -> None:
    lines = drawn(some())
    text = "\n".join(lines)
    assert lines[0] == "lr_wd_aug  running"
    assert "  16/27 trials  1 min 40 s  about " in lines[1]
    assert "4 running" in lines[2]
    assert "3 failed" in lines[2]
    assert "epochs/s" in text
    assert "best    val_accuracy 0.9091  trial " in text
    assert "rungs   about " in text
    assert "epoch 1: " in text
    assert "use     2.7 CPU cores at work  GPUs busy 50 %  4.5 GB of memory" in text
    assert "trial 17  8/10  ▁" in text
    assert "2 failed by ValueError  last trial 4: bad" in text
    assert "1 failed by worker lost  last trial 7: killed" in text
    assert "trial 15 " in text


def test_at_10_lines_what_matters_most_is_left() -> None:
    lines = drawn(some(60, 40, total=100), height=10)
    assert len(lines) == 10
    assert "/100 trials" in lines[1]
    assert any(line.startswith("best ") for line in lines)
    assert any("more running" in line for line in lines)


def test_at_1_line_there_is_the_bar() -> None:
    assert "16/27 trials" in drawn(some(), height=1)[0]


def test_at_40_columns_lines_are_told_on_two() -> None:
    lines = drawn(some(), 40)
    assert lines[1].endswith("16/27 trials")
    assert lines[2].startswith("1 min 40 s")
    assert [line[:8] for line in lines if line.startswith("best ")] == ["best    "]
    assert any(line.startswith("        learning_rate=") for line in lines)


def test_where_there_is_nothing_but_ascii() -> None:
    lines = drawn(some(), ascii_only=True)
    assert lines[1].startswith("[####")
    assert any("_" in line and line.startswith("trial 17") for line in lines)
    assert any("augmentation=??" in line for line in lines)


def test_before_the_first_event() -> None:
    standing = Standing(Outline(name="new", metric="loss", goal="minimize", total=1))
    assert drawn(standing)[:4] == [
        "new  begins",
        f"{'░' * 60}  0/1 trial  0.0 s",
        "0 running  0 epochs/s",
        "best    no trial completed yet",
    ]


def test_one_long_trial_moves_the_bar() -> None:
    standing = some(1, 1, total=1)
    for epoch in range(1, 6):
        standing.observe(EpochReported(trial=0, epoch=epoch, metrics={}, time=1099.0, time_s=1.0))
    line = drawn(standing)[1]
    assert "0/1 trial " in line
    bar = line.partition(" ")[0]
    assert bar.count("█") == pytest.approx(len(bar) / 2, abs=1)


def test_without_a_known_number_of_trials_there_is_no_bar() -> None:
    assert drawn(some(total=None))[1] == "16 trials  1 min 40 s"
    assert drawn(some(5, total=None))[1].startswith("1 trial  ")


def test_a_sweep_that_does_not_run_has_neither_rate_nor_time_left() -> None:
    standing = some()
    lines = drawn(standing, running=False, state="unfinished")
    text = "\n".join(lines)
    assert lines[0] == "lr_wd_aug  unfinished"
    assert " left" not in lines[1]
    assert "epochs/s" not in text
    assert "0 running" in text
    assert "4 to go on with" in text
    standing.observe(SessionEnded(time=1099.0, reason="interrupted"))
    assert drawn(standing, now=9999.0)[0] == "lr_wd_aug  interrupted"
    assert "1 min 39 s" in drawn(standing, now=9999.0)[1]


def test_a_name_that_fills_the_line() -> None:
    assert drawn(some(name="長" * 100), 40)[0] == "長" * 19 + " …"


def test_a_draw_costs_milliseconds() -> None:
    standing = some(500, 100, total=1000)
    begin = time.thread_time()
    for _ in range(10):
        drawn(standing)
    assert (time.thread_time() - begin) / 10 < 0.05  # measured: 1.3e-3, four times a second
