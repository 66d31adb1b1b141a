"""The numbering of trials, whose places stay unique and the same however often the number of repeats changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sweep.analysis.numbering import Numbering, Slot
from sweep.events import Role, TrialStarted
from sweep.store.ledger import TrialState


def started(trial: int, place: int | None, role: Role = Role.SEARCH) -> TrialState:
    index = place if place != trial else None
    return TrialState(
        TrialStarted(
            trial=trial, trial_id="t", params={}, seed=0, repeat=0, time=0.0, role=role, index=index
        )
    )


class Course:
    """Starts trials as a coordinator would, by a numbering that changes."""

    def __init__(self, trials_each: int, *, has_baseline: bool) -> None:
        shift = trials_each if has_baseline else 0
        self.numbering = Numbering(trials_each=trials_each, has_baseline=has_baseline, shift=shift)
        self.trials: list[TrialState] = []
        self.slots: list[Slot] = []
        self.baseline = 0

    def start(self, skip: int) -> None:
        """Start the first free trial, or one that is as many places later."""
        if self.numbering.has_baseline and self.baseline < self.numbering.trials_each:
            number = self.numbering.number_baseline(self.baseline)
            self.baseline += 1
            self.trials.append(started(number, None, Role.BASELINE))
            return
        taken = {trial.place for trial in self.trials}
        place = self.numbering.first
        while place in taken or skip:
            skip -= place not in taken
            place += 1
        self.trials.append(started(self.numbering.number_search(place), place))
        self.slots.append(self.numbering.find(place))

    def change(self, trials_each: int) -> None:
        self.numbering = self.numbering.change(self.trials, trials_each)


STEPS = st.lists(st.one_of(st.integers(0, 3), st.sampled_from(["1", "2", "3", "5"])), max_size=40)


def take(steps: list[int | str], trials_each: int, *, has_baseline: bool) -> Course:
    course = Course(trials_each, has_baseline=has_baseline)
    for step in steps:
        if isinstance(step, int):
            course.start(step)
        else:
            course.change(int(step))
    return course


@given(STEPS, st.integers(1, 4), st.booleans())
def test_no_place_number_or_trial_of_a_configuration_is_used_twice(
    steps: list[int | str], trials_each: int, has_baseline: bool
) -> None:
    course = take(steps, trials_each, has_baseline=has_baseline)
    places = [trial.place for trial in course.trials if trial.place is not None]
    numbers = [trial.number for trial in course.trials]
    assert len(set(places)) == len(places)
    assert len(set(numbers)) == len(numbers)
    assert len(set(course.slots)) == len(course.slots)


@given(STEPS, st.integers(1, 4), st.booleans())
def test_what_a_place_stands_for_never_changes(
    steps: list[int | str], trials_each: int, has_baseline: bool
) -> None:
    """A process that replays the log, and one that reads it at its end, find the same."""
    course = take(steps, trials_each, has_baseline=has_baseline)
    again = take(steps, trials_each, has_baseline=has_baseline)
    assert again.numbering == course.numbering
    places = [trial.place for trial in course.trials if trial.place is not None]
    assert [course.numbering.find(place) for place in places] == course.slots


@given(STEPS, st.integers(1, 4), st.booleans())
def test_in_the_end_each_configuration_has_all_of_its_trials(
    steps: list[int | str], trials_each: int, has_baseline: bool
) -> None:
    course = take(steps, trials_each, has_baseline=has_baseline)
    configurations = len({slot.configuration for slot in course.slots}) + 2
    end = course.numbering.find_end(configurations)
    taken = {trial.place for trial in course.trials}
    left = [place for place in range(course.numbering.first, end) if place not in taken]
    found = {*course.slots, *map(course.numbering.find, left)}
    group_by_configuration: dict[int, set[int]] = {}
    for slot in found:
        group_by_configuration.setdefault(slot.configuration, set()).add(slot.within)
    wanted = set(range(course.numbering.trials_each))
    for configuration, within in group_by_configuration.items():
        assert within >= wanted
        assert course.numbering.count(configuration) == len(within)
    if not any(isinstance(step, int) and step for step in steps):
        assert len(group_by_configuration) == configurations


@given(
    st.lists(st.integers(0, 3), max_size=40), st.integers(1, 4), st.booleans(), st.integers(0, 9)
)
def test_without_a_change_it_is_the_number_of_the_configuration_times_its_trials(
    steps: list[int], trials_each: int, has_baseline: bool, configurations: int
) -> None:
    course = take([*steps], trials_each, has_baseline=has_baseline)
    for place in range(99):
        assert course.numbering.find(place) == divmod(place, trials_each)
        assert course.numbering.number_search(place) == place + (trials_each if has_baseline else 0)
        assert not course.numbering.is_lacking(place)
    assert course.numbering.find_end(configurations) == configurations * trials_each
    assert course.numbering.find_first_place(configurations) == configurations * trials_each
    assert course.numbering.is_plain == (trials_each == 1)


@given(STEPS, st.integers(1, 4))
def test_a_configuration_that_has_not_begun_is_found(
    steps: list[int | str], trials_each: int
) -> None:
    course = take([*steps, "2"], trials_each, has_baseline=False)
    begun = {slot.configuration for slot in course.slots}
    for configuration in range(99):
        if configuration not in begun:
            assert course.numbering.find(course.numbering.find_first_place(configuration)) == (
                configuration,
                0,
            )


def test_what_configurations_lack_comes_first() -> None:
    course = take([0, 0, 1, "3"], 1, has_baseline=False)  # configurations 0, 1 and 3
    numbering = course.numbering
    assert (numbering.first, numbering.beyond) == (4, 4)
    slots = [numbering.find(place) for place in range(4, 17)]
    assert slots[:6] == [(0, 1), (0, 2), (1, 1), (1, 2), (3, 1), (3, 2)]
    assert slots[6:] == [(2, 0), (2, 1), (2, 2), (4, 0), (4, 1), (4, 2), (5, 0)]
    assert [numbering.is_lacking(place) for place in (9, 10)] == [True, False]
    assert numbering.find_end(4) == 13
    assert [numbering.find(place) for place in (0, 1, 3)] == [(0, 0), (1, 0), (3, 0)]


def test_fewer_repeats_leave_what_was_trained() -> None:
    course = take([0, 0, 0, 0, "1"], 3, has_baseline=True)
    assert [trial.number for trial in course.trials] == [0, 1, 2, 3]
    numbering = course.numbering
    assert (numbering.lacking, numbering.find(1), numbering.number_search(1)) == ((), (1, 0), 4)
    assert numbering.count(0) == 1
