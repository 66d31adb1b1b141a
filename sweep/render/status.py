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

    If all finite values are equal, they get the middle level. With ``ascii_only``, there are four levels of ASCII
    characters instead of eight. Return "" for no values.
    """
    levels = _LEVELS[ascii_only]
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    # Halved, because the difference of two doubles may overflow.
    half_span = high / 2 - low / 2

    def choose_level(value: float) -> str:
        """Return the character for one value."""
        if not math.isfinite(value):
            return _NOT_A_NUMBER
        if half_span:
            share = (value / 2 - low / 2) / half_span
        else:
            share = 0.5
        # the maximum has the share 1, which belongs to the last level
        return levels[min(int(share * len(levels)), len(levels) - 1)]

    return "".join(map(choose_level, values))


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
    # the last filled character may be one of those that fill some eighths of their width
    whole, eighths = divmod(int(share * width * 8), 8)
    filled = "█" * whole + (_EIGHTHS[eighths] if eighths else "")
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
    a sweep that is not ``running``, no running trials, no rate, no use of the machine and no remaining time are shown,
    even if its end was not logged. Lines that are too long are cut. Returns [] if the frame has no lines or columns.
    """
    if frame.height < 1 or frame.width < 1:
        return []
    heads = (  # the upper parts in display order, each with its priority: low numbers are kept first
        (3, _format_title(standing, state)),
        (0, _format_progress(standing, now, frame, running=running)),
        (2, _arrange_parts("", _format_counts(standing, now, running=running), frame)),
        (1, _arrange_parts("best", _format_best(standing), frame)),
        (4, _arrange_parts("rungs", _format_rungs(standing), frame)),
        (5, _arrange_parts("use", _format_usage(standing) if running else [], frame)),
    )
    lines = [(priority, line) for priority, head in heads for line in head]
    # positions in ``lines``
    by_priority = sorted(range(len(lines)), key=lambda position: lines[position][0])
    shown = []
    # the most important ones, in display order again
    for position in sorted(by_priority[: frame.height]):
        _, line = lines[position]
        shown.append(line)
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

    The times are that spent and, if the sweep is ``running`` and it is known, an estimate of the remaining one. There
    are two lines if the frame is too narrow for one. If the number of trials is unknown, there is no bar.
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
    fits_on_one_line = frame.width - len(text_with_times) - len(GAP) >= SHORTEST_BAR
    if fits_on_one_line:
        text = text_with_times
    room = frame.width - len(text) - len(GAP)
    bar_width = min(max(room, 0), LONGEST_BAR)
    filled, empty = bar(trials_done / max(total, 1), bar_width, ascii_only=frame.ascii_only)
    with_bar: list[_Part] = [(filled, STYLES[Status.RUNNING]), (empty, "dim"), (f"{GAP}{text}", "")]
    if fits_on_one_line:
        return [with_bar]
    return [with_bar, [(GAP.join(times), "")]]


def _format_counts(standing: Standing, now: float, *, running: bool) -> list[_Part]:
    """Return the numbers of trials by status, the rate, and the cost if it is known.

    Numbers that are 0 are left out, except that of running trials. The rate is given only for a sweep that is
    ``running`` and has not ended, in epochs a second; only then the cost of all trials is estimated.
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
            whole_cost = standing.cost_in_all(now)
        else:
            whole_cost = None
        if whole_cost is not None:
            cost += f" of about {money(whole_cost)}"
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
        with_pruned = [rung for rung in rungs if rung.pruned]
        rungs = with_pruned or rungs
    texts = []
    for rung in rungs[-RUNGS:]:
        if standing.outline.counts_epochs:
            where = f"epoch {rung.epoch:,}"
        else:
            where = f"{rung.epoch} % of the minutes"
        texts.append(f"{where}: {rung.pruned:,} of {rung.reached:,} pruned")
    survivors = standing.survivors()
    has_trials_left = standing.open or standing.waiting()
    if survivors is not None and has_trials_left and standing.over is None:
        if standing.total is None:
            of_all = "trials"
        else:  # without those with fresh seeds, as in ``survivors``
            of_all = f"of {standing.total - len(standing.confirming):,}"
        texts.insert(0, f"about {survivors:,.0f} {of_all} train to the end")
    return [(text, "") for text in texts]


def _format_usage(standing: Standing) -> list[_Part]:
    """Return the use of CPUs, GPUs and memory, as far as it is measured; [] after the end of the sweep.

    If trials measure it, but no running trial has reported it yet, return "..." alone. Memory is in units of 10^9
    bytes.
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
    """Arrange texts after a label on one line; [] for no texts.

    If they do not fit and the frame is at least `TALL` lines high, a second line follows. `_format_line` later cuts off
    what does not fit.
    """
    if not parts:
        return []
    indent = f"{label:<{LABEL}}" if label else ""
    lines: list[list[_Part]] = [[(indent, "")]]
    used = len(indent)  # columns of the present line
    is_first = True  # on its line, so that no gap comes before it
    may_wrap = frame.height >= TALL  # once
    for text, style in parts:
        needed = cell_len(_make_printable(text, ascii_only=frame.ascii_only))
        if not is_first:
            needed += len(GAP)
        if may_wrap and not is_first and used + needed > frame.width:
            lines.append([(" " * len(indent), "")])
            used = len(indent)
            is_first = True
            may_wrap = False
        lines[-1].append((text if is_first else f"{GAP}{text}", style))
        used += needed
        is_first = False
    return lines


