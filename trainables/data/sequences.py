"""Sequences of different lengths, for an author's `data`: sorted into buckets and padded to each bucket's length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trainables.data.sources import Buckets, DataError

ROUNDED_TO = 8  # lengths that are chosen are multiples of this


def buckets(
    x: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    lengths: Sequence[int] | None = None,
    count: int = 4,
    padding: float = 0,
    y_padding: float | None = None,
) -> Buckets:
    """Return sequences and their targets in buckets, padded at their ends to the shortest of ``lengths`` that fits.

    ``x``: rows of different lengths (a list of lists or arrays, an array of objects, a `tf.RaggedTensor`), each of
    shape (length, ...), or a dict of such rows and of arrays; the longest of an example's rows counts. ``padding``
    fills x. ``y`` and ``sample_weight``: arrays, or rows with one entry per element of the sequence. Such rows of ``y``
    are padded with ``y_padding``, which must then be given, and those of ``sample_weight`` with 0. If ``lengths`` is
    None, at most ``count`` lengths are chosen that hold about equally many examples, rounded up to multiples of 8.
    Buckets are sorted by length; empty ones are left out. Within a bucket, examples keep their order. Padded integers
    become int32, or int64 if one of them does not fit into int32; padded floats become float32.
    Raises: DataError: if rows, targets and lengths do not fit together, such as a row longer than all ``lengths``, if
    the inputs of a dict have different numbers of rows, if ``x`` has only plain arrays, which need no buckets, if
    there are no rows, if rows are texts or differ in other axes than the first, if an integer of a row does not fit
    into int64, or if a length or ``count`` is below 1.

    The model must accept any length, ``keras.Input((None,))``, and mask the padding: ``Embedding(mask_zero=True)`` or
    ``Masking()``.
    """
    inputs = _convert_inputs(x)
    ragged = {name: rows for name, rows in inputs.items() if isinstance(rows, list)}
    if not ragged:
        raise DataError(
            "rows of one length, expected a list of sequences; hand over arrays as they are"
        )
    # for each example, the number of elements of its longest row
    sizes = np.array([_measure_rows(rows) for rows in ragged.values()]).max(axis=0)
    # rows and padding of the targets and, if there are any, of the weights
    others: dict[str, tuple[Any, float | None]] = {"targets": (_convert_rows(y), y_padding)}
    if sample_weight is not None:
        others["weights"] = (_convert_rows(sample_weight), 0)
    for name, (rows, fill) in others.items():
        _check_rows_fit(name, rows, fill, sizes)
    bounds = _choose_bucket_lengths(sizes, lengths, count)
    # for each example, the bucket of the shortest length that fits
    bucket_of_example = np.searchsorted(bounds, sizes)
    if (bucket_of_example == len(bounds)).any():
        row = int(np.argmax(sizes))
        raise DataError(
            f"row {row} has {sizes[row]} elements, the longest bucket {bounds[-1]}; add a length, or cut rows"
        )
    made = []
    for bucket, length in enumerate(bounds):
        chosen = np.flatnonzero(bucket_of_example == bucket)
        if not len(chosen):  # no sequence has this length: the bucket is left out
            continue
        padded_inputs = {
            name: _pad_rows(rows, chosen, int(length), padding) for name, rows in inputs.items()
        }
        padded_others = [
            _pad_rows(rows, chosen, int(length), fill or 0) for rows, fill in others.values()
        ]
        # "" is the name of a single input
        bucket_x = padded_inputs if isinstance(x, Mapping) else padded_inputs[""]
        made.append((bucket_x, *padded_others))
    return Buckets(tuple(made))


def _check_rows_fit(name: str, rows: Any, fill: float | None, sizes: np.ndarray[Any, Any]) -> None:
    """Raise DataError unless targets or weights fit the sequences, which have ``sizes`` elements.

    There must be as many rows as sequences. A list of rows (see `_convert_rows`) also needs a padding ``fill``, and
    each row as many entries as its sequence has elements. ``name`` is "targets" or "weights", for the message.
    """
    if len(rows) != len(sizes):
        raise DataError(f"{len(sizes)} sequences and {len(rows)} {name}, expected as many")
    if not isinstance(rows, list):
        return
    if fill is None:
        raise DataError(
            "targets of different lengths without a padding; say y_padding, the label that does not count: the "
            "loss's ignore_class, or any where the model masks what was padded"
        )
    wrong = next((i for i, row in enumerate(rows) if len(row) != sizes[i]), None)
    if wrong is not None:
        raise DataError(
            f"{name} of row {wrong} are {len(rows[wrong])}, its sequence has {sizes[wrong]} elements"
        )


def _choose_bucket_lengths(
    sizes: np.ndarray[Any, Any], lengths: Sequence[int] | None, count: int
) -> np.ndarray[Any, Any]:
    """Return the lengths of buckets in ascending order, without repeats.

    They are ``lengths``, or if these are None at most ``count`` multiples of 8 that divide ``sizes``, the numbers of
    elements of the examples, into parts of about equal size; the last one is at least the largest size.
    Raises DataError if ``lengths`` is empty, or one of them or ``count`` is below 1.
    """
    if lengths is not None:
        if not lengths or min(lengths) < 1:
            raise DataError(f"bucket lengths {list(lengths)}, expected numbers from 1")
        return np.unique(lengths)
    if count < 1:
        raise DataError(f"{count} buckets, expected at least one")
    quantiles = np.quantile(sizes, np.arange(1, count + 1) / count, method="higher")
    # at least 1, even if sequences are empty
    multiples = np.maximum(-(-quantiles // ROUNDED_TO), 1)
    return np.unique(multiples * ROUNDED_TO).astype(int)


def _convert_inputs(x: Any) -> dict[str, Any]:
    """Return the rows of each input by name; a single input has the name "".

    Raises: DataError: if inputs have different numbers of rows.
    """
    if isinstance(x, Mapping):
        inputs = {name: _convert_rows(rows) for name, rows in x.items()}
        counts = {name: len(rows) for name, rows in inputs.items()}
        if len(set(counts.values())) > 1:
            raise DataError(f"inputs with different numbers of rows: {counts}")
        return inputs
    return {"": _convert_rows(x)}


def _measure_rows(rows: list[Any]) -> list[int]:
    """Return the number of elements of each row."""
    return [len(row) for row in rows]


def _convert_rows(sequences: Any) -> Any:
    """Return a list of arrays of one type if rows may differ in length, else an array with one row per example.

    Arrays of a plain type, which are not checked, and lists of single values give an array. All else gives a list, in
    the type that `_choose_dtype` finds, such as a list of lists, an array of Python objects or a Series of lists.
    Raises: DataError: if a list has no rows, its rows differ in other axes than the first, or they hold Python objects,
    texts, or integers that do not fit into int64.
    """
    if hasattr(sequences, "numpy"):
        sequences = sequences.numpy()  # a ragged tensor becomes an array of arrays
    elif hasattr(sequences, "to_numpy"):
        sequences = sequences.to_numpy()
    if isinstance(sequences, np.ndarray) and not sequences.dtype.hasobject:
        return sequences
    try:
        rows = [np.asarray(row) for row in sequences]
    except ValueError as error:  # a row is a list of lists of different lengths
        raise DataError(
            f"rows that are no arrays ({error}), expected ones that differ in their first axis alone"
        ) from error
    if not rows:
        raise DataError("no rows, expected at least one")
    if all(row.ndim == 0 for row in rows):
        return np.asarray(sequences)
    _check_rows(rows)
    dtype = _choose_dtype(rows)
    return [row.astype(dtype, copy=False) for row in rows]


def _check_rows(rows: Sequence[np.ndarray[Any, Any]]) -> None:
    """Raise DataError if rows differ in other axes than the first, or hold Python objects or texts."""
    inner = set()  # number of axes, and sizes of all axes but the first
    for row in rows:
        if row.size:  # an empty list tells nothing about the other axes
            inner.add((row.ndim, row.shape[1:]))
    if len(inner) > 1 or any(row.dtype.hasobject for row in rows):
        raise DataError(
            f"rows of shapes {sorted(inner)[:3]}, expected ones that differ in their first axis alone"
        )
    if any(row.dtype.kind in "SU" for row in rows):
        raise DataError(
            "rows of texts, expected numbers; map them with keras.layers.StringLookup or TextVectorization"
        )


def _choose_dtype(rows: Sequence[np.ndarray[Any, Any]]) -> np.dtype[Any]:
    """Return the dtype of the padded array of ``rows`` of numbers; empty rows do not count.

    It is float32 if there are floats, bool if all are booleans, and int32 if there are only empty rows. Integers, also
    with booleans among them, become int32 or int64, see `_choose_integer_dtype`.
    Raises: DataError: if an integer does not fit into int64, and no row has floats.
    """
    dtypes = {row.dtype for row in rows if row.size}  # NumPy makes an empty list float64
    if not dtypes:
        return np.dtype(np.int32)
    # NumPy would make int64 and uint64 together float64
    if all(dtype.kind in "biu" for dtype in dtypes) and dtypes != {np.dtype(bool)}:
        return _choose_integer_dtype(rows, dtypes)
    common = np.result_type(*dtypes)
    if common.kind == "f":
        return np.dtype(np.float32)
    return common


def _choose_integer_dtype(
    rows: Sequence[np.ndarray[Any, Any]], dtypes: Iterable[np.dtype[Any]]
) -> np.dtype[Any]:
    """Return int32 if all integers of the rows fit into it, otherwise int64.

    ``dtypes`` are those of the rows that are not empty.
    Raises: DataError: if an integer does not fit into int64.
    """
    lowest = highest = 0
    for dtype in dtypes:
        if np.can_cast(dtype, np.int32):  # all numbers of this type fit
            continue
        numbers = np.concatenate([row.ravel() for row in rows if row.size and row.dtype == dtype])
        lowest = min(lowest, int(numbers.min()))
        highest = max(highest, int(numbers.max()))
    if highest > np.iinfo(np.int64).max:
        raise DataError(
            f"rows have the integer {highest}, which does not fit into int64; map the integers to smaller ones, such "
            "as with keras.layers.Hashing"
        )
    limits = np.iinfo(np.int32)
    if limits.min <= lowest and highest <= limits.max:
        return np.dtype(np.int32)
    return np.dtype(np.int64)


def _pad_rows(
    rows: Any, chosen: np.ndarray[Any, Any], length: int, value: float
) -> np.ndarray[Any, Any]:
    """Return the rows ``chosen`` as one array, those of a list padded at their ends to ``length`` with ``value``.

    The rows of an array have one length already, and are not padded.
    """
    if not isinstance(rows, list):  # an array of one row per example, which needs no padding
        return np.asarray(rows[chosen])
    # the shape of an element of a sequence; () if all sequences are empty
    inner = next((row.shape[1:] for row in rows if row.size), ())
    array = np.full((len(chosen), length, *inner), value, rows[0].dtype)
    for target, row in zip(array, chosen, strict=True):
        target[: len(rows[row])] = rows[row]
    return array
