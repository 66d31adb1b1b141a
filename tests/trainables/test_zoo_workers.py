"""The zoo: a used worker is a fresh process, a resumed trial a straight one. All: ``-m "keras or exhaustive"``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from isolation import Processes
from sampling import chosen
from zoo_checks import NAMES
from zoo_runs import USED, resume, straight, used

pytestmark = [pytest.mark.keras, pytest.mark.slow]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    started = Processes(["zoo_runs"])
    yield started
    started.close()


NUMBERS = {name.values[0]: place for place, name in enumerate(NAMES)}
EVERY_DAY = (
    "Adapted",
    "MaskedLSTM",
    "MetricState",
    "MixedImages",
    "OfFeatures",
    "ScheduleFree",
    "TensorFlowNoise",
    "Unshuffled",
)
# constants of the graph that follow from the seed
DRAWN = (
    "DrawnConstant",
    "DrawnTable",
    "Positions",
)


@pytest.mark.parametrize("name", chosen(NAMES, *EVERY_DAY))
def test_a_used_worker_is_a_fresh_process_and_a_resumed_trial_a_straight_one(
    name: str, processes: Processes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        busy = processes.submit(used, name, folder)
        kinds = ("a", "b") if NUMBERS[name] % 6 == 0 or name in DRAWN else ("a",)
        fresh = {kind: processes.submit(straight, name, kind) for kind in kinds}
        *outcomes, paused = busy.result()
        expected = {kind: future.result() for kind, future in fresh.items()}
        # of most, b is compared with b in the same process
        expected.setdefault("b", outcomes[USED.index("b")])
        for kind, outcome in expected.items():
            assert outcome.status == "completed", f"{kind}: {outcome.reason}"
        assert expected["a"].metrics != expected["b"].metrics
        for position, (kind, outcome) in enumerate(zip(USED, outcomes, strict=True)):
            if kind in expected:
                assert outcome == expected[kind], (
                    f"{kind} after {USED[:position]}: {outcome.reason}"
                )
        assert {"failed", "interrupted", "pruned"} <= {outcome.status for outcome in outcomes}
        resumed = processes.submit(resume, name, folder).result()
        assert [*paused.metrics, *resumed.metrics] == expected["a"].metrics
        assert resumed.state == expected["a"].state
