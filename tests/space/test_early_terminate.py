"""Termination rules: the epochs at which each can act."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweep.space.early_terminate import (
    Asha,
    AshaPromotion,
    EarlyTermination,
    FreezeThaw,
    Hyperband,
    Median,
    NoTermination,
    Pasha,
    compute_decision_epochs,
    default_first_rung,
    list_brackets,
)


@pytest.mark.parametrize(
    ("rule", "epochs", "expected"),
    [
        (NoTermination(), 20, ()),
        (Asha(), 27, ((1, 3, 9),)),
        (Asha(), 28, ((1, 3, 9, 27),)),
        (Asha(max_iter=9), 100, ((1, 3, 9),)),
        (Asha(min_iter=2, eta=2, brackets=3), 20, ((2, 4, 8, 16), (4, 8, 16), (8, 16))),
        (Asha(eta=1.5), 6, ((1, 2, 3, 4),)),  # 1, 1.5, 2.25, 3.375: the epoch that reaches each
        (Asha(min_iter=20), 20, ((),)),
        (Hyperband(min_iter=3), 100, ((3, 9, 27, 81),)),
        (Hyperband(max_iter=27, s=2), 27, ((3, 9),)),
        (Hyperband(max_iter=27, s=5), 27, ((1, 3, 9),)),
        (Hyperband(max_iter=100, s=2, eta=2), 30, ((25,),)),
        (Hyperband(min_iter=1, max_iter=9, s=1), 27, ((3,),)),
        (Hyperband(min_iter=1, eta=1.5), 6, ((1, 2, 3, 5),)),
        (Median(min_iter=3), 6, ((3, 4, 5),)),
        (Median(), 1, ((),)),
    ],
)
def test_brackets(
    rule: EarlyTermination, epochs: int, expected: tuple[tuple[int, ...], ...]
) -> None:
    assert list_brackets(rule, epochs) == expected


rules = st.one_of(
    st.builds(Asha, st.integers(1, 30), st.none(), st.floats(1.1, 10), st.integers(1, 4)),
    st.builds(Hyperband, min_iter=st.integers(1, 30), eta=st.floats(1.1, 10)),
    st.builds(
        Hyperband, max_iter=st.integers(1, 300), s=st.integers(1, 10), eta=st.floats(1.1, 10)
    ),
    st.builds(Median, st.integers(1, 30)),
)


@given(rules, st.integers(1, 200))
def test_decisions_fall_before_the_last_epoch(rule: EarlyTermination, epochs: int) -> None:
    decisions = compute_decision_epochs(rule, epochs)
    assert list(decisions) == sorted(set(decisions))
    assert all(1 <= epoch < epochs for epoch in decisions)


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: Asha(min_iter=0),
        lambda: Asha(eta=1),
        lambda: Asha(brackets=0),
        lambda: Asha(min_iter=5, max_iter=4),
        lambda: Hyperband(),
        lambda: Hyperband(max_iter=27),
        lambda: Hyperband(min_iter=1, eta=1),
        lambda: Median(min_iter=0),
        # As in a sweep file: each bound is written once, at the rule.
        lambda: Asha(eta=1.05),
        lambda: AshaPromotion(min_iter=5, max_iter=4),
        lambda: Pasha(epsilon=-0.1),
        lambda: FreezeThaw(share=101),
        lambda: Hyperband(min_iter=1, max_iter=9),
    ],
)
def test_nonsense_is_refused(nonsense: object) -> None:
    with pytest.raises(ValueError, match="not a rule"):
        nonsense()


@pytest.mark.parametrize(
    ("rule", "epochs", "first"),
    [
        (Asha(), 52, 6),
        (Asha(), 81, 9),
        (Asha(), 82, 10),
        (Asha(), 1, 1),
        (Asha(), 2, 1),
        (Asha(eta=4), 52, 4),
        (Asha(eta=1.1), 3, 2),
        (Asha(eta=1000), 100_000, 1),
        (Asha(brackets=3), 52, 2),
        (Asha(brackets=2), 52, 6),
        (Asha(max_iter=3), 52, 3),
        (AshaPromotion(eta=2), 100, 25),
        (Pasha(), 27, 3),
        (FreezeThaw(), 27, 3),
        (Median(), 52, 6),
    ],
)
def test_where_a_rule_begins_with_a_method_that_learns(
    rule: EarlyTermination, epochs: int, first: int
) -> None:
    assert default_first_rung(rule, epochs) == first
    if epochs > 1:
        assert all(list_brackets(replace(rule, min_iter=first), epochs))  # type: ignore[call-arg]  # each of these has one
