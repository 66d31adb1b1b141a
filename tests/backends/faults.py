"""A trainable that misbehaves in the way that its parameter ``fault`` names; a copy lies beside its sweep file."""

import ctypes
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from sweep.contract import EpochReported, Facts

READS = ("fault",)


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("not to be moved")


class Faulty:
    """Four epochs, and one misdeed in the second of them if it is none of another method."""

    def begin(self, assignment):
        self.given, self.done, self.fault = assignment, 0, assignment.params["fault"]
        if self.fault == "raises in begin":
            raise RuntimeError("no beginning")
        if self.fault == "exits in begin":
            os._exit(3)

    def train(self, report):
        while self.done < self.given.epochs:
            number, metrics = self.done + 1, {"score": 1.0 / (self.done + 1)}
            if number == 2:
                number, metrics = self.misbehave(number, metrics) or (number, metrics)
            self.done = number
            if self.fault == "reports a word" and number == 2:
                report("two")
            time.sleep(0.01)
            if not report(
                EpochReported(trial=0, epoch=number, metrics=metrics, time=time.time(), time_s=0.01)
            ):
                return

    def misbehave(self, number, metrics):
        match self.fault:
            case "raises in train":
                raise RuntimeError("no training")
            case "raises what cannot be pickled":
                raise Unpicklable("stays here")
            case "raises ten thousand words":
                raise RuntimeError("word " * 10_000)
            case "raises control characters":
                raise RuntimeError("\x1b[31mred\x07 \udcff and more")
            case "raises KeyboardInterrupt":
                raise KeyboardInterrupt("by itself")
            case "raises SystemExit":
                sys.exit("enough")
            case "recurses":
                self.misbehave(number, metrics)
            case "exits":
                os._exit(3)
            case "aborts":
                os.abort()
            case "segfaults":
                ctypes.string_at(0)
            case "is terminated":
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(60)
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hangs":
                while True:
                    time.sleep(3600)
            case "asks for a petabyte":
                bytearray(1 << 50)
            case "reports NaN":
                return number, {"score": math.nan}
            case "reports infinity":
                return number, {"score": -math.inf}
            case "reports None":
                return number, {"score": None}
            case "reports text":
                return number, {"score": "high"}
            case "skips an epoch":
                return number + 1, metrics
            case "repeats an epoch":
                return number - 1, metrics
            case "leaves threads behind":
                threading.Thread(target=self.raise_later).start()
                threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
            case "changes the folder":
                folder = tempfile.mkdtemp()
                os.chdir(folder)
                shutil.rmtree(folder)
            case "reads the current folder":
                metrics["score"] += Path("faults.yaml").read_text().count("never there")
            case "prints ten megabytes":
                for _ in range(1000):
                    print("x" * 10_000)  # noqa: T201 - much output is the fault
            case "closes its output":
                os.close(1)
            case "fails once" if self.is_first():
                raise RuntimeError("not yet")
            case "hangs once" if self.is_first():
                time.sleep(3600)
            case "cannot be restored" if self.is_first():
                time.sleep(1.1)  # a step ends, and a checkpoint is written
        return None

    def is_first(self):
        marker = Path(__file__).with_name(f"tried {self.fault}")
        been = marker.exists()
        marker.touch()
        return not been

    def raise_later(self):
        time.sleep(0.05)
        raise RuntimeError("in a thread")

    def save(self, folder):
        if self.fault == "raises in save":
            raise RuntimeError("no saving")
        if self.fault == "raises while it is saved":
            return self.raise_later
        (folder / "done.json").write_text(json.dumps(self.done))
        return None

    def restore(self, folder):
        if self.fault == "cannot be restored":
            raise RuntimeError("no restoring")
        self.done = json.loads((folder / "done.json").read_text())
        return self.done

    def facts(self):
        if self.fault == "raises in facts":
            raise RuntimeError("no facts")
        return {"node": "here"} if self.fault == "gives a mapping as facts" else Facts(node="here")
