"""Every act of the page pressed in a real browser: its command line is shown, and its event is read from the log."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from browsers import needs_chromium
from living import FILE, begin, driving, make_sweep, params_of, trial
from visiting import Visit, events_of, fill, press_act
from waiting import until

from sweep.events import Event, NoteWritten, SessionEnded, Status, TrialStarred
from sweep.store.folder import ResultsFolder
from sweep.ui.acts import ACTS, Act

pytestmark = [pytest.mark.slow, needs_chromium]

Logged: TypeAlias = list[dict[str, Any]]
"""Events that an act has added to a log."""

RULE = "early_terminate: {type: asha, min_iter: 2, eta: 3}\n"
SHORT = (
    FILE.replace("scored:Scored", "scored:train")
    .replace(RULE, "")
    .replace("run_cap: 12", "run_cap: 4")
)
LONG = SHORT.replace("epochs: 6", "epochs: 2000")
DIGITS = """\
name: model
trainable: trainables.digits_cnn:DigitsCNN
method: grid
metric: {name: val_accuracy, goal: maximize}
parameters:
  learning_rate: {values: [1e-3]}
epochs: 1
"""
RAY = pytest.mark.ray
KERAS = pytest.mark.keras


@dataclass(frozen=True, kw_only=True)
class Row:
    """How an act is pressed, and what must follow."""

    line: str  # after "python -m sweep"
    sweep: str  # "over", "halted" (one configuration is left), "runs", or "model" (a trained Keras model)
    logged: Callable[[Logged], object]  # whether these new events are what was asked for
    fields: Mapping[str, str] | None = None  # None: the act asks for nothing
    log: str = ""  # the sweep whose log has the events, if another
    trial: int | None = None
    says: str = ""  # what the page then says about it among its events
    state: str = ""  # what it then says without being loaded again
    marks: tuple[pytest.MarkDecorator, ...] = ()


def without_epochs(events: Logged) -> Logged:
    return [event for event in events if event["event"] != "epoch_reported"]


def kinds(events: Logged, kind: str) -> Logged:
    return [event for event in events if event["event"] == kind]


def has_ended(events: Logged, reason: str = "finished") -> bool:
    return [event["reason"] for event in kinds(events, "session_ended")] == [reason]


def is_note(events: Logged, number: int | None) -> bool:
    (event,) = events
    return (event["event"], event["text"], event.get("trial")) == (
        "note_written",
        "tried; $(it)",
        number,
    )


def has_tried_again(events: Logged) -> bool:
    """Whether trial 3, which had failed, was completed, and no other trial was trained."""
    ended = kinds(events, "trial_ended")
    return (
        {event["trial"] for event in ended} == {3}
        and ended[-1]["status"] == "completed"
        and has_ended(events)
    )


def has_confirmed(events: Logged) -> bool:
    """Whether two finalists were trained with two fresh seeds each."""
    roles = [event.get("role") for event in kinds(events, "trial_started")]
    return roles == ["confirm"] * 4 and has_ended(events)


def has_retrained(events: Logged, epochs: int) -> bool:
    ends = [event["status"] for event in kinds(events, "trial_ended")]
    return ends == ["completed"] and len(kinds(events, "epoch_reported")) == epochs


ROWS: Mapping[str, Row] = {
    "stop": Row(
        line="stop runs",
        sweep="runs",
        fields={},
        logged=lambda new: has_ended(new, "stopped on request"),
        state="stopped on request",
    ),
    "stop_now": Row(
        line="stop runs --now",
        sweep="runs",
        fields={},
        logged=lambda new: has_ended(new, "stopped at once on request"),
        state="stopped at once on request",
    ),
    "stop_trial": Row(
        line="stop runs --trial 0 --now",
        sweep="runs",
        trial=0,
        fields={"now": "yes"},
        logged=lambda new: (
            [(one["status"], one["asked"]) for one in kinds(new, "trial_ended")]
            == [("pruned", True)]
        ),
        state="stopped by hand",
    ),
    "resume": Row(
        line="resume halted --detach",
        sweep="halted",
        logged=lambda new: len(kinds(new, "trial_started")) == 1 and has_ended(new),
        says="the sweep was resumed",
        marks=(RAY,),
    ),
    "extend": Row(
        line="resume over --run-cap 5 --set 'description=once more' --detach",
        sweep="over",
        fields={"run_cap": "5", "changes": "description=once more"},
        logged=lambda new: len(kinds(new, "trial_started")) == 1 and has_ended(new),
        says="run_cap from 4 to 5",
        marks=(RAY,),
    ),
    "retry": Row(
        line="resume over --retry-failed --detach",
        sweep="over",
        logged=has_tried_again,
        says="trial 3 is completed",
        marks=(RAY,),
    ),
    "retry_trial": Row(
        line="resume over --retry-failed --detach",
        sweep="over",
        trial=3,
        logged=has_tried_again,
        says="trial 3 is completed",
        marks=(RAY,),
    ),
    "confirm": Row(
        line="confirm over --seeds 2 --finalists 2 --budget none",
        sweep="over",
        fields={"seeds": "2", "finalists": "2", "budget": "none"},
        logged=has_confirmed,
        says="started, confirm",
        marks=(RAY,),
    ),
    "retrain": Row(
        line="retrain over --epochs 2 --name again",
        sweep="over",
        log="again",
        fields={"epochs": "2", "name": "again"},
        logged=lambda new: has_retrained(new, 2),
        marks=(RAY,),
    ),
    "retrain_trial": Row(
        line="retrain over --trial 1 --epochs 3",
        sweep="over",
        trial=1,
        log="over-retrain",
        fields={"epochs": "3"},
        logged=lambda new: has_retrained(new, 3),
        marks=(RAY,),
    ),
    "export": Row(
        line="best model --export out --format keras",
        sweep="model",
        fields={"folder": "out", "formats": "keras"},
        logged=lambda new: not new,
        marks=(KERAS,),
    ),
    "export_trial": Row(
        line="best model --trial 0 --export other --format keras",
        sweep="model",
        trial=0,
        fields={"folder": "other", "formats": "keras"},
        logged=lambda new: not new,
        marks=(KERAS,),
    ),
    "add": Row(
        line="add halted learning_rate=0.02 units=16 optimizer=sgd",
        sweep="halted",
        fields={"settings": "learning_rate=0.02\nunits=16\n\noptimizer=sgd"},
        logged=lambda new: (
            new[0]["configurations"] == [{"learning_rate": 0.02, "units": 16, "optimizer": "sgd"}]
            and len(kinds(new, "configurations_enqueued")) == 1
        ),
        says="added learning_rate=0.02",
    ),
    "change": Row(
        line="change over --set 'parameters.units.values=[8, 16, 64]' --set run_cap=9",
        sweep="over",
        fields={"changes": "parameters.units.values=[8, 16, 64]\nrun_cap=9"},
        logged=lambda new: (
            new[0]["settings"]["run_cap"] == 9
            and new[0]["settings"]["parameters"]["units"]["values"] == [8, 16, 64]
            and len(kinds(new, "sweep_changed")) == 1
        ),
        says=r"units.values from \[8, 16, 32\] to \[8, 16, 64\].*from trial 4 on",
    ),
    "note": Row(
        line="note over 'tried; $(it)'",
        sweep="over",
        fields={"text": "tried; $(it)"},
        logged=lambda new: is_note(new, None),
        says=r"noted on the sweep: tried; \$\(it\)",
    ),
    "note_trial": Row(
        line="note over 2 'tried; $(it)'",
        sweep="over",
        trial=2,
        fields={"text": "tried; $(it)"},
        logged=lambda new: is_note(new, 2),
        says=r"noted on trial 2: tried; \$\(it\)",
    ),
    "remove_note": Row(
        line="note over ''",
        sweep="over",
        logged=lambda new: (
            [(one["text"], one.get("trial")) for one in kinds(new, "note_written")] == [("", None)]
        ),
        says="removed the note on the sweep",
    ),
    "remove_note_trial": Row(
        line="note over 0 ''",
        sweep="over",
        trial=0,
        logged=lambda new: (
            [(one["text"], one.get("trial")) for one in kinds(new, "note_written")] == [("", 0)]
        ),
        says="removed the note on trial 0",
    ),
    "remove_star": Row(
        line="star over 0 --remove",
        sweep="over",
        trial=0,
        logged=lambda new: (
            [(one["trial"], one["starred"]) for one in kinds(new, "trial_starred")] == [(0, False)]
        ),
        says="took the star of trial 0 away",
    ),
    "star": Row(
        line="star over 1",
        sweep="over",
        trial=1,
        logged=lambda new: (
            [(one["trial"], one.get("starred", True)) for one in kinds(new, "trial_starred")]
            == [(1, True)]
        ),
        says="gave trial 1 a star",
    ),
}


def ended_trials(now: float, count: int) -> list[Event]:
    """A session that has ended, of which the last trial failed."""
    events = [begin(now - 60)]
    for number in range(count - 1):
        events += trial(number, now - 50 + 4 * number)
    events += trial(
        count - 1,
        now - 20,
        1,
        Status.FAILED,
        reason="ValueError: no luck",
        error="ValueError: no luck",
    )
    return events


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with a trained Keras model."""
    project = tmp_path_factory.mktemp("model")
    (project / "model.yaml").write_text(DIGITS)
    command = [sys.executable, "-m", "sweep", "run", "model.yaml", "--inline", "-q"]
    subprocess.run(command, cwd=project, check=True)
    return project


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if "keras" in request.keywords:
        found: Path = request.getfixturevalue("model")
        return found
    now = time.time()
    (tmp_path / "scored.py").write_text(TRAINABLE)
    results = tmp_path / "results"
    marks: list[Event] = [
        NoteWritten(text="first try", request="a", time=now),
        NoteWritten(trial=0, text="slow", request="b", time=now),
        TrialStarred(trial=0, request="c", time=now),
    ]
    ended = SessionEnded(time=now, reason="finished", finished=True)
    make_sweep(results, "over", [*ended_trials(now, 4), *marks, ended], SHORT)
    make_sweep(
        results,
        "halted",
        [*ended_trials(now, 3), SessionEnded(time=now, reason="interrupted")],
        SHORT,
    )
    return tmp_path


