"""The report in a real browser: it draws, selections go everywhere, the keyboard works, and nothing leaves the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import launched, needs_chromium
from report_sweeps import BOTH, EVIL, mixed, trial, written

from sweep.events import Event, NoteWritten, Status
from sweep.render.report import page as report
from sweep.store.folder import ResultsFolder

pytestmark = [pytest.mark.slow, needs_chromium]


class Opened:
    """A report in a page without a network, and all that went wrong in it."""

    def __init__(self, browser: Any, path: Path, **context: Any) -> None:
        self.troubles: list[str] = []
        self.context = browser.new_context(
            **{"viewport": {"width": 1280, "height": 900}, "offline": True, **context}
        )
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        self.page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        self.page.on("request", self.requested)
        self.page.add_init_script(
            "addEventListener('securitypolicyviolation', (event) => console.log('policy ' + event.violatedDirective))"
        )
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-ready]", state="attached")

    def requested(self, request: Any) -> None:
        if not request.url.startswith("file:"):
            self.troubles.append(f"request: {request.url[:200]}")

    def all_in_view(self) -> None:
        """Scroll through, as charts are made when they come into view."""
        self.page.evaluate(
            """async () => {
              for (const plot of plots) {
                plot.box.scrollIntoView({block: "center"});
                await new Promise((done) => setTimeout(done, 60));
              }
              await new Promise((done) => setTimeout(done, 300));
            }"""
        )

    def settle(self) -> None:
        self.page.wait_for_timeout(700)

    def selected(self) -> int:
        return int(self.page.evaluate("selection.mask ? selection.count : -1"))

    def drag(self, plot: str, *corners: tuple[float, float]) -> None:
        """Drag with the mouse over shares of a chart's inner rectangle."""
        self.page.evaluate(f"{plot}.box.scrollIntoView({{block: 'center'}})")
        self.page.wait_for_timeout(150)
        box = self.page.evaluate(
            f"(() => {{ const b = {plot}.box.getBoundingClientRect(), r = {plot}.rect;"
            "return [b.left + r.x, b.top + r.y, r.width, r.height]; })()"
        )
        places = [(box[0] + across * box[2], box[1] + down * box[3]) for across, down in corners]
        self.page.mouse.move(*places[0])
        self.page.mouse.down()
        for place in places[1:]:
            self.page.mouse.move(*place, steps=6)
        self.page.mouse.up()
        self.settle()


CURVE = "plots.find((plot) => plot instanceof CurvePlot)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


