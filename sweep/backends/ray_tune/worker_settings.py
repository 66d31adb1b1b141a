"""The settings in which trials must agree to be trained by the same worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sweep.contract import Assignment, Devices
from sweep.events import Value


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The devices of a worker and the ``training`` block of its sweep."""

    devices: Devices
    training: Mapping[str, Value]

    @classmethod
    def of(cls, assignment: Assignment) -> WorkerSettings:
        """Return the settings that the worker of a trial must have, from the trial's ``assignment``."""
        return cls(assignment.devices, assignment.training)
