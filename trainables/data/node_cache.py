"""Data loaded once per node and mapped by all of its workers, which hold no copy each.

The first worker that comes runs the load and writes the arrays as .npy files into a folder of the node; all
workers map these copy-on-write, so that the pages are one set of page cache and nobody changes them for others.
The folder's owner removes it when the sweep is over; a map outlives its file's name.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters, Reads, from_json, to_json
from trainables.data.sources import Buckets, DataError, Rows

Loaded: TypeAlias = tuple[Any, Any]
"""Training data and validation data or None, as a trainable's ``data`` returns them."""


def shared(
    folder: Path | None, hp: Hyperparameters, load: Callable[[], Loaded], left: Callable[[], object] = lambda: None
) -> tuple[Loaded, Reads]:
    """``load()``, done once for all workers with the same folder whose trials agree on what it read, and its reads.

    The folder belongs to one run of one sweep, so that code and files stay the same; None: do not share.
    Streams and an author's own memory maps pass through, and so does what comes with something ``left`` elsewhere
    (attributes of the trainable), which other workers would miss: each worker loads for itself. Raises what ``load``
    raises, and DataError where the folder's disk is too small.
    """
    if folder is None:
        return _settled(*_recorded(hp, load))
    found = _find(folder, hp)
    if found is None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            found = _find(folder, hp)
            if found is None:
                loaded, reads = _recorded(hp, load)
                shareable = not left() and _shareable(loaded)
                found = folder / f"data-{len(list(folder.glob('data-*')))}"
                _write_whole(loaded if shareable else None, reads, found)
                if not shareable:
                    return _settled(loaded, reads)
                del loaded
    structure, reads = _about(found)
    return _settled(*_recorded(hp, load)) if structure is None else (_mapped(structure, found), reads)


def written(arrays: Any) -> Any:
    """The same arrays, `Rows` among them read into maps of a file that vanishes with the process."""
    if not any(isinstance(leaf, Rows) for leaf in tf.nest.flatten(arrays)):
        return arrays
    with tempfile.TemporaryDirectory(prefix="rows-") as folder:
        names = (Path(folder) / f"{i}.npy" for i in range(len(tf.nest.flatten(arrays))))
        return tf.nest.map_structure(lambda leaf: _kept(leaf, next(names)) if isinstance(leaf, Rows) else leaf, arrays)


def _kept(rows: Rows, file: Path) -> Any:
    _need(file.parent, _nbytes(rows))
    _write(rows, file)
    return np.load(file, mmap_mode="c")


def _recorded(hp: Hyperparameters, load: Callable[[], Loaded]) -> tuple[Loaded, Reads]:
    reads: Reads = {}
    with hp.recording(reads):
        loaded = load()
    return loaded, reads


def _settled(loaded: Loaded, reads: Reads) -> tuple[Loaded, Reads]:
    return (written(loaded[0]), written(loaded[1])), reads


def _find(folder: Path, hp: Hyperparameters) -> Path | None:
    return next((home for home in sorted(folder.glob("data-*")) if hp.agree(_about(home)[1])), None)


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    # The kernel lets go of the lock of a process that dies.
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _shareable(data: Any) -> bool:
    """Whether writing it down helps (what an author has mapped is shared already) and gives the same structure."""
    if type(data) in (tuple, list, Buckets):
        return all(map(_shareable, data))
    if type(data) is dict:
        return all(map(_shareable, data.values()))
    in_memory = isinstance(data, np.ndarray) and not isinstance(data, np.memmap) and not data.dtype.hasobject
    return data is None or in_memory or isinstance(data, Rows)


def _write_whole(loaded: Any, reads: Reads, home: Path) -> None:
    """Write all leaves, their structure and what was read aside, then give the folder its name."""
    aside = home.with_name("part")
    shutil.rmtree(aside, ignore_errors=True)  # of a worker that died while it wrote
    aside.mkdir()
    try:
        leaves = [leaf for leaf in tf.nest.flatten(loaded) if leaf is not None]
        _need(aside, sum(map(_nbytes, leaves)))
        for i, leaf in enumerate(leaves):
            _write(leaf, aside / f"{i}.npy")
        structure = _described(loaded, iter(range(len(leaves))))
        about = {"structure": structure, "reads": to_json(reads)}
        (aside / "about.json").write_text(json.dumps(about))
        aside.rename(home)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _about(home: Path) -> tuple[Any, Reads]:
    """The structure, None for what is not shared, and what was read to load it."""
    about = json.loads((home / "about.json").read_text())
    return about["structure"], from_json(about["reads"])


def _write(leaf: Any, file: Path) -> None:
    """One array as .npy, whose payload begins at a multiple of 64 bytes; rows in order, a block at a time."""
    if not isinstance(leaf, Rows):
        np.save(file, np.ascontiguousarray(leaf), allow_pickle=False)
        return
    target = np.lib.format.open_memmap(file, "w+", leaf.dtype, leaf.shape)
    with file.open("r+b") as handle:  # on a disk that fills up, writing to a map would kill the process
        os.posix_fallocate(handle.fileno(), 0, file.stat().st_size)
    done = 0
    for block in leaf.blocks():
        target[done : done + len(block)] = block
        done += len(block)
    if done != len(leaf):
        raise DataError(f"{done} rows were read, expected {len(leaf)}")
    target.flush()


def _need(folder: Path, nbytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if nbytes > free:
        raise DataError(
            f"the data takes {nbytes / 2**30:.1f} GiB, {folder} has {free / 2**30:.1f} GiB free; "
            "make room or set TMPDIR to a larger disk"
        )


def _nbytes(leaf: Any) -> int:
    return int(np.prod(leaf.shape, dtype=np.int64)) * int(leaf.dtype.itemsize)


def _described(data: Any, numbers: Iterator[int]) -> Any:
    """JSON of a nested structure, in the order in which it is flattened."""
    match data:
        case None:
            return None
        case dict() if all(isinstance(name, str) for name in data):
            found = {name: _described(data[name], numbers) for name in sorted(data)}
            return {"dict": {name: found[name] for name in data}}  # in the order that a model may go through it
        case dict():
            raise DataError(f"a dict with the keys {list(data)}, expected names")
        case list():
            return {"list": [_described(part, numbers) for part in data]}
        case Buckets():
            return {"buckets": _described(data.parts, numbers)}
        case tuple():
            return {"tuple": [_described(part, numbers) for part in data]}
        case _:
            return next(numbers)


def _mapped(part: Any, home: Path) -> Any:
    match part:
        case None:
            return None
        case int():
            return np.load(home / f"{part}.npy", mmap_mode="c")
        case {"dict": items}:
            return {name: _mapped(item, home) for name, item in items.items()}
        case {"buckets": parts}:
            return Buckets(_mapped(parts, home))
        case {"list": items}:
            return [_mapped(item, home) for item in items]
        case _:
            return tuple(_mapped(item, home) for item in part["tuple"])
