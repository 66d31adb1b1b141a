"""Parameters that nothing reads: told after the first epoch that shows it, and once."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.backends import Job
from sweep.backends.unread import UnreadParameters
from sweep.contract import Incompatible
from sweep.space.objectives import Objective
from sweep.spec import parse_spec


def unread_of(*unsure: str, **more: tuple[str, ...]) -> UnreadParameters:
    return UnreadParameters(
        Job("s", "m:M", (), Path(), Objective("loss", "minimize"), unsure=unsure, **more)
    )  # type: ignore[arg-type]  # any of its fields


def test_what_no_trial_reads_is_told_once_with_what_was_asked_for() -> None:
    unread = unread_of("widht", "depth", "rate")
    params = {"widht": 1, "depth": 2}
    watched = unread.wrap_params(params)
    watched.get("width"), watched["depth"]
    line = "nothing has read parameter 'widht' in a whole epoch; did you mean 'width'?"
    assert (unread.report_unread(params), unread.report_unread(params)) == ([line], [])


def test_no_name_is_suggested_where_none_is_like_it() -> None:
    unread = unread_of("rate")
    unread.wrap_params({"rate": 1}).get("mean_pool")
    assert unread.report_unread({"rate": 1}) == [
        "nothing has read parameter 'rate' in a whole epoch"
    ]


def test_what_an_earlier_trial_has_read_is_known_and_an_absent_one_waits() -> None:
    unread = unread_of("rate")
    assert unread.wrap_params({"other": 1})["other"] == 1
    assert unread.report_unread({"other": 1}) == []
    assert unread.wrap_params({"rate": 1})["rate"] == 1
    assert unread.report_unread({"rate": 1}) == []


def test_each_trial_tells_what_it_has_read() -> None:
    unread = unread_of()
    assert unread.wrap_params({"a": 1, "b": 2})["a"] == 1
    assert unread.now == {"a"}
    dict(unread.wrap_params({"a": 1, "b": 2}))
    assert unread.now == {"a", "b"}
    unread.wrap_params({"a": 1})
    assert unread.now == set()


def test_settings_that_nothing_has_read_are_told_once() -> None:
    unread = unread_of(settings=("precision", "patience", "loop"))
    assert unread.report_unread_settings({"patience", "loop"}) == [
        "nothing has read training.precision in a whole epoch, so it has no effect"
    ]
    assert unread.report_unread_settings(set()) == []


SPACE = """
method: random
run_cap: 3
parameters:
  lr_schedule: {value: cosine}
  optimizer: {values: [sgd]}
  rate: {min: 0.1, max: 0.2}
  units: {values: [8, 16]}
  kind: {values: [own, plain]}
  warmup_epochs: {value: 1, when: {kind: own}}
"""


@pytest.mark.parametrize(
    ("about", "read", "hangs"),
    [
        ("lr_schedule", "", True),
        ("lr_schedule optimizer", "", True),
        ("lr_schedule", "rate units", True),  # numbers, which build the same code with other sizes
        ("lr_schedule", "kind", False),  # another kind may not be refused
        ("rate", "", False),
        ("lr_schedule rate", "", False),
        ("warmup_epochs", "", False),  # which some trials lack
        ("training.loop", "", True),  # the file's, for all trials alike
        ("", "lr_schedule", True),
        ("", "rate", False),  # nothing is known of such a refusal but what was read before it
        ("", "", True),
    ],
)
def test_a_refusal_hangs_on_the_file_alone_if_no_sampled_value_can_be_its_cause(
    about: str, read: str, hangs: bool
) -> None:
    space = parse_spec(f"trainable: m:M{SPACE}", "s.yaml").space
    unread = unread_of(
        varying=tuple(space.varying), constant=space.constant, choosing=space.choosing
    )
    params = {
        "lr_schedule": "cosine",
        "optimizer": "sgd",
        "rate": 0.1,
        "units": 8,
        "kind": "own",
        "warmup_epochs": 1,
    }
    watched = unread.wrap_params(params)
    for name in read.split():
        watched.get(name)
    assert unread.depends_on_file_alone(Incompatible("no", about=about.split())) is hangs


def test_what_is_read_for_some_choices_is_told_of_only_where_no_choice_was_made() -> None:
    params = {"optimizer": "adam", "momentum": 0.9}
    unread = unread_of(sometimes=("momentum",))
    unread.wrap_params(params).get("optimizer")
    assert unread.report_unread(params) == [
        "nothing has read parameter 'momentum' in a whole epoch"
    ]

    unread = unread_of(sometimes=("momentum",), choosing=("optimizer",))
    unread.wrap_params(params).get("optimizer")
    assert unread.report_unread(params) == []
    watched = unread.wrap_params({**params, "optimizer": "sgd"})
    watched.get("momentum")
    assert unread.report_unread(params) == []
