"""Formats the progress of a sweep as lines of text, for the live view, `status --watch` and notebooks.

The result depends only on the standing (`Standing`, all counts and times of the sweep), the time and the size of the
terminal. It never has more or longer lines than fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from sweep.analysis.live_status import Failure, FinishedTrial, Open, Standing
from sweep.events import Status, describe_status
from sweep.render import STYLES
from sweep.text import (
    counted,
    duration,
    figure,
    format_settings,
    money,
    percent,
    printable,
    roughly,
    score,
    trials_named,
)

_LEVELS = {False: "▁▂▃▄▅▆▇█", True: "_.-'"}
_EIGHTHS = " ▏▎▍▌▋▊▉"
_NOT_A_NUMBER = "x"  # stands for NaN and infinities


def sparkline(values: Sequence[float], *, ascii_only: bool = False) -> str:
    """Return one character per value, scaled from the minimum to the maximum; ``x`` for NaN and infinities.

    If all finite values are equal, they get the middle level. With ``ascii_only``, there are four levels instead of
    eight.
    """
    levels = _LEVELS[ascii_only]
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    # Halved, because the difference of two doubles may overflow.
    span = high / 2 - low / 2

    def level(value: float) -> str:
        """Return the character for one value."""
        if not math.isfinite(value):
            return _NOT_A_NUMBER
        if span:
            share = (value / 2 - low / 2) / span
        else:
            share = 0.5
        return levels[min(int(share * len(levels)), len(levels) - 1)]

    return "".join(map(level, values))


def bar(share: float, width: int, *, ascii_only: bool = False) -> tuple[str, str]:
    """Return the filled and the empty part of a progress bar, together ``width`` characters wide.

    ``share`` is limited to 0 to 1, and NaN or infinity counts as 0. With ``ascii_only``, both parts include a bracket,
    so that the bar has at least two characters.
    """
    if math.isfinite(share):
        share = min(max(share, 0.0), 1.0)
    else:
        share = 0.0
    if ascii_only:
        inner = max(width - 2, 0)
        done = int(share * inner)
        return f"[{'#' * done}", f"{'-' * (inner - done)}]"
    eighths = int(share * width * 8)
    filled = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return filled, "░" * (width - len(filled))


LABEL = 8  # width in columns of the label at the start of a line
GAP = "  "
RUNGS = 6  # the maximum number of rungs shown; the latest ones are kept
FAILURES, ENDED = 3, 6  # the maximum number of lines of each
SHORTEST_BAR, LONGEST_BAR = 12, 60
TALL = 16  # from this height in lines, a part that is too long may take two lines

_Part = tuple[str, str]  # text and style


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The size of a picture in columns and lines, and whether only ASCII can be shown."""

    width: int = 80
    height: int = 24
    ascii_only: bool = False


def picture(
    standing: Standing, now: float, frame: Frame, *, state: str = "", running: bool = True
) -> list[Text]:
    """Return the lines that show the status of a sweep; if they do not all fit, the most important ones.

    ``now`` is in seconds since 1970. ``state`` replaces the state that follows from the events, unless it is empty. For
    a sweep that is not ``running``, no running trials, no rate and no remaining time are shown, even if its end was not
    logged. Returns [] if the frame has no lines or columns.
    """
    if frame.height < 1 or frame.width < 1:
        return []
    heads = (  # in display order, each with its priority: low numbers are kept first
        (3, _format_title(standing, state)),
        (0, _format_progress(standing, now, frame, running=running)),
        (2, _arrange_parts("", _format_counts(standing, now, running=running), frame)),
        (1, _arrange_parts("best", _format_best(standing), frame)),
        (4, _arrange_parts("rungs", _format_rungs(standing), frame)),
        (5, _arrange_parts("use", _format_usage(standing) if running else [], frame)),
    )
    lines = [(weight, line) for weight, head in heads for line in head]
    by_priority = sorted(range(len(lines)), key=lambda at: lines[at][0])
    shown = []
    # the most important ones, in display order again
    for at in sorted(by_priority[: frame.height]):
        shown.append(lines[at][1])
    shown += _format_lower_lines(standing, frame, frame.height - len(shown), running=running)
    return [_format_line(parts, frame) for parts in shown]


