import io
import os
import time

import pytest
from rich.console import Console

from sweep.events import EpochReported, Facts, SessionStarted, Status, TrialEnded, TrialStarted
from sweep.render.live import LiveView

OBJECTIVE = ("acc", "maximize")


def started(trial: int, lr: float = 0.1) -> TrialStarted:
    params = {"lr": lr, "fixed": 1}
    return TrialStarted(trial=trial, trial_id=f"t{trial}", params=params, seed=0, repeat=0, time=100.0)


def reported(trial: int, epoch: int, value: float | None = 0.5) -> EpochReported:
    metrics = {} if value is None else {"acc": value}
    return EpochReported(trial=trial, epoch=epoch, metrics=metrics, time=101.0, time_s=0.1)


def ended(trial: int, status: Status = Status.COMPLETED, reason: str = "") -> TrialEnded:
    return TrialEnded(trial=trial, status=status, reason=reason, time=103.9, facts=Facts(started=102.0))


def view_of(*, terminal: bool = False, total: int | None = 3, objective=OBJECTIVE, **rest):
    file = io.StringIO()
    return LiveView(Console(file=file, force_terminal=terminal, width=60), total, objective, ("lr",), **rest), file


def test_off_a_terminal_each_finished_trial_is_one_line():
    view, file = view_of()
    with view:
        for event in (started(0), started(1, 0.01), reported(0, 1, 0.95113), reported(1, 1, 0.5), ended(0)):
            view.on(event)
        view.on(ended(1, Status.PRUNED, "rung 1: 0.5 is below 0.9"))
        view.on(started(2))
        view.on(ended(2, Status.FAILED, "ValueError: [red]\n at all"))
        view.on(ended(2, Status.FAILED, "told twice"))
    assert file.getvalue().splitlines() == [
        "trial 0 completed in 1.9 s: acc 0.9511 (best 0.9511, trial 0) lr=0.1  [1/3]",
        "trial 1 pruned after 1 epoch in 1.9 s: rung 1: 0.5 is below 0.9; acc 0.5000 (best 0.9511, trial 0) "
        "lr=0.01  [2/3]",
        "trial 2 failed after 0 epochs in 1.9 s: ValueError: [red] at all; (best 0.9511, trial 0) lr=0.1  [3/3]",
    ]


@pytest.mark.parametrize(("goal", "best"), [("maximize", 2), ("minimize", 0)])
def test_best_is_the_last_value_of_a_completed_trial(goal, best):
    view, file = view_of(objective=("acc", goal))
    for trial, value in enumerate((0.1, 0.2, 0.3)):
        for event in (started(trial), reported(trial, 1, 0.9), reported(trial, 2, value), ended(trial)):
            view.on(event)
    for trial, status, value in ((3, Status.PRUNED, 0.25), (4, Status.COMPLETED, float("nan"))):
        for event in (started(trial), reported(trial, 1, value), ended(trial, status)):
            view.on(event)
    assert f"(best 0.{best + 1}000, trial {best})" in file.getvalue().splitlines()[-1]


def test_without_objective_or_total_there_is_still_a_line():
    view, file = view_of(total=None, objective=None)
    for event in (started(0), reported(0, 1), ended(0)):
        view.on(event)
    assert file.getvalue() == "trial 0 completed in 1.9 s: lr=0.1  [1]\n"


def test_a_replay_counts_without_a_line():
    view, file = view_of(total=4)
    events = [started(0), reported(0, 1, 0.9), ended(0), started(1), reported(1, 1), started(2), reported(2, 1)]
    view.replay([*events, ended(2, Status.INTERRUPTED)])
    assert file.getvalue() == ""
    assert "0 running  1 completed" in drawn(view)
    for event in (SessionStarted(time=200.0, resumed=True, version="1"), reported(1, 2, 0.7), ended(1)):
        view.on(event)
    assert file.getvalue() == "trial 1 completed in 1.9 s: acc 0.7000 (best 0.9000, trial 0) lr=0.1  [2/4]\n"
    view.on(reported(2, 2))
    assert "1 running  2 completed" in drawn(view)


def drawn(view: LiveView, width: int = 60) -> str:
    file = io.StringIO()
    Console(file=file, width=width).print(view)
    return file.getvalue()


def test_the_live_view_tells_where_the_sweep_stands():
    view, _ = view_of(quiet=True)
    assert "no trial completed yet" in drawn(view)
    assert "0/3 trials" in drawn(view)
    for event in (started(0), started(1), reported(0, 1, 0.9), ended(0), reported(1, 4, 0.3)):
        view.on(event)
    time.sleep(0.01)
    told = drawn(view)
    assert "1/3 trials" in told
    assert " left" in told
    assert "1 running  1 completed" in told
    assert "best    acc 0.9000  trial 0  lr=0.1" in told
    assert "latest  trial 1 epoch 4 acc 0.3000" in told
    assert float(told.split(" epochs/s")[0].split()[-1]) > 0
    assert all(len(line) <= 30 for line in drawn(view, width=30).splitlines())


def test_on_a_terminal_only_failures_leave_a_line():
    view, file = view_of(terminal=True)
    with view:
        for event in (started(0), reported(0, 1), ended(0), started(1), ended(1, Status.FAILED, "ValueError: x")):
            view.on(event)
    told = file.getvalue()
    assert "trial 1 failed after 0 epochs in 1.9 s: ValueError: x" in told
    assert "trial 0 completed" not in told
    assert "2/3 trials" in told
    assert told.rstrip("\r\n").endswith("\x1b[2K")  # cleared at the end


@pytest.mark.parametrize("terminal", [False, True])
def test_a_line_about_the_session_is_told_as_it_is(terminal):
    view, file = view_of(terminal=terminal)
    with view:
        view.say("Ray dashboard: [local]")
    assert "Ray dashboard: [local]" in file.getvalue()


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
            for event in (started(0), ended(0, Status.FAILED)):
                view.on(event)
        assert file.getvalue() == ""


def test_the_sweep_goes_on_when_nobody_reads():
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as file:
        view = LiveView(Console(file=file), 3, OBJECTIVE, ())
        for trial in range(3):
            view.on(started(trial))
            view.on(ended(trial))
        assert "3 completed" in drawn(view)
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())  # for what is left in its buffer


def test_an_event_costs_next_to_nothing():
    for terminal in (False, True):
        view, _ = view_of(terminal=terminal)
        view.on(started(0))
        events = [reported(0, epoch) for epoch in range(2000)]
        begin = time.thread_time()
        for event in events:
            view.on(event)
        assert (time.thread_time() - begin) / len(events) < 20e-6  # measured: 1.6e-6
        view.close()


def test_escape_sequences_of_others_do_not_reach_the_terminal() -> None:
    for terminal in (False, True):
        console = Console(file=io.StringIO(), force_terminal=terminal, color_system=None, width=200)
        view = LiveView(console, 3, ("loss", "minimize"), ("a",))
        view.say("\x1b[33m(raylet)\x1b[0m died\x1b]0;title\x07")
        view.on(TrialStarted(trial=0, trial_id="t", params={"a": "\x1b[2J"}, seed=0, repeat=0, time=1.0))
        reason = "ValueError: \x1b[31mred\x1b[0m \x07"
        view.on(TrialEnded(trial=0, status=Status.FAILED, reason=reason, time=2.0))
        view.close()
        shown = console.file.getvalue()
        assert "(raylet) died\n" in shown
        assert "ValueError: red \\x07;" in shown
        for sequence in ("\x1b[33m", "\x1b[31m", "\x1b]0", "\x1b[2J", "\x07"):
            assert sequence not in shown