POINT_OF_TRIAL_1 = """() => {
  const plot = plots.find((plot) => plot instanceof HistoryPlot);
  const [x, y] = plot.anchor(1);
  const { left, top } = plot.box.getBoundingClientRect();
  return [left + x, top + y];
}"""
TRAINABLE = """
import time
def train(hp, report):
    for epoch in range(2000):
        time.sleep(0.05)
        report(val_accuracy=hp.learning_rate * hp.units + len(hp.optimizer) / 10)
"""


@contextmanager
def running(project: Path) -> Iterator[ResultsFolder]:
    """A sweep that really runs, in a process of its own, with a trial that trains for minutes."""
    (project / "runs.yaml").write_text(LONG.replace("NAME", "runs"))
    command = [sys.executable, "-m", "sweep", "run", "runs.yaml", "--inline", "-q"]
    with subprocess.Popen(command, cwd=project) as process:
        folder = ResultsFolder(project / "results" / "runs")
        try:
            until(lambda: folder.log.exists() and '"epoch_reported"' in folder.log.read_text())
            yield folder
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)


def test_every_act_has_a_row() -> None:
    assert ROWS.keys() == {act.name for act in ACTS}


def _as_case(act: Act) -> Any:
    return pytest.param(act, id=act.name, marks=ROWS[act.name].marks)


