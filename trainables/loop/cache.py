"""The compiled programs that a worker keeps between trials while there is room, found again by what they have fixed."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tensorflow as tf

from sweep.contract import Devices, cpus, memory_bytes
from sweep.hyperparameters import Hyperparameters, Reads
from sweep.state.pristine import Traces
from trainables.devices import nvml
from trainables.devices.gauges import host_peak
from trainables.devices.placement import Placement
from trainables.loop.program import Program
from trainables.state.pristine import Made

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
    made: Made = field(default_factory=Made)  # what they left in modules
    drew: bool = False  # whether the author drew numbers, which may be constants of the graph: another seed has others
    keeps_rate: bool = False  # whether the optimizer keeps the learning rate that it was made with
    made_with: frozenset[str] = frozenset()  # what the author has read to make a model and its optimizers

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


KEPT_ON_HOST, KEPT_ON_GPU = 0.25, 0.4
"""Of a trial's part of a machine's memory, by its CPUs, and of its GPUs: the rest is for data and activations."""

_STATM = Path("/proc/self/statm")


def memory_used(placement: Placement) -> dict[str, float]:
    """Bytes in use now: by this process on the host, and by TensorFlow on each GPU."""
    gpus = placement.devices if placement.on_gpu else ()
    return {"host": _host_used(), **{gpu: _on_gpu(gpu) for gpu in gpus}}


def room(placement: Placement, devices: Devices) -> dict[str, float]:
    """Bytes that programs may have together, in each of these places as far as its size is known."""
    part = min(devices.cpus / cpus(), 1.0)
    found = {"host": KEPT_ON_HOST * part * (memory_bytes() or 0)}
    if placement.on_gpu:
        readers = nvml.readers()
        for gpu, reader in zip(placement.devices, readers, strict=len(readers) == len(placement.devices)):
            total = reader.memory_bytes()
            if total:
                found[gpu] = KEPT_ON_GPU * min(devices.gpus, 1.0) * total
    return found


def share_of_room(before: Mapping[str, float], after: Mapping[str, float], bounds: Mapping[str, float]) -> float:
    """The part of the room that went from one moment to another: where least is left, as a share of 1."""
    return max((after[place] - before[place]) / bound for place, bound in bounds.items())


def _on_gpu(name: str) -> float:
    return float(tf.config.experimental.get_memory_info(name.upper())["current"])


def _host_used() -> float:
    if _STATM.exists():
        resident, shared = map(int, _STATM.read_text().split()[1:3])
        return float((resident - shared) * os.sysconf("SC_PAGE_SIZE"))
    return float(host_peak())
