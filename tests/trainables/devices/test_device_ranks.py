"""Processes meet, sum up over all of their devices, and notice when one of them is gone or has failed."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import pytest
from rank_processes import HEARTBEAT_S, together
from rank_sums import meet, sum_without, sums, threads_of_sums

pytestmark = [pytest.mark.keras, pytest.mark.slow]


def test_each_rank_brings_its_devices_and_those_of_all_are_summed_up() -> None:
    with together(2, gpus=2) as gang:
        assert gang.call(meet) == [("multi_worker", 4, 2)] * 2
        assert gang.call(sums) == [[6.0, 6.0]] * 2
        assert max(gang.call(threads_of_sums, 200)) < 50  # a sum leaves no thread behind


def test_a_rank_that_fails_and_lives_lets_the_others_go() -> None:
    with together(2) as gang:
        gang.call(sums)
        (error, waited), _ = gang.call(sum_without, 1, "it")
        assert "enough of it" in error
        assert 0.5 < waited < HEARTBEAT_S


@pytest.mark.exhaustive
def test_a_rank_ends_its_own_sums_from_another_thread() -> None:
    with together(2) as gang:
        gang.call(sums)
        (error, waited), _ = gang.call(sum_without, 1, "they")
        assert "enough of it" in error
        assert 0.5 < waited < HEARTBEAT_S


def gone(rank: int, how: signal.Signals, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(rank, how, marks=marks, id=f"{rank}-{how.name}")


@pytest.mark.parametrize(
    ("rank", "how"),
    [
        gone(1, signal.SIGKILL),
        gone(0, signal.SIGKILL, pytest.mark.exhaustive),
        gone(1, signal.SIGSTOP, pytest.mark.exhaustive),
        gone(0, signal.SIGSTOP, pytest.mark.exhaustive),
    ],
)
def test_a_rank_that_is_gone_or_frozen_is_noticed_by_its_heartbeat(
    rank: int, how: signal.Signals
) -> None:
    with together(2, heartbeat_s=4.0) as gang:
        gang.call(sums)
        threading.Timer(0.5, os.kill, (gang.pids[rank], how)).start()
        for pipe in gang.pipes:
            pipe.send((sum_without, (rank, "", 600.0)))
        ((error, _),) = gang.answers(600.0, [1 - rank])
        assert error != "a sum"