Open = Callable[..., Opened]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a report on sweeps; afterwards nothing may have gone wrong in it."""
    pages: list[Opened] = []

    def open_(*folders: ResultsFolder, **context: Any) -> Opened:
        path = tmp_path / "report.html"
        path.write_text(report(folders), encoding="utf-8", errors="backslashreplace")
        pages.append(Opened(browser, path, **context))
        return pages[-1]

    yield open_
    for one in pages:
        assert one.troubles == []
        assert one.page.evaluate("window.hacked") is None
        one.context.close()


CHOSEN = """() => Object.fromEntries(plots.filter((plot) => plot.pick).map((plot, at) => [
  `${at} ${plot.box.id}`,
  [plot.chosen, ORDER.filter((trial) => selection.mask?.[trial] && plot.anchor(trial)
    && !Number.isNaN(plot.anchor(trial)[0])).length]]))"""


def follows(opened: Opened) -> None:
    """Every chart draws exactly the selected trials that it can place; so does the table."""
    drawn = opened.page.evaluate(CHOSEN)
    assert len(drawn) >= 9
    assert all(has == should for has, should in drawn.values()), drawn
    assert max(should for _, should in drawn.values()) == opened.selected()
    rows = opened.page.evaluate("DATA.table.rows.filter((_, row) => chosenIn(row)).length")
    shown = opened.page.evaluate("table.body.querySelectorAll('tr.chosen').length")
    assert rows > 0
    assert shown <= rows


def test_a_selection_in_one_chart_is_one_in_all(opened: Open, tmp_path: Path) -> None:
    one = opened(written(tmp_path, mixed(), objectives=BOTH))
    one.all_in_view()
    marks = dict(one.page.evaluate("plots.map((plot, at) => [`${at} ${plot.box.id}`, plot.marks])"))
    # curves, history, parallel, 5 slices, contour, Pareto, timeline, budget, 2 x importance
    assert len(marks) == 14
    assert all(count > 0 for count in marks.values()), marks
    blank = one.page.evaluate(
        """plots.filter((plot) => ![...plot.box.querySelectorAll("canvas")].some((canvas) =>
             canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean))).length"""
    )
    assert blank == 0

    plot = "plots.find((plot) => plot instanceof CurvePlot)"
    one.drag(plot, (0.75, 0.0), (0.99, 0.35))
    assert 0 < one.selected() < 36
    follows(one)
    assert one.page.inner_text("#selected") == f"{one.selected()} of 36 trials selected"
    one.page.keyboard.press("Escape")
    one.settle()
    assert one.selected() == -1

    plot = "plots.find((plot) => plot instanceof ParallelPlot)"
    one.drag(plot, (0.0, 0.02), (0.0, 0.4))
    by_range = one.selected()
    assert 0 < by_range < 36
    follows(one)
    one.drag(plot, (1 / 6, 0.3), (1 / 6, 0.9))  # a second axis narrows it down
    assert 0 < one.selected() < by_range
    follows(one)

    one.page.click("button[data-brush=polygon]")
    plot = "plots.find((plot) => plot.box.classList.contains('small'))"
    one.drag(plot, (0.3, 0.02), (0.95, 0.02), (0.95, 0.5), (0.3, 0.5))
    assert 0 < one.selected() < 36
    # replaced
    assert one.page.evaluate("plots.find((plot) => plot instanceof ParallelPlot).ranges.size") == 0
    follows(one)
    one.page.check("#combine")
    before = one.selected()
    one.page.select_option("#values select[name=field]", label="status")
    one.page.select_option("#values select[name=choices]", label="completed")
    one.page.click("#values button")
    one.settle()
    assert 0 < one.selected() <= before
    one.page.click("#clear")
    one.settle()
    assert one.selected() == -1

    exact = one.page.evaluate(
        """plots.filter((plot) => plot.brushes).every((plot) => {
             const [x, y] = plot.chart.convertToPixel({gridIndex: 0}, [0.25, 0.75]);
             return Math.abs(x - plot.across(0.25)) < 1 && Math.abs(y - plot.down(0.75)) < 1;
           })"""
    )
    assert exact  # marks lie where ECharts' axes say


def test_it_is_worked_with_by_the_keyboard(opened: Open, tmp_path: Path) -> None:
    one = opened(written(tmp_path, mixed()))
    one.page.focus("#curves")
    for _ in range(3):
        one.page.keyboard.press("ArrowRight")
    one.settle()
    assert one.page.evaluate("TRIALS.rank[selection.current]") == 3
    assert one.page.is_visible("#tip")
    assert "rank 3" in one.page.inner_text("#said")
    one.page.keyboard.press("Enter")
    one.settle()
    assert one.selected() == 1
    one.page.keyboard.press("Escape")
    one.page.focus("#ranking tr[tabindex='0']")
    one.page.keyboard.press("ArrowDown")
    one.page.keyboard.press(" ")
    one.page.keyboard.press("End")
    one.settle()
    assert one.page.evaluate(
        "[...selection.mask].map((on, trial) => on && TRIALS.rank[trial]).filter(Boolean)"
    ) == [2]
    assert one.page.evaluate("document.activeElement.dataset.row") == "35"
    outline = one.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"
    reached = set()
    one.page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    for _ in range(60):
        one.page.keyboard.press("Tab")
        reached.add(
            one.page.evaluate("document.activeElement.id || document.activeElement.tagName")
        )
    assert {
        "theme",
        "clear",
        "colour",
        "only",
        "metric",
        "curves",
        "parallel",
        "timeline",
        "contour-x",
    } <= reached
    labels = one.page.evaluate("plots.map((plot) => plot.box.getAttribute('aria-label'))")
    assert all(labels)


def near_and_far() -> list[Event]:
    """Twelve trials, of which one stays at chance level."""
    events: list[Event] = []
    for n in range(12):
        scores = [0.1] * 5 if n == 7 else [0.9 + n / 1000 + epoch / 100 for epoch in range(5)]
        events += trial(
            n, {"lr": 10.0 ** -(n % 4), "units": [8, 16, 32][n % 3]}, scores, Status.COMPLETED
        )
    return events


LEGEND = "[...document.querySelectorAll('#legend li')].map((item) => item.textContent)"
COLOURS_AS_THE_LEGEND_SAYS = """() => TRIALS.trial.every((_, trial) => {
  const [low, high] = OBJECTIVES[0].range;
  const share = Math.max(0, Math.min(1, (OBJECTIVES[0].values[trial] - low) / (high - low)));
  const steps = theme.legend.length;
  return Math.abs(theme.group(trial) - Math.min(steps - 1, Math.floor(share * steps))) <= 1e-9;
})"""


def test_no_chart_says_that_no_trial_lies_outside_of_it(opened: Open, tmp_path: Path) -> None:
    events: list[Event] = []
    for n in range(16):
        scores = [0.099, 0.7, 0.8] if n < 3 else [0.1, 0.9, 0.95 + n / 1000]
        events += trial(n, {"lr": 0.1}, scores, Status.COMPLETED)
    one = opened(written(tmp_path, events))
    one.all_in_view()
    told = "(kind) => plots.find((plot) => plot.constructor.name === kind).outsideLine?.textContent ?? ''"
    assert (
        one.page.evaluate(told, "HistoryPlot")
        == "3 trials lie outside of this range. Show all values"
    )
    # by less than its margin
    assert one.page.evaluate("plots.find((plot) => plot instanceof CurvePlot).isCut")
    assert one.page.evaluate(told, "CurvePlot") == ""


def test_one_trial_at_chance_level_flattens_no_chart(opened: Open, tmp_path: Path) -> None:
    one = opened(written(tmp_path, near_and_far()))
    one.all_in_view()
    curves = "plots.find((plot) => plot instanceof CurvePlot)"
    history = "plots.find((plot) => plot instanceof HistoryPlot)"
    for plot, outside in ((curves, "A part of one curve"), (history, "1 trial")):
        assert one.page.evaluate(f"{plot}.y.value(0)") > 0.85
        line = one.page.evaluate(f"{plot}.outsideLine.textContent")
        assert line == f"{outside} lies outside of this range. Show all values"
    assert one.page.evaluate(f"[...{history}.beyond]").index(-1) == 7
    legend = one.page.evaluate(LEGEND)
    assert (legend[0], legend[-1]) == ("≤ 0.94", "0.951")  # of the last epoch
    assert one.page.evaluate(COLOURS_AS_THE_LEGEND_SAYS)
    one.page.evaluate(f"{curves}.outsideLine.querySelector('button').click()")
    for plot in (curves, history):
        assert one.page.evaluate(f"{plot}.y.value(0)") < 0.1
        assert (
            one.page.evaluate(f"{plot}.outsideLine.textContent")
            == "All values are shown. Show the usual range"
        )
    assert one.page.evaluate(LEGEND)[0] == "0.1"
    assert one.page.evaluate(COLOURS_AS_THE_LEGEND_SAYS)
    one.page.evaluate(f"{history}.outsideLine.querySelector('button').click()")
    assert one.page.evaluate(f"{curves}.y.value(0)") > 0.85
    one.page.select_option("#colour", label="units")
    assert one.page.evaluate(LEGEND) == ["8", "16", "32"]
    assert one.page.evaluate("[0, 1, 2].map(theme.group)") == [0, 1, 2]


def test_the_columns_that_matter_fit(opened: Open, tmp_path: Path) -> None:
    one = opened(written(tmp_path, mixed(), objectives=BOTH))
    heads = "[...document.querySelectorAll('#ranking th')].map((cell) => cell.textContent)"
    shown = one.page.evaluate(heads)
    assert shown[:5] == ["rank", "trial", "status", "acc", "loss"]
    assert {"lr", "units"} <= set(shown)
    assert "epochs" not in shown
    sizes = one.page.evaluate("[table.box.scrollWidth, table.box.clientWidth]")
    assert sizes[0] <= sizes[1]
    one.page.check("#all-columns")
    assert set(one.page.evaluate(heads)) == set(one.page.evaluate("DATA.table.columns"))
    one.page.click("#ranking th >> text=epochs")
    assert one.page.locator("#ranking th[aria-sort=ascending]").inner_text() == "epochs"
    one.page.uncheck("#all-columns")
    assert one.page.evaluate("table.sorted.name") == "rank"


def test_a_chart_is_drawn_anew_when_its_own_box_changes(opened: Open, tmp_path: Path) -> None:
    one = opened(written(tmp_path, mixed(), "first", BOTH))
    one.all_in_view()
    one.page.wait_for_timeout(300)  # until the first sizes are known
    one.page.evaluate("""() => {
      window.resizes = 0;
      for (const plot of plots) {
        const resize = plot.resize;
        plot.resize = function () { window.resizes += 1; resize.call(this); };
      }
    }""")
    one.page.evaluate("document.body.append(document.createElement('hr'))")
    one.page.wait_for_timeout(300)
    assert one.page.evaluate("window.resizes") == 0
    one.page.set_viewport_size({"width": 700, "height": 900})
    one.page.wait_for_function("() => window.resizes > 0")
    fits = "plots.every((plot) => !plot.chart || plot.chart.getWidth() <= plot.box.clientWidth)"
    one.page.wait_for_function(f"() => {fits}")


@pytest.mark.parametrize("kind", ["dark", "phone", "print", "several"])
def test_it_is_seen_in_many_ways(opened: Open, tmp_path: Path, kind: str) -> None:
    folders = [
        written(tmp_path, mixed(), name, BOTH)
        for name in ("first", "second")[: 1 + (kind == "several")]
    ]
    phone = {"viewport": {"width": 400, "height": 850}, "is_mobile": True, "has_touch": True}
    context = {"dark": {"color_scheme": "dark"}, "phone": phone}.get(kind, {})
    one = opened(*folders, **context)
    one.all_in_view()
    if kind == "dark":
        assert one.page.evaluate("theme.dark")
        one.page.click("#theme")
        assert not one.page.evaluate("theme.dark")
    if kind == "phone":
        assert one.page.evaluate("document.documentElement.scrollWidth") == 400
        one.page.tap("#ranking tr[data-row='1']")
        one.settle()
        assert one.selected() == 1
    if kind == "several":
        assert one.page.input_value("#colour") == "sweep"
        assert one.page.inner_text("#selected") == "72 trials, none selected"
    if kind == "print":
        one.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        widths = one.page.evaluate("plots.map((plot) => plot.chart.getWidth())")
        assert max(widths) <= 680
        one.page.evaluate("dispatchEvent(new Event('afterprint'))")
        one.page.pdf(path=tmp_path / "report.pdf", format="A4")
        assert (tmp_path / "report.pdf").stat().st_size > 50_000
    one.page.screenshot(path=tmp_path / f"{kind}.png", full_page=True)


def test_sweeps_with_little_to_show(opened: Open, tmp_path: Path) -> None:
    empty = opened(written(tmp_path, [], "empty"))
    assert "No trial has begun" in empty.page.inner_text("#answer")
    for name, events in (
        ("alone", trial(0, {"lr": 0.1}, [0.5], Status.COMPLETED)),
        ("running", trial(0, {"lr": 0.1, EVIL: None}, [], Status.RUNNING)),
        (
            "failed",
            [event for n in range(3) for event in trial(n, {"lr": n}, [], Status.FAILED, EVIL)],
        ),
        (
            "constant",
            [event for n in range(4) for event in trial(n, {"x": n}, [0.5, 0.5], Status.COMPLETED)],
        ),
    ):
        opened(written(tmp_path, events, name)).all_in_view()


def test_curves_are_smoothed_across_time_and_of_seeds_together(
    opened: Open, tmp_path: Path
) -> None:
    """Two configurations with three seeds each, and one with a single trial."""
    events: list[Event] = []
    for number in range(7):
        scores = [0.1 * epoch + 0.02 * (number % 3) * (-1) ** epoch for epoch in range(1, 6)]
        events += trial(
            number,
            {"lr": [0.1, 0.2, 0.3][number // 3]},
            scores,
            Status.COMPLETED,
            repeat=number % 3,
        )
    one = opened(written(tmp_path, events))
    one.page.evaluate(f"{CURVE}.box.scrollIntoView()")
    one.page.wait_for_function(f"() => {CURVE}.chart")
    plain = one.page.evaluate(f"[...{CURVE}.paths[1]]")
    one.page.locator("#smoothing").focus()
    for _ in range(12):
        one.page.keyboard.press("ArrowRight")
    assert one.page.inner_text("#smoothed") == "0.60"
    smoothed = one.page.evaluate(f"[...{CURVE}.paths[1]]")
    assert smoothed[:2] == plain[:2]  # the first value is not drawn towards 0
    assert smoothed[4:] != plain[4:]
    assert one.page.evaluate("smooth([1, 1, NaN, 1], 0.9)[3]") == pytest.approx(1.0)
    assert one.page.evaluate("smooth([0, 1], 0.5)") == pytest.approx([0, 2 / 3])
    one.page.locator("#smoothing").fill("0")
    one.page.select_option("#curve-across", label="seconds of training")
    assert one.page.evaluate(f"{CURVE}.xName") == "seconds of training"
    assert one.page.evaluate("[...acrossOf(1, 'seconds of training')]") == [1, 2, 3, 4, 5]
    one.page.select_option("#curve-across", label="epoch")
    one.page.check("#bands")
    assert one.page.evaluate(f"[...{CURVE}.bands.values()].map((band) => band.trials)") == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    first = one.page.evaluate("meanOf([0, 1, 2], 'acc', 'epoch')[0]")
    assert first == pytest.approx({"x": 1, "mean": 0.08, "low": 0.06, "high": 0.1})
    assert one.page.evaluate(f"{CURVE}.marks") == 7  # all trials are drawn, in bands or as lines
    one.page.evaluate("selectTrials(picked, [3])")
    one.settle()
    assert one.page.evaluate(f"{CURVE}.chosen") == 1


def test_rows_without_a_value_come_last_whichever_way_is_sorted(
    opened: Open, tmp_path: Path
) -> None:
    events: list[Event] = []
    for number, scores in enumerate([[0.2], [], [0.9], [0.5]]):
        status = Status.COMPLETED if scores else Status.FAILED
        events += trial(number, {"lr": float(number)}, scores, status)
    one = opened(written(tmp_path, events))
    shown = "table.rows.map((row) => TRIALS.trial[DATA.table.trials[row][0]])"
    for order in ([0, 3, 2, 1], [2, 3, 0, 1]):
        one.page.click("#ranking th >> text=acc")
        assert one.page.evaluate(shown) == order


def test_the_whole_text_of_a_row_is_reached_by_the_keyboard(opened: Open, tmp_path: Path) -> None:
    note = "a note that does not fit into its cell, whatever the screen"
    events = [*mixed(), NoteWritten(trial=0, text=note, request="r", time=1e3)]
    one = opened(written(tmp_path, events), viewport={"width": 390, "height": 850})
    row = one.page.evaluate("table.rows.findIndex((row) => DATA.table.trials[row].includes(0))")
    one.page.evaluate("table.body.querySelector('tr[data-row]').focus()")
    for _ in range(row):
        one.page.keyboard.press("ArrowDown")
    one.page.keyboard.press("Enter")
    assert note in one.page.inner_text("#whole")
