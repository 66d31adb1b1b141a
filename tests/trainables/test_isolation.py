"""A trial's numbers do not depend on what its worker did before."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future

import pytest
from isolation import EPOCHS, KINDS, REFERENCES, Outcome, Processes, shipped
from sampling import sampled

pytestmark = [pytest.mark.keras, pytest.mark.slow]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.close()


def test_all_shipped_trainables_are_found() -> None:
    assert {"trainables.digits_cnn:DigitsCNN", "trainables.cifar_resnet:CifarResNet"} <= set(
        shipped()
    )


EACH = [  # CifarResNet compiles for a minute; the zoo has images and batch statistics
    pytest.param(name, marks=pytest.mark.exhaustive if "resnet" in name else ())
    for name in shipped()
]


@pytest.mark.parametrize("trainable", sampled(EACH, 1))
def test_used_worker_gives_the_numbers_of_a_fresh_process(
    trainable: str, processes: Processes
) -> None:
    # a minute to compile
    kinds = [kind for kind in KINDS if kind != "half" or "resnet" not in trainable]
    orders = [_order(kinds, seed) for seed in range(2 if "tabular" in trainable else 1)]
    used = [processes.run(trainable, order) for order in orders]
    fresh = {kind: processes.run(trainable, [kind]) for kind in REFERENCES if kind in kinds}
    expected = _expected({kind: future.result() for kind, future in fresh.items()})
    for order, found in zip(orders, used, strict=True):
        _compare(order, found, expected)


def _order(kinds: list[str], seed: int) -> list[str]:
    """All kinds of trials, those with numbers of their own twice, mixed."""
    chosen = [*kinds, *(kind for kind in REFERENCES if kind in kinds)]
    random.Random(seed).shuffle(chosen)
    return chosen


def _expected(fresh: dict[str, list[Outcome]]) -> dict[str, Outcome]:
    expected = {kind: outcome for kind, (outcome,) in fresh.items()}
    for kind, outcome in expected.items():
        assert (outcome.status, len(outcome.metrics)) == ("completed", EPOCHS), (
            f"{kind}: {outcome.error}"
        )
    # the kinds do differ
    assert len({str(outcome.metrics) for outcome in expected.values()}) == len(expected)
    return {
        **expected,
        "pruned": Outcome("pruned", expected["twin"].metrics[:1]),
        "failed": Outcome("failed"),
    }


def _compare(order: list[str], found: Future[list[Outcome]], expected: dict[str, Outcome]) -> None:
    for position, (kind, outcome) in enumerate(zip(order, found.result(), strict=True)):
        if kind in ("diverged", "interrupted") or (kind, outcome.status) == ("raised", "failed"):
            assert outcome.status == {"raised": "failed"}.get(kind, kind), outcome.error
        else:
            assert outcome == expected[kind], f"{kind} after {order[:position]}"
