"""The cache of compiled programs, which a worker keeps between trials as long as there is room."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import tensorflow as tf

from sweep.contract import Devices, cpus, memory_bytes
from sweep.hyperparameters import Hyperparameters, Reads
from sweep.state.recorded_values import Digests
from trainables.devices.gauges import get_peak_bytes
from trainables.devices.placement import Placement
from trainables.loop.program import Program
from trainables.state.author_globals import ModelChanges

LEAST = 1 / 256
"""Smallest share of the room that is counted for a program; its use of memory reserved before is not measured."""


@dataclass(frozen=True, eq=False)
class Structure:
    """The key of a program in the cache: what its graph depends on, such as devices and hyperparameters."""

    environment: tuple[object, ...]  # devices, strategy, precision, shapes of the data
    # what `data` has left where the author's methods can see it
    seen: Digests = field(default_factory=dict)
    example: object = None  # digest of the first example, if the methods read it
    targets: object = None  # digest of some targets, if the methods read them
    # plain hyperparameters read while it was built and traced
    reads: Reads = field(default_factory=dict)
    # the trainable's attributes after its methods ran
    attributes: Mapping[str, object] = field(default_factory=dict)
    changes: ModelChanges = field(default_factory=ModelChanges)  # what the methods left in modules
    # Whether the author's methods drew numbers. These may be constants of the graph, so another seed needs another
    # program.
    drew: bool = False
    keeps_rate: bool = False  # whether the optimizer keeps the learning rate it was made with
    # hyperparameters read to make the model and its optimizers
    made_with: frozenset[str] = frozenset()

    def fits(self, structure: Structure, hp: Hyperparameters) -> bool:
        """Return whether the program of this key can also train a trial with the key ``structure``.

        It can if building it again would give the same graph. `environment`, `seen` and the hyperparameters that were
        read when it was built must be the same, and so must the example and the targets, if this program's making has
        read them. Seeds, and all other fields, are not compared. ``hp`` has the trial's hyperparameters.
        """
        alike = self.environment == structure.environment and self.seen == structure.seen
        # None if the author's methods have not read them
        example_alike = self.example in (None, structure.example)
        targets_alike = self.targets in (None, structure.targets)
        return alike and example_alike and targets_alike and hp.matches_reads(self.reads)


class Programs:
    """The cache of programs, which share the memory that `compute_room` returns (the room).

    If they need more, the least recently used programs are dropped, but never the last one.
    """

    def __init__(self) -> None:
        # the least recently used one first
        self._held: list[tuple[Structure, Program]] = []
        self._shares: dict[int, float] = {}  # of the room, by the id of the program

    def __len__(self) -> int:
        return len(self._held)

    def find(self, wanted: Structure, hp: Hyperparameters) -> tuple[Structure, Program] | None:
        """Return the key and the program of an entry that fits a trial; None if none fits.

        ``wanted`` is the trial's key, and ``hp`` its hyperparameters. See `Structure.fits` for what fits; a program
        that needs a live number which the trial does not have does not fit. Of several, it is the least recently used
        one, which becomes the most recently used one. Programs that are `spent` are removed from the cache first.
        """
        if self._remove_spent():
            gc.collect()  # models and graphs are reference cycles
        for held in self._held:
            structure, program = held
            if structure.fits(wanted, hp) and program.live.accepts(hp):
                self._held.remove(held)
                self._held.append(held)
                return held
        return None

    def add(self, structure: Structure, program: Program, share: float = 0.0) -> None:
        """Add a program as the most recently used one, and drop the least recently used others if there is no room.

        ``share`` is the fraction of the room that the program takes, as `compute_share_of_room` returns it; at least
        `LEAST` is counted. Others are dropped until all shares add up to at most 1, or only the new program is left.
        """
        self._held.append((structure, program))
        self._shares[id(program)] = max(share, LEAST)
        # the first program is the least recently used
        while len(self._held) > 1 and sum(self._shares.values()) > 1:
            # no name for the program, which would keep it in memory
            del self._shares[id(self._held.pop(0)[1])]
            gc.collect()  # models and graphs are reference cycles

    def _remove_spent(self) -> bool:
        """Remove the programs that no other trial can use; return whether there were any.

        Apart from `find`, so that no local name keeps them in memory while garbage is collected.
        """
        spent = [program for _, program in self._held if program.spent]
        for program in spent:
            self.remove(program)
        return bool(spent)

    def remove(self, program: Program) -> None:
        """Remove a program from the cache; do nothing if it is not there."""
        self._held = [held for held in self._held if held[1] is not program]
        self._shares.pop(id(program), None)


KEPT_ON_HOST, KEPT_ON_GPU = 0.25, 0.4
"""Shares of the host's memory and of a GPU's memory that programs may take; the rest is for data and activations.

