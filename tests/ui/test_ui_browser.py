"""The live page in a real browser: what it shows, and a sweep that is run from it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from browsers import needs_chromium
from living import (
    FILE,
    SCRIPT,
    begin,
    driver_process,
    driving,
    end,
    epoch,
    finished,
    make_sweep,
    start,
    trial,
)
from msgspec import structs
from visiting import TRAINABLE, Visit, Visitor, events_of, press_act, serving
from waiting import until

from sweep.events import Event, OutputPrinted, Params, SessionEnded, Status
from sweep.progress import SHARE
from sweep.store.folder import ResultsFolder
from sweep.text import duration, money, score

pytestmark = [pytest.mark.slow, needs_chromium]


def test_the_shelf_filters_and_compares(visit: Visit, project: Path) -> None:
    one = visit()
    one.wait("document.querySelectorAll('#sweeps li').length === 3")
    one.page.fill("#filter", "DONE")
    one.wait("document.querySelectorAll('#sweeps li').length === 1")
    one.page.fill("#filter", "")
    one.page.select_option("#state", "finished")
    one.wait("document.querySelectorAll('#sweeps li').length === 1")
    one.page.select_option("#state", "")
    make_sweep(project / "results", "later", finished(time.time()))
    one.wait("document.querySelectorAll('#sweeps li').length === 4")
    one.page.check("input[aria-label='Select done to compare']")
    one.page.check("input[aria-label='Select killed to compare']")
    one.page.click("text=Compare 2 sweeps")
    one.page.wait_for_selector("html[data-ready]", state="attached")
    assert one.page.inner_text("#command") == "python -m sweep compare done killed"
    assert "The best was" in one.page.inner_text("#answer")
    assert one.page.evaluate("plots.length") >= 8


def test_durations_scores_and_amounts_are_those_of_the_commands(visit: Visit) -> None:
    one = visit()
    times = [59.96, 60.0, 119.6, 3599.4, 3599.7, 7199.9, 172799.8, 1e6]
    assert one.page.evaluate(f"{times}.map(inTime)") == list(map(duration, times))
    scores = [0.5, 0.98765, -1.5, 123.456, 12345.678, 987654.3, -123456.7, 1e6]
    scores += [0.0, 8.1e-9, -3.14159e-5, 9.99996e-5, 1.5e9, 2e30]
    assert one.page.evaluate(f"{scores}.map(inScore)") == list(map(score, scores))
    amounts = [0.0, 1e-5, 1e-4, 0.00424, 0.05, 0.0994, 0.0995, 0.5, 0.996, 2.5, 1234.5]
    assert one.page.evaluate(f"{amounts}.map(inMoney)") == list(map(money, amounts))


def test_events_of_other_days_have_dates(visit: Visit) -> None:
    one = visit()
    now = time.time()
    show = "times => timesOf(times.map((time) => ({ time }))).map((one) => one.textContent)"
    (today,) = one.page.evaluate(show, [now])
    assert re.fullmatch(r"\d\d:\d\d:\d\d", today)
    year = time.localtime(now - 86400).tm_year
    assert str(year) in one.page.evaluate(show, [now - 86400, now])[0]
    assert one.page.evaluate(show, [now - 86400, now])[1].endswith(today)
    midnight = time.mktime((2026, 1, 2, 0, 5, 0, 0, 0, -1))
    assert re.search(r"\b0?0:05:00$", one.page.evaluate(show, [midnight])[0])


def test_charts_grow_and_what_was_chosen_stays(visit: Visit, project: Path) -> None:
    with driving(ResultsFolder(project / "results" / "lives")) as driver:
        one = visit()
        one.open("/lives")
        one.has_text("#state", "^running$")
        one.wait("N === 5")
        one.page.evaluate("document.querySelector('#curves').scrollIntoView({block: 'center'})")
        one.wait("plots.find((plot) => plot instanceof CurvePlot).chart")
        one.page.evaluate("selectTrials(picked, [1, 4])")
        one.page.select_option("#metric", label="val_loss")
        one.page.select_option("#colour", label="status")
        one.page.check("#only")
        one.page.evaluate("window.canvas = document.querySelector('#curves canvas')")
        now = time.time()
        driver.write(start(5, now), *[epoch(5, at, now) for at in (1, 2, 3)])
        one.wait("N === 6 && TRIALS.epochs[5] === 3")
        one.has_text("#workers", "trial 5\\s+3/6")
        for at in (4, 5):
            driver.write(epoch(5, at, now))
            one.wait(f"TRIALS.epochs[5] === {at}")
        one.wait("curveOf(5, 'val_loss')[1].length === 5")
        one.wait("plots.find((plot) => plot instanceof CurvePlot).paths[5]?.length === 10")
        assert one.page.evaluate("[...selection.mask]") == [0, 1, 0, 0, 1, 0]
        assert (
            one.page.evaluate("document.querySelector('#metric').selectedOptions[0].textContent")
            == "val_loss"
        )
        assert (
            one.page.evaluate("document.querySelector('#colour').selectedOptions[0].textContent")
            == "status"
        )
        assert one.page.evaluate("table.rows.length") == 2
        assert one.page.evaluate("window.canvas === document.querySelector('#curves canvas')")
        driver.write(epoch(5, 6, now), end(5, Status.COMPLETED, now))
        one.has_text("#events", "trial 5 is completed after 6 epochs")
        one.page.click("#chosen a >> text=compare the two")
        one.page.wait_for_selector("html[data-ready]", state="attached")
        assert one.page.inner_text("h1") in ("trial 1", "trial 4")
        assert one.page.locator("tr.differs").count() > 3
        assert one.page.evaluate("plots.length") == 3


def test_lanes_of_workers_grow_while_trials_run(visit: Visit, project: Path) -> None:
    with driving(ResultsFolder(project / "results" / "lives")) as driver:
        one = visit()
        one.open("/lives")
        now = time.time()
        driver.write(start(5, now), epoch(5, 1, now))
        one.wait("document.querySelector('#lanes-place #timeline')")
        one.wait(
            "DATA.timeline.open.length === 1 && DATA.timeline.lanes.every((lane) => lane.startsWith('here'))"
        )
        end_of_it = "DATA.timeline.spans.end[DATA.timeline.open[0]]"
        before = one.page.evaluate(end_of_it)
        one.wait(f"{end_of_it} > {before + 2}")  # without any event
        one.page.evaluate("document.querySelector('#timeline').scrollIntoView({block: 'center'})")
        lanes = "plots.find((plot) => plot instanceof TimelinePlot)"
        one.wait(f"{lanes}.chart && {lanes}.boxes[5].length === 1")
        width = one.page.evaluate(f"{lanes}.last")
        one.wait(f"{lanes}.last > {width + 1}")
        driver.write(end(5, Status.COMPLETED, time.time()))
        one.wait("DATA.timeline.open.length === 0")
    one.open("/killed")
    assert "1 interrupted" in one.page.inner_text("#counts")
    assert one.page.evaluate("TRIALS.outcome[8]") == "interrupted"


def test_the_leader_and_the_end_are_said_at_once(visit: Visit, project: Path) -> None:
    folder = make_sweep(project / "results", "young", [begin(time.time())])
    one = visit()
    with driving(folder) as driver:
        one.open("/young", ready=False)
        now = time.time()
        driver.write(start(0, now), *[epoch(0, at, now) for at in (1, 2, 3)], start(1, now))
        one.has_text("#leader", "^in the lead val_accuracy 0.* trial 0, running, epoch 3/6")
        one.has_text("#best", "No trial has completed yet")
        driver.write(*[epoch(0, at, now) for at in (4, 5, 6)], end(0, Status.COMPLETED, now))
        one.has_text("#best", "best so far val_accuracy")
        one.has_text("#answer", "It still runs")
        driver.write(end(1, Status.PRUNED, now), SessionEnded(time=now, reason="finished"))
    one.has_text("#state", "^finished$")
    assert "It still runs" not in one.page.inner_text("#answer")
    assert one.page.inner_text("[data-fact=trials]") == "1 completed, 1 pruned"
    assert one.page.inner_text("[data-fact=ended]") == "finished"
    one.has_text("#answer", "The best was")


def test_trials_of_so_many_minutes_are_as_far_as_their_minutes(visit: Visit, project: Path) -> None:
    now = time.time()
    file = FILE.replace("epochs: 6", "minutes: 5").replace("min_iter: 2", "min_iter: 20")
    folder = make_sweep(project / "results", "timed", [begin(now), start(0, now)], file)
    one = visit()
    with driving(folder) as driver:
        for number, share in enumerate((0.21, 0.37), 1):
            driver.write(structs.replace(epoch(0, number, now), measures={SHARE: share}))
        one.open("/timed")
        one.has_text("#workers", r"of the minutes[^]*trial 0\s+37 %")
        one.has_text("#leader", "trial 0, running, 37 % ")
        one.has_text("#rungs", r"of the minutes[^]*20 %\s+1\s+0")
        assert one.page.evaluate("document.querySelector('#workers progress').position") == 0.37


def test_parameters_and_a_metric_named_as_columns_of_the_ranking(
    visit: Visit, project: Path
) -> None:
    now = time.time()
    events: list[Event] = [begin(now - 60)]
    for number in range(3):
        params: Params = {"note": f"text{number}", "star": number, "rank": 2**number}
        metrics = {"rank": number / 2}
        events += [
            structs.replace(start(number, now - 50), params=params),
            structs.replace(epoch(number, 1, now - 40), metrics=metrics),
            end(number, Status.COMPLETED, now - 30),
        ]
    words = "star: {values: [0, 1, 2]}, note: {values: [text0, text1, text2]}, rank: {values: [1, 2, 4]}"
    file = (
        f"trainable: scored:Scored\nmethod: grid\nmetric: {{name: rank}}\nparameters: {{{words}}}\n"
    )
    make_sweep(
        project / "results", "named", [*events, SessionEnded(time=now, reason="finished")], file
    )
    one = visit()
    one.open("/named")
    heads = one.page.evaluate(
        "[...document.querySelectorAll('#ranking th')].map((cell) => cell.innerText)"
    )
    assert len(set(heads)) == len(heads)
    cells = one.page.evaluate(
        "[...document.querySelectorAll('#ranking tr[data-row=\"1\"] td')].map((cell) => cell.innerText)"
    )
    told = dict(zip(heads, cells, strict=True))
    assert (told["rank"], told["trial"], told["metric.rank"], told["param.rank"]) == (
        "2",
        "1",
        "0.5000",
        "2",
    )
    assert (told["param.note"], told["param.star"]) == ("text1", "1")


def test_a_hundred_trials_that_ask_for_new_parts(visit: Visit, project: Path) -> None:
    """Importance comes with the tenth completed trial: charts are made anew, and the selection stays."""
    with driving(ResultsFolder(project / "results" / "lives")) as driver:
        one = visit()
        one.open("/lives")
        one.wait("N === 5")
        one.page.evaluate("selectTrials(picked, [2])")
        now = time.time()
        for number in range(5, 16):
            driver.write(*trial(number, now))
        one.wait("N === 16 && DATA.importance.length === 1")
        one.wait("plots.some((plot) => plot instanceof ImportancePlot)")
        assert one.page.evaluate(
            "[...selection.mask].map((on, at) => on && at).filter(Boolean)"
        ) == [2]
        boxes = one.page.evaluate("plots.map((plot) => plot.box.isConnected)")
        assert all(boxes)
        assert len(boxes) == 10  # importance and timeline, as in the file


def test_lines_below_charts_are_those_of_a_page_that_is_opened_anew(
    visit: Visit, project: Path
) -> None:
    """The sixth trial makes them more: with it, ranks can be correlated."""
    below = "[...document.querySelectorAll('#report section p:not(.outside)')].map((one) => one.innerText)"
    now = time.time()
    events = [begin(now - 60), *trial(0, now - 50), *trial(1, now - 46)]
    events += [*trial(2, now - 42, 2, Status.PRUNED), *trial(3, now - 38), *trial(4, now - 34)]
    folder = make_sweep(project / "results", "grows", events)
    one = visit()
    one.open("/grows")
    assert "rank correlation of val_accuracy" not in str(one.page.evaluate(below))
    with driving(folder) as driver:
        driver.write(*trial(5, now - 30), SessionEnded(time=now, reason="finished"))
    one.wait("N === 6 && live.facts.state === 'ended'")
    other = visit()
    other.open("/grows")
    expected = other.page.evaluate(below)
    assert "rank correlation of val_accuracy" in str(expected)
    until(lambda: one.page.evaluate(below) == expected)


def test_each_trial_that_ends_without_a_result_is_said(visit: Visit, project: Path) -> None:
    """Also one that failed like others before, and one of another kind that is rarer than these."""
    folder = ResultsFolder(project / "results" / "lives")  # whose trial 3 has failed by ValueError
    one = visit()
    with driving(folder) as driver:
        one.open("/lives")
        for number, status, reason in (
            (5, Status.FAILED, "ValueError: again"),
            (6, Status.DIVERGED, "the loss became NaN"),
        ):
            driver.write(*trial(number, time.time(), 1, status, reason=reason))
            one.has_exactly("#heard", f"trial {number} ended without a result: {reason}")


def test_a_driver_that_is_killed_is_said(visit: Visit, project: Path) -> None:
    one, other = visit(), visit(color_scheme="dark")
    with driver_process(ResultsFolder(project / "results" / "lives"), 5) as driver:
        for visitor in (one, other):
            visitor.open("/lives")
            visitor.has_text("#state", "^running$")
        one.has_text("#workers", "trial 5")
        one.has_text("#silence", "No news of the sweep for 1[2-9] s, but its process runs")
        os.kill(driver.pid, signal.SIGKILL)
        for visitor in (one, other):
            visitor.has_text("#state", "^killed$")
            visitor.has_text("#silence", "Its process was killed .*python -m sweep resume lives")
    assert other.page.evaluate("theme.dark")
    assert one.page.evaluate("document.title") == "killed · lives"


def test_a_problem_is_said_until_it_is_over(visit: Visit, project: Path) -> None:
    """The first part of a long log can be read, and what it says does not hide that the rest cannot."""
    output = OutputPrinted(trial=0, text="line\n" * 100_000, time=time.time())
    folder = make_sweep(
        project / "results", "long", [begin(time.time()), start(0, time.time()), *[output] * 3]
    )
    whole = folder.log.read_bytes()
    folder.log.write_bytes(whole + b"nonsense\n{}\n")
    one = visit()
    one.open("/long", ready=False)
    one.has_text("#silence", "damaged record.*python -m sweep repair long")
    one.wait("live.facts")
    one.page.wait_for_timeout(2500)
    assert "damaged record" in one.page.inner_text("#silence")
    folder.log.write_bytes(whole)
    one.has_text("#silence", "^Its process was killed")


def test_the_page_says_when_its_server_is_gone(browser: Any, project: Path) -> None:
    with serving(project) as address:
        one = Visitor(browser, address)
        one.open("/done")
        one.has_text("#state", "finished")
    one.has_text("#link", "The server of this page has not answered for")
    one.context.close()


def test_a_trial_that_failed(visit: Visit) -> None:
    one = visit()
    one.open("/killed/3")
    assert SCRIPT in one.page.inner_text("pre")
    one.page.fill("#beside-number", "1")
    one.page.click("#beside button")
    one.wait("document.querySelectorAll('tr.differs').length > 3")
    assert one.page.evaluate("[1e-4, 2.0417716249981246e-6].map(told)") == [
        "0.0001",
        "2.0417716249981246e-6",
    ]
    one.open("/killed/999", ready=False)
    one.has_text("#trial", "has no trial 999")
    assert [trouble[-15:] for trouble in one.troubles] == ["404 (Not Found)"]
    one.troubles.clear()


def test_the_page_of_a_long_trial_says_how_many_epochs_are_drawn(
    visit: Visit, project: Path
) -> None:
    now = time.time()
    make_sweep(project / "results", "long", [begin(now), *trial(0, now, 15_000), *trial(1, now)])
    one = visit()
    one.open("/long/0")
    one.has_text("#drawn", "Of each trial 13,333 epochs at most are drawn")
    one.open("/long/1")
    assert one.page.is_hidden("#drawn")


def test_a_trial_is_shown_again_after_it_could_not_be_read(visit: Visit) -> None:
    one = visit()
    one.open("/done/1")
    one.page.route("**/done/1.json", lambda route: route.abort())
    one.page.evaluate("takeTrial()")
    one.wait("document.querySelector('#trial .wrong')")
    one.page.unroute("**/done/1.json")
    one.page.evaluate("takeTrial()")
    assert "learning_rate" in one.page.inner_text("#trial")
    assert ["Failed to load" in trouble for trouble in one.troubles] == [True]
    one.troubles.clear()


def test_what_a_trial_prints_is_shown_while_it_trains(visit: Visit, project: Path) -> None:
    now = time.time()
    with driving(ResultsFolder(project / "results" / "lives")) as driver:
        driver.write(start(5, now))
        one = visit()
        one.open("/lives/5")
        one.has_text("#trial", "Nothing was printed")
        lines = "".join(f"<b>line</b> {number}\n" for number in range(100))
        driver.write(OutputPrinted(trial=5, text=lines, time=now), epoch(5, 1, now))
        one.wait("document.querySelector('#output-5')?.textContent.endsWith('<b>line</b> 99\\n')")
        one.wait("document.querySelector('#output-5').scrollTop > 0")
        driver.write(OutputPrinted(trial=5, text="the last line\n", time=now))
        one.wait("document.querySelector('#output-5').textContent.endsWith('the last line\\n')")
        at_end = "(box) => Math.abs(box.scrollTop + box.clientHeight - box.scrollHeight) < 5"
        one.wait(f"({at_end})(document.querySelector('#output-5'))")
        one.page.evaluate("document.querySelector('#output-5').scrollTop = 40")
        driver.write(OutputPrinted(trial=5, text="not looked at\n", time=now))
        one.wait("document.querySelector('#output-5').textContent.endsWith('not looked at\\n')")
        one.wait("document.querySelector('#output-5').scrollTop === 40")


def test_a_sweep_is_written_run_stopped_and_extended(visit: Visit, project: Path) -> None:
    """On Ray, from the page alone; `test_ui_browser_acts.py` has all acts."""
    # trials do not end meanwhile
    (project / "scored.py").write_text(TRAINABLE.replace("range(6)", "range(2000)"))
    one = visit()
    one.open("/-/new?from=done", ready=False)
    one.has_text("#verdict", "mistake")
    text = (
        FILE.replace("NAME", "real")
        .replace("scored:Scored", "scored:train")
        .replace("run_cap: 12", "run_cap: 40")
    )
    one.page.fill("#text", text + "bugdet: {hours: 1}\n")
    one.has_text("#mistakes", r"line 14 bugdet: unknown key; did you mean 'budget'")
    assert one.page.locator("#numbers .wrong").inner_text().strip() == "14"
    assert one.page.locator("#run").is_disabled()
    one.page.fill(
        "#text", text.replace("epochs: 6", "epochs: 2000") + "resources: {max_concurrent: 1}\n"
    )
    one.has_text("#verdict", "real: no mistake; random, 40 trials")
    one.page.fill("#file", "real.yaml")
    one.page.click("#plan")
    one.has_text("#jobs", "done")
    assert "40" in one.page.inner_text("#jobs pre")
    one.page.click("#run")
    one.page.click("text=Watch real", timeout=200_000)
    one.has_text("#state", "^running$")
    folder = ResultsFolder(project / "results" / "real")
    one.page.wait_for_selector("#workers a", timeout=200_000)
    number = int(re.findall(r"\d+$", str(one.page.get_attribute("#workers a", "href")))[0])
    one.open(f"/real/{number}")
    said = press_act(one, "stop_trial", f"stop real --trial {number}", {})
    assert f"trial {number} " in said
    one.has_text("#state", "stopped by hand")
    (ended,) = [
        event
        for event in events_of(folder)
        if event["event"] == "trial_ended" and event["trial"] == number
    ]
    assert (ended["status"], ended["asked"]) == ("pruned", True)
    one.open("/real")
    one.has_text("#state", "^running$")
    press_act(one, "stop", "stop real", {})
    one.has_text("#state", "interrupted|stopped on request")
    assert events_of(folder)[-1]["event"] == "session_ended"
    press_act(
        one,
        "extend",
        "resume real --set budget.epochs=60 --detach",
        {"changes": "budget.epochs=60"},
    )
    one.has_text("#state", "budget")
    assert sum(event["event"] == "session_started" for event in events_of(folder)) == 2


def test_acts_that_are_not_offered_are_not_there(visit: Visit) -> None:
    one = visit()
    one.open("/done")
    one.wait("acts.shown")
    names = set(
        one.page.evaluate(
            "[...document.querySelectorAll('[data-act]')].map((act) => act.dataset.act)"
        )
    )
    assert {"resume", "extend", "retry", "confirm", "retrain", "export"} <= names
    assert not names & {"stop_now", "stop_trial"}
    assert one.page.is_disabled("[data-act=stop]")  # it keeps its place
    one.page.click(".more summary")
    one.page.keyboard.press("Escape")
    assert not one.page.evaluate("document.querySelector('.more').open")
    one.page.click(".more summary")
    one.page.click("button[data-act=export]")
    one.page.click("dialog button[type=submit]")  # the folder is missing
    assert one.page.evaluate("document.querySelector('dialog').open")
    one.page.keyboard.press("Escape")
    one.wait("!document.querySelector('dialog').open")
    # the event of closing comes a moment later
    one.wait("document.activeElement.tagName === 'SUMMARY'")


def test_read_only(browser: Any, project: Path) -> None:
    with serving(project, "--read-only") as address:
        one = Visitor(browser, address)
        assert not one.page.is_visible("#new")
        one.open("/done")
        assert not one.page.is_visible("#acts")
        one.context.close()
        assert one.troubles == []


def test_the_saved_file_is_the_report(visit: Visit, project: Path) -> None:
    one = visit()
    one.open("/done")
    with one.page.expect_download() as download:
        one.page.click("#save")
    text = Path(download.value.path()).read_text()
    assert download.value.suggested_filename == "done.html"
    assert "<noscript" in text
    assert 'id="data"' in text


@pytest.mark.parametrize("kind", ["light", "dark", "phone"])
def test_pages_fit_and_are_worked_with_by_the_keyboard(
    visit: Visit, project: Path, kind: str, tmp_path: Path
) -> None:
    phone = {"viewport": {"width": 390, "height": 850}, "is_mobile": True, "has_touch": True}
    context = {"dark": {"color_scheme": "dark"}, "phone": phone}.get(kind, {})
    one = visit(**context)
    pages = {
        "": False,
        "killed": True,
        "done/1?beside=3": True,
        "-/new": False,
        "-/compare?sweep=done&sweep=killed": True,
    }
    for at, (path, ready) in enumerate(pages.items()):
        one.open(f"/{path}", ready=ready)
        one.page.wait_for_timeout(1000)
        one.page.screenshot(path=tmp_path / f"{kind}{at}.png", full_page=True)
        width = one.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width[0] <= width[1], path
        one.page.keyboard.press("Tab")
        assert one.page.evaluate("document.activeElement.className") == "skip"
        assert one.page.locator("main").count() == one.page.locator("h1").count() == 1
    if kind == "phone":
        one.open("/killed")
        bottom = one.page.evaluate(
            "document.querySelector('#buttons button').getBoundingClientRect().bottom"
        )
        assert bottom < 850  # on the first screen


def test_run_with_ui_says_the_address(browser: Any, project: Path) -> None:
    text = (
        FILE.replace("NAME", "shown")
        .replace("scored:Scored", "scored:train")
        .replace("run_cap: 12", "run_cap: 3")
    )
    (project / "shown.yaml").write_text(text)
    command = [sys.executable, "-m", "sweep", "run", "shown.yaml", "--inline", "--ui"]
    with subprocess.Popen(
        command, cwd=project, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as run:
        assert run.stderr is not None
        address = next(line.split()[1] for line in run.stderr if line.startswith("page "))
        reading = threading.Thread(target=run.stderr.read)
        reading.start()
        base, _, rest = address.partition("/shown?")
        one = Visitor(browser, f"{base}/?{rest}")
        one.page.goto(f"{base}/shown")
        one.has_text("#state", "running|finished")
        assert run.wait(120) == 0
        reading.join()
        one.has_text("#state", "finished")
        one.context.close()
