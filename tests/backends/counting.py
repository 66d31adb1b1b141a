"""A trainable that counts, and does on the way what its parameter ``events`` says."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import numpy as np

from sweep.contract import (
    Assignment,
    Diverged,
    EpochReported,
    Facts,
    OtherData,
    OutOfMemory,
    Report,
    Stopped,
)


class Counting:
    """``events`` names what happens in an epoch, as in "3 fails, 5 nan"; the metric is the sum of all epochs."""

    begun: list[Assignment] = []  # noqa: RUF012 - shared on purpose: tests look at it
    places: list[Path] = []  # noqa: RUF012 - the same: the current folder at each epoch's beginning
    outputs: list[TextIO] = []  # noqa: RUF012 - the same: what is written to

    def begin(self, assignment: Assignment) -> None:
        Counting.begun.append(assignment)
        self.given, self.done, self.sum = assignment, 0, 0.0
        words = [
            event.split()
            for event in str(assignment.params.get("events", "")).split(",")
            if event.strip()
        ]
        self.events = {int(word[0]): word[1] for word in words}

    def train(self, report: Report) -> None:
        while self.done < self.given.epochs:
            with suppress(FileNotFoundError):
                Counting.places.append(Path.cwd())
            Counting.outputs.append(sys.stdout)
            number = self.done + 1
            metrics = {"score": 100.0 - self.sum - number}
            match self.events.get(number):
                case "fails":
                    raise RuntimeError(f"epoch {number} fails")
                case "exits":
                    raise SystemExit(3)
                case "nan":
                    metrics["score"] = math.nan
                case "diverges":
                    raise Diverged("the loss became NaN")
                case "none":
                    metrics["score"] = None
                case "KeyboardInterrupt":
                    raise KeyboardInterrupt("no more")
                case "GeneratorExit":
                    raise GeneratorExit("no more")
                case "numpy":
                    metrics["score"] = np.float32(0.5)
                case "oom" if self.given.accumulate < 4:
                    raise OutOfMemory("no room for 4 GiB")
                case "huge":
                    raise OutOfMemory("no room at all")
                case "stops":
                    raise Stopped("it has seen enough")
                case "patience":
                    return
                case "waits":
                    time.sleep(1.01)  # a step ends
                case "leaves":
                    folder = tempfile.mkdtemp()
                    os.chdir(folder)
                    shutil.rmtree(folder)
                case "enters":
                    Path("entered").mkdir()
                    os.chdir("entered")
                case "closes":
                    os.close(1)
                case "shuts":
                    sys.stdout.close()
                case "wraps":
                    sys.stdout = io.StringIO()
                case "skips":
                    number += 1
                case "dies":
                    os._exit(9)
            self.done, self.sum = number, self.sum + number
            if not report(
                EpochReported(
                    trial=0, epoch=number, metrics=metrics, time=float(number), time_s=0.5
                )
            ):
                return

    def save(self, folder: Path) -> Callable[[], None] | None:
        if "full" in self.events.values():
            raise OSError(28, "No space left on device")
        (folder / "state.json").write_text(json.dumps([self.done, self.sum]))
        return None

    def restore(self, folder: Path) -> int:
        if "other" in self.events.values():
            raise OtherData("the data are 1, expected 2")
        self.done, self.sum = json.loads((folder / "state.json").read_text())
        return self.done

    def facts(self) -> Facts:
        return Facts(node="here", data="f00d")


class Slow(Counting):
    """Takes its time to write a checkpoint, beside the training."""

    def save(self, folder: Path) -> Callable[[], None]:
        text = json.dumps([self.done, self.sum])

        def write() -> None:
            time.sleep(0.3)
            (folder / "state.json").write_text(text)

        return write
