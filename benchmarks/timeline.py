"""Where the time until the first epoch goes: what each group of processes of a sweep computes, tenth by tenth.

    python benchmarks/overhead.py --timeline 5                      # five runs of this checkout
    python benchmarks/overhead.py --timeline 5 --beside ../before   # in turn with another one that has a .venv

A row of the table is a step of time since the start of the command. Its figures are the cores that each group of
processes kept busy, as means over the runs; its text is what the command said then, in the first run. Below are the
seconds until the first epoch of each run, the CPU seconds of each group until then, and what the first trial spent
before it, as its log tells.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

GROUPS = ("command", "workers", "Ray's servers", "dashboard")
SAMPLE_S = 0.1
LONGEST_S = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Timeline:
    """What was observed of one run."""

    first_epoch_s: float = float("nan")
    # by group, of all processes so far; one a sample
    cpu_s: list[dict[str, float]] = field(default_factory=list)
    # seconds since the start, and the line
    said: list[tuple[float, str]] = field(default_factory=list)
    # of the first trial, by kind of overhead
    before_first_epoch: dict[str, float] = field(default_factory=dict)


def compare_checkouts(
    checkouts: Sequence[Path], make_command: Callable[[Path], list[str]], runs: int
) -> str:
    """Run a sweep until its first trial has ended, in all checkouts in turn; return a table for each.

    ``make_command`` returns the arguments of Python, given a folder for results.
    """
    found: dict[Path, list[Timeline]] = defaultdict(list)
    for _ in range(runs):
        for checkout in checkouts:
            with tempfile.TemporaryDirectory(prefix="timeline-") as scratch:
                folder = Path(scratch)
                found[checkout].append(observe_run(checkout, make_command(folder), folder))
    return "\n\n".join(format_table(checkout, found[checkout]) for checkout in checkouts)


def observe_run(checkout: Path, arguments: Sequence[str], results: Path) -> Timeline:
    """Run a sweep until its first trial has ended, and observe its processes until its first epoch."""
    timeline = Timeline()
    began = time.perf_counter()
    process = subprocess.Popen(
        [checkout / ".venv" / "bin" / "python", *arguments],
        cwd=checkout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    reader = threading.Thread(target=_read_lines, args=(process, began, timeline.said))
    reader.start()
    # group and CPU seconds of each process, also of those that have ended
    groups: dict[int, tuple[str, float]] = {}
    first_end: dict[str, object] | None = None
    while process.poll() is None and first_end is None and time.perf_counter() - began < LONGEST_S:
        time.sleep(max(SAMPLE_S * (len(timeline.cpu_s) + 1) - (time.perf_counter() - began), 0.01))
        events = _read_events(results)
        if timeline.first_epoch_s != timeline.first_epoch_s:
            _add_sample(process.pid, groups, timeline)
            if any(event["event"] == "epoch_reported" for event in events):
                timeline.first_epoch_s = time.perf_counter() - began
        first_end = next((event for event in events if event["event"] == "trial_ended"), None)
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    process.wait()
    reader.join()
    if first_end is None:
        raise RuntimeError(
            "no trial has ended:\n" + "\n".join(line for _, line in timeline.said[-20:])
        )
    facts = first_end.get("facts")
    timeline.before_first_epoch = facts.get("overhead_s", {}) if isinstance(facts, dict) else {}
    return timeline


def format_table(checkout: Path, timelines: Sequence[Timeline]) -> str:
    """Return the table of a checkout's runs."""
    lines = [
        f"{checkout}: {len(timelines)} runs",
        "    s" + "".join(group.rjust(15) for group in GROUPS),
    ]
    for row in range(max(len(one.cpu_s) for one in timelines)):
        busy = {
            group: statistics.fmean(_count_cores(one, row, group) for one in timelines)
            for group in GROUPS
        }
        until_s = SAMPLE_S * (row + 1)
        said = [line for at_s, line in timelines[0].said if until_s - SAMPLE_S <= at_s < until_s]
        figures = "".join(f"{busy[group]:15.1f}" for group in GROUPS)
        lines.append(f"{until_s:5.1f}{figures}   {'; '.join(said)[:60]}".rstrip())
    firsts = sorted(one.first_epoch_s for one in timelines)
    each = ", ".join(f"{seconds:.1f}" for seconds in firsts)
    lines.append(f"first epoch after {statistics.median(firsts):.1f} s, the median of {each}")
    spent = {
        group: statistics.fmean(one.cpu_s[-1].get(group, 0.0) for one in timelines)
        for group in GROUPS
    }
    total = sum(spent.values())
    lines.append(
        f"CPU seconds until then: {total:.1f}; "
        + ", ".join(f"{name} {s:.1f}" for name, s in spent.items())
    )
    first = timelines[0].before_first_epoch
    lines.append(
        "first trial: " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in first.items())
    )
    return "\n".join(lines)


def _count_cores(timeline: Timeline, row: int, group: str) -> float:
    """Return how many cores a group kept busy during a sample; 0 after the first epoch."""
    if row >= len(timeline.cpu_s):
        return 0.0
    before = timeline.cpu_s[row - 1].get(group, 0.0) if row else 0.0
    return (timeline.cpu_s[row].get(group, 0.0) - before) / SAMPLE_S


def _read_lines(
    process: subprocess.Popen[str], began: float, said: list[tuple[float, str]]
) -> None:
    if process.stdout is None:
        return
    for line in process.stdout:
        said.append((time.perf_counter() - began, line.rstrip()))


def _read_events(results: Path) -> list[dict[str, object]]:
    """Return the events of the log so far, without a line that is being written."""
    events: list[dict[str, object]] = []
    for log in results.glob("*/log.jsonl"):
        for line in log.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                events.append(json.loads(line))
    return events


def _add_sample(root: int, groups: dict[int, tuple[str, float]], timeline: Timeline) -> None:
    """Add the CPU seconds of each group of processes below a process."""
    parents: dict[int, int] = {}
    found: dict[int, tuple[str, float]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            line = (
                (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )
        except OSError:  # gone meanwhile
            continue
        number = int(stat.parent.name)
        parents[number] = int(fields[1])
        found[number] = (
            _find_group(number == root, line),
            (int(fields[11]) + int(fields[12])) / _TICKS,
        )
    for number, entry in found.items():
        if _descends(number, root, parents):
            groups[number] = entry
    sums: dict[str, float] = defaultdict(float)
    for group, seconds in groups.values():
        sums[group] += seconds
    timeline.cpu_s.append(dict(sums))


def _descends(number: int, root: int, parents: dict[int, int]) -> bool:
    while number != root:
        if number not in parents:
            return False
        number = parents[number]
    return True


def _find_group(is_root: bool, command: str) -> str:
    if is_root:
        return "command"
    if "gcs_server" in command or "raylet/raylet" in command:
        return "Ray's servers"
    if any(name in command for name in ("fork_", "default_worker.py", "ray::IDLE", "TrialWorker")):
        return "workers"
    if "ray" in command:
        return "dashboard"
    return "command"  # such as the process that plans
