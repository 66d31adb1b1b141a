"""Whole sweeps without Ray, and a trainable for them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sweep.events import Event, TrialEnded
from sweep.inspection import inspect
from sweep.runner import resuming, session
from sweep.spec import parse_spec
from sweep.store import log as store_log
from sweep.store.folder import ResultsFolder

TRAINABLE = '''
import json, math, os
from sweep.contract import EpochReported, Facts

class Curve:
    """Counts epochs; the objective falls with epochs at the rate `a`."""
    def begin(self, assignment):
        self.given, self.done = assignment, 0
        self.a = assignment.params["a"]
    def train(self, report):
        while self.done < self.given.epochs:
            self.done += 1
            if self.a == -1:
                raise RuntimeError("no such a")
            value = math.nan if self.a == -2 and self.done == 2 else self.a / self.done
            epoch = EpochReported(trial=0, epoch=self.done, metrics={"score": value}, time=0.0, time_s=0.1)
            if not report(epoch):
                return
    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))
    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done
    def facts(self):
        return Facts(node="here", data="none")
'''

FILE = """
name: curves
trainable: curve:Curve
method: grid
metric: {name: score, goal: minimize}
parameters: {a: {values: [3, 1, 2]}}
epochs: 4
"""


class Watcher:
    """A view that keeps what it sees, and may act on it."""

    def __init__(self) -> None:
        self.seen: list[Event] = []
        self.said: list[str] = []

    def replay(self, events: Iterable[Event]) -> None:
        self.seen += events

    def on(self, event: Event) -> None:
        self.seen.append(event)

    def say(self, text: str) -> None:
        self.said.append(text)

    def step(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def run(
    project: Path, text: str = FILE, watcher: Watcher | None = None, *, memo: bool = False
) -> session.Outcome:
    spec = parse_spec(text, "file.yaml")
    view = watcher or Watcher()
    training = session.SweepSource(
        spec=spec, source=inspect(spec.trainable, [project]), import_folders=[project]
    )
    how = session.Options(inline=True, memo=memo)
    return session.run_sweep(
        training, text, project / "results", how, lambda folder, terminal: view
    )


def resume(
    project: Path,
    *assignments: str,
    watcher: Watcher | None = None,
    name: str = "curves",
    memo: bool = True,
    retry_failed: bool = False,
) -> session.Outcome:
    view = watcher or Watcher()
    reopened = resuming.reopen(project / "results", name, assignments)
    source = inspect(reopened.spec.trainable, reopened.import_folders)
    how = session.Options(inline=True, memo=memo, retry_failed=retry_failed)
    return session.resume_sweep(reopened, source, how, lambda folder, terminal: view)


def ends(folder: ResultsFolder) -> dict[int, str]:
    return {
        e.trial: e.status.value for e in store_log.read(folder.log) if isinstance(e, TrialEnded)
    }
