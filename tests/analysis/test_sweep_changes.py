"""What changes of the space mean for the configurations that were chosen before."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.analysis import read_sweep
from sweep.analysis.ranking import rank
from sweep.analysis.sweep_changes import has_new_values
from sweep.events import Event, SessionStarted, Status, SweepChanged, TrialEnded, TrialStarted
from sweep.space.domains import (
    Categorical,
    Constant,
    Domain,
    IntUniform,
    LogUniform,
    Normal,
    Uniform,
)
from sweep.space.parameter import Parameter
from sweep.space.search_space import Space
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        (Uniform(0.0, 1.0), Uniform(0.2, 1.0), False),
        (Uniform(0.0, 1.0), Uniform(0.0, 1.1), True),
        (LogUniform(1e-5, 1e-1), LogUniform(1e-4, 1e-2), False),
        (LogUniform(1e-5, 1e-1), Uniform(1e-5, 1e-1), False),  # others are likely now, none is new
        (Uniform(0.0, 1.0, q=0.25), Uniform(0.0, 1.0), True),
        (Uniform(0.0, 1.0), Uniform(0.0, 1.0, q=0.25), False),
        (IntUniform(1, 9), IntUniform(2, 8), False),
        (IntUniform(2, 8), IntUniform(1, 8), True),
        (Categorical((8, 16, 32)), Categorical((32, 16)), False),
        (Categorical((8, 16)), Categorical((8, 16, 32)), True),
        (Categorical((8, 16)), Constant(16), False),
        (Constant(16), Categorical((8, 16)), True),
        (Normal(0.0, 1.0), Normal(0.0, 0.5), False),
        (Uniform(0.0, 1.0), Normal(0.0, 0.5), True),
    ],
)
def test_a_domain_that_is_narrowed_has_no_new_values(
    before: Domain, after: Domain, new: bool
) -> None:
    assert has_new_values(Space((Parameter("a", before),)), Space((Parameter("a", after),))) is new


CHANGES = {
    "narrowed": ({"a": {"values": [1, 2]}}, "2 of its 3 configurations were chosen before."),
    "widened": (
        {"a": {"values": [1, 2, 3, 4]}},
        "2 of its 3 configurations were chosen before, and had no chance of the new values.",
    ),
}


def make_changed_sweep(results: Path, *changes: dict[str, object]) -> ResultsFolder:
    """A grid of which two configurations were tried before each change, and one afterwards."""
    text = "trainable: m:f\nmethod: grid\nmetric: {name: acc, goal: maximize}\nparameters: {a: {values: [1, 2, 3]}}\n"
    spec = parse_spec(text, "s.yaml").to_json_dict()
    info = {"objectives": [{"name": "acc", "goal": "maximize"}], "spec": spec, "first_spec": spec}
    folder = ResultsFolder.create(results, "s", text, info)
    events: list[Event] = [SessionStarted(time=0.0, resumed=False, version="1")]
    number = 0

    def try_some(count: int, version: int) -> None:
        nonlocal number
        for _ in range(count):
            params = {"a": number + 1}
            begun = {
                "trial": number,
                "trial_id": f"t{number}",
                "params": params,
                "seed": 0,
                "repeat": 0,
            }
            events.append(TrialStarted(**begun, time=float(number), space_version=version))
            events.append(
                TrialEnded(trial=number, status=Status.COMPLETED, reason="", time=number + 0.5)
            )
            number += 1

    for version, parameters in enumerate(changes):
        try_some(2 if version == 0 else 1, version)
        settings = {"parameters": parameters}
        events.append(
            SweepChanged(request=f"r{version}", settings=settings, time=float(number), by="ada")
        )
    try_some(1, len(changes))
    with Log(folder.log) as log:
        log.append(events)
    return folder


@pytest.mark.parametrize("kind", CHANGES)
def test_only_a_space_that_was_widened_had_new_values(tmp_path: Path, kind: str) -> None:
    parameters, told = CHANGES[kind]
    said = rank([read_sweep(make_changed_sweep(tmp_path, parameters))]).other_space
    assert said == f"The space was changed 1 time while it was searched: {told}"


def test_the_last_change_that_brought_values_counts(tmp_path: Path) -> None:
    wide, narrow = CHANGES["widened"][0], CHANGES["narrowed"][0]
    said = rank([read_sweep(make_changed_sweep(tmp_path, wide, narrow))]).other_space
    assert said.endswith(
        "3 of its 4 configurations were chosen before, and 2 had no chance of the new values."
    )
