"""Trainables of two processes of which one misbehaves, once, as the parameter ``fault`` says: "1 dies" is of rank 1.

Whatever happens, a trial that completes has the numbers of one that nobody disturbed.
"""

import json
import os
import signal
import threading
import time
from pathlib import Path

from sweep.contract import Diverged, EpochReported, Facts, OutOfMemory, Stopped

READS = ("fault",)
HERE = Path(__file__).parent


def is_first(fault):
    marker = HERE / f"done {fault}"
    been = marker.exists()
    marker.touch()
    return not been


def misbehave(fault, rank):
    """What happens at the end of the second epoch."""
    who, _, what = str(fault).partition(" ")
    if who not in (str(rank), "all"):
        return
    match what:
        case "raises":
            raise ValueError("only this rank")
        case "diverges":
            raise Diverged("as all do")
        case "stops early":
            raise Stopped("as all do")
        case "fails once" if is_first(fault):
            raise ValueError("not again")
        case "runs out of memory" if is_first(fault):
            raise OutOfMemory("too large")
        case "dies" if is_first(fault):
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits" if is_first(fault):
            os._exit(3)
        case "dies in the next" if is_first(fault):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGKILL)).start()
        case "freezes in the next" if is_first(fault):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGSTOP)).start()


class Toy:
    """Sums up; nobody waits for anybody but rank 0 for answers."""

    def join(self, devices, training):
        self.rank = devices.ranks.rank
        if os.environ.get("NEVER_COMES") == str(self.rank) and is_first("coming"):
            time.sleep(3600)
        with (HERE / "joined.txt").open("a") as file:
            file.write(f"{self.rank} {os.getpid()} {devices.ranks.addresses[self.rank]}\n")

    def leave(self, reason):
        with (HERE / "left.txt").open("a") as file:
            file.write(f"{self.rank} {reason}\n")

    def begin(self, assignment):
        self.given, self.done, self.sum = assignment, 0, float(assignment.seed)
        if Path.cwd() != HERE:
            raise RuntimeError(f"rank {self.rank} begins in {Path.cwd()}")
        self.fault = assignment.params["fault"]
        (HERE / f"read_by_{self.rank}.txt").read_text()
        self.data = "other" if self.fault == f"{self.rank} loads other data" else "the same"

    def train(self, report):
        while self.done < self.given.epochs:
            time.sleep(0.02 if self.done < 2 else 0.3)
            self.done += 1
            self.sum += self.done / 3
            if self.done == 2:
                misbehave(self.fault, self.rank)
            loss = self.sum + (self.rank if self.fault == "1 differs" else 0)
            metrics = {"loss": loss, "val_loss": self.sum}
            if not report(
                EpochReported(
                    trial=0, epoch=self.done, metrics=metrics, time=time.time(), time_s=0.02
                )
            ):
                return

    def save(self, folder):
        (folder / "state.json").write_text(json.dumps([self.done, self.sum]))

    def restore(self, folder):
        self.done, self.sum = json.loads((folder / "state.json").read_text())
        return self.done

    def facts(self):
        return Facts(
            node="here",
            devices=f"cpu:{self.rank}",
            accumulate=self.given.accumulate,
            data=self.data,
        )
