"""Exports a sweep as offline runs of Weights & Biases, one per trial, for ``wandb sync``.

The only module that knows wandb. wandb's client would start a service and use the current time as the time of a run. So
the files are written from its record types without the client: no process, no network, no login, and the same log gives
the same bytes. Ids depend only on the sweep and the trial, so that syncing again creates no duplicates.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from sweep.events import LOST, Status
from sweep.export import runs
from sweep.export.runs import ExportedTrial, SweepState
from sweep.store.disk import replacing, storing
from sweep.text import encodable

MAGIC = b":W&B\xe1\xbe\x00"
BLOCK = 32768  # bytes; records are split at block ends, as in LevelDB's log format
_PART_HEADER = 7  # bytes before each part of a record: checksum, length and type
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_READABLE_FROM = "0.70.0"  # the version that wandb itself writes


def write_wandb_runs(sweep: SweepState, target: Path) -> int:
    """Write an offline W&B run for each trial into the folder ``target``, in place of the runs of an earlier export.

    Returns the number of all trials. Runs that would be identical and runs of other sweeps are left as they are. Sets
    the environment variable ``WANDB_ERROR_REPORTING`` in this process, unless it is set. Raises `StoreError` if the
    disk cannot be written, and `InputError` if wandb is not installed.
    """
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # must be set before the import
    records: Any = runs.import_extra("wandb.proto.wandb_internal_pb2", "wandb", "wandb")
    with storing(target):
        found = target.glob(f"offline-run-*-{sweep.identity}-*")
        # by run id: a folder's name is offline-run-TIME-ID
        earlier = {path.name.split("-", 3)[3]: path for path in found}
    count = 0
    for run in sweep.runs():
        identity = make_run_id(sweep, run.trial.trial)
        began = datetime.fromtimestamp(run.started, UTC)
        made = []
        for record in _make_records(records, sweep, run, identity):
            made.append(record.SerializeToString(deterministic=True))
        path = target / f"offline-run-{began:%Y%m%d_%H%M%S}-{identity}" / f"run-{identity}.wandb"
        _write_run(path, frame_records(made), earlier.get(identity))
        count += 1
    return count


def _write_run(path: Path, content: bytes, earlier: Path | None) -> None:
    """Write ``content`` to the file ``path`` of one run, in a new folder, after removing the folder ``earlier``.

    ``earlier`` is the folder of the same run in a former export, or None. If ``path`` exists with the same content,
    nothing is changed, so that W&B's mark of a synced run is kept. Raises `StoreError` if the disk cannot be written,
    or if the folder of ``path`` exists and is not ``earlier``.
    """
    with storing(path):
        if path.is_file() and path.read_bytes() == content:
            return
        if earlier is not None:
            shutil.rmtree(earlier)
        (path.parent / "files").mkdir(parents=True)
    with replacing(path) as aside:
        aside.write_bytes(content)


def make_run_id(sweep: SweepState, trial: int) -> str:
    """Return the W&B id of the run of the trial number ``trial``, which is the same in every export of the sweep."""
    return f"{sweep.identity}-{trial:05d}"


def frame_records(records: Iterable[bytes]) -> bytes:
    """Return records, which are encoded already, as the content of a W&B file, with the file's header.

    A record that crosses the end of a block of 32 KiB is split there. Each part has its length, type and checksum.
    """
    content = bytearray(MAGIC)
    for record in records:
        rest = memoryview(record)
        is_first = True
        while is_first or rest:  # even an empty record has one part
            room = BLOCK - len(content) % BLOCK
            if room < _PART_HEADER:  # the rest of the block is filled with zeros
                content += bytes(room)
                room = BLOCK
            part = rest[: room - _PART_HEADER]
            rest = rest[room - _PART_HEADER :]
            kind = _part_kind(is_first=is_first, is_last=not rest)
            checksum = zlib.crc32(part, zlib.crc32(bytes([kind])))
            content += struct.pack("<IHB", checksum, len(part), kind)
            content += part
            is_first = False
    return bytes(content)


def _part_kind(*, is_first: bool, is_last: bool) -> int:
    if is_first:
        return _WHOLE if is_last else _FIRST
    return _LAST if is_last else _MIDDLE


def _make_records(
    known: Any, sweep: SweepState, run: ExportedTrial, identity: str
) -> Iterator[Any]:
    """Yield the records that wandb itself would write for a run, numbered from 1.

    They are the header, the run, one of the history for each epoch, the summary and, if the trial has ended other than
    by an interruption, the exit. ``known`` is wandb's module of record types, ``identity`` the id of the run.
    """
    number = 0

    # makes the next record, with a content such as ``header=...``
    def numbered(**content: Any) -> Any:
        nonlocal number
        number += 1
        return known.Record(num=number, **content)

    version = known.VersionInfo(producer=metadata.version("wandb"), min_consumer=_READABLE_FROM)
    yield numbered(header=known.HeaderRecord(version_info=version))
    yield numbered(run=_make_run_record(known, sweep, run, identity))
    for epoch in run.epochs:
        row = {
            **epoch.scalars,
            "_step": epoch.number,
            "_timestamp": epoch.time,
            "_runtime": epoch.time - run.started,
        }
        items = []
        for name, value in row.items():
            items.append(
                known.HistoryItem(nested_key=[encodable(name)], value_json=_encode_json(value))
            )
        yield numbered(
            history=known.HistoryRecord(item=items, step=known.HistoryStep(num=epoch.number))
        )
    # a trial that has not ended counts up to its last epoch
    if run.ended is not None:
        until = run.ended
    elif run.epochs:
        until = run.epochs[-1].time
    else:
        until = run.started
    lasted_s = until - run.started
    summary = {**_summarize_run(run), "_runtime": lasted_s, "_wandb": {"runtime": int(lasted_s)}}
    items = [
        known.SummaryItem(key=encodable(name), value_json=_encode_json(value))
        for name, value in summary.items()
    ]
    yield numbered(summary=known.SummaryRecord(update=items))
    # a run without an exit is one that has not ended
    if run.ended is not None and run.trial.status is not Status.INTERRUPTED:
        exit_code = 1 if run.trial.status in LOST else 0
        yield numbered(exit=known.RunExitRecord(exit_code=exit_code, runtime=int(lasted_s)))


def _make_run_record(known: Any, sweep: SweepState, run: ExportedTrial, identity: str) -> Any:
    """Return the record that describes a run: its project, group and name, its config, tags and notes, and its start.

    The arguments are those of `_make_records`. The project and the group have the name of the sweep.
    """
    trial = run.trial
    config = []
    for name, value in _make_config(sweep, run).items():
        config.append(known.ConfigItem(key=encodable(name), value_json=_encode_json(value)))
    record = known.RunRecord(
        run_id=identity,
        project=_make_project_name(sweep.name),
        config=known.ConfigRecord(update=config),
        run_group=encodable(sweep.name)[:128],
        job_type="trial",
        display_name=f"{encodable(sweep.name)[:100]}-{trial.trial:05d}",
        notes=encodable("; ".join(text for text in (trial.note, trial.status_reason) if text)),
        tags=[trial.status.value, f"repeat-{trial.repeat}"],
        host=encodable(str(run.facts.get("node", ""))),
    )
    record.start_time.FromMicroseconds(int(run.started * 1e6))
    match sweep.info.provenance:
        case {"git": {"commit": str(commit)}}:
            record.git.commit = commit
    return record


def _summarize_run(run: ExportedTrial) -> dict[str, object]:
    """Return W&B's summary of a run.

    It has the last known value of each scalar, the best value of each metric as ``best/NAME``, those on the test data
    as ``test/NAME``, and facts such as the trial's node as ``trial/NAME``. It also has ``_step`` and ``_timestamp`` of
    the last epoch, if there is one, and ``status``, ``reason`` and ``epochs``, even if a metric has such a name.
    """
    last: dict[str, object] = {}
    for epoch in run.epochs:
        last |= {**epoch.scalars, "_step": epoch.number, "_timestamp": epoch.time}
    best = {}
    for name, value in run.trial.best.items():
        best[f"best/{name}"] = value
    tested = {}
    for name, value in run.trial.tested.items():
        tested[f"test/{name}"] = value
    outcome = {
        "status": run.trial.status.value,
        "reason": run.trial.status_reason,
        "epochs": run.trial.epochs,
    }
    facts = {}
    for name, fact in run.facts.items():
        facts[f"trial/{name}"] = fact
    return {**last, **best, **tested, **outcome, **facts}


def _make_config(sweep: SweepState, run: ExportedTrial) -> dict[str, object]:
    """Return W&B's config of a run: the parameters, and under the key ``sweep`` a dictionary of facts about the trial.

    The key of these facts is ``sweep_trial`` if a parameter is named ``sweep``.
    """
    trial = run.trial
    own: Mapping[str, object] = {
        "name": sweep.name,
        "trial": trial.trial,
        "trial_id": trial.trial_id,
        "role": trial.role.value,
        "repeat": trial.repeat,
        **({} if trial.fold is None else {"fold": trial.fold}),
        "seed": trial.seed,
        "objectives": [{"name": name, "goal": goal} for name, goal in sweep.sweep.objectives],
        "provenance": sweep.info.provenance or None,
    }
    if "sweep" in run.params:
        key = "sweep_trial"
    else:
        key = "sweep"
    return {**run.params, key: own}


def _make_project_name(name: str) -> str:
    """Return a valid name of a project: at most 128 characters of ``name``, with / \\ # ? % : replaced by ``_``."""
    return re.sub(r"[/\\#?%:]", "_", encodable(name))[:128]


def _encode_json(value: object) -> str:
    """Return JSON in which NaN and infinities are the texts "NaN", "Infinity" and "-Infinity", as W&B writes them.

    That is so in lists and dictionaries as well. Raises TypeError for values that JSON does not have.
    """
    return json.dumps(_replace_not_finite(value), allow_nan=False)


def _replace_not_finite(value: object) -> object:
    """Return a value with texts in place of NaN and infinities, as `_encode_json` says; ``value`` is not changed."""
    match value:
        case float() if not math.isfinite(value):
            if math.isnan(value):
                return "NaN"
            return "Infinity" if value > 0 else "-Infinity"
        case list():
            return [_replace_not_finite(item) for item in value]
        case dict():
            return {name: _replace_not_finite(item) for name, item in value.items()}
    return value
