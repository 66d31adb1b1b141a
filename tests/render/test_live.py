"""The live view on terminals of all kinds."""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from emulator import Terminal
from rich.console import Console
from rich.text import Text

from sweep.analysis import Outline
from sweep.analysis.live_status import Standing
from sweep.events import EpochReported, Facts, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.render.live import Above, LiveView, Screen, is_plain
from sweep.render.status import Frame


class Watched:
    """A screen on an emulated terminal."""

    def __init__(self, width: int = 40, height: int = 8) -> None:
        self.terminal = Terminal(width, height)
        self.console = Console(file=self.terminal, force_terminal=True, _environ={"TERM": "xterm"})
        self.console.size = (width, height)
        self.screen = Screen(self.console)

    def draw(self, frame: Sequence[str], *above: str) -> None:
        self.screen.draw(
            [Text(line) for line in above], [Text(line, no_wrap=True) for line in frame]
        )

    def resize(self, width: int, height: int) -> None:
        self.terminal.resize(width, height)
        self.console.size = (width, height)

    @property
    def shown(self) -> list[str]:
        return [line for line in self.terminal.lines if line]


def test_a_frame_takes_the_place_of_the_last_one_in_one_write() -> None:
    watched = Watched()
    for number in range(5):
        watched.draw([f"frame {number}", "x" * (40 - number), "end"])
    assert watched.shown == ["frame 4", "x" * 36, "end"]
    assert watched.terminal.history == []
    assert watched.terminal.writes == 5


def test_a_shorter_frame_leaves_nothing_of_a_longer_one() -> None:
    watched = Watched()
    watched.draw(["one", "two", "three"])
    watched.draw(["1"])
    assert watched.shown == ["1"]
    watched.draw([])
    assert watched.shown == []


def test_a_line_as_wide_as_the_terminal_is_whole() -> None:
    watched = Watched()
    for _ in range(2):
        watched.draw(["y" * 40, "高" * 20])
    assert watched.shown == ["y" * 40, "高" * 20]


def test_lines_that_stay_scroll_away_above_the_frame() -> None:
    watched = Watched()
    for number in range(12):
        watched.draw(["frame", str(number)], f"trial {number} failed: {'long ' * 10}")
    assert watched.shown[-2:] == ["frame", "11"]
    everything = " ".join([*watched.terminal.history, *watched.shown])
    assert everything.count("frame") == 1
    assert [number for number in range(12) if f"trial {number} failed" in everything] == list(
        range(12)
    )
    assert watched.terminal.wraps


def test_a_terminal_that_becomes_narrow_and_wide_again() -> None:
    watched = Watched(40, 20)
    watched.draw(["a" * 40, "b" * 30, "c"], "stays")
    watched.resize(20, 20)
    watched.draw(["a" * 20, "c"])
    assert watched.shown == ["stays", "a" * 20, "c"]
    watched.resize(40, 20)
    watched.draw(["a" * 40, "c"])
    assert watched.shown == ["stays", "a" * 40, "c"]
    assert watched.terminal.history == []


def test_characters_that_the_terminal_has_not() -> None:
    watched = Watched()
    watched.terminal.encoding = "ascii"
    watched.draw(["größer"], "\udce9")
    assert watched.shown == ["?", "gr??er"]


def test_what_is_printed_meanwhile_is_told_line_by_line() -> None:
    told: list[str] = []
    above = Above(Terminal(), told.append)
    for text in ("a", "b\nc", "\r100%\n", "\n", "rest"):
        above.write(text)
    assert told == ["ab", "100%", ""]
    assert above.isatty()
    assert above.encoding == "utf-8"
    above.give_back()
    assert told[-1] == "rest"
    with pytest.raises(OSError, match="fileno"):
        above.fileno()
    with Path(os.devnull).open("w") as file:
        assert Above(file, told.append).fileno() == file.fileno()


