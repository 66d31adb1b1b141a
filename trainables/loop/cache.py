"""The compiled programs that a worker keeps between trials, found again by what they have fixed."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass, field

from sweep.hyperparameters import Hyperparameters, Reads
from trainables.loop.program import Program
from trainables.state.attributes import Traces

LEAST = 1 / 256
"""The share of the room that a program takes at least: what it takes of memory that was free before is not seen."""


@dataclass(frozen=True, eq=False)
class Structure:
    """All that a program was made of: where it was built, what of the data its author saw, and what he read of `hp`."""

    environment: tuple[object, ...]  # devices, strategy, precision, shapes of the data
    seen: Traces = field(default_factory=dict)  # what `data` has left for the author's methods to see
    example: object = None  # digest of the first example, where they read it
    targets: object = None  # and of the targets of some
    reads: Reads = field(default_factory=dict)  # plain values read while it was built and traced
    attributes: Mapping[str, object] = field(default_factory=dict)  # the trainable's, as the author's methods left them
    drew: bool = False  # whether the author drew numbers, which may be constants of the graph: another seed has others
    keeps_rate: bool = False  # whether the optimizer keeps the learning rate that it was made with

    def fits(self, wanted: Structure, hp: Hyperparameters) -> bool:
        """Whether building a program for this trial would give the same graph."""
        alike = self.environment == wanted.environment and self.seen == wanted.seen
        read = self.example in (None, wanted.example) and self.targets in (None, wanted.targets)
        return alike and read and hp.agree(self.reads)


class Programs:
    """As many programs as there is room for, and always the last; those used longest ago make room."""

    def __init__(self) -> None:
        self._held: list[tuple[Structure, Program]] = []
        self._shares: dict[int, float] = {}  # of the room, by the id of a program

    def __len__(self) -> int:
        return len(self._held)

    def find(self, wanted: Structure, hp: Hyperparameters) -> tuple[Structure, Program] | None:
        """The program that fits a trial, now the most recently used."""
        for held in self._held:
            structure, program = held
            if not program.spent and structure.fits(wanted, hp) and program.live.accepts(hp):
                self._held.remove(held)
                self._held.append(held)
                return held
        return None

    def add(self, structure: Structure, program: Program, share: float = 0.0) -> None:
        """Keep a program that takes this share of the room for all."""
        self._held.append((structure, program))
        self._shares[id(program)] = max(share, LEAST)
        while len(self._held) > 1 and sum(self._shares.values()) > 1:
            del self._shares[id(self._held.pop(0)[1])]
            gc.collect()  # models and graphs hold each other in circles

    def remove(self, program: Program) -> None:
        """Forget one program."""
        self._held = [held for held in self._held if held[1] is not program]
        self._shares.pop(id(program), None)

    def clear(self) -> None:
        """Forget all programs."""
        self._held.clear()
        self._shares.clear()
        gc.collect()
