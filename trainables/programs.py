"""The compiled programs that a worker keeps between trials, found again by what they have fixed."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field

from sweep.hyperparameters import Hyperparameters, Reads
from trainables.program import Program

CAPACITY = 8


@dataclass(eq=False)
class Structure:
    """What the code read as plain values while a program was built and traced, and where it was built."""

    environment: tuple[object, ...]  # devices, strategy, precision, shapes of the data
    reads: Reads = field(default_factory=dict)

    def fits(self, environment: tuple[object, ...], hp: Hyperparameters) -> bool:
        """Whether building a program for this trial would give the same graph."""
        return self.environment == environment and hp.agree(self.reads)


class Programs:
    """At most `CAPACITY` programs; the one used longest ago makes room."""

    def __init__(self) -> None:
        self._held: list[tuple[Structure, Program]] = []

    def find(self, environment: tuple[object, ...], hp: Hyperparameters) -> tuple[Structure, Program] | None:
        """The program that fits a trial, now the most recently used."""
        for held in self._held:
            structure, program = held
            if structure.fits(environment, hp) and program.live.accepts(hp):
                self._held.remove(held)
                self._held.append(held)
                return held
        return None

    def add(self, structure: Structure, program: Program) -> None:
        """Keep a program."""
        self._held.append((structure, program))
        if len(self._held) > CAPACITY:
            del self._held[0]
            gc.collect()  # models and graphs hold each other in circles

    def clear(self) -> None:
        """Forget all programs."""
        self._held.clear()
        gc.collect()
