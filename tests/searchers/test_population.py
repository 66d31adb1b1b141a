"""A population: who waits, who is replaced by whom, and that all of it follows from the events."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import fmean
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.events import EpochReported, Event, Facts, Params, Status, TrialEnded, TrialStarted
from sweep.searchers.population import Parent, Population
from sweep.space import Parameter, Space
from sweep.space.domains import Categorical, IntUniform, LogUniform, Normal, Uniform
from sweep.space.early_terminate import PopulationRules
from sweep.space.expressions import Expression
from sweep.space.objectives import Objective
from sweep.store.ledger import OutOfOrder

SPACE = Space(
    (
        Parameter("rate", LogUniform(1e-4, 1.0)),
        Parameter("drop", Uniform(0, 1)),
        Parameter("units", Categorical((8, 16, 32))),
    ),
)
LOSS = Objective("loss", "minimize")
RULES = PopulationRules(size=4, interval=2, epochs=8)
METHODS = st.sampled_from(["pbt", "pb2"])


def population(rules: PopulationRules = RULES, space: Space = SPACE, seed: int = 0) -> Population:
    return Population(space, LOSS, seed, rules)


def ended(trial: int, status: Status, reason: str = "") -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason=reason, time=0.0, facts=Facts())


class Course:
    """Drives a population as a coordinator does, one step of a random trial after the other."""

    def __init__(
        self, found: Population, loss: Callable[[int, int], float], rules: PopulationRules = RULES
    ) -> None:
        self.found, self.loss, self.rules = found, loss, rules
        self.log: list[Event] = []
        self.epoch: dict[int, int] = {}
        self.out: set[int] = set()
        self.parents: dict[int, Parent] = {}
        self.params: dict[int, Params] = {}

    def tell(self, event: Event) -> None:
        self.log.append(event)
        self.found.observe(event)

    def start(self) -> bool:
        number = len(self.epoch)
        params = self.found.suggest(number)
        if params is None:
            return False
        parent = self.found.parent(number)
        where = (None, None) if parent is None else (parent.trial, parent.epoch)
        trial, epoch = where
        self.tell(
            TrialStarted(
                trial=number,
                trial_id="",
                params=params,
                seed=0,
                repeat=0,
                time=0.0,
                parent=trial,
                parent_epoch=epoch,
            )
        )
        self.epoch[number], self.params[number] = 0, params
        if parent is not None:
            self.parents[number] = parent
            for done in range(1, parent.epoch + 1):
                self.report(number, done, memo="pop/0")
        return True

    def report(self, trial: int, epoch: int, memo: str | None = None) -> None:
        self.epoch[trial] = epoch
        metrics = {"loss": self.loss(trial, epoch)}
        self.tell(
            EpochReported(
                trial=trial, epoch=epoch, metrics=metrics, time=0.0, time_s=1.0, memo=memo
            )
        )
        if self.found.holds(trial):
            self.tell(ended(trial, Status.INTERRUPTED))

    def run(self, choose: Callable[[list[int]], int]) -> None:
        """Train to the end; ``choose`` says which of the trials that may go on does."""
        alive: set[int] = set()
        number = 0
        while True:
            for trial, reason in [*self.found.dropped(rest=False).items()]:
                self.tell(ended(trial, Status.PRUNED, reason))
                alive.discard(trial)
            while self.start():
                alive.add(number)
                number += 1
            ready = sorted(trial for trial in alive if not self.found.holds(trial))
            if not ready:
                assert not alive, "those that are left wait for ever"
                return
            trial = choose(ready)
            self.report(trial, self.epoch[trial] + 1)
            if self.epoch[trial] == self.rules.epochs:
                self.tell(ended(trial, Status.COMPLETED))
                alive.discard(trial)


def by_rate(course: Course) -> Callable[[int, int], float]:
    return lambda trial, epoch: course.params[trial]["rate"] / epoch


def trained(
    choose: Callable[[list[int]], int] = min, rules: PopulationRules = RULES, seed: int = 0
) -> Course:
    course = Course(population(rules, seed=seed), lambda trial, epoch: 0.0, rules)
    course.loss = by_rate(course)
    course.run(choose)
    return course


def test_the_worst_is_replaced_by_a_copy_of_the_best_at_the_end_of_each_generation() -> None:
    course = trained()
    first = [course.params[trial]["rate"] for trial in range(4)]
    assert course.parents[4] == Parent(first.index(min(first)), 2)
    pruned = [
        event
        for event in course.log
        if isinstance(event, TrialEnded) and event.status is Status.PRUNED
    ]
    assert pruned[0].trial == first.index(max(first))
    assert f"trial {course.parents[4].trial} takes its place" in pruned[0].reason
    assert len(pruned) == 3
    assert len(course.epoch) == RULES.most_trials == 7


@given(st.randoms(use_true_random=False), st.integers(2, 9), st.integers(1, 4), METHODS)
@settings(max_examples=20, deadline=None)
def test_the_order_in_which_members_train_changes_nothing(
    numbers: Random, size: int, interval: int, method: Literal["pbt", "pb2"]
) -> None:
    rules = PopulationRules(size=size, interval=interval, epochs=8, method=method)
    first, second = trained(min, rules), trained(numbers.choice, rules)
    assert first.params == second.params
    assert first.parents == second.parents
    assert first.epoch == second.epoch


@given(st.integers(0, 80), METHODS)
@settings(max_examples=20, deadline=None)
def test_who_observes_the_same_says_the_same(length: int, method: Literal["pbt", "pb2"]) -> None:
    rules = replace(RULES, method=method)
    course = trained(rules=rules)
    again = population(rules)
    for event in course.log[:length]:
        again.observe(event)
    whole = population(rules)
    for event in course.log[:length]:
        whole.observe(event)
        whole.suggest(5)  # asking changes nothing
    assert [again.suggest(number) for number in range(8)] == [
        whole.suggest(number) for number in range(8)
    ]
    assert dict(again.dropped(rest=False)) == dict(whole.dropped(rest=False))
    assert [again.holds(number) for number in range(8)] == [
        whole.holds(number) for number in range(8)
    ]


def test_members_wait_for_all_others() -> None:
    found = population()
    for number in range(4):
        start(found, number)
    for number in range(3):
        for epoch in (1, 2):
            found.observe(
                EpochReported(
                    trial=number, epoch=epoch, metrics={"loss": number}, time=0.0, time_s=1.0
                )
            )
        assert found.holds(number)
    assert found.suggest(4) is None
    assert found.waits
    found.observe(EpochReported(trial=3, epoch=1, metrics={"loss": 0.0}, time=0.0, time_s=1.0))
    assert not found.holds(3)
    found.observe(EpochReported(trial=3, epoch=2, metrics={"loss": 9.0}, time=0.0, time_s=1.0))
    assert found.holds(3) == "waits for the others at epoch 2"  # until it is left there
    for number in range(4):
        found.observe(ended(number, Status.INTERRUPTED))
    # a copy is to start first
    assert [bool(found.holds(number)) for number in range(4)] == [True] * 4
    start(found, 4)
    assert [found.holds(number) for number in range(4)] == [None] * 4
    assert list(found.dropped(rest=False)) == [3]
    assert found.parent(4) == Parent(0, 2)


def start(found: Population, number: int) -> None:
    params = found.suggest(number)
    assert params is not None
    found.observe(
        TrialStarted(trial=number, trial_id="", params=params, seed=0, repeat=0, time=0.0)
    )


@pytest.mark.parametrize("status", [Status.FAILED, Status.DIVERGED, Status.OOM])
def test_a_member_that_is_lost_is_replaced_as_well(status: Status) -> None:
    found = population()
    for number in range(4):
        start(found, number)
    found.observe(ended(1, status))
    for number in (0, 2, 3):
        for epoch in (1, 2):
            metrics = {"loss": math.nan if number == 2 else float(number)}
            found.observe(
                EpochReported(trial=number, epoch=epoch, metrics=metrics, time=0.0, time_s=1.0)
            )
    assert list(found.dropped(rest=False)) == [2]
    assert [found.parent(4), found.parent(5)] == [Parent(0, 2)] * 2


def test_copies_are_moved_a_little_and_keep_what_has_no_range() -> None:
    course = trained(rules=PopulationRules(size=8, interval=1, epochs=9, resample=0.0))
    for trial, parent in course.parents.items():
        before, after = course.params[parent.trial], course.params[trial]
        assert after["units"] == before["units"]
        for name, bounds in (("rate", (1e-4, 1.0)), ("drop", (0.0, 1.0))):
            moved = [min(max(before[name] * factor, bounds[0]), bounds[1]) for factor in (0.8, 1.2)]
            assert any(after[name] == pytest.approx(one) for one in moved)


def test_named_parameters_alone_change_and_a_choice_goes_to_the_next_one() -> None:
    rules = PopulationRules(size=8, interval=1, epochs=9, resample=0.0, perturb=("units",))
    course = trained(rules=rules)
    values = (8, 16, 32)
    for trial, parent in course.parents.items():
        before, after = course.params[parent.trial], course.params[trial]
        assert (after["rate"], after["drop"]) == (before["rate"], before["drop"])
        assert abs(values.index(after["units"]) - values.index(before["units"])) <= 1


@pytest.mark.parametrize(
    ("domain", "value", "reached"),
    [
        (IntUniform(0, 9), 1, {0, 2}),
        (IntUniform(0, 9), 2, {1, 3}),
        (IntUniform(0, 9), 0, {0, 1}),
        (IntUniform(-9, 9), -2, {-1, -3}),
        (IntUniform(1, 2), 2, {1, 2}),
        (IntUniform(1, 99), 50, {40, 60}),
        (Uniform(0, 1, q=0.1), 0.2, {0.1, 0.3}),
        (Uniform(0, 1), 0.5, {0.4, 0.6}),
    ],
)
def test_a_copy_moves_a_number_with_steps_by_at_least_one(
    domain: IntUniform | Uniform, value: float, reached: set[float]
) -> None:
    rules = replace(RULES, resample=0.0)
    found = set()
    for seed in range(9):
        one = Population(
            Space((Parameter("a", domain),)), LOSS, seed, rules, [{"a": value}] * rules.size
        )
        for number in range(rules.size):
            start(one, number)
        for number in range(rules.size):
            report = EpochReported(
                trial=number, epoch=2, metrics={"loss": 1.0}, time=0.0, time_s=1.0
            )
            one.observe(report)
        copy = one.suggest(rules.size)
        assert copy is not None
        assert type(copy["a"]) is type(value)
        found.add(copy["a"])
    assert found == reached


FEW = Space((Parameter("rate", IntUniform(1, 3)),))
COARSE = Space((Parameter("rate", Normal(0, 0.3, q=1)),))  # infinite in name only


@pytest.mark.parametrize(("space", "counts"), [(FEW, [2, 3, 3]), (COARSE, [2, 3, 3])])
@pytest.mark.parametrize("method", ["pbt", "pb2"])
def test_a_population_larger_than_its_space_shares_the_configurations(
    method: Literal["pbt", "pb2"], space: Space, counts: list[int]
) -> None:
    rules = PopulationRules(size=8, interval=3, epochs=9, method=method)
    course = Course(population(rules, space), lambda trial, epoch: 0.0, rules)
    course.loss = by_rate(course)
    course.run(min)
    starts = Counter(str(course.params[number]) for number in range(8))
    assert sorted(starts.values()) == counts
    assert len(course.params) == rules.most_trials


@pytest.mark.parametrize("method", ["pbt", "pb2"])
def test_copies_meet_the_constraints(method: Literal["pbt", "pb2"]) -> None:
    space = Space(SPACE.parameters, (Expression.parse("rate < drop"),))
    rules = PopulationRules(size=6, interval=1, epochs=10, method=method)
    course = Course(population(rules, space), lambda trial, epoch: 0.0)
    course.rules = rules
    course.loss = by_rate(course)
    course.run(min)
    assert all(params["rate"] < params["drop"] for params in course.params.values())


@pytest.mark.parametrize(
    ("size", "quantile", "replaced"),
    [(4, 0.25, 1), (8, 0.25, 2), (2, 0.5, 1), (3, 0.5, 1), (20, 0.2, 4), (5, 0.01, 1)],
)
def test_at_least_one_is_replaced_and_at_most_half(
    size: int, quantile: float, replaced: int
) -> None:
    assert PopulationRules(size=size, interval=1, epochs=4, quantile=quantile).replaced == replaced


GUIDED = PopulationRules(size=8, interval=1, epochs=6, quantile=0.5, method="pb2")


def at_the_end_of_the_first_generation(
    rules: PopulationRules, failed: tuple[int, ...] = (), status: Status = Status.FAILED
) -> Population:
    found = population(rules)
    for number in range(rules.size):
        start(found, number)
    for number in range(rules.size):
        if number in failed:
            found.observe(ended(number, status))
        else:
            found.observe(
                EpochReported(
                    trial=number, epoch=1, metrics={"loss": float(number)}, time=0.0, time_s=1.0
                )
            )
    return found


def test_copies_of_a_generation_differ_and_do_not_depend_on_when_they_are_asked() -> None:
    first, second = (
        at_the_end_of_the_first_generation(GUIDED),
        at_the_end_of_the_first_generation(GUIDED),
    )
    numbers = range(8, 12)
    copies = [first.suggest(number) for number in numbers]
    parents = [first.parent(number) for number in numbers]
    parent = parents[-1]
    assert parent is not None
    again = EpochReported(trial=parent.trial, epoch=1, metrics={"loss": 99.0}, time=0.0, time_s=1.0)
    with pytest.raises(OutOfOrder):  # and it changes nothing
        second.observe(again)
    assert [second.suggest(number) for number in reversed(numbers)] == copies[::-1]
    assert len({str(copy) for copy in copies}) == 4
    assert None not in copies
    start(second, 8)
    assert second.suggest(9) == copies[1]


def test_a_model_moves_numbers_and_keeps_what_has_no_range() -> None:
    course = trained(rules=GUIDED)
    factors = set()
    for trial, parent in course.parents.items():
        before, after = course.params[parent.trial], course.params[trial]
        assert after["units"] == before["units"]
        factors.add(round(after["rate"] / before["rate"], 3))
    assert not factors <= {0.8, 1.2}


def test_a_model_moves_the_named_numbers_alone_and_choices_as_pbt_does() -> None:
    course = trained(rules=replace(GUIDED, perturb=("rate", "units"), resample=0.0))
    values = (8, 16, 32)
    moves = set()
    for trial, parent in course.parents.items():
        before, after = course.params[parent.trial], course.params[trial]
        assert after["drop"] == before["drop"]
        moves.add(values.index(after["units"]) - values.index(before["units"]))
    assert moves <= {-1, 0, 1}
    assert len(moves) > 1


def test_where_too_little_is_known_copies_are_moved_as_in_pbt() -> None:
    small = PopulationRules(size=2, interval=1, epochs=4)
    for failed, same in (((1,), True), ((), False)):
        one = at_the_end_of_the_first_generation(replace(small, method="pb2"), failed)
        other = at_the_end_of_the_first_generation(small, failed)
        assert (one.suggest(2) == other.suggest(2)) is same


def report(number: int, epoch: int, memo: str | None = None) -> EpochReported:
    metrics = {"loss": float(number) / epoch}
    return EpochReported(
        trial=number, epoch=epoch, metrics=metrics, time=0.0, time_s=1.0, memo=memo
    )


@pytest.mark.parametrize("generation", [1, 2])
def test_a_member_that_explodes_in_the_first_epoch_of_a_generation_counts(generation: int) -> None:
    """That epoch is not reported."""
    chosen = []
    for status in (Status.FAILED, Status.DIVERGED, Status.OOM):
        if generation == 1:
            found = at_the_end_of_the_first_generation(GUIDED, (7,), status)
        else:
            found = at_the_end_of_the_first_generation(GUIDED)
            replaced = set(found.dropped(rest=False))
            for number in replaced:
                found.observe(ended(number, Status.PRUNED))
            for number in range(8, 12):
                start(found, number)
                found.observe(report(number, 1, memo="pop/0"))
            for number in sorted({*range(11)} - replaced):
                found.observe(report(number, 2))
            found.observe(ended(11, status))
        first = 8 if generation == 1 else 12
        chosen.append([found.suggest(number) for number in range(first, first + 4)])
    failed, diverged, out_of_memory = chosen
    assert None not in failed
    assert diverged == out_of_memory
    assert diverged != failed


class Drift(Course):
    """The loss falls faster the nearer a member is to a place that wanders while they train."""

    def __init__(self, rules: PopulationRules, seed: int) -> None:
        space = Space((Parameter("x", Uniform(0, 1)), Parameter("y", Uniform(0, 1))))
        super().__init__(population(rules, space, seed), self.fall, rules)
        self.values: dict[tuple[int, int], float] = {}

    def place(self, epoch: int) -> float:
        return 0.9 - 0.8 * epoch / self.rules.epochs

    def fall(self, trial: int, epoch: int) -> float:
        parent = self.parents.get(trial)
        if parent is not None and epoch <= parent.epoch:
            value = self.values[parent.trial, epoch]
        else:
            params = self.params[trial]
            away = (params["x"] - self.place(epoch)) ** 2 + (params["y"] - 0.5) ** 2
            value = self.values.get((trial, epoch - 1), 10.0) - math.exp(-away / 0.05)
        self.values[trial, epoch] = value
        return value

    @property
    def away(self) -> float:
        """How far copies begin from that place, on average, once a model has seen some generations."""
        return fmean(
            math.hypot(
                self.params[trial]["x"] - self.place(parent.epoch + 1),
                self.params[trial]["y"] - 0.5,
            )
            for trial, parent in self.parents.items()
            if parent.epoch >= 4
        )


def test_a_model_finds_a_good_region_that_wanders() -> None:
    found: dict[str, list[float]] = {"pbt": [], "pb2": []}
    for method in ("pbt", "pb2"):
        for seed in range(3):
            course = Drift(PopulationRules(size=8, interval=1, epochs=12, method=method), seed)
            course.run(min)
            found[method].append(course.away)
    assert all(a < b for a, b in zip(found["pb2"], found["pbt"], strict=True))
    assert fmean(found["pb2"]) < 0.7 * fmean(found["pbt"])
