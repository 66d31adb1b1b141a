"""A trainable whose every number hangs on all that it did before: a random walk with momentum."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from sweep.contract import Assignment, Devices, EpochReported, Facts, Report, Stopped, Value
from sweep.events import Event
from sweep.space.objectives import Objective

READS = ("rate", "drag")
JOURNAL = "journal.txt"  # beside this file: a line for each trial begun and each epoch trained


class Near:
    """Lets a trial go on that is near enough for its epoch, whatever the others do."""

    def __init__(self, objective: Objective, epochs: int) -> None:
        self.objective = objective

    def decision_epochs(self, epochs: int) -> tuple[int, ...]:
        return tuple(range(2, epochs, 3))

    def observe(self, event: Event) -> str | None:
        if not isinstance(event, EpochReported) or event.epoch not in self.decision_epochs(
            event.epoch + 1
        ):
            return None
        loss = self.objective.loss(event.metrics)
        return (
            f"too far after epoch {event.epoch}"
            if loss is None or loss > 24 / event.epoch
            else None
        )


class Together:
    """Walks that are trained together, an epoch of each at a time."""

    def member(self) -> Walk:
        return Walk()

    is_open = True

    def leave(self, member: Walk) -> None:
        """There is nothing of it to forget."""

    def train(self, reports: Mapping[Any, Report]) -> Mapping[Any, Exception]:
        goes_on, raised = True, {}

        def hear(walk: Walk, epoch: EpochReported) -> bool:
            nonlocal goes_on
            goes_on &= reports[walk](epoch)
            return False

        while goes_on:
            for walk in reports:
                walk.train(partial(hear, walk))
            raised = {walk: Stopped() for walk in reports if walk.done >= walk.given.epochs}
            goes_on &= not raised
        return raised


class Walk:
    """Minimises the distance to zero, slowly and badly; an epoch takes a few hundredths of a second."""

    PAUSE_S = 0.02

    def join(self, devices: Devices, training: Mapping[str, Value]) -> None:
        """Ranks of a walk go the same way and wait for nobody."""

    def leave(self, reason: str) -> None:
        """There is nothing to wait for."""

    def group(self) -> Together:
        return Together()

    def begin(self, assignment: Assignment) -> None:
        self.given, self.done = assignment, 0
        self.rng = np.random.default_rng(assignment.seed)
        self.place = self.rng.normal(size=16)
        self.speed = np.zeros(16)
        self._note(f"begin {assignment.trial}")

    def train(self, report: Report) -> None:
        rate, drag = self.given.params["rate"], self.given.params["drag"]
        while self.done < self.given.epochs:
            began = time.perf_counter()
            time.sleep(self.PAUSE_S * (1 + 3 * (self.given.trial % 3)))
            noise = self.rng.normal(size=16)
            self.speed = float(drag) * self.speed - float(rate) * self.place + 0.1 * noise
            self.place = self.place + self.speed
            self.done += 1
            self._note(f"epoch {self.given.trial} {self.done}")
            metrics = {
                "loss": float(np.square(self.place).sum()),
                "speed": float(np.abs(self.speed).max()),
            }
            if self.given.minutes is None:
                took = time.perf_counter() - began
            else:  # seconds that no machine changes, so that minutes end a trial at the same epoch again
                took = 0.5 * (1 + self.given.trial % 3)
            if not report(
                EpochReported(
                    trial=0, epoch=self.done, metrics=metrics, time=time.time(), time_s=took
                )
            ):
                return

    def save(self, folder: Path) -> None:
        np.savez(folder / "state.npz", place=self.place, speed=self.speed)
        state: dict[str, Any] = {"done": self.done, "rng": self.rng.bit_generator.state}
        (folder / "state.json").write_text(json.dumps(state))

    def restore(self, folder: Path) -> int:
        with np.load(folder / "state.npz") as arrays:
            self.place, self.speed = arrays["place"], arrays["speed"]
        state = json.loads((folder / "state.json").read_text())
        self.rng.bit_generator.state = state["rng"]
        self.done = int(state["done"])
        return self.done

    def facts(self) -> Facts:
        return Facts(node="here", data="none: it is drawn from the seed")

    def _note(self, line: str) -> None:
        with (Path(__file__).parent / JOURNAL).open("a") as journal:
            journal.write(f"{time.time()} {os.getpid()} {line}\n")
