"""What the forms of the page are filled in with."""

from __future__ import annotations

from living import FILE, start, trial

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.events import SweepChanged
from sweep.spec import parse_spec
from sweep.spec.changes import with_assignments
from sweep.ui.prefilling import NOTHING, list_form_lines

T = 1_700_000_000.0
SPEC = parse_spec(FILE.replace("NAME", "one") + "budget: {hours: 3}\n", "one.yaml")


def test_a_sweep_that_begins_offers_what_its_file_has() -> None:
    lines = list_form_lines(Standing(Outline.of(SPEC)))
    assert lines.configuration == ("learning_rate=", "units=", "optimizer=")
    assert lines.parameters == (
        "learning_rate={distribution: log_uniform_values, min: 0.0001, max: 0.1}",
        "units={values: [8, 16, 32]}",
        "optimizer={values: [adam, sgd]}",
    )
    assert lines.keys[:4] == (
        "parameters.learning_rate.min=0.0001",
        "parameters.learning_rate.max=0.1",
        "parameters.units.values=[8, 16, 32]",
        "parameters.optimizer.values=[adam, sgd]",
    )
    assert {"run_cap=12", "budget.hours=3.0"} <= set(lines.keys)


def test_each_key_is_what_change_takes() -> None:
    changed = with_assignments(SPEC, list_form_lines(Standing(Outline.of(SPEC))).keys, "one")
    assert changed.to_json_dict() == SPEC.to_json_dict()


def test_the_best_trial_and_changes_are_followed() -> None:
    standing = Standing(Outline.of(SPEC))
    for event in trial(2, T):
        standing.observe(event)
    standing.observe(start(3, T))
    lines = list_form_lines(standing)
    assert lines.configuration[1:] == ("units=32", "optimizer=adam")
    standing.observe(SweepChanged(settings={"run_cap": 40}, request="a", time=T))
    assert "run_cap=40" in list_form_lines(standing).keys


def test_a_file_that_is_not_known_gives_nothing() -> None:
    assert list_form_lines(Standing(Outline(name="one", metric="loss", goal="minimize"))) == NOTHING
