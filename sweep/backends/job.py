"""The settings that all trials of a session have in common, and the paths of the session's files."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweep.contract import Devices, count_nontraining_processes
from sweep.prices import Price
from sweep.space.objectives import Objective
from sweep.store.features import mark_copy

CHECKPOINTS = "checkpoints"  # folder of all checkpoints
STOP_FILE, SHARE_FILE = ".stop-", ".share-"


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that all trials of a session have in common: the trainable, the settings, where files are."""

    sweep: str
    trainable: str
    import_folders: tuple[Path, ...]
    results_folder: Path  # as the driver sees it
    objective: Objective
    workers: int = 1  # processes of each trial
    servers: int = 0  # servers, which keep the weights; if any, one more process coordinates
    together: int = 1  # trials that a worker may train at once
    session: str = ""  # distinguishes the files of this session from those of others
    checkpoint_every_s: float = 60.0
    checkpoint_keep: int = 2
    shared: str | None = None  # folder for data that workers share, in each node's temporary folder
    profile: bool = False  # profile the first trial
    target: float | None = None  # value of the objective at which a trial is complete
    unsure: tuple[str, ...] = ()  # parameters whose reads cannot be found in the source
    # parameters that are read only with some values of others, such as the optimizer
    sometimes: tuple[str, ...] = ()
    varying: tuple[str, ...] = ()  # parameters that differ between trials
    constant: tuple[str, ...] = ()  # parameters that are the same in all trials
    # parameters that differ and are not numbers, so code may choose by them
    choosing: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()  # keys of `training` that differ from their defaults
    price: Price | None = None  # per GPU-hour
    store: str | None = None  # URL of the sweep in an object store, if nodes share no folder
    stand_in: str | None = None  # local copy of the results folder, in each node's temporary folder
    # the class or function itself, if no module has it
    given: object = field(default=None, repr=False)
    # the driver's working folder; trials begin in it if it exists on their node
    working_folder: Path | None = None
    # SHA-256 of the author's modules when the session began
    code: Mapping[str, str] = field(default_factory=dict)
    # digest of all modules that the trainable imports, and of the versions of packages
    digest: str = ""
    data_seed: int = 0  # seed for loading data and importing the author's modules

    @property
    def aside(self) -> int:
        """Number of processes of each trial that do not train: its servers, and one that coordinates them if any."""
        return count_nontraining_processes(self.servers)

    def shares(self, devices: Devices) -> tuple[Devices, ...]:
        """Return the devices of each process of a trial, ordered by rank; each worker gets ``devices``.

        With servers, there is one more process, rank 0, before the workers, and the servers come last; rank 0 and the
        servers get no GPU, because they do not train.
        """
        if not self.servers:
            return (devices,) * self.workers
        without_gpus = replace(devices, gpus=0.0, simulated=False)
        return (without_gpus, *(devices,) * self.workers, *(without_gpus,) * self.servers)

    @property
    def shared_folder(self) -> Path | None:
        """Folder, perhaps not created yet, in which the workers of this machine share data; None if they do not."""
        if self.shared is None:
            return None
        return Path(tempfile.gettempdir()) / self.shared

    @property
    def folder(self) -> Path:
        """The results folder or, if results are in an object store, its local copy on this machine."""
        if self.stand_in is None:
            return self.results_folder
        return Path(tempfile.gettempdir()) / self.stand_in

    def prepare(self) -> None:
        """Create the folder for the local copy of the results, if they are in an object store; else do nothing.

        A folder that exists keeps its content. Raises OSError if it cannot be created, and `StoreError` if it cannot be
        marked as a copy.
        """
        mark_copy(self.folder, self.store)

    @property
    def stop_file(self) -> Path:
        """File on this machine that is created to interrupt this session's trials after their present epoch."""
        return self.folder / f"{STOP_FILE}{self.session}"

    @property
    def share_file(self) -> Path:
        """JSON file with the new GPU shares of running trials of this session, by trial number as a text."""
        return self.folder / f"{SHARE_FILE}{self.session}"


def checkpoint_key(trial: int) -> str:
    """Return the path of a trial's checkpoints below a results folder or a store, such as ``checkpoints/00003``."""
    return f"{CHECKPOINTS}/{trial:05d}"
