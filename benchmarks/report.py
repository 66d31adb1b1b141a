"""What a report of a large sweep costs: its size, the time to build it, to open it, and frames a second while brushing.

    python benchmarks/report.py --trials 1000 10000 --epochs 50

The sweep is made up: curves that saturate, a fifth of them pruned, some diverged. With Chromium and playwright the page
is opened without a network, and a box in the curves and a range in the parallel coordinates are dragged for two
seconds each by synthetic mouse events; frames are counted by requestAnimationFrame.
"""

from __future__ import annotations

import argparse
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from sweep.events import (
    EpochReported,
    Event,
    Facts,
    SessionEnded,
    SessionStarted,
    Status,
    TrialEnded,
    TrialStarted,
)
from sweep.store.folder import ResultsFolder
from sweep.store.log import Log
from sweep.store.tables import build_tables, write

BEGAN = 1_700_000_000.0
WORKERS = 16
DRAG = """async (kind) => {
  const target = plots.find((plot) => (kind === "parallel" ? plot instanceof ParallelPlot : plot instanceof CurvePlot));
  target.box.scrollIntoView({block: "center"});
  await new Promise((done) => setTimeout(done, 1500));
  const box = target.box.getBoundingClientRect(), {x, y, width, height} = target.rect;
  const fire = (type, across, down) => target.box.firstElementChild.dispatchEvent(new MouseEvent(type, {
    bubbles: true, cancelable: true, clientX: box.left + across, clientY: box.top + down,
    button: 0, buttons: type === "mouseup" ? 0 : 1, view: window}));
  const from = kind === "parallel" ? x : x + 0.1 * width;
  fire("mousemove", from, y + 3);
  fire("mousedown", from, y + 3);
  const frames = [], counts = [];
  const end = performance.now() + 2000;
  await new Promise((done) => {
    let last = performance.now();
    const step = () => {
      const now = performance.now();
      frames.push(now - last);
      last = now;
      if (now > end) return done();
      const share = 0.5 + 0.48 * Math.sin(now / 150);
      fire("mousemove", kind === "parallel" ? x : x + (0.2 + 0.7 * share) * width, y + share * height);
      counts.push(selection.count);
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  });
  fire("mouseup", from + 40, y + 80);
  frames.sort((one, other) => one - other);
  const mean = frames.reduce((sum, one) => sum + one, 0) / frames.length;
  const lines = counts.reduce((sum, one) => sum + one, 0) / counts.length;
  clearSelection();
  await new Promise((done) => setTimeout(done, 800));
  return [1000 / mean, frames[Math.floor(0.5 * frames.length)], frames[Math.floor(0.95 * frames.length)], lines];
}"""


def trial(number: int, epochs: int, numbers: random.Random) -> Iterator[Event]:
    """Yield the events of one trial."""
    began = BEGAN + number // WORKERS * 2.0 + number % WORKERS * 0.05
    rate, decay = 10 ** numbers.uniform(-4, -1), 10 ** numbers.uniform(-6, -2)
    units, optimizer = numbers.choice([8, 16, 32, 64]), numbers.choice(["sgd", "adam", "adamw"])
    params = {"learning_rate": rate, "weight_decay": decay, "units": units, "optimizer": optimizer}
    params |= {"dropout": numbers.uniform(0, 0.6)}
    yield TrialStarted(
        trial=number, trial_id=f"big-{number:05d}", params=params, seed=0, repeat=0, time=began
    )
    final = 0.95 - 0.12 * (math.log10(rate) + 2.5) ** 2 - 0.1 / units + numbers.gauss(0, 0.01)
    pruned, diverged = number % 5 == 1, rate > 0.09
    last = max(1, epochs // 5) if pruned else epochs
    for epoch in range(1, last + 1):
        score = final * (1 - math.exp(-4 * epoch / epochs)) + numbers.gauss(0, 0.003)
        lost = diverged and epoch == last
        metrics = {
            "val_accuracy": math.nan if lost else score,
            "val_loss": 1.5 - score,
            "loss": 1.4 - score,
        }
        yield EpochReported(
            trial=number,
            epoch=epoch,
            metrics=metrics,
            time=began + 1.8 * epoch / epochs,
            time_s=0.02,
        )
    status = Status.PRUNED if pruned else Status.DIVERGED if diverged else Status.COMPLETED
    facts = Facts(started=began, node=f"node{number % WORKERS // 8}", devices="cpu:0", train_s=1.0)
    reason = (
        ""
        if status is Status.COMPLETED
        else "stopped at a rung"
        if pruned
        else "val_accuracy is nan"
    )
    yield TrialEnded(trial=number, status=status, reason=reason, time=began + 1.9, facts=facts)


def make(results: Path, trials: int, epochs: int) -> ResultsFolder:
    """Write the sweep, log and tables."""
    info = {"objectives": [{"name": "val_accuracy", "goal": "maximize"}], "spec": {"repeats": 1}}
    folder, numbers = ResultsFolder.create(results, "big", "# How large?\n", info), random.Random(0)
    with Log(folder.log) as log:
        log.append([SessionStarted(time=BEGAN, resumed=False, version="1")])
        for number in range(trials):
            log.append(list(trial(number, epochs, numbers)))
        log.append([SessionEnded(time=BEGAN + trials / WORKERS * 2 + 2, reason="finished")])
    write(folder, build_tables(folder))
    return folder


def browse(page_file: Path) -> None:
    """Open a report in Chromium, brush in it, and print the times."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 900}, offline=True)
        page.on("pageerror", lambda error: print(f"error    {error}"))
        began = time.perf_counter()
        page.goto(page_file.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        print(f"opened   {time.perf_counter() - began:5.2f} s")
        for kind in ("curves", "parallel"):
            rate, half, most, lines = page.evaluate(DRAG, kind)
            print(
                f"{kind:8} {rate:5.1f} frames/s, half within {half:.0f} ms, 95 % within {most:.0f} ms,",
                end=" ",
            )
            print(f"{lines:.0f} trials selected on average")
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, nargs="+", default=[1000, 2000, 10_000])
    parser.add_argument("--epochs", type=int, default=50)
    given = parser.parse_args()
    for trials in given.trials:
        with tempfile.TemporaryDirectory() as scratch:
            results = Path(scratch) / "results"
            folder = make(results, trials, given.epochs)
            began = time.perf_counter()
            command = [sys.executable, "-m", "sweep", "report", "big", "--results", str(results)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            took, size = time.perf_counter() - began, folder.report.stat().st_size
            print(
                f"{trials} trials of {given.epochs} epochs: {size / 1e6:.2f} MB, built in {took:.2f} s",
                flush=True,
            )
            if shutil.which("chromium"):
                browse(folder.report)


if __name__ == "__main__":
    main()