@pytest.mark.parametrize(
    ("encoding", "environ", "plain"),
    [
        ("utf-8", {"LANG": "de_DE.UTF-8"}, False),
        ("UTF8", {}, False),
        ("utf-8", {"LANG": "C.UTF-8"}, False),
        ("utf-8", {"LANG": "C"}, True),
        ("utf-8", {"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),
        ("utf-8", {"LANG": "en_US.UTF-8", "LC_ALL": "POSIX"}, True),
        ("iso8859-1", {"LANG": "en_US"}, True),
        ("ascii", {}, True),
    ],
)
def test_where_there_is_nothing_but_ascii(
    encoding: str, environ: dict[str, str], plain: bool
) -> None:
    assert is_plain(encoding, environ) is plain


def started(trial: int, lr: float = 0.1) -> TrialStarted:
    params = {"lr": lr, "fixed": 1}
    return TrialStarted(
        trial=trial, trial_id=f"t{trial}", params=params, seed=0, repeat=0, time=100.0
    )


def reported(trial: int, epoch: int, value: float | None = 0.5) -> EpochReported:
    metrics = {} if value is None else {"acc": value}
    return EpochReported(trial=trial, epoch=epoch, metrics=metrics, time=101.0, time_s=0.1)


def ended(trial: int, status: Status = Status.COMPLETED, reason: str = "") -> TrialEnded:
    return TrialEnded(
        trial=trial, status=status, reason=reason, time=103.9, facts=Facts(started=102.0)
    )


def view_of(
    *,
    terminal: bool = False,
    total: int | None = 3,
    metric: str = "acc",
    goal: str = "maximize",
    quiet: bool = False,
) -> tuple[LiveView, io.StringIO]:
    file = io.StringIO()
    outline = Outline(metric=metric, goal=goal, total=total, epochs=4, varying=("lr",))
    console = Console(file=file, force_terminal=terminal, width=60, _environ={"TERM": "xterm"})
    return LiveView(console, outline, quiet=quiet), file


def test_off_a_terminal_each_finished_trial_is_one_line():
    view, file = view_of()
    with view:
        for event in (
            started(0),
            started(1, 0.01),
            reported(0, 1, 0.95113),
            reported(1, 1, 0.5),
            ended(0),
        ):
            view.on(event)
        view.on(ended(1, Status.PRUNED, "rung 1: 0.5 is below 0.9"))
        view.on(started(2))
        view.on(ended(2, Status.FAILED, "ValueError: [red]\n at all"))
    assert file.getvalue().splitlines() == [
        "trial 0 completed in 1.9 s: acc 0.9511 (best 0.9511, trial 0) lr=0.1  [1/3]",
        "trial 1 pruned after 1 epoch in 1.9 s: rung 1: 0.5 is below 0.9; acc 0.5000 (best 0.9511, trial 0) "
        "lr=0.01  [2/3]",
        "trial 2 failed after 0 epochs in 1.9 s: ValueError: [red] at all; (best 0.9511, trial 0) lr=0.1  [3/3]",
    ]


@pytest.mark.parametrize(("goal", "best"), [("maximize", 2), ("minimize", 0)])
def test_best_is_the_last_value_of_a_completed_trial(goal, best):
    view, file = view_of(goal=goal)
    for trial, value in enumerate((0.1, 0.2, 0.3)):
        for event in (
            started(trial),
            reported(trial, 1, 0.9),
            reported(trial, 2, value),
            ended(trial),
        ):
            view.on(event)
    for trial, status, value in ((3, Status.PRUNED, 0.25), (4, Status.COMPLETED, float("nan"))):
        for event in (started(trial), reported(trial, 1, value), ended(trial, status)):
            view.on(event)
    assert f"(best 0.{best + 1}000, trial {best})" in file.getvalue().splitlines()[-1]


def test_without_objective_or_total_there_is_still_a_line():
    view, file = view_of(total=None, metric="")
    for event in (started(0), reported(0, 1), ended(0)):
        view.on(event)
    assert file.getvalue() == "trial 0 completed in 1.9 s: lr=0.1  [1]\n"


def test_a_replay_counts_without_a_line():
    view, file = view_of(total=4)
    events = [
        started(0),
        reported(0, 1, 0.9),
        ended(0),
        started(1),
        reported(1, 1),
        started(2),
        reported(2, 1),
    ]
    view.replay([*events, ended(2, Status.INTERRUPTED)])
    assert file.getvalue() == ""
    assert "0 running  1 completed" in drawn(view)
    for event in (
        SessionStarted(time=200.0, resumed=True, version="1"),
        reported(1, 2, 0.7),
        ended(1),
    ):
        view.on(event)
    assert (
        file.getvalue()
        == "trial 1 completed in 1.9 s: acc 0.7000 (best 0.9000, trial 0) lr=0.1  [2/4]\n"
    )
    view.on(reported(2, 2))
    assert "1 running  2 completed" in drawn(view)


def drawn(view: LiveView, width: int = 60) -> str:
    return "\n".join(line.plain for line in view.lines(Frame(width=width, height=20)))


def test_on_a_terminal_only_failures_leave_a_line():
    view, file = view_of(terminal=True)
    with view:
        for event in (
            started(0),
            reported(0, 1),
            ended(0),
            started(1),
            ended(1, Status.FAILED, "ValueError: x"),
        ):
            view.on(event)
    told = file.getvalue()
    assert "trial 1 failed after 0 epochs in 1.9 s: ValueError: x" in told
    assert "trial 0 completed" not in told
    assert "[2/3]" in told
    assert told.endswith("\x1b[?7h")  # cleared at the end, and lines wrap again
    assert "\x1b[?25l" not in told  # the cursor is there even where this process is killed


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_about_the_session_is_told_as_it_is(terminal):
    view, file = view_of(terminal=terminal)
    with view:
        view.say("Ray dashboard: [local]")
    assert "Ray dashboard: [local]" in file.getvalue()


def test_a_step_off_a_terminal_is_a_line():
    view, file = view_of()
    with view:
        view.step("starting Ray")
    assert file.getvalue() == "starting Ray\n"


def test_a_step_on_a_terminal_is_shown_until_the_first_epoch():
    view, _ = view_of(terminal=True)
    view.standing = Standing(replace(view.standing.outline, name="some"))
    with view:
        view.step("starting Ray")
        assert drawn(view).startswith("some  starting Ray\n")
        view.on(SessionStarted(time=100.0, resumed=False, version="1"))
        view.on(started(0))
        assert drawn(view).startswith("some  starting Ray\n")
        view.on(reported(0, 1))
        assert drawn(view).startswith("some  running\n")


def test_a_closed_view_stays_closed():
    view, file = view_of(terminal=True)
    view.on(started(0))
    view.close()
    before = file.getvalue()
    view.on(ended(0))
    view.close()
    assert file.getvalue() == before


def test_a_quiet_view_says_nothing_anywhere():
    for terminal in (False, True):
        view, file = view_of(terminal=terminal, quiet=True)
        with view:
            view.say("dashboard")
            view.step("starting Ray")
            for event in (started(0), ended(0, Status.FAILED)):
                view.on(event)
        assert file.getvalue() == ""


def test_the_sweep_goes_on_when_nobody_reads():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as file:
        view = LiveView(Console(file=file), Outline(total=3))
        for trial in range(3):
            view.on(started(trial))
            view.on(ended(trial))
        assert "3 completed" in drawn(view)
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())  # for what is left in its buffer


def test_an_event_costs_next_to_nothing():
    for terminal in (False, True):
        view, _ = view_of(terminal=terminal)
        view.on(started(0))
        events = [reported(0, epoch) for epoch in range(1, 2001)]
        begin = time.thread_time()
        for event in events:
            view.on(event)
        assert (time.thread_time() - begin) / len(events) < 50e-6  # measured: 2.5e-6
        view.close()


def test_escape_sequences_of_others_do_not_reach_the_terminal() -> None:
    for terminal in (False, True):
        console = Console(
            file=io.StringIO(),
            force_terminal=terminal,
            color_system=None,
            width=200,
            _environ={"TERM": "xterm"},
        )
        view = LiveView(console, Outline(metric="loss", goal="minimize", total=3, varying=("a",)))
        view.say("\x1b[33m(raylet)\x1b[0m died\x1b]0;title\x07")
        view.on(
            TrialStarted(trial=0, trial_id="t", params={"a": "\x1b[2J"}, seed=0, repeat=0, time=1.0)
        )
        reason = "ValueError: \x1b[31mred\x1b[0m \x07"
        view.on(TrialEnded(trial=0, status=Status.FAILED, reason=reason, time=2.0))
        view.close()
        shown = console.file.getvalue()
        assert "(raylet) died" in shown
        assert "ValueError: red \\x07;" in shown
        for sequence in ("\x1b[33m", "\x1b[31m", "\x1b]0", "\x1b[2J", "\x07"):
            assert sequence not in shown


def test_a_terminal_that_can_do_nothing_gets_lines() -> None:
    file = io.StringIO()
    view = LiveView(
        Console(file=file, force_terminal=True, _environ={"TERM": "dumb"}),
        Outline(metric="acc", total=1),
    )
    with view:
        for event in (started(0), reported(0, 1), ended(0)):
            view.on(event)
    assert (
        file.getvalue() == "trial 0 completed in 1.9 s: acc 0.5000 (best 0.5000, trial 0)  [1/1]\n"
    )


@pytest.mark.parametrize("reason", ["ValueError: no {}", "the worker was lost after {} epochs"])
def test_failures_alike_are_told_a_few_times(reason: str) -> None:
    view, file = view_of(terminal=True, total=50)
    with view:
        for trial in range(20):
            view.on(started(trial))
            view.on(ended(trial, Status.FAILED, reason.format(trial)))
    told = file.getvalue()
    assert told.count("failed after 0 epochs") == 3
    assert told.count("further failures like this") == 1


def test_what_a_trainable_prints_comes_above_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    console = Console(force_terminal=True, width=60, _environ={"TERM": "xterm"})
    view = LiveView(console, Outline(metric="acc", total=1))
    with view:
        view.on(started(0))
        sys.stdout.write("one\ntwo")
        sys.stdout.write("  10%\r  20%\n")
        assert sys.stdout is not file
    assert sys.stdout is file
    above = file.getvalue()
    assert above.index("one\r\n") < above.index("20%\r\n")
    assert "10%" not in above


def test_an_unfinished_line_is_written_even_if_drawing_ends_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_back = Above.give_back

    def give_back_late(above: Above) -> None:
        """Give the thread the time to end, if it has been told so."""
        deadline = time.monotonic() + 0.5
        while "sweep-view" in [thread.name for thread in threading.enumerate()]:
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
        give_back(above)

    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    monkeypatch.setattr(Above, "give_back", give_back_late)
    console = Console(force_terminal=True, width=60, _environ={"TERM": "xterm"})
    with LiveView(console, Outline(metric="acc", total=1)):
        sys.stdout.write("unfinished")
    assert "unfinished\r\n" in file.getvalue()


def test_a_line_in_an_encoding_that_lacks_its_characters() -> None:
    raw = io.BytesIO()
    view = LiveView(
        Console(file=io.TextIOWrapper(raw, encoding="ascii")), Outline(metric="mètre", total=1)
    )
    for event in (started(0), reported(0, 1), ended(0)):
        view.on(event)
    view.say("Größe")
    assert raw.getvalue().splitlines()[-1] == b"Gr??e"


def test_history_in_parts_and_what_is_forgotten() -> None:
    view, _ = view_of(quiet=True)
    view.observe([started(0), reported(0, 1)])
    view.observe([reported(0, 2)])
    assert "1 running" in drawn(view)
    view.state = "reading its log, 50%"
    view.forget()
    assert "0 running" in drawn(view)
    assert not view.over