The host's share is taken in proportion to the trial's CPUs.
"""

_STATM = Path("/proc/self/statm")


def measure_used_bytes(placement: Placement) -> dict[str, float]:
    """Return the bytes in use now: by this process under ``host``, and by TensorFlow under each GPU's name.

    The names are those in ``placement``. Memory that TensorFlow has reserved and does not use is not counted.
    """
    if placement.on_gpu:
        gpus = placement.devices
    else:
        gpus = ()
    return {"host": _measure_host_bytes(), **{gpu: _measure_gpu_bytes(gpu) for gpu in gpus}}


def compute_room(placement: Placement, devices: Devices) -> dict[str, float]:
    """Return the bytes that all programs may use together: by ``host``, and by the name of each GPU of ``placement``.

    ``devices`` are those of the trial. Programs may take 25% of the memory of this machine (or its container), in
    proportion to the trial's part of its CPUs, and 40% of each GPU's memory or, if the trial has a fraction of one GPU,
    of this fraction. A memory of unknown size is left out, and so are all GPUs if NVML reports another number of them
    than ``placement`` has.
    """
    found = {}
    memory = memory_bytes()
    if memory:
        found["host"] = KEPT_ON_HOST * min(devices.cpus / cpus(), 1.0) * memory
    if placement.on_gpu:
        for gpu, total in _read_gpu_sizes(placement).items():
            found[gpu] = KEPT_ON_GPU * min(devices.gpus, 1.0) * total
    return found


def _read_gpu_sizes(placement: Placement) -> dict[str, float]:
    """Return the bytes of memory of each GPU of known size, by its name in ``placement``.

    Empty if NVML cannot be used, or does not report as many GPUs as ``placement`` has.
    """
    from trainables.devices import nvml

    readers = nvml.create_readers()
    if len(readers) != len(placement.devices):  # it is unknown which GPU has no reader
        return {}
    sizes = {}
    for gpu, reader in zip(placement.devices, readers, strict=True):
        total = reader.memory_bytes()
        if total:
            sizes[gpu] = total
    return sizes


def compute_share_of_room(
    before: Mapping[str, float], after: Mapping[str, float], bounds: Mapping[str, float]
) -> float:
    """Return the largest fraction of the bytes in ``bounds`` by which the memory in use grew on any device.

    ``before`` and ``after`` are results of `measure_used_bytes`, and ``bounds`` one of `compute_room`. The host counts
    as a device. Negative if memory was freed on all devices; 0 if there are no bounds. Raises ZeroDivisionError for a
    bound of 0, and KeyError for a bound of a device that was not measured.
    """
    return max(
        ((after[device] - before[device]) / bound for device, bound in bounds.items()), default=0.0
    )


def _measure_gpu_bytes(name: str) -> float:
    """Return the bytes that TensorFlow uses now on the GPU of this name, such as ``gpu:0``."""
    return float(tf.config.experimental.get_memory_info(name.upper())["current"])


def _measure_host_bytes() -> float:
    """Return the resident bytes of this process without those of files and shared memory.

    If there is no ``/proc``, return the most bytes that were ever resident.
    """
    if _STATM.exists():
        resident, shared = map(int, _STATM.read_text().split()[1:3])  # in pages
        return float((resident - shared) * os.sysconf("SC_PAGE_SIZE"))
    return float(get_peak_bytes())