def _format_title(standing: Standing, state: str) -> list[list[_Part]]:
    """Return the line with the name and the state of the sweep, in a list; [] if it has no name.

    ``state`` replaces the state that follows from the events, unless it is empty.
    """
    name = standing.outline.name
    if not name:
        return []
    if not state:
        state = standing.over or ("begins" if standing.session is None else "running")
    return [[(name, "bold"), (f"{GAP}{state}", STYLES.get(state, ""))]]


def _format_progress(
    standing: Standing, now: float, frame: Frame, *, running: bool
) -> list[list[_Part]]:
    """Return the line with the bar, the number of ended trials and the times.

    The times are that spent and, if the sweep is ``running``, an estimate of the remaining one. There are two lines if
    the frame is too narrow for one. If the number of trials is unknown, there is no bar.
    """
    total = standing.total
    done = standing.finished
    times = [duration(standing.active_s(now))]
    if running:
        left_s = standing.left_s(now)
    else:
        left_s = None
    if left_s is not None:
        times.append(f"{roughly(left_s)} left")
    if total is None:
        return [[(GAP.join([counted(done, "trial"), *times]), "")]]
    # with the trained shares of open trials, so that the bar moves evenly
    trials_done = standing.trained_trials
    text = f"{done:,}/{counted(total, 'trial')}"
    text_with_times = GAP.join([text, *times])
    one_line = frame.width - len(text_with_times) - len(GAP) >= SHORTEST_BAR
    if one_line:
        text = text_with_times
    room = frame.width - len(text) - len(GAP)
    filled, empty = bar(
        trials_done / max(total, 1), min(max(room, 0), LONGEST_BAR), ascii_only=frame.ascii_only
    )
    first: list[_Part] = [(filled, STYLES[Status.RUNNING]), (empty, "dim"), (f"{GAP}{text}", "")]
    if one_line:
        return [first]
    return [first, [(GAP.join(times), "")]]


def _format_counts(standing: Standing, now: float, *, running: bool) -> list[_Part]:
    """Return the numbers of trials by status, and the rate and the cost if they are known.

    The rate is given only for a sweep that is ``running``, in epochs a second.
    """
    at_work = len(standing.running) if running else 0
    counts: list[_Part] = [(f"{at_work:,} running", "")]
    for status, count in standing.ended.items():
        if count:
            counts.append((f"{count:,} {status}", STYLES.get(status, "")))
    # interrupted ones, or all if the sweep does not run
    waiting = len(standing.open) - at_work - standing.paused
    if standing.paused:
        counts.append((f"{standing.paused:,} paused", ""))
    if standing.queued:
        counts.append((f"{standing.queued:,} queued", ""))
    if waiting > 0:
        counts.append((f"{waiting:,} to go on with", ""))
    if running and standing.over is None:
        counts.append((f"{figure(standing.epochs_per_s(now))} epochs/s", "dim"))
    if standing.cost:
        cost = f"cost {money(standing.cost)}"
        if running and standing.over is None:
            in_all = standing.cost_in_all(now)
        else:
            in_all = None
        if in_all is not None:
            cost += f" of about {money(in_all)}"
        counts.append((cost, ""))
    return counts


def _format_best(standing: Standing) -> list[_Part]:
    """Return the best score, its trials and its parameters; a text that there is none before a trial has completed."""
    best = standing.best
    outline = standing.outline
    if best is None:
        return [("no trial completed yet", "dim")]
    whose = trials_named(best.trials)
    if len(best.trials) > 1:
        whose = f"mean of {whose}"
    if outline.objectives > 1:
        whose += f", by the first of {outline.objectives} objectives"
    if best.fresh:
        whose += " with fresh seeds"
    elif standing.confirming:
        whose += " of the search, before the fresh seeds"
    parameters = (format_settings(best.params, [name]) for name in outline.varying)
    return [
        (f"{outline.metric} {score(best.value)}", "bold"),
        (whose, "bold"),
        *((text, "") for text in parameters if text),
    ]


