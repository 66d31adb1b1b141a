"""Reader of a Hugging Face `datasets.Dataset`, for an author's `data`: its columns as inputs and targets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from trainables.data import sources
from trainables.data.sources import BlockArray, DataError

BLOCK_ROWS = 1024


def columns(
    dataset: Any, inputs: str | Sequence[str], target: str, sample_weight: str | None = None
) -> tuple[Any, ...]:
    """Return the columns of a `datasets.Dataset` as (x, y) or (x, y, sample_weight).

    ``inputs`` is one column, or a list of columns, which become a dict of arrays by name, also a list of one. Numbers,
    lists of equal length and images of equal size become `BlockArray`, read block by block and written to disk once.
    Texts are read at once, and become arrays of `bytes` objects in UTF-8.
    Raises: DataError: if a column is missing, the first row has a null or an object other than these, or ``dataset`` is
    empty, a stream, or a dict of splits. Later rows unlike the first raise it when they are read.
    """
    if not hasattr(dataset, "with_format") or not hasattr(dataset, "column_names"):
        raise DataError(f"a {type(dataset).__name__}, expected a datasets.Dataset")
    if isinstance(dataset, dict):  # a `DatasetDict`, as `load_dataset` returns it without a split
        raise DataError(
            f"a {type(dataset).__name__} with the splits {', '.join(dataset)}; expected one of them"
        )
    if not hasattr(dataset, "__len__"):
        raise DataError(
            f"a {type(dataset).__name__}, which is read as a stream; load it without streaming=True"
        )
    if not len(dataset):
        raise DataError("a dataset without a row, expected at least one")
    if isinstance(inputs, str):
        names = [inputs]
    else:
        names = list(inputs)
    wanted = [*names, target, *([sample_weight] if sample_weight else [])]
    missing = [name for name in wanted if name not in dataset.column_names]
    if missing:
        raise DataError(
            f"no column {', '.join(map(repr, missing))} in the dataset; it has: {', '.join(dataset.column_names)}"
        )
    by_name = {}
    for name in wanted:
        by_name[name] = _column(dataset.select_columns([name]), name)
    others = [by_name[name] for name in wanted[len(names) :]]
    if isinstance(inputs, str):
        return (by_name[inputs], *others)
    return ({name: by_name[name] for name in names}, *others)


def _column(dataset: Any, name: str) -> Any:
    """Return the column ``name`` as an array of texts, or as a `BlockArray` of which only the first row is read now."""
    first = _read_block(dataset, name, 0, 1)
    if sources.is_text(first):
        return np.concatenate(list(_blocks(dataset, name, first)))
    return BlockArray(
        (len(dataset), *first.shape[1:]), first.dtype, lambda: _blocks(dataset, name, first)
    )


def _blocks(dataset: Any, name: str, first: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the column ``name`` in blocks of 1024 rows; ``first`` is an array with its first row.

    Raises DataError if a block has another shape of rows or another type than the first row.
    """
    for start in range(0, len(dataset), BLOCK_ROWS):
        block = _read_block(dataset, name, start, start + BLOCK_ROWS)
        if block.shape[1:] != first.shape[1:] or block.dtype != first.dtype:
            raise DataError(
                f"column {name!r} has rows {start} to {start + len(block)} of shape {block.shape[1:]} and type "
                f"{block.dtype}, expected {first.shape[1:]} and {first.dtype} as in the first; are some missing?"
            )
        yield block


def _read_block(dataset: Any, name: str, start: int, stop: int) -> np.ndarray[Any, Any]:
    """Return rows ``start`` to ``stop`` (exclusive) of a column as an array, with texts as `bytes` objects.

    Raises DataError for nulls, lists of several lengths and objects that are neither numbers nor texts.
    """
    # As NumPy arrays, nulls of numbers could not be told from NaN.
    if dataset.with_format("arrow")[start:stop].column(name).null_count:
        raise DataError(
            f"column {name!r} has nulls in rows {start} to {min(stop, len(dataset))}, expected none"
        )
    block = np.asarray(dataset.with_format("numpy")[start:stop][name])
    if block.dtype.kind in "SUT" or sources.is_text(block):
        return sources.encode_texts(block)
    if block.dtype.hasobject:
        raise DataError(
            f"column {name!r} holds lists of several lengths, nulls or other objects; sort sequences into buckets: "
            f"trainables.data.sequences.buckets(dataset[{name!r}], y)"
        )
    return block
