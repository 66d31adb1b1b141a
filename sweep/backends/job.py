"""What all trials of a sweep share."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

from sweep.contract import Devices

STOP_FILE, SHARE_FILE = ".stop-", ".share-"


@dataclass(frozen=True, slots=True)
class Job:
    """What all trials of a sweep share."""

    sweep: str
    trainable: str
    import_folders: tuple[Path, ...]
    results_folder: Path
    objective: str
    maximize: bool
    workers: int = 1  # processes of each trial
    servers: int = 0  # more of them, that keep the weights; then yet another one coordinates
    session: str = ""  # tells the driver's own stop file from any other
    checkpoint_every_s: float = 60.0
    checkpoint_keep: int = 2
    shared: str | None = None  # name of the folder, in each node's temporary one, for data that workers share
    profile: bool = False  # of the first trial
    target: float | None = None  # objective: a trial that reaches it is complete
    unsure: tuple[str, ...] = ()  # parameters of which the source does not show that they are read
    varying: tuple[str, ...] = ()  # parameters that are not the same in all trials
    given: object = field(default=None, repr=False)  # the class or function itself, where no module has it

    @property
    def aside(self) -> int:
        """Processes of each trial that do not train."""
        return self.servers + bool(self.servers)

    def shares(self, devices: Devices) -> tuple[Devices, ...]:
        """What each process of a trial is given, rank 0 first: with servers it trains nothing, as they do not."""
        if not self.servers:
            return (devices,) * self.workers
        without = replace(devices, gpus=0.0, simulated=False)
        return (without, *(devices,) * self.workers, *(without,) * self.servers)

    @property
    def shared_folder(self) -> Path | None:
        """Where this node's workers share data."""
        return None if self.shared is None else Path(tempfile.gettempdir()) / self.shared

    @property
    def stop_file(self) -> Path:
        """Its existence asks this session's workers to end their trials as interrupted after the present epoch."""
        return self.results_folder / f"{STOP_FILE}{self.session}"

    @property
    def share_file(self) -> Path:
        """Running trials of this session that are to go on with another share of a GPU, by number, as JSON."""
        return self.results_folder / f"{SHARE_FILE}{self.session}"
