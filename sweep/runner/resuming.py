"""Finds a sweep again: its resolved sweep file, and how it was run."""

from __future__ import annotations

import json
from pathlib import Path

from sweep.errors import StoreError
from sweep.spec import Spec, parse
from sweep.store.folder import ResultsFolder


def reopen(results: Path, sweep: str, run_cap: int | None) -> tuple[ResultsFolder, Spec, tuple[Path, ...], int | None]:
    """The folder, its sweep with another ``run_cap``, where its trainable is, and its simulated GPUs.

    Raises InputError if there is no such sweep, StoreError if its sweep.json is damaged.
    """
    folder = ResultsFolder.open(results, sweep)
    info = folder.read_info()
    match info:
        case {"spec": dict(resolved), "import_folders": list(folders)}:
            # JSON is YAML: the sweep that was resolved is read by the same rules as any sweep file.
            text = json.dumps({key: value for key, value in resolved.items() if value is not None})
            changed = [f"run_cap={run_cap}"] if run_cap else []
            spec = parse(text, str(folder.info), changed)
        case _:
            raise StoreError(f"{folder.info}: lacks spec or import_folders, which `run` writes")
    simulated = info.get("simulated_gpus")
    return folder, spec, tuple(Path(str(f)) for f in folders), simulated if isinstance(simulated, int) else None