@pytest.mark.parametrize("act", [_as_case(act) for act in ACTS if act.name in ROWS])
def test_an_act_is_pressed_and_its_event_is_in_the_log(
    act: Act, visit: Visit, project: Path
) -> None:
    row = ROWS[act.name]
    if row.sweep == "runs":
        with running(project):
            press_and_check(act, row, visit, project)
    else:
        press_and_check(act, row, visit, project)


def press_and_check(act: Act, row: Row, visit: Visit, project: Path) -> None:
    folder = ResultsFolder(project / "results" / (row.log or row.sweep))
    before = len(events_of(folder)) if folder.log.exists() else 0
    one = visit()
    one.open(f"/{row.sweep}" if row.trial is None else f"/{row.sweep}/{row.trial}")
    said = press_act(one, act.name, row.line, row.fields)
    until(
        lambda: row.logged(new_events(folder, before)),
        lambda: (said, without_epochs(new_events(folder, before))),
    )
    if row.state:
        one.has_text("#state", f"^{row.state}$")
    if row.state and row.trial is None:
        one.page.wait_for_selector("[data-act=resume]:enabled")
    if row.says:
        one.open(f"/{row.sweep}")
        one.has_text("#events", row.says)
    if act.command == "best" and row.fields is not None:
        assert (project / row.fields["folder"] / "model.keras").exists()


