"""A sweep of a toy trainable that knows how to export, without TensorFlow."""

from __future__ import annotations

from pathlib import Path

from sweep.inspection import inspect
from sweep.runner import session
from sweep.spec import parse_spec
from sweep.store.folder import ResultsFolder

TRAINABLE = '''
import json, random
from sweep.contract import EpochReported, Exported, Facts, NotExportable

class Kettle:
    """Heats water; how warm it is depends on the power, the seed and the number of epochs."""
    wrong = 0.0
    def begin(self, assignment):
        self.given, self.done = assignment, 0
        self.power = assignment.params["power"]
        self.params = dict(assignment.params.items())
    def train(self, report):
        while self.done < self.given.epochs:
            self.done += 1
            if not report(EpochReported(trial=0, epoch=self.done, metrics=self.metrics(), time=0.0, time_s=0.1)):
                return
    def metrics(self):
        fold = self.given.fold
        luck = random.Random(self.given.seed * 1000 + self.done).random() + (fold.number * 0.5 if fold else 0)
        return {"val_heat": self.power * (1 + self.done / self.given.epochs) + luck, "heat": self.power}
    def save(self, folder):
        (folder / "done.json").write_text(json.dumps(self.done))
    def restore(self, folder):
        self.done = json.loads((folder / "done.json").read_text())
        return self.done
    def facts(self):
        return Facts(node="here", data="water", devices="hob:0")
    def export(self, folder, formats):
        if "onnx" in formats:
            raise NotExportable("a kettle is no network")
        (folder / "model.keras").write_text(str(self.power))
        metrics = {"val_heat": self.metrics()["val_heat"] + self.wrong}
        return Exported(
            files={"keras": "model.keras"}, usage={"keras": "open('model.keras')"}, differences={"keras": 1e-7},
            metrics=metrics, compared="3 validation examples", data={"model": "a kettle"},
            preprocessing="Fill it.\\n```\\n# not | a heading", notes=("it is <hot>",),
        )
'''
FILE = """
name: kettles
description: "Which | power? <b>"
trainable: kettle:Kettle
method: grid
metric: {name: val_heat, goal: maximize, target: 1000}
parameters:
  power: {values: [3, 1, 2]}
  water.kind: {value: "tap | `still`"}
  salt: {value: null}
  word: {distribution: constant, value: "= 2 * power"}
epochs: 4
checkpoint: {every_s: 0}
"""


class Silent:
    """A view that shows nothing."""

    def replay(self, events: object) -> None: ...

    def on(self, event: object) -> None: ...

    def say(self, text: str) -> None: ...

    def step(self, text: str) -> None: ...

    def close(self) -> None: ...


def run(project: Path, text: str = FILE) -> ResultsFolder:
    """Run a sweep file there, inline."""
    (project / "kettle.py").exists() or (project / "kettle.py").write_text(TRAINABLE)
    spec = parse_spec(text, "file.yaml")
    training = session.SweepSource(
        spec=spec, source=inspect(spec.trainable, [project]), import_folders=[project]
    )
    how = session.Options(inline=True, memo=False)
    return session.run_sweep(training, text, project / "results", how, lambda *_: Silent()).folder
