"""What is too large to lie on each process is read by each as far as it needs, with the same numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rank_processes import Here, together
from rank_reads import RECORDS, ROWS, read_by, written
from rank_trials import Trained
from small import assignment

from sweep.contract import Assignment, Devices

pytestmark = [pytest.mark.keras, pytest.mark.slow]

ALONE = Devices(1, 2, simulated=True)


def of_each(kind: str, trial: Assignment) -> tuple[Trained, list[tuple[Any, ...]]]:
    """What comes of a trial alone on two devices, and the same of two processes, which must be it bit for bit."""
    with together(2) as gang:
        answers = gang.call(read_by, kind, trial)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
    alone = read_by(Here(ALONE), kind, trial)
    assert all(answer[0].equals(alone[0]) for answer in answers)
    return alone, answers


@pytest.mark.exhaustive
def test_rows_are_asked_for_by_the_rank_that_computes_them() -> None:
    trial = assignment(
        0, epochs=2, batch_size=16, learning_rate=1e-3, micro_batches=2, optimizer="sgd"
    )
    (_, alone, _), answers = of_each("rows", trial)
    epochs, passes = 2, 2  # of training and of validation
    assert len(alone) >= epochs * passes * ROWS
    for _, asked, _ in answers:  # one chunk of the pass after the last is begun as well
        assert len(asked) <= 0.5 * len(alone) + 16
    assert set(answers[0][1]) | set(answers[1][1]) == set(range(ROWS))


def test_records_are_read_by_the_rank_that_computes_them(tmp_path: Path) -> None:
    written(tmp_path)
    trial = assignment(0, epochs=2, batch_size=24, learning_rate=1e-3, folder=str(tmp_path))
    (_, by_place, passes), answers = of_each("records", trial)
    assert (by_place, passes >= 1) == ((), True)
    for _, read, whole in answers:
        assert whole == 0
        # half of two passes, and of what the next begins with
        assert RECORDS <= len(read) <= 1.5 * RECORDS
    first, second = (set(read[: RECORDS // 2]) for _, read, _ in answers)
    assert first | second == set(range(RECORDS))
    assert not first & second