def new_events(folder: ResultsFolder, before: int) -> Logged:
    """The events that have been added so far: a detached command goes on after it has ended."""
    return events_of(folder)[before:] if folder.log.exists() else []


def test_a_configuration_is_added_from_a_point_in_a_chart(visit: Visit, project: Path) -> None:
    """A click on a point selects its trial, whose parameters are then filled in, to be changed."""
    folder = ResultsFolder(project / "results" / "halted")
    one = visit()
    one.open("/halted")
    one.page.evaluate(
        "plots.find((plot) => plot instanceof HistoryPlot).box.scrollIntoView({block: 'center'})"
    )
    one.wait("plots.find((plot) => plot instanceof HistoryPlot).chart")
    one.page.mouse.click(*one.page.evaluate(POINT_OF_TRIAL_1))
    one.has_text("#chosen", "trial 1")
    one.page.click("[data-act=add]")
    text = one.page.input_value("#field-settings")
    given = dict(line.split("=") for line in text.split("\n"))
    rate = pytest.approx(params_of(1)["learning_rate"])
    assert given == {"learning_rate": given["learning_rate"], "units": "16", "optimizer": "sgd"}
    fill(one, "settings", text.replace("units=16", "units=8"))
    one.page.click("dialog button[type=submit]")
    one.has_text("#events", "added ")
    (event,) = kinds(events_of(folder), "configurations_enqueued")
    assert event["configurations"] == [{"learning_rate": rate, "units": 8, "optimizer": "sgd"}]


PLACES = """() => {
  const seen = [...document.querySelectorAll("#buttons [data-act]")].filter((one) => one.checkVisibility());
  const row = (one) => Math.round((one.offsetTop - find("buttons").offsetTop) / 50);
  return Object.fromEntries(seen.map((one) => [one.dataset.act, `${one.offsetLeft} in row ${row(one)}`]));
}"""
TOP = "(selector) => document.querySelector(selector).getBoundingClientRect().top + scrollY"
BOTTOM = "(selector) => document.querySelector(selector).getBoundingClientRect().bottom + scrollY"
PHONE = {"viewport": {"width": 390, "height": 850}, "is_mobile": True, "has_touch": True}


