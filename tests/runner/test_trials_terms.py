from __future__ import annotations

from sweep.contract import Devices, Fold
from sweep.runner.trials import OpenTrial, Terms
from sweep.spec import Spec, parse_spec
from sweep.store.ledger import TrialState

FILE = """
name: cut
trainable: none:None
method: grid
metric: {name: score}
parameters: {a: {values: [1, 2]}}
seed: 7
"""


def spec(more: str = "") -> Spec:
    return parse_spec(FILE + more, "f.yaml")


def test_folds_of_one_repeat_have_its_seed_and_are_one_cut() -> None:
    given = spec("folds: 3\nrepeats: 2\n")
    assert (given.trials, given.trials_each) == (2, 6)
    terms = Terms(given)
    started = [terms.start(number, {"a": 1}, number) for number in range(6)]
    assert [(one.repeat, one.fold, one.seed) for one in started] == [
        *((0, fold, 7) for fold in range(3)),
        *((1, fold, 8) for fold in range(3)),
    ]
    assert terms.order(OpenTrial(TrialState(started[4]), 1, ()), Devices()).assignment.fold == Fold(
        1, 3, 8
    )


def test_all_trials_load_their_data_under_one_seed() -> None:
    for more, expected in (
        ("repeats: 2\n", 7),
        ("folds: 2\nrepeats: 2\n", 7),
        ("training: {data_seed: 3}\n", 3),
    ):
        terms = Terms(spec(more))
        orders = [
            terms.order(
                OpenTrial(TrialState(terms.start(number % 2, {"a": 1}, number)), 1, ()),
                Devices(),
            )
            for number in range(4)
        ]
        assert {order.assignment.data_seed for order in orders} == {expected}


def test_without_folds_there_are_none() -> None:
    terms = Terms(spec("repeats: 2\n"))
    started = terms.start(1, {"a": 1}, 3)
    assert (started.repeat, started.fold, started.seed) == (1, None, 8)
    assert terms.order(OpenTrial(TrialState(started), 1, ()), Devices()).assignment.fold is None
