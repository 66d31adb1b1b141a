"""Whether what an author's `data` returned can be trained on, and what to do where it cannot."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from trainables.data import text
from trainables.data.sources import Buckets, DataError, Rows

MOST = 2**31 - 1  # examples, which are numbered in 32 bits
PADDING = (
    "where examples differ in length, pad them: trainables.data.sequences.buckets(rows, y), or in a dataset "
    "map(lambda x, y: (tf.pad(x, [[0, longest - tf.shape(x)[0]]]), y)), and mask with Embedding(mask_zero=True) or "
    "Masking()"
)


def parts(data: Any) -> tuple[Any, ...]:
    """What `data` returned: training, validation and perhaps test data. Raises DataError for anything else.

    The test data is not looked at; see `test_data`.
    """
    if type(data) is tuple and 2 <= len(data) <= 3 and not _are_inputs_and_targets(*data[:2]):
        return (*(_named(part, name) for part, name in zip(data, NAMES, strict=False)), *data[2:])
    kinds = [type(part).__name__ for part in data] if isinstance(data, tuple | list) else []
    what = f"a {type(data).__name__} of {len(kinds)} ({', '.join(kinds)})" if kinds else f"a {type(data).__name__}"
    raise DataError(f"data() returned {what}, {ORDER}")


NAMES = ("training", "validation")
ORDER = (
    "expected a tuple of two or three, in this order: training data, validation data or None, and if there are any "
    "test data; each of them is (x, y), (x, y, sample_weight), (x,) without targets, or another data set of "
    "docs/data.md, so that arrays are returned as (x_train, y_train), (x_validation, y_validation)"
)


def test_data(part: Any) -> Any:
    """The third part of what `data` returned. Raises DataError for what is no data set."""
    return _named(part, "test")


def _named(part: Any, name: str) -> Any:
    try:
        return examples(part)
    except DataError as error:
        raise DataError(f"{name} data: {error}") from error


def _are_inputs_and_targets(train: Any, validation: Any) -> bool:
    """Whether two bare arrays are no examples of one kind."""
    if not all(map(_is_array, (train, validation))):
        return False
    kinds = [(tuple(part.shape[1:]), getattr(part, "dtype", None)) for part in (train, validation)]
    return kinds[0] != kinds[1]


def _is_array(part: Any) -> bool:
    return isinstance(part, Rows) or (hasattr(part, "shape") and (hasattr(part, "dtype") or hasattr(part, "to_numpy")))


def examples(data: Any) -> Any:
    """A data set of arrays as (x,), (x, y) or (x, y, sample_weight); without targets also x alone, or (x, None).

    Any other data set as it is. Raises DataError for weights without targets.
    """
    if _is_array(data) or isinstance(data, dict):
        return (data,)
    if not isinstance(data, tuple) or isinstance(data, Buckets):
        return data
    if not 1 <= len(data) <= 3:
        raise DataError(f"a tuple of {len(data)}, expected (x, y), (x, y, sample_weight) or (x,)")
    if len(data) > 1 and data[1] is None:
        if len(data) > 2 and data[2] is not None:
            raise DataError("sample weights without targets, expected (x,), (x, y) or (x, y, sample_weight)")
        return (data[0],)
    return tuple(data[:2] if len(data) > 2 and data[2] is None else data)


def lack_targets(element: Any) -> bool:
    """Whether the elements of a dataset are x alone, or (x, None)."""
    if type(element) is not tuple:
        return isinstance(element, tf.TensorSpec | dict)
    return len(element) == 2 and isinstance(element[1], tf.NoneTensorSpec)


def arrays_of(arrays: Any) -> Any:
    """(x,), (x, y) or (x, y, sample_weight) as arrays of one length; texts as bytes. Raises DataError."""
    x, *others = arrays
    arrays = (
        tf.nest.map_structure(partial(_as_array, may_be_text=True), x),
        *(tf.nest.map_structure(_as_array, other) for other in others),
    )
    sizes = {int(leaf.shape[0]) for leaf in tf.nest.flatten(arrays)}
    if len(sizes) != 1 or not min(sizes):
        raise DataError(f"arrays of {sorted(sizes)} examples, expected one common number above 0")
    if max(sizes) > MOST:
        raise DataError(
            f"arrays of {max(sizes):,} examples, expected at most {MOST:,}; hand more over as a tf.data.Dataset, or as "
            "files.tfrecords"
        )
    return arrays


def _as_array(leaf: Any, *, may_be_text: bool = False) -> Any:
    """NumPy's arrays and what slices like them as they are; tensors and data frames by their own conversion."""
    if hasattr(leaf, "numpy") or hasattr(leaf, "to_numpy"):
        leaf = leaf.numpy() if hasattr(leaf, "numpy") else leaf.to_numpy()
    sliceable = all(hasattr(leaf, part) for part in ("shape", "dtype", "__getitem__"))
    if not (sliceable or isinstance(leaf, Rows)) or hasattr(leaf, "toarray"):  # that of a sparse matrix
        raise DataError(f"a {type(leaf).__name__} within it, expected arrays, or dicts and tuples of arrays")
    if not leaf.shape:
        raise DataError("an array without axes, expected one row an example")
    if text.is_text(leaf):
        if may_be_text:
            return text.as_bytes(leaf)
        raise DataError(
            "an array of texts as targets or weights, expected numbers; map labels to numbers in data(): names, y = "
            "np.unique(y, return_inverse=True), or keras.layers.StringLookup"
        )
    if leaf.dtype.hasobject:
        shape = tuple(leaf.shape)
        raise DataError(f"Python objects of shape {shape}, expected numbers; do the rows differ in shape? {PADDING}")
    return leaf


def specs(element: Any) -> None:
    """Raise DataError for a dataset whose elements are no examples."""
    if not isinstance(element, tuple) or not 1 <= len(element) <= 3:
        raise DataError(
            f"a dataset of {type(element).__name__} elements, expected x alone, (x, y) or (x, y, sample_weight)"
        )
    found = tf.nest.flatten(element)
    if not all(isinstance(spec, tf.TensorSpec) for spec in found):
        raise DataError(f"sparse or ragged tensors, expected dense ones of one shape; {PADDING}")
    if any(spec.dtype == tf.string for spec in tf.nest.flatten(element[1:])):
        raise DataError(
            "a dataset with texts as targets or weights, expected numbers; map them in data(): "
            "dataset.map(lambda x, y: (x, number(y))) with number = keras.layers.StringLookup(...)"
        )


def unknown(data: Any) -> str:
    """What is wrong with something that is no data set, in words."""
    kind = type(data)
    home = kind.__module__.partition(".")[0]
    if home == "torch":
        return (
            f"a {home} {kind.__name__}, whose batches and order are its own; expected examples: hand over its dataset "
            "as arrays (np.stack), or as a keras.utils.PyDataset that reads one batch of it for each index"
        )
    if home == "datasets":
        return (
            f"a {home}.{kind.__name__}, expected trainables.data.huggingface.columns(dataset, inputs=..., target=...)"
        )
    if hasattr(data, "__next__") or (hasattr(data, "__iter__") and not hasattr(data, "__len__")):
        return (
            f"a {kind.__name__}, which can be read once and in one order; expected arrays, or "
            "tf.data.Dataset.from_generator(function, output_signature=...), which calls the function for each epoch"
        )
    return f"{kind.__name__}, expected (x, y), (x, y, sample_weight), (x,) or a tf.data.Dataset of examples"