@pytest.mark.parametrize(
    "size", [{"viewport": {"width": 1280, "height": 800}}, PHONE], ids=["desktop", "phone"]
)
def test_acts_keep_their_places_and_the_answer_comes_first(
    visit: Visit, project: Path, size: Mapping[str, Any]
) -> None:
    folder = ResultsFolder(project / "results" / "halted")
    one = visit(**size)
    with driving(folder) as driver:
        driver.write(begin(time.time()))
        one.open("/halted")
        one.has_text("#state", "^running$")
        one.page.wait_for_selector("[data-act=stop]:enabled")
        assert one.page.is_disabled("[data-act=resume]")
        before = one.page.evaluate(PLACES)
        assert {"resume", "add", "change", "stop"} <= before.keys()
        assert len({*before.values()}) == len(before)
        one.page.click("[data-act=stop]")
        one.has_exactly("dialog output", "python -m sweep stop halted")
        one.page.keyboard.press("Enter")  # a key that was pressed once too often
        one.wait("!document.querySelector('dialog').open")
        assert not one.page.locator(".job").count()
    one.page.wait_for_selector("[data-act=resume]:enabled")
    assert one.page.is_disabled("[data-act=stop]")
    assert one.page.evaluate(PLACES) == before
    answer = one.page.evaluate(BOTTOM, "#answer")
    assert answer <= one.page.evaluate(TOP, "#buttons")
    assert answer < size["viewport"]["height"] / 1.5
    assert one.page.evaluate(BOTTOM, "[data-act=stop]") < size["viewport"]["height"]
    top = one.page.evaluate(TOP, "#answer")
    press_act(one, "note", "note halted 'to be seen'", {"text": "to be seen"})
    one.has_text("#note", "to be seen")
    assert one.page.evaluate(TOP, "#answer") == top  # what an act says is below


def test_stars_and_notes_stand_where_they_are_set(visit: Visit, project: Path) -> None:
    folder = ResultsFolder(project / "results" / "over")
    before = len(events_of(folder))
    row = "#ranking tr:has([aria-label*='rial 1 of over'])"
    one = visit()
    one.open("/over")
    one.has_exactly("#note .note-text", "first try")
    one.page.click(f"{row} [data-placed=star]")
    one.page.wait_for_selector(f"{row} [data-placed=remove_star]")
    one.page.click(f"{row} [data-placed=note_trial]")
    fill(one, "text", "wider?")
    one.page.click("dialog button[type=submit]")
    one.page.wait_for_selector(f"{row} .note-text >> text=wider?")
    one.open("/over/1")
    one.has_text("#star", "starred")
    one.has_exactly("#note .note-text", "wider?")
    one.page.click("#note [data-placed=note_trial]")
    assert one.page.input_value("#field-text") == "wider?"  # to be changed
    fill(one, "text", "wider!")
    one.page.click("dialog button[type=submit]")
    one.has_exactly("#note .note-text", "wider!")
    one.page.click("#star [data-placed=remove_star]")
    one.wait("find('star').hidden")
    one.page.click("#note [data-placed=remove_note_trial]")
    one.wait("find('note').hidden")
    one.open("/", ready=False)
    one.page.click("li:has-text('over') [data-placed=note]")
    assert one.page.input_value("#field-text") == "first try"
    fill(one, "text", "second try")
    one.page.click("dialog button[type=submit]")
    one.page.wait_for_selector("li:has-text('over') .note-text >> text=second try")
    one.page.click("li:has-text('over') [data-placed=remove_note]")
    one.wait("!document.querySelector('.note-text')")
    new = new_events(folder, before)
    assert [one["event"] for one in new] == [
        *("trial_starred", "note_written", "note_written", "trial_starred"),
        *("note_written", "note_written", "note_written"),
    ]


def test_forms_are_filled_in_with_what_the_sweep_has(visit: Visit) -> None:
    one = visit()
    one.open("/over")
    one.has_text("#best", "trial 1")
    one.page.click("[data-act=add]")
    given = one.page.input_value("#field-settings").split("\n")
    assert given[0].startswith("learning_rate=")  # of the best trial
    assert given[1:] == ["units=16", "optimizer=sgd"]
    one.has_text(".offered", r"units=\{values: \[8, 16, 32\]\}")
    one.page.keyboard.press("Escape")
    one.page.click("[data-act=change]")
    assert one.page.input_value("#field-changes") == ""
    assert (
        one.page.get_attribute("#field-changes", "placeholder")
        == "parameters.learning_rate.min=0.0001"
    )
    one.page.click(".offered button >> text=parameters.units.values=[8, 16, 32]")
    one.page.click(".offered button >> text=run_cap=4")
    assert (
        one.page.input_value("#field-changes") == "parameters.units.values=[8, 16, 32]\nrun_cap=4"
    )
    one.has_exactly(
        "dialog output",
        "python -m sweep change over --set 'parameters.units.values=[8, 16, 32]' --set run_cap=4",
    )


