"""What the live page of a large sweep costs: the first paint, the report, an update, and the idle process.

    python benchmarks/live_page.py --trials 10000 --epochs 100

The sweep is made up, as in report.py, with sixteen trials that train; this process is its driver. The page is opened in
Chromium with the curves in view. An update is one epoch of each of the sixteen: how long it keeps the page's main
thread, and how long after it was written it is drawn. The processor time of the page's server is read from /proc, as a
share of one core: with a tab open while nothing happens, and without one. The noise of the machine is the spread of a
loop of fixed work that is timed beside each measurement.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import report

from sweep.events import EpochReported, Event, SessionStarted, TrialStarted
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log

OPEN = 16  # trials that train
ROUNDS = 20
QUIET_S = 10.0
SETTLED_S = 30.0  # without work after which the server has settled: more than the pause between two of its reports
LONGEST_S = 120.0  # until the server has settled
LOOP = 2_000_000  # additions of the loop that measures the noise
WATCH = """() => {
  window.drawn = [];
  window.long = [];
  const grow = CurvePlot.prototype.grow;
  CurvePlot.prototype.grow = function (trials) {
    grow.call(this, trials);
    requestAnimationFrame(() => window.drawn.push([Date.now() / 1000, trials.length]));
  };
  const keep = (list) => list.getEntries().forEach((one) => window.long.push(one.duration));
  new PerformanceObserver(keep).observe({ type: "longtask" });
}"""


def loop_s() -> float:
    began = time.perf_counter()
    total = 0
    for number in range(LOOP):
        total += number
    return time.perf_counter() - began


def cpu_s(process: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_epochs(first: int, epochs: int) -> Iterator[Event]:
    """Yield the starts of the trials that train, and the first half of their epochs."""
    numbers = random.Random(1)
    for number in range(first, first + OPEN):
        now = time.time()
        params = {"learning_rate": 10 ** numbers.uniform(-4, -1), "weight_decay": 1e-4, "units": 32}
        params |= {"optimizer": "adam", "dropout": 0.1}
        yield TrialStarted(
            trial=number, trial_id=f"open-{number}", params=params, seed=0, repeat=0, time=now
        )
        yield from (epoch(number, at, epochs) for at in range(1, epochs // 2))


def epoch(trial: int, at: int, epochs: int) -> Event:
    score = 0.9 * at / epochs
    metrics = {"val_accuracy": score, "val_loss": 1.5 - score, "loss": 1.4 - score}
    return EpochReported(trial=trial, epoch=at, metrics=metrics, time=time.time(), time_s=0.02)


@contextmanager
def server(results: Path) -> Iterator[tuple[int, str]]:
    command = [
        sys.executable,
        "-m",
        "sweep",
        "ui",
        "--results",
        str(results),
        "--port",
        "0",
        "--no-open",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, process.stdout.readline().split()[1]
        finally:
            process.terminate()


def open_page(page: Any, base: str) -> None:
    began = time.perf_counter()
    page.goto(f"{base}/big")
    page.wait_for_function(
        "() => document.querySelector('#state').innerText !== ''", timeout=300_000
    )
    state_s = time.perf_counter() - began
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    page.wait_for_function("() => document.querySelector('#answer')", timeout=300_000)
    report_s = time.perf_counter() - began
    print(f"first paint       {paint / 1000:6.2f} s")
    print(f"state             {state_s:6.2f} s")
    print(f"report drawn      {report_s:6.2f} s", flush=True)
    page.evaluate("document.querySelector('#curves').scrollIntoView({block: 'center'})")
    page.wait_for_function("() => live.facts.read >= 1 && dragging() === false", timeout=600_000)
    print(f"whole log read    {time.perf_counter() - began:6.2f} s", flush=True)
    page.wait_for_timeout(3000)


def update(page: Any, log: Log, trials: range, epochs: int) -> None:
    """Write an epoch of each trial, several times, and print how the page took it."""
    page.evaluate(WATCH)
    metrics = page.context.new_cdp_session(page)
    metrics.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_ms() -> float:
        """Return the processor time of the page's main thread so far."""
        found = metrics.send("Performance.getMetrics")["metrics"]
        return next(1000 * one["value"] for one in found if one["name"] == "TaskDuration")

    noise, spent, late, busy = [], [], [], []
    for at in range(epochs // 2, epochs // 2 + ROUNDS):
        noise.append(loop_s())
        before = page.evaluate("window.drawn.length")
        busy_before = busy_ms()
        written = time.time()
        log.append([epoch(number, at, epochs) for number in trials])
        page.wait_for_function(f"() => window.drawn.length > {before}", timeout=60_000)
        drawn = page.evaluate(f"window.drawn[{before}]")
        spent.append(page.evaluate("live.spent"))
        late.append(drawn[0] - written)
        page.wait_for_timeout(700)
        busy.append(busy_ms() - busy_before)
    long = page.evaluate("window.long")
    print(
        f"update            {statistics.median(spent):6.1f} ms of drawing in the median, {max(spent):.1f} at most"
    )
    print(
        f"all of an update  {statistics.median(busy):6.1f} ms of processor time in the median, {max(busy):.1f} at most"
    )
    print(
        f"update seen after {statistics.median(late):6.2f} s in the median, {max(late):.2f} at most"
    )
    print(
        f"main thread held  {len(long)} times for more than 50 ms, {max(long, default=0):.0f} ms at most"
    )
    print(
        f"noise             the same loop took {min(noise):.3f} to {max(noise):.3f} s", flush=True
    )


def wait_until_settled(process: int) -> None:
    """Wait until the server has made its last report on the log, and print how long that took."""
    began = time.perf_counter()
    quiet_since, before = began, cpu_s(process)
    while time.perf_counter() - quiet_since < SETTLED_S and time.perf_counter() - began < LONGEST_S:
        time.sleep(1)
        now = cpu_s(process)
        if now - before > 0.1:
            quiet_since = time.perf_counter()
        before = now
    print(f"settled after     {quiet_since - began:6.2f} s")


def idle(process: int, what: str) -> None:
    before, began = cpu_s(process), time.perf_counter()
    time.sleep(QUIET_S)
    share = (cpu_s(process) - before) / (time.perf_counter() - began)
    print(f"idle, {what:11} {100 * share:6.2f} % of a core", flush=True)


def measure(results: Path, trials: int, epochs: int) -> None:
    from playwright.sync_api import sync_playwright

    folder = ResultsFolder(results / "big")
    running = range(trials, trials + OPEN)
    with server(results) as (process, address), sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.on("pageerror", lambda error: print(f"error    {error}"))
        page.set_default_timeout(600_000)
        page.goto(address)
        page.wait_for_url(f"{address.split('?')[0]}")
        with folder.lock(), Log(folder.log, fsync=False) as log:
            log.append(
                [
                    SessionStarted(time=time.time(), resumed=True, version="1"),
                    *first_epochs(trials, epochs),
                ]
            )
            page.wait_for_timeout(1000)
            open_page(page, address.split("/?")[0])
            update(page, log, running, epochs)
        page.wait_for_function("() => live.facts.state === 'killed' && !taking", timeout=600_000)
        wait_until_settled(process)
        idle(process, "a tab open")
        page.goto("about:blank")
        page.wait_for_timeout(5000)
        idle(process, "no tab")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument(
        "--kept", type=Path, help="a folder with the results of an earlier call with other options"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        results = Path(scratch) / "results"
        if given.kept is None:
            report.make(results, given.trials, given.epochs)
        else:
            shutil.copytree(given.kept, results)
        measure(results, given.trials, given.epochs)


if __name__ == "__main__":
    main()
