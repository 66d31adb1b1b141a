"""What sweep.json says of a sweep's code, kept true where that changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from sweep.inspection import Source
from sweep.spec import Spec
from sweep.store import provenance
from sweep.store.folder import ResultsFolder


def described(source: Source) -> dict[str, object]:
    """What sweep.json says of a trainable's code."""
    return {
        "trainable": source.trainable,
        "modules": sorted(source.files),
        "sha256": source.digest(),
        "packages": dict(source.packages),
        "unknown": list(source.unknown),
    }


def note_changes(
    folder: ResultsFolder, spec: Spec, source: Source, folders: Sequence[Path], say: Callable[[str], None]
) -> None:
    """Keep sweep.json true where a sweep is resumed with another end, other code or other versions."""
    info = folder.read_info()
    now = info.changed(spec=spec.to_json_dict(), source=described(source))
    if folder.log.exists():
        now = now.changed(provenance=provenance.collect(folders[0]))
    if info.is_mixed or info.identity != now.identity:
        now = now.changed(source={**now.source, "changed": True})  # its trials answer for no other sweep's
        if not info.is_mixed:
            say("the code or a version of its packages has changed since the sweep began; what follows is new")
    if (now.spec, now.source) != (info.spec, info.source):
        folder.write_info(info.changed(spec=now.spec, source=now.source))