def test_what_acts_said_is_there_again_and_what_succeeded_takes_a_line(
    visit: Visit, project: Path
) -> None:
    one = visit()
    one.open("/over")
    press_act(one, "note", "note over 'a plain one'", {"text": "a plain one"})
    one.page.click(".more summary")
    one.page.click("[data-act=export]")
    fill(one, "folder", "nothing-to-export")
    one.page.click("dialog button[type=submit]")
    one.has_text("#jobs", "ended with exit code")
    one.open("/over/1")
    one.wait("acts.restored")
    assert one.page.locator(".job").count() == 0  # of the sweep, not of this trial
    one.open("/over")
    one.wait("acts.restored")
    failed, succeeded = one.page.locator(".job").all()
    assert "ended with exit code" in failed.inner_text()
    assert failed.locator("pre").is_visible()
    assert re.match(r"Note on (over )?done ", succeeded.inner_text())
    assert not succeeded.locator("code").is_visible()
    assert succeeded.bounding_box()["height"] < 45
    succeeded.locator("summary").click()
    assert succeeded.locator("code").is_visible()
    failed.locator("button").click()
    one.open("/over")
    one.wait("acts.restored")
    assert one.page.locator(".job").count() == 1


def test_a_form_is_checked_before_it_is_sent(visit: Visit, project: Path) -> None:
    one = visit()
    one.open("/halted")
    one.page.click("[data-act=add]")
    fill(one, "settings", "learning_rate=abc\nunits=16\noptimizer=sgd")
    one.has_text("dialog .wrong", "learning_rate")
    assert one.page.is_disabled("dialog button[type=submit]")
    fill(one, "settings", "learning_rate=0.02\nunits=16\noptimizer=sgd")
    one.has_exactly("dialog .wrong", "")
    assert one.page.is_enabled("dialog button[type=submit]")


def test_what_would_do_nothing_is_not_offered(visit: Visit, project: Path) -> None:
    now = time.time()
    ended = SessionEnded(time=now, reason="finished", finished=True)
    diverged = trial(0, now - 20, 1, Status.DIVERGED, reason="val_accuracy is nan")
    make_sweep(project / "results", "nothing", [begin(now - 60), *diverged, ended], SHORT)
    one = visit()
    one.open("/nothing")
    one.wait("acts.shown")
    one.has_text("#failed", "Diverged trials are results")
    assert one.page.is_disabled("[data-act=resume]")
    assert (
        one.page.locator(
            "[data-act=retry], [data-act=confirm], [data-act=retrain], [data-act=export]"
        ).count()
        == 0
    )
    one.open("/over")
    one.page.wait_for_selector("[data-act=retry]", state="attached")
    one.open("/over/1")
    one.page.wait_for_selector("[data-act=retrain_trial]")
    assert one.page.locator("[data-act=retry_trial]").count() == 0


def test_a_note_of_several_lines_keeps_its_words_apart_where_it_is_edited(visit: Visit) -> None:
    held = visit().page.evaluate(
        r"""() => {
          const field = { name: "text", label: "Note", kind: "text" };
          const input = fieldInput(field, filledIn({ command: "note" }, field, {}, { note: "too high\ndiverges" }), {});
          return input.read();
        }"""
    )
    assert held == "too high diverges"


def test_the_ranking_leads_to_each_trial_and_a_selection_moves_nothing(
    visit: Visit, project: Path
) -> None:
    one = visit()
    one.open("/over")
    one.page.wait_for_selector("#ranking td a")
    before = one.page.evaluate(TOP, "#ranking")
    one.page.evaluate("selectTrials(picked, [1])")
    one.page.click("#chosen button >> text=Add a configuration like it")
    one.page.wait_for_selector("dialog #field-settings")
    one.page.keyboard.press("Escape")
    assert one.page.evaluate(TOP, "#ranking") == before
    one.page.click("#ranking a >> text=1")
    one.page.wait_for_url(f"{one.base}/over/1")