def _format_rungs(standing: Standing) -> list[_Part]:
    """Return how many trials are expected to train to the end, and how many were pruned at each rung.

    The first number is left out if it is unknown, if no trial is left to train, or if the sweep is over. Rungs that no
    trial has reached are left out; [] if there are no others. Of more than `RUNGS`, those without pruned trials are
    left out, if others have some, and only the last `RUNGS` are shown.
    """
    rungs = [rung for rung in standing.rungs() if rung.reached]
    if not rungs:
        return []
    if len(rungs) > RUNGS:
        rungs = [rung for rung in rungs if rung.pruned] or rungs
    texts = []
    for rung in rungs[-RUNGS:]:
        if standing.outline.counts_epochs:
            where = f"epoch {rung.epoch:,}"
        else:
            where = f"{rung.epoch} % of the minutes"
        texts.append(f"{where}: {rung.pruned:,} of {rung.reached:,} pruned")
    survivors = standing.survivors()
    if standing.total is None:
        of_all = "trials"
    else:  # without those with fresh seeds, as in ``survivors``
        of_all = f"of {standing.total - len(standing.confirming):,}"
    if survivors is not None and (standing.open or standing.waiting()) and standing.over is None:
        texts.insert(0, f"about {survivors:,.0f} {of_all} train to the end")
    return [(text, "") for text in texts]


def _format_usage(standing: Standing) -> list[_Part]:
    """Return the use of CPUs, GPUs and memory, as far as it is measured; [] after the end of the sweep.

    If trials measure it, but no running trial has reported it yet, return "..." alone.
    """
    if standing.over is not None:
        return []
    usage = standing.usage()
    texts = []
    if standing.measures and not usage:
        texts.append("...")
    if "cpu_cores" in usage:
        texts.append(f"{usage['cpu_cores']:.1f} CPU cores at work")
    if "gpu_utilization" in usage:
        texts.append(f"GPUs busy {percent(usage['gpu_utilization'])}")
    if "memory_peak_bytes" in usage:
        texts.append(f"{usage['memory_peak_bytes'] / 1e9:.1f} GB of memory")
    return [(text, "") for text in texts]


def _arrange_parts(label: str, parts: Sequence[_Part], frame: Frame) -> list[list[_Part]]:
    """Arrange texts after a label on one line, or on two if the frame is at least `TALL` lines high; [] for no texts.

    `_format_line` later cuts off what does not fit.
    """
    if not parts:
        return []
    indent = f"{label:<{LABEL}}" if label else ""
    lines: list[list[_Part]] = [[(indent, "")]]
    used = len(indent)
    first = True
    for text, style in parts:
        needed = cell_len(_make_printable(text, ascii_only=frame.ascii_only)) + (
            0 if first else len(GAP)
        )
        if used + needed > frame.width and not first and len(lines) == 1 and frame.height >= TALL:
            lines.append([(" " * len(indent), "")])
            used = len(indent)
            first = True
        lines[-1].append((text if first else f"{GAP}{text}", style))
        used = used + needed
        first = False
    return lines


