"""A sweep that is followed: its lines, its facts, and what happens to its log."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from living import (
    FILE,
    begin,
    driving,
    end,
    epoch,
    finished,
    make_sweep,
    params_of,
    some_trials,
    start,
    trial,
)
from msgspec import structs

from sweep.errors import StoreError
from sweep.events import (
    ConfigurationsEnqueued,
    Event,
    NoteWritten,
    Params,
    SessionEnded,
    Status,
    SweepChanged,
    TrialStarred,
)
from sweep.spec import Spec, changes, parse_spec
from sweep.store.folder import ResultsFolder
from sweep.store.reading import TableWriter
from sweep.ui import following, shelf, watching
from sweep.ui.facts import QUIET_AT_START_S, QUIET_EPOCHS, QUIET_S, LiveFacts
from sweep.ui.following import FollowedSweep, LineIndex
from sweep.ui.shelf import Shelf
from sweep.ui.watching import LiveReport, Reading, Watch

T = 1_700_000_000.0


def read_all(sweep: FollowedSweep) -> LiveFacts:
    while sweep.read_on():
        pass
    return sweep.describe()


def test_lines_are_found_from_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "BLOCK_BYTES", 64)
    path = tmp_path / "log"
    index = LineIndex(path)
    index.count_new_lines()
    assert index.lines == 0
    lines: list[bytes] = []
    for size in (1, 7, 40, 3):
        lines += [
            b"%d " % number * (number % 9 + 1) for number in range(len(lines), len(lines) + size)
        ]
        lines.append(b"longer than a block" * 20)
        path.write_bytes(b"".join(line + b"\n" for line in lines) + b"torn")
        index.count_new_lines()
        assert (index.lines, index.end) == (len(lines), path.stat().st_size - 4)
        for after in range(len(lines) + 1):
            parts = list(index.read(after))
            assert [line for _, found in parts for line in found] == lines[after:]
            assert not parts or parts[-1][0] == len(lines)
            assert index.find_line(sum(len(line) + 1 for line in lines[:after])) == after


def test_the_facts_of_a_running_sweep(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, "one", some_trials(T))
    with driving(folder) as driver:
        driver.write(start(8, T), epoch(8, 1, T + 1), epoch(8, 2, T + 2))
        sweep = FollowedSweep(folder)
        facts = read_all(sweep)
        assert (facts.state, facts.read, facts.done, facts.total) == ("running", 1.0, 8, 12)
        assert facts.counts == {"running": 1, "completed": 5, "pruned": 2, "failed": 1}
        assert facts.worth == {"running": 2 / 6, "completed": 5.0, "pruned": 2.0, "failed": 1.0}
        assert facts.share == pytest.approx((8 + 2 / 6) / 12)
        assert [(one.trial, one.epoch, one.of, len(one.curve)) for one in facts.workers] == [
            (8, 2, 6, 2)
        ]
        assert [(one.epoch, one.reached, one.pruned) for one in facts.rungs] == [(2, 8, 2)]
        assert [(one.kind, one.count, one.trial) for one in facts.failures] == [
            ("ValueError", 1, 3)
        ]
        assert facts.best is not None
        assert facts.best.trials == (1,)
        assert facts.line == folder.log.read_text().count("\n")
        assert facts.events[0].text.startswith("trial 8 started: learning_rate=")
        assert facts.events[-1].text == "the sweep began"
        assert [one.text for one in sweep.list_events(3)][
            1
        ] == "trial 3 is failed: ValueError: no such layer"
        driver.write(end(8, Status.INTERRUPTED, T + 3, reason="interrupted"))
        assert read_all(sweep).counts["interrupted"] == 1
    facts = read_all(sweep)
    assert (facts.state, facts.workers, facts.left_s) == ("killed", (), None)


def test_a_driver_that_has_just_taken_a_sweep_is_not_called_silent(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, "one", some_trials(T))
    before = time.time()
    with driving(folder) as driver:
        facts = read_all(FollowedSweep(folder))
        assert facts.heard is not None
        assert before - 1 < facts.heard < time.time() + 1  # and not years ago
        assert facts.quiet_s == QUIET_AT_START_S
        assert facts.active_s < 100  # and not for years
        now = time.time() + 1
        driver.write(begin(now), start(8, now))
        assert read_all(FollowedSweep(folder)).quiet_s == QUIET_AT_START_S  # its workers start
        driver.write(epoch(8, 1, now + 1))
        facts = read_all(FollowedSweep(folder))
        assert (facts.heard, facts.quiet_s) == (now + 1, QUIET_S)


def test_epochs_may_take_longer_than_silence(tmp_path: Path) -> None:
    long = structs.replace(epoch(8, 1, T + 90), time_s=60.0)
    folder = make_sweep(tmp_path, "one", [*some_trials(T), start(8, T), long])
    assert read_all(FollowedSweep(folder)).quiet_s == QUIET_EPOCHS * 60.0


def test_a_sweep_that_ended_says_why(tmp_path: Path) -> None:
    facts = read_all(FollowedSweep(make_sweep(tmp_path, "one", finished(T))))
    assert (facts.state, facts.reason, facts.share) == ("ended", "finished", 1.0)


def test_notes_and_stars_are_shown_until_they_are_removed(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, "one", some_trials(T))
    sweep = FollowedSweep(folder)
    with driving(folder) as driver:
        driver.write(NoteWritten(text="wider next", request="a", time=T))
        driver.write(NoteWritten(trial=1, text="good", request="b", time=T))
        driver.write(TrialStarred(trial=2, request="c", time=T))
        facts = read_all(sweep)
        assert facts.note == "wider next"
        assert [(one.trial, one.starred, one.note) for one in facts.marks] == [
            (1, False, "good"),
            (2, True, ""),
        ]
        driver.write(
            NoteWritten(text="", request="d", time=T),
            NoteWritten(trial=1, text="", request="e", time=T),
        )
        driver.write(TrialStarred(trial=2, starred=False, request="f", time=T))
        facts = read_all(sweep)
    assert (facts.note, facts.marks) == ("", ())


def test_without_a_rule_a_trial_that_was_stopped_makes_no_rung(tmp_path: Path) -> None:
    text = FILE.replace("early_terminate: {type: asha, min_iter: 2, eta: 3}\n", "")
    events = [begin(T), *trial(0, T + 5), start(1, T + 5), epoch(1, 1, T + 6)]
    folder = make_sweep(tmp_path, "one", events, text)
    with driving(folder) as driver:
        stopped = end(1, Status.PRUNED, T + 7, reason="stopped on request")
        driver.write(type(stopped)(**{**_fields(stopped), "asked": True}))
    facts = read_all(FollowedSweep(folder))
    assert facts.counts["pruned"] == 1
    assert facts.rungs == ()


def test_trials_that_wait_are_listed_at_their_rung(tmp_path: Path) -> None:
    text = FILE.replace(
        "{type: asha, min_iter: 2, eta: 3}", "{type: asha_promotion, min_iter: 2, eta: 3}"
    )
    waiting = [begin(T), start(0, T), epoch(0, 1, T), epoch(0, 2, T)]
    folder = make_sweep(tmp_path, "one", waiting, text)
    with driving(folder) as driver:
        ended = end(0, Status.INTERRUPTED, T + 1, reason="pauses: at rung 2")
        driver.write(type(ended)(**{**_fields(ended), "waits": True}))
        facts = read_all(FollowedSweep(folder))
    (rung,) = [one for one in facts.rungs if one.epoch == 2]
    assert (rung.waiting, rung.trials) == (1, (0,))
    assert facts.counts == {"paused": 1}


def _fields(event: object) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__struct_fields__}  # type: ignore[attr-defined]  # a record


def test_a_log_that_was_replaced_is_read_anew(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, "one", some_trials(T))
    sweep = FollowedSweep(folder)
    assert read_all(sweep).done == 8
    folder.log.unlink()
    with driving(folder) as driver:
        driver.write(begin(T), *trial(0, T + 5))
        assert read_all(sweep).done == 1
    assert sweep.replaced == 1


@pytest.mark.parametrize("events", [some_trials(T), []], ids=["begun", "not begun"])
def test_a_new_sweep_of_the_same_name_has_its_own_file(tmp_path: Path, events: list[Event]) -> None:
    folder = make_sweep(tmp_path, "one", events)
    sweep = FollowedSweep(folder)
    assert read_all(sweep).total == 12
    folder.remove()
    assert read_all(sweep).total == 12
    text = FILE.replace("val_accuracy, goal: maximize", "val_loss, goal: minimize")
    make_sweep(tmp_path, "one", [begin(T), *trial(0, T + 5)], text.replace("12", "20"))
    facts = read_all(sweep)
    assert (facts.metric, facts.goal, facts.total, facts.done) == ("val_loss", "minimize", 20, 1)


def test_the_file_of_a_sweep_that_has_begun_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []

    def parse(text: str, source: str) -> Spec:
        read.append(source)
        return parse_spec(text, source)

    monkeypatch.setattr("sweep.ui.following.parse_spec", parse)
    assert read_all(FollowedSweep(make_sweep(tmp_path, "one", some_trials(T)))).total == 12
    assert len(read) == 1


def test_a_new_sweep_whose_file_cannot_be_read_at_once_is_read_later(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, "one", some_trials(T))
    sweep = FollowedSweep(folder)
    read_all(sweep)
    folder.remove()
    folder = make_sweep(tmp_path, "one", [begin(T), *trial(0, T + 5)], FILE.replace("12", "20"))
    info = folder.info.read_bytes()
    folder.info.unlink()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"sweep\.json"):
            read_all(sweep)
    folder.info.write_bytes(info)
    facts = read_all(sweep)
    assert (facts.total, facts.done, sweep.replaced) == (20, 1, 1)


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, "one", some_trials(T))
    folder.write_info(folder.read_info().changed(spec={}))
    facts = read_all(FollowedSweep(folder))
    assert "lacks spec" in facts.unknown
    assert (facts.metric, facts.done, facts.total) == ("val_accuracy", 8, None)


def test_a_change_that_cannot_be_read_is_said_and_no_event_is_lost(tmp_path: Path) -> None:
    changed = SweepChanged(settings={"gone_key": 1}, request="a", by="ada", time=T)
    folder = make_sweep(tmp_path, "one", some_trials(T))
    sweep = FollowedSweep(folder)
    with driving(folder) as driver:
        assert not read_all(sweep).unknown
        driver.write(changed, *trial(8, T + 5), SessionEnded(time=T + 6, reason="finished"))
        facts = read_all(sweep)  # it was written while the page showed the sweep
    later = read_all(FollowedSweep(folder))
    for found in (facts, later):
        assert "gone_key" in found.unknown
        assert (found.done, found.events[0].text) == (9, "the session ended: finished")
        assert found.line == found.events[0].line == folder.log.read_text().count("\n")
        assert "ada changed gone_key, from trial 8 on" in [one.text for one in found.events]


def test_a_change_that_cannot_be_read_is_over_with_the_next_one(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path, "one", some_trials(T))
    sweep = FollowedSweep(folder)
    assert not read_all(sweep).unknown
    new_rule = {"early_terminate": {"type": "rule_of_a_later_version"}}
    with driving(folder) as driver:
        driver.write(SweepChanged(settings=new_rule, request="a", time=T))
        assert "rule_of_a_later_version" in read_all(sweep).unknown
        back = {"early_terminate": {"type": "none"}, "run_cap": 20}
        driver.write(SweepChanged(settings=back, request="b", by="ada", time=T))
        facts = read_all(sweep)
    assert (facts.unknown, facts.total) == ("", 20)
    assert "run_cap from 12 to 20" in facts.events[0].text


def test_a_change_may_only_fit_the_file_without_later_ones(tmp_path: Path) -> None:
    first = parse_spec(FILE.replace("NAME", "one"), "one.yaml")
    more = changes.with_assignments(first, ["parameters.units.values=[4,8,16,32]"], "")
    # without 64, which the first change does not have, no unit meets the constraint
    wide = ["parameters.units.values=[32,64]", "constraints=[units > 32]", "run_cap=20"]
    last = changes.with_assignments(more, wide, "")
    events = some_trials(T)
    for before, after in ((first, more), (more, last)):
        settings = changes.make_settings(before, after)
        events.append(SweepChanged(settings=settings, request=str(len(events)), time=T))
    facts = read_all(FollowedSweep(make_sweep(tmp_path, "one", [*events, *trial(8, T + 9)])))
    assert (facts.unknown, facts.done, facts.total) == ("", 9, 20)
    first_change = next(one.text for one in facts.events[::-1] if one.kind == "sweep_changed")
    assert "parameters.units.values from [8, 16, 32] to [4, 8, 16, 32]" in first_change


def test_the_shelf_reads_again_what_has_changed(tmp_path: Path) -> None:
    results = tmp_path / "results"
    assert Shelf(results).list_rows() == []
    shown = Shelf(results)
    make_sweep(results, "old", finished(T))
    folder = make_sweep(results, "new", some_trials(T + 9))
    (results / "broken").mkdir()
    (results / "broken" / "log.jsonl").write_text("nonsense\n{}\n")
    rows = {row["name"]: row for row in shown.list_rows()}
    assert {name: row["state"] for name, row in rows.items()} == {
        "new": "unfinished",
        "old": "finished",
        "broken": "damaged",
    }
    assert rows["old"]["question"] == "Which learning rate and width suit the small net?"
    assert (rows["new"]["total"], rows["new"]["share"], rows["new"]["metric"]) == (
        12,
        8 / 12,
        "val_accuracy",
    )
    json.dumps(rows)
    assert shown.list_rows()[0] is not None
    with driving(folder) as driver:
        driver.write(*trial(8, T + 20), SessionEnded(time=T + 21, reason="finished"))
        first, *_ = Shelf(results).list_rows()
        assert (first["name"], first["state"]) == ("new", "running")
        assert first["left_s"] is None  # its session has ended
    with driving(make_sweep(results, "lives", some_trials(time.time(), 5))):
        first, *_ = Shelf(results).list_rows()
        assert (first["name"], first["left_s"] > 0) == ("lives", True)
    with driving(
        make_sweep(results, "half", [begin(time.time()), start(0, time.time())])
    ) as driver:
        driver.write(*(epoch(0, at, time.time()) for at in (1, 2, 3)))
        first, *_ = Shelf(results).list_rows()
        assert (first["name"], first["share"]) == ("half", pytest.approx(0.5 / 12))  # by its epochs


def test_the_question_of_a_row_is_no_line_for_an_editor(tmp_path: Path) -> None:
    schema = "# yaml-language-server: $schema=sweep.schema.json\n#\n"
    make_sweep(tmp_path, "one", finished(T), schema + FILE)
    (row,) = Shelf(tmp_path).list_rows()
    assert row["question"] == "Which learning rate and width suit the small net?"


def test_added_configurations_are_among_the_trials_of_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "REST", 0)
    words = "{values: [8, 16, 32]}\n  optimizer: {values: [adam, sgd]}"
    file = FILE.replace("random", "grid").replace("run_cap: 12\n", "")
    file = file.replace("{distribution: log_uniform_values, min: 1e-4, max: 1e-1}", "{value: 0.1}")
    assert words in file
    events = [begin(T)]
    for number in range(6):
        params = {**params_of(number), "learning_rate": 0.1}
        begun, *rest = trial(number, T + number)
        events += [structs.replace(begun, params=params), *rest]
    added: Params = {"learning_rate": 0.1, "units": 64, "optimizer": "adam"}
    ended = SessionEnded(time=T + 9, reason="finished")
    enqueued = ConfigurationsEnqueued(configurations=(added,), request="a", time=T + 9)
    folder = make_sweep(tmp_path, "one", [*events, ended, enqueued], file)
    shown = Shelf(tmp_path)
    row = shown.list_rows()[0]
    facts = read_all(FollowedSweep(folder))
    assert (row["total"], row["share"]) == (facts.total, facts.share) == (7, 6 / 7)
    with driving(folder):
        assert shown.list_rows()[0]["total"] == 7


def test_a_row_has_the_time_left_once_its_log_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shelf, "REST", 0)
    with driving(make_sweep(tmp_path, "lives", some_trials(time.time(), 5))):
        shown = Shelf(tmp_path)
        monkeypatch.setattr(shelf, "LOOKS", 0)  # of a long log, only a part is read each time
        assert shown.list_rows()[0]["left_s"] is None
        monkeypatch.setattr(shelf, "LOOKS", 1)  # the rest, to which nothing was added
        assert shown.list_rows()[0]["left_s"] > 0


def test_a_running_sweep_whose_log_is_damaged_hides_no_other(tmp_path: Path) -> None:
    """Its tables are as new as its log, of which the beginning is read for the time left alone."""
    make_sweep(tmp_path, "other", finished(T))
    now = time.time()
    folder = make_sweep(tmp_path, "lives", some_trials(now, 5))
    with TableWriter(folder) as writer:
        writer.update()
    log = folder.log.read_bytes()
    damaged = log.replace(b'"event":"epoch_reported"', b'"event":"epoch_unknown_"', 1)
    folder.log.write_bytes(damaged)
    with driving(folder):
        rows = Shelf(tmp_path).list_rows()
    assert "unknown event 'epoch_unknown_'" in rows[0]["reason"]
    assert [(row["name"], row["state"], row["left_s"]) for row in rows] == [
        ("lives", "running", None),
        ("other", "finished", None),
    ]


def test_a_report_that_was_made_while_the_driver_ended_is_made_again(tmp_path: Path) -> None:
    async def work() -> None:
        folder = make_sweep(tmp_path, "one", some_trials(T))
        watch = Watch(folder, Reading())
        with driving(folder):
            async with watch.keep_up_to_date():
                while watch.report is None:
                    await watch.news.wait(1)
        first = watch.report
        assert first is not None
        assert (first.running, "It still runs" in first.content.decode()) == (True, True)
        async with watch.keep_up_to_date():  # the log has not grown since
            while watch.report is first:
                await watch.news.wait(1)
        second = watch.report
        assert second is not None
        assert (second.line, second.running) == (first.line, False)
        assert "It still runs" not in second.content.decode()

    asyncio.run(asyncio.wait_for(work(), 60))


def test_the_report_of_a_log_that_was_replaced_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "IDLE_LOOK_S", 0.05)
    folder = make_sweep(tmp_path, "one", finished(T))
    watch = Watch(folder, Reading())
    make = watching.make_report
    shown: list[tuple[int, LiveReport | None]] = []  # while another is made

    def record_and_make(folder: ResultsFolder, sweep: FollowedSweep | None) -> LiveReport:
        assert sweep is not None
        shown.append((sweep.replaced, watch.report))
        return make(folder, sweep)

    monkeypatch.setattr(watching, "make_report", record_and_make)

    async def work() -> None:
        async with watch.keep_up_to_date():
            while watch.report is None:
                await watch.news.wait(1)
            first = watch.report
        folder.remove()
        text = FILE.replace("Which learning rate", "Which rate")
        make_sweep(tmp_path, "one", finished(T + 9), text)  # with as many lines
        async with watch.keep_up_to_date():
            while watch.report in (None, first):
                await watch.news.wait(1)
        assert watch.report is not None
        assert watch.report.line == first.line
        assert "Which rate" in watch.report.content.decode()
        assert (1, None) in shown
        assert (1, first) not in shown

    asyncio.run(asyncio.wait_for(work(), 60))


def test_a_look_that_is_due_when_the_server_ends_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        reading = Reading()
        await reading.prepare()
        watch = Watch(make_sweep(tmp_path, "one", some_trials(T)), reading)
        async with watch.keep_up_to_date():
            reading.close()
            await asyncio.sleep(0.1)

    asyncio.run(asyncio.wait_for(work(), 60))
    assert caplog.records == []