def _format_lower_lines(
    standing: Standing, frame: Frame, room: int, *, running: bool
) -> list[list[_Part]]:
    """Return lines for running trials, failures and the latest trials that ended otherwise, as many as fit in ``room``.

    An empty line comes before them; [] if there are none, or no room for two lines. There are at most `FAILURES` lines
    for failures, and `ENDED` for ended trials, the latest first. Running trials have what failures leave, and ended
    trials the rest. If the sweep is not ``running``, it has no running trials.
    """
    failure_lines = _format_failures(standing.failures)
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
    # Failures have a third of the room. With two lines or fewer, running trials come first.
    least = 1 if room > 2 or not at_work else 0
    failure_lines = failure_lines[: min(FAILURES, max(room // 3, least))]
    room -= len(failure_lines)
    running_room = min(len(at_work), room)
    ended = ended[: min(ENDED, room - running_room)]
    blank: list[list[_Part]] = [[]]
    lines = _format_running_trials(standing, at_work, frame, running_room) + failure_lines
    lines += [_format_ended_trial(standing, one) for one in ended]
    return blank + lines if lines else []


def _format_running_trials(
    standing: Standing, running: Sequence[Open], frame: Frame, room: int
) -> list[list[_Part]]:
    """Return at most ``room`` lines, one for each running trial: number, epoch, curve, score and parameters.

    If there are more trials and room for two lines, the last line says how many are hidden.
    """
    hidden = len(running) - room
    if hidden > 0 and room > 1:
        shown = running[: room - 1]
    else:
        shown = running[:room]
    # widths of the columns, which are aligned right
    number_width = max((len(str(trial.state.number)) for trial in shown), default=0)
    position_width = max((len(trial.position) for trial in shown), default=0)
    score_width = max((len(score(trial.value)) for trial in shown), default=0)
    # a narrow terminal needs all its width for numbers
    curve_width = max(min((frame.width - 20) // 3, 24), 0)
    lines = []
    for trial in shown:
        if curve_width:
            curve = sparkline(trial.curve.points(curve_width), ascii_only=frame.ascii_only)
        else:
            curve = ""
        parts = [
            (f"trial {trial.state.number:>{number_width}}", STYLES[Status.RUNNING]),
            (f"{GAP}{trial.position:>{position_width}}", ""),
            (f"{GAP}{curve:<{curve_width}}" if curve_width else "", "cyan"),
            (f"{GAP}{score(trial.value):>{score_width}}", "bold"),
            (f"{GAP}{format_settings(trial.state.params, standing.outline.varying)}", "dim"),
        ]
        lines.append(parts)
    if len(shown) < len(running) and room > 1:
        lines.append([(f"and {len(running) - len(shown):,} more running", "dim")])
    return lines


def _format_failures(failures: Mapping[tuple[Status, str], Failure]) -> list[list[_Part]]:
    """Return a line for each kind of failure with its count, its last trial and the reason.

    ``failures`` are by status and type of the error. Failed trials come first, then those with other statuses, each
    from the most frequent kind on. The type of the error is not repeated in the reason.
    """

    def get_order(item: tuple[tuple[Status, str], Failure]) -> tuple[bool, int]:
        (status, _), failure = item
        return status != Status.FAILED, -failure.count

    lines: list[list[_Part]] = []
    for (status, error_type), failure in sorted(failures.items(), key=get_order):
        what = f"{failure.count:,} {status}"
        if error_type and error_type != status:
            what += f" by {error_type}"
        last_trial = f"{GAP}last trial {failure.trial}"
        words = failure.reason.removeprefix(f"{error_type}:").strip()
        if words:
            last_trial += f": {words}"
        lines.append([(what, STYLES.get(status, "")), (last_trial, "")])
    return lines


def _format_ended_trial(standing: Standing, ended: FinishedTrial) -> list[_Part]:
    """Return the line for a trial that has ended: number, status, epochs, time, score if there is one, parameters."""
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
    """Join the parts of a line, made printable, and cut it to the width of the frame.

    A line that is cut ends in an ellipsis, unless only ASCII can be shown.
    """
    line = Text(no_wrap=True)
    for text, style in parts:
        line.append(_make_printable(text, ascii_only=frame.ascii_only), style)
    line.truncate(frame.width, overflow="crop" if frame.ascii_only else "ellipsis")
    return line


def _make_printable(text: str, *, ascii_only: bool) -> str:
    """Return a text on one line, with escape sequences removed and unprintable characters escaped.

    Line ends and tabs become spaces. With ``ascii_only``, characters outside of ASCII become "?".
    """
    if "\n" in text:
        text = " ".join(text.splitlines())
    plain = printable(text).replace("\t", " ").replace("\n", " ")
    if ascii_only:
        return plain.encode("ascii", "replace").decode()
    return plain