def _format_lower_lines(
    standing: Standing, frame: Frame, room: int, *, running: bool
) -> list[list[_Part]]:
    """Return lines for running trials, failures and the latest trials that ended otherwise, as many as fit in ``room``.

    An empty line comes before them. There are at most `FAILURES` lines for failures, and `ENDED` for ended trials, the
    latest first. If the sweep is not ``running``, it has no running trials.
    """
    failures = _format_failures(standing.failures)
    ended = []
    for one in reversed(standing.latest):
        if one.status is not Status.FAILED:
            ended.append(one)
    if running:
        at_work = list(standing.running.values())
    else:
        at_work = []
    room -= 1  # an empty line between; small terminals have it too
    if room < 1:
        return []
    # with two lines or fewer, running trials come first
    least = 1 if room > 2 or not at_work else 0
    of_failures = failures[: min(FAILURES, max(room // 3, least))]
    room -= len(of_failures)
    of_running = min(len(at_work), room)
    of_ended = ended[: min(ENDED, room - of_running)]
    blank: list[list[_Part]] = [[]]
    lines = _format_running_trials(standing, at_work, frame, of_running) + of_failures
    lines += [_format_ended_trial(standing, one) for one in of_ended]
    return blank + lines if lines else []


def _format_running_trials(
    standing: Standing, running: Sequence[Open], frame: Frame, room: int
) -> list[list[_Part]]:
    """Return at most ``room`` lines, one for each running trial.

    If there are more trials and room for two lines, the last line says how many are hidden.
    """
    hidden = len(running) - room
    if hidden > 0 and room > 1:
        shown = running[: room - 1]
    else:
        shown = running[:room]
    numbers = max((len(str(trial.state.number)) for trial in shown), default=0)
    epochs = max((len(trial.position) for trial in shown), default=0)
    values = max((len(score(trial.value)) for trial in shown), default=0)
    # columns of a curve; a narrow terminal needs all for numbers
    sparks = max(min((frame.width - 20) // 3, 24), 0)
    lines = []
    for trial in shown:
        if sparks:
            curve = sparkline(trial.curve.points(sparks), ascii_only=frame.ascii_only)
        else:
            curve = ""
        parts = [
            (f"trial {trial.state.number:>{numbers}}", STYLES[Status.RUNNING]),
            (f"{GAP}{trial.position:>{epochs}}", ""),
            (f"{GAP}{curve:<{sparks}}" if sparks else "", "cyan"),
            (f"{GAP}{score(trial.value):>{values}}", "bold"),
            (f"{GAP}{format_settings(trial.state.params, standing.outline.varying)}", "dim"),
        ]
        lines.append(parts)
    if len(shown) < len(running) and room > 1:
        lines.append([(f"and {len(running) - len(shown):,} more running", "dim")])
    return lines


def _format_failures(failures: Mapping[tuple[Status, str], Failure]) -> list[list[_Part]]:
    """Return a line for each kind of failure with its count, its last trial and the reason.

    ``failures`` are by status and type of the error. Failed trials come first, then the most frequent kinds.
    """
    lines: list[list[_Part]] = []
    # FAILED first, then by count
    for (status, kind), failure in sorted(
        failures.items(), key=lambda item: (item[0][0] != Status.FAILED, -item[1].count)
    ):
        what = f"{failure.count:,} {status}"
        if kind and kind != status:
            what += f" by {kind}"
        last_trial = f"{GAP}last trial {failure.trial}"
        words = failure.reason.removeprefix(f"{kind}:").strip()
        if words:
            last_trial += f": {words}"
        lines.append([(what, STYLES.get(status, "")), (last_trial, "")])
    return lines


def _format_ended_trial(standing: Standing, ended: FinishedTrial) -> list[_Part]:
    """Return the line for a trial that has ended."""
    if ended.value is None:
        value = ""
    else:
        value = f"{GAP}{standing.outline.metric} {score(ended.value)}"
    after = f" after {counted(ended.epochs, 'epoch')} in {duration(ended.took_s)}"
    parameters = format_settings(ended.params, standing.outline.varying)
    return [
        (f"trial {ended.trial} ", "dim"),
        (describe_status(ended.status, ended.reason), STYLES.get(ended.status, "")),
        (f"{after}{value}{GAP}{parameters}", "dim"),
    ]


def _format_line(parts: Sequence[_Part], frame: Frame) -> Text:
    """Join the parts of a line, and cut it to the width of the frame."""
    line = Text(no_wrap=True)
    for text, style in parts:
        line.append(_make_printable(text, ascii_only=frame.ascii_only), style)
    line.truncate(frame.width, overflow="crop" if frame.ascii_only else "ellipsis")
    return line


def _make_printable(text: str, *, ascii_only: bool) -> str:
    """Return a text on one line, with escape sequences removed and unprintable characters escaped.

    With ``ascii_only``, characters outside of ASCII become "?".
    """
    plain = (
        printable(" ".join(text.splitlines()) if "\n" in text else text)
        .replace("\t", " ")
        .replace("\n", " ")
    )
    if ascii_only:
        return plain.encode("ascii", "replace").decode()
    return plain
