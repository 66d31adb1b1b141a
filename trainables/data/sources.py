"""Types of data that a trainable's `data` may return: arrays, also of texts, rows that are read once, and streams.

Data that cannot be trained on is refused here, with advice on what to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables import tensorflow_private

SHUFFLE_BUFFER = 10_000
SHOWN = 100  # rows of a refused array that are inspected to find the reason
FETCHED = 128  # examples that are read at once by their positions


class DataError(Exception):
    """Raised if data that `data` returned, or a file that it names, cannot be used for training."""


@dataclass(frozen=True)
class BlockArray:
    """An array that is produced block by block, from files for example; before use it is written to disk and mapped."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    # yields the array in order, along the first axis
    blocks: Callable[[], Iterator[np.ndarray[Any, Any]]]

    def __len__(self) -> int:
        return self.shape[0]


class Buckets(NamedTuple):
    """Examples grouped by shape, such as sequences padded to one length; each batch comes from one group."""

    parts: tuple[Any, ...]  # each (x,), (x, y) or (x, y, sample_weight)


@dataclass(frozen=True)
class Extent:
    """The number of examples that a trial reads from a stream."""

    # largest number in all epochs together; None: whole passes, whose length must be known
    examples: int | None = None
    of_an_epoch: int | None = None
    stop_file: Path | None = None  # see `Assignment.stop_file`


ALL = Extent()


@dataclass(frozen=True)
class Stream:
    """Examples that can only be read sequentially.

    ``ordered(seed, number)`` is one pass over single examples, shuffled by (seed, number) as far as the source allows,
    or in the original order if the seed is None. ``size`` is None if the examples must be counted. The functions
    ``maps`` are applied to each example that is not skipped.
    ``places`` is optional: it gives the record numbers of the same pass, which ``fetched`` turns into examples, some at
    a time. With it, skipped examples are not even read.
    """

    ordered: Callable[[int | None, int], tf.data.Dataset]
    size: int | None = None
    # returns the same stream with a shuffle buffer of that size
    buffered: Callable[[int], Stream] | None = None
    maps: tuple[Callable[..., Any], ...] = ()
    places: Callable[[int | None, int], tf.data.Dataset] | None = None
    fetched: Callable[[tf.Tensor], tf.Tensor] | None = None
    order: str = ""  # see `Examples.order`
    endless: bool = False  # True if the stream is known to have no end

    def read(
        self,
        seed: int | None,
        number: int,
        skipped: int = 0,
        wanted: Callable[[tf.Tensor], tf.Tensor] | None = None,
    ) -> tf.data.Dataset:
        """Return the dataset of pass ``number`` without its first ``skipped`` examples.

        It is not shuffled if ``seed`` is None.
        ``wanted`` maps an example's position in the pass, which counts skipped ones, to whether the example is kept;
        both are scalar tensors. All are kept if it is None. The functions of `maps` are applied to the kept examples.
        """
        # Reading by record number is only of use if examples are left out.
        by_place = self.places is not None and wanted is not None
        if self.places and by_place:
            dataset = self.places(seed, number)
        else:
            dataset = self.ordered(seed, number)
        if skipped:
            dataset = dataset.skip(skipped)
        if wanted is not None:
            numbered = dataset.enumerate(skipped).filter(lambda place, _: wanted(place))
            dataset = numbered.map(lambda _, example: example)
        if self.fetched is not None and by_place:
            dataset = dataset.batch(FETCHED).map(self.fetched).unbatch()
        # last, so that examples that are not wanted are not even decoded
        for function in self.maps:
            dataset = dataset.map(function, tf.data.AUTOTUNE, deterministic=True)
        return dataset

    def map(self, function: Callable[..., Any]) -> Stream:
        """Return a copy of the stream with ``function(x, y, ...)`` applied to each example as it is read.

        The copy applies it after the functions that the stream has, also if it gets another shuffle buffer.
        """
        maps = (*self.maps, function)
        buffered = self.buffered
        if buffered is None:
            return replace(self, maps=maps)
        return replace(self, buffered=lambda buffer: buffered(buffer).map(function), maps=maps)


@dataclass(frozen=True)
class Visits:
    """The order in which a trial visits its training examples: shuffled or not, and with which shuffle buffer."""

    shuffle: bool = True  # False: each pass keeps the original order
    buffer: int | None = None  # size of a stream's shuffle buffer; None: the stream's own size

    @classmethod
    def of(cls, hp: Hyperparameters) -> Visits:
        """Return the order that the hyperparameters ``shuffle`` (True if missing) and ``shuffle_buffer`` ask for.

        Raises: TypeError: if ``shuffle`` is not a bool, or ``shuffle_buffer`` not a whole number. ValueError: if
        ``shuffle_buffer`` is out of bounds, or is set while ``shuffle`` is false.
        """
        shuffle = hp.flag("shuffle", default=True)
        if "shuffle_buffer" not in hp:
            return cls(shuffle)
        buffer = hp.integer("shuffle_buffer", standard=True)
        if not shuffle:
            raise ValueError(
                "shuffle is false and there is a shuffle_buffer, which would have no effect; leave out one"
            )
        return cls(shuffle, buffer)


def from_dataset(dataset: tf.data.Dataset, buffer: int = SHUFFLE_BUFFER) -> Stream:
    """Return a `tf.data.Dataset` of single examples as a stream; a pass shuffles it in a buffer of ``buffer`` examples.

    Passes without a seed are not shuffled. The dataset may be endless. If it tells its size, the stream has this size.
    Raises: DataError: if its elements are batches, or could be: each of their tensors has a first axis of unknown
    length, and the pipeline has operations that may make batches. For the message, the first element is read.
    """
    size = int(dataset.cardinality())
    # A first axis of unknown length is that of a batch, or of sequences that differ in length.
    if _is_batched(dataset) or (_has_unknown_lengths(dataset) and not _is_of_examples(dataset)):
        raise DataError(_describe_unbatching(dataset))
    endless = size == tf.data.INFINITE_CARDINALITY
    if endless or size == tf.data.UNKNOWN_CARDINALITY:
        known = None
    else:
        known = size

    def ordered(seed: int | None, number: int) -> tf.data.Dataset:
        if seed is None:
            return dataset
        # An empty dataset, of size 0, needs a buffer as well: 0 is no valid size of one.
        return shuffle_dataset(dataset, min(known or buffer, buffer), mix_seeds(seed, number))

    return Stream(ordered, known, lambda buffer: from_dataset(dataset, buffer), endless=endless)


def _has_unknown_lengths(dataset: tf.data.Dataset) -> bool:
    """Return whether all dense tensors of an element have a first axis of unknown length, as batches have.

    False if there are no dense tensors, or if one has no axes or an unknown number of axes.
    """
    specs = []
    for spec in tf.nest.flatten(dataset.element_spec):
        if isinstance(spec, tf.TensorSpec):
            specs.append(spec)
    return bool(specs) and all(spec.shape.rank and spec.shape[0] is None for spec in specs)


def _is_of_examples(dataset: tf.data.Dataset) -> bool:
    """Return whether the elements of a dataset are certainly single examples.

    This is certain if no step of the pipeline could have made batches: no `batch`, no Python function and no inner
    dataset. It is not certain for a pipeline that undoes its batches.
    """
    kind = type(dataset).__name__.lower()
    if any(
        name in kind
        for name in ("batch", "flatmap", "interleave", "generator", "window", "numpy_function")
    ):
        return False
    return all(map(_is_of_examples, tensorflow_private.dataset_inputs(dataset)))


def _describe_unbatching(dataset: tf.data.Dataset) -> str:
    """Return an error message about a dataset whose elements are batches or could be; reads the first element."""
    what = "a dataset of batches, expected single examples; leave out batch(), batch_size cuts them"
    first = next(iter(dataset.take(1)), None)
    # no shapes to show, or certainly not those of one example
    if first is None or _is_batched(dataset):
        return what
    shapes = ", ".join(str(tuple(leaf.shape)) for leaf in tf.nest.flatten(first))
    return (
        f"{what}. Where {shapes}, of the first element, are the shapes of one example, say so: "
        "dataset.map(lambda x, y: (tf.ensure_shape(x, [...]), tf.ensure_shape(y, [...])))"
    )


def _is_batched(dataset: tf.data.Dataset) -> bool:
    """Return whether the pipeline shows that a dataset's elements are batches, made by `batch` and not unbatched.

    The steps are followed from the last one back to a `batch`, but not beyond a step that may change what an element
    is, such as `unbatch` or `flat_map`; False then.
    """
    # Steps whose elements are batches if those of their input are.
    keeping = (
        "prefetch",
        "cache",
        "map",
        "take",
        "skip",
        "shuffle",
        "options",
        "repeat",
        "filter",
        "shard",
    )
    step = dataset
    while True:
        kind = type(step).__name__.lower()
        if "batchdataset" in kind and "unbatch" not in kind:
            return True
        if "flatmap" in kind or not any(name in kind for name in keeping):
            return False
        inputs = tensorflow_private.dataset_inputs(step)
        if len(inputs) != 1:
            return False
        step = inputs[0]


_WITHOUT_GLOBAL_SEED = 87654321  # what `Dataset.shuffle` uses where TensorFlow has no global seed
_SEEDS = 2**31 - 1  # number of seeds that `Dataset.shuffle` tells apart


def shuffle_dataset(dataset: tf.data.Dataset, buffer: int, seed: int) -> tf.data.Dataset:
    """Return a dataset shuffled as by `Dataset.shuffle`, but with an order that depends on ``seed`` alone.

    The order is the same each time the result is iterated. ``buffer`` is the number of elements among which the next
    one is drawn, at least 1. `Dataset.shuffle` mixes in TensorFlow's global seed. Any code may have set it in this
    process (`keras.utils.set_random_seed`) and not in another one, so two ranks or workers would train in different
    orders.
    """
    output_types = []
    output_shapes = []
    for spec in tf.nest.flatten(dataset.element_spec):
        # others, such as ragged tensors, are variants within a dataset
        is_plain = isinstance(spec, tf.TensorSpec)
        output_types.append(spec.dtype if is_plain else tf.variant)
        output_shapes.append(spec.shape if is_plain else None)
    variant = tf.raw_ops.ShuffleDatasetV3(
        input_dataset=tf.data.experimental.to_variant(dataset),
        buffer_size=tf.constant(buffer, tf.int64),
        seed=tf.constant(_WITHOUT_GLOBAL_SEED, tf.int64),
        seed2=tf.constant(seed % _SEEDS, tf.int64),
        seed_generator=tf.raw_ops.DummySeedGenerator(),
        output_types=output_types,
        output_shapes=output_shapes,
    )
    return tf.data.experimental.from_variant(variant, dataset.element_spec)


def mix_seeds(seed: int, number: int) -> int:
    """Return one seed of 32 bits derived from both numbers, which must not be negative and whose order matters."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1)[0])


def permutation(
    size: int, seed: int | None, number: int
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Return the order in which pass ``number`` visits ``size`` examples: their positions, from 0.

    The order is random, but the same on every machine for the same arguments. It is ascending if ``seed`` is None.
    """
    if seed is None:
        return np.arange(size, dtype=np.int32)
    return (
        np.random.Generator(np.random.Philox(mix_seeds(seed, number)))
        .permutation(size)
        .astype(np.int32)
    )


def is_text(leaf: Any) -> bool:
    """Return whether an array holds texts, `str` or `bytes`.

    Of an array of Python objects, only the first one is tested; an empty one gives False.
    """
    if leaf.dtype.kind in "SUT":
        return True
    if not leaf.dtype.hasobject or not len(leaf):
        return False
    flat = np.asarray(leaf[:1]).reshape(-1)
    return bool(flat.size) and isinstance(flat[0], str | bytes)


def is_one_hot(rows: Any) -> bool:
    """Return whether each row along the last axis has a single 1 and otherwise 0; True if there are no rows.

    False for an array with fewer than two axes or fewer than two columns.
    """
    if rows.ndim < 2 or rows.shape[-1] < 2:
        return False
    has_only_0_and_1 = ((rows == 0) | (rows == 1)).all()
    return bool(has_only_0_and_1 and (rows.sum(-1) == 1).all())


def encode_texts(leaf: Any) -> np.ndarray[Any, Any]:
    """Return an array of `str` or `bytes` as an array of the same shape that holds UTF-8 `bytes` objects.

    Raises: DataError: if a value is neither.
    """
    array = np.asarray(leaf)
    encoded = np.empty(array.size, object)
    for i, text in enumerate(array.reshape(-1)):
        if not isinstance(text, str | bytes):
            row = i // int(np.prod(array.shape[1:]))
            raise DataError(
                f"{text!r} ({type(text).__name__}) in row {row} of an array of texts, expected a text"
            )
        if isinstance(text, str):
            encoded[i] = text.encode()
        else:
            encoded[i] = bytes(text)  # also of NumPy's own type, which an array of type "S" gives
    return encoded.reshape(array.shape)


def convert_texts(array: Any) -> Any:
    """Return an array of texts (see `is_text`) as a tensor of strings on the CPU; return other arrays unchanged."""
    if not is_text(array):
        return array
    with tf.device("/cpu:0"):
        return tf.constant(array)


def list_content(array: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Return arrays of numbers with the whole content of an array, for a digest.

    The result has only the array itself, or for an array of `bytes` objects their lengths and their joined bytes. Other
    Python objects are not supported.
    """
    if not array.dtype.hasobject:
        return [array]
    texts = list(array.reshape(-1))
    # With the lengths, ("ab", "c") differs from ("a", "bc").
    lengths = np.array(list(map(len, texts)), np.int64)
    return [lengths, np.frombuffer(b"".join(texts), np.uint8)]


MOST = 2**31 - 1  # examples, because their numbers have 32 bits
PADDING = (
    "where examples differ in length, pad them: trainables.data.sequences.buckets(rows, y), or in a dataset "
    "map(lambda x, y: (tf.pad(x, [[0, longest - tf.shape(x)[0]]]), y)), and mask with Embedding(mask_zero=True) or "
    "Masking()"
)


def split_returned(data: Any) -> tuple[Any, ...]:
    """Return (training, validation) or (training, validation, test) from the result of `data`; validation may be None.

    The first two are prepared by `normalize_examples`, and if they are arrays or buckets, floats are cast to float32
    (see `_cast_floats`). The test data is returned as it is, see `check_test_data`.
    Raises: DataError: if the result is not a tuple of two or three data sets, looks like the (x, y) of one data set
    (see `_are_inputs_and_targets`), or `normalize_examples` refuses the training or validation data.
    """
    # `type`, not `isinstance`: `Buckets` is a tuple as well, but one data set.
    is_tuple_of_parts = type(data) is tuple and len(data) in (2, 3)
    if is_tuple_of_parts and not _are_inputs_and_targets(data[0], data[1]):
        training = _convert_part(data[0], NAMES[0])
        validation = _convert_part(data[1], NAMES[1])
        return (training, validation, *data[2:])
    what = f"a {type(data).__name__}"
    if isinstance(data, tuple | list) and len(data):
        kinds = ", ".join(type(part).__name__ for part in data)
        what = f"{what} of {len(data)} ({kinds})"
    raise DataError(f"data() returned {what}, {ORDER}")


NAMES = ("training", "validation")
ORDER = (
    "expected a tuple of two or three, in this order: training data, validation data or None, and if there are any "
    "test data; each of them is (x, y), (x, y, sample_weight), (x,) without targets, or another data set of "
    "docs/data.md, so that arrays are returned as (x_train, y_train), (x_validation, y_validation)"
)


def check_test_data(part: Any) -> Any:
    """Return test data, the third part of the result of `data`, prepared as `split_returned` prepares the others.

    Raises: DataError: if it is a tuple that is not (x,), (x, y) or (x, y, sample_weight), or has weights but no
    targets.
    """
    return _convert_part(part, "test")


def _convert_part(part: Any, name: str) -> Any:
    """Return one data set as `split_returned` describes it; ``name`` is put in front of messages of DataError."""
    try:
        examples = normalize_examples(part)
    except DataError as error:
        raise DataError(f"{name} data: {error}") from error
    # a tuple of arrays, or `Buckets` of them; datasets keep their types, as in Keras
    if isinstance(examples, tuple):
        return tf.nest.map_structure(_cast_floats, examples)
    return examples


def _cast_floats(leaf: Any) -> Any:
    """Return an array of floats as float32, as Keras's `fit` does with NumPy's float64; everything else unchanged.

    Tensors of other floats than float32 become arrays of float32. Data frames become arrays, whatever their types. A
    `BlockArray` gets the dtype float32. An author's own memory maps are shared as they are, without a copy.
    """
    if isinstance(leaf, BlockArray):
        return replace(leaf, dtype=_FLOAT) if _is_other_float(leaf.dtype) else leaf
    if isinstance(leaf, np.memmap):
        return leaf
    if not hasattr(leaf, "numpy") and hasattr(leaf, "to_numpy"):
        leaf = leaf.to_numpy()  # a data frame, which becomes an array in any case
    # a tensor is only converted if it is cast
    array = leaf.numpy() if hasattr(leaf, "numpy") else leaf
    if isinstance(array, np.ndarray) and _is_other_float(array.dtype):
        return array.astype(_FLOAT)
    return leaf


_FLOAT = np.dtype(np.float32)


def _is_other_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is that of floats, such as float64 and bfloat16, but not float32."""
    return dtype != _FLOAT and "float" in dtype.name


def _are_inputs_and_targets(train: Any, validation: Any) -> bool:
    """Return whether ``train`` and ``validation`` are probably the inputs and targets of one data set.

    This is probable for two bare arrays (not in tuples or dicts) with different types or shapes of a row.
    """
    if not all(map(_is_array, (train, validation))):
        return False
    kinds = []
    for part in (train, validation):
        kinds.append((tuple(part.shape[1:]), getattr(part, "dtype", None)))
    return kinds[0] != kinds[1]


def _is_array(part: Any) -> bool:
    """Return whether an object is a `BlockArray`, or has a shape and a type, as arrays and data frames have."""
    return isinstance(part, BlockArray) or (
        hasattr(part, "shape") and (hasattr(part, "dtype") or hasattr(part, "to_numpy"))
    )


def normalize_examples(data: Any) -> Any:
    """Return a data set of arrays as (x,), (x, y) or (x, y, sample_weight); any other data set, or a list, as it is.

    Data sets of arrays are tuples, bare arrays and dicts. Data without targets may be x alone (an array or a dict) or
    (x, None). Weights that are None are left out. Pandas objects are converted by `convert_pandas`.
    Raises: DataError: if there are weights without targets, or a tuple is empty or has more than three parts.
    """
    if _is_array(data) or isinstance(data, dict):
        return (_convert_leaf(data),)
    if not isinstance(data, tuple) or isinstance(data, Buckets):  # `Buckets` is a tuple as well
        return data
    if not 1 <= len(data) <= 3:
        raise DataError(f"a tuple of {len(data)}, expected (x, y), (x, y, sample_weight) or (x,)")
    if len(data) > 1 and data[1] is None:
        if len(data) > 2 and data[2] is not None:
            raise DataError(
                "sample weights without targets, expected (x,), (x, y) or (x, y, sample_weight)"
            )
        return (_convert_leaf(data[0]),)
    if len(data) > 2 and data[2] is None:
        data = data[:2]
    return tuple(map(_convert_leaf, data))


def _convert_leaf(part: Any) -> Any:
    """Return inputs, targets or weights with pandas objects within them prepared by `convert_pandas`."""
    return tf.nest.map_structure(convert_pandas, part)


def lacks_targets(element: Any) -> bool:
    """Return whether a dataset's elements, given by their ``element_spec``, have no targets.

    Such an element is a bare dense tensor, a dict, or (x, None). A tuple (x,) does not count, and gives False.
    """
    if type(element) is not tuple:
        return isinstance(element, tf.TensorSpec | dict)
    return len(element) == 2 and isinstance(element[1], tf.NoneTensorSpec)


def convert_arrays(arrays: Any) -> Any:
    """Return (x,), (x, y) or (x, y, sample_weight) converted to arrays, with texts as `bytes` objects.

    Each part may be a nested structure, which is kept. `BlockArray` and objects that can be sliced like arrays, such as
    memory maps, are not converted.
    Raises: DataError: if the arrays have different numbers of examples, none, or more than 2**31 - 1, or something is
    not an array of numbers (inputs may also be texts).
    """
    x, *others = arrays
    arrays = (
        tf.nest.map_structure(partial(_as_array, may_be_text=True), x),
        *(tf.nest.map_structure(_as_array, other) for other in others),
    )
    sizes = set()
    for leaf in tf.nest.flatten(arrays):
        sizes.add(int(leaf.shape[0]))
    if len(sizes) != 1 or not min(sizes):
        raise DataError(f"arrays of {sorted(sizes)} examples, expected one common number above 0")
    if max(sizes) > MOST:
        raise DataError(
            f"arrays of {max(sizes):,} examples, expected at most {MOST:,}; hand more over as a tf.data.Dataset, or as "
            "files.tfrecords"
        )
    return arrays


def _as_array(leaf: Any, *, may_be_text: bool = False) -> Any:
    """Return tensors, data frames and Series as arrays; arrays, and objects that are sliced like arrays, as they are.

    A Series becomes an array with one column. Texts become `bytes` objects.
    Raises: DataError: if ``leaf`` is not an array of numbers or, with ``may_be_text``, of texts. Numbers in an array of
    Python objects, a sparse matrix and an array without axes are refused, too.
    """
    leaf = convert_pandas(leaf)
    if hasattr(leaf, "numpy"):
        leaf = leaf.numpy()
    elif hasattr(leaf, "to_numpy"):
        leaf = leaf.to_numpy()
    sliceable = all(hasattr(leaf, part) for part in ("shape", "dtype", "__getitem__"))
    sparse = hasattr(leaf, "toarray")  # as matrices of SciPy have it
    if not (sliceable or isinstance(leaf, BlockArray)) or sparse:
        dense = "; make it one with .toarray() in data()" if sparse else ""
        raise DataError(
            f"a {type(leaf).__name__} within it, expected arrays, or dicts and tuples of arrays{dense}"
        )
    if not leaf.shape:
        raise DataError("an array without axes, expected one row an example")
    if is_text(leaf):
        if may_be_text:
            return encode_texts(leaf)
        raise DataError(
            "an array of texts as targets or weights, expected numbers; map labels to numbers in data(): names, y = "
            "np.unique(y, return_inverse=True), or keras.layers.StringLookup"
        )
    if leaf.dtype.hasobject:
        shape = tuple(leaf.shape)
        some = np.asarray(leaf[:SHOWN]).reshape(-1)
        if all(np.ndim(one) == 0 for one in some):
            types = ", ".join(sorted({type(one).__name__ for one in some}))
            raise DataError(
                f"Python objects of shape {shape} ({types}), expected numbers of one type; are the types of its "
                'columns mixed? Convert them in data(), as df.astype("float32")'
            )
        raise DataError(
            f"Python objects of shape {shape}, expected numbers; do the rows differ in shape? {PADDING}"
        )
    return leaf


def convert_pandas(leaf: Any) -> Any:
    """Return a pandas object prepared as Keras's `fit` does; everything else unchanged.

    A Series becomes an array with one column. A data frame stays one. If some of its columns are numbers and all others
    booleans, it is cast to one type of numbers, which is float32 if there are floats, because pandas would convert such
    mixed columns to Python objects. It is returned unchanged if a nullable column has missing values that this type
    cannot hold, if all columns are of one of the two kinds, or if there are columns of other kinds.
    """
    if hasattr(leaf, "to_numpy") and type(leaf).__name__ == "Series" and len(leaf.shape) == 1:
        return np.expand_dims(leaf.to_numpy(), -1)
    if not (hasattr(leaf, "to_numpy") and hasattr(leaf, "columns") and hasattr(leaf, "astype")):
        return leaf
    kinds = []
    for kind in leaf.dtypes:
        kinds.append(getattr(kind, "numpy_dtype", kind))  # nullable types name a type of NumPy
    if not all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in kinds):
        return leaf
    are_bool = [kind.kind == "b" for kind in kinds]
    if not any(are_bool) or all(are_bool):  # pandas finds a common type for these itself
        return leaf
    common = np.result_type(*kinds)
    try:
        return leaf.astype(np.float32 if common.kind == "f" else common)
    except ValueError:  # a nullable column has missing values
        return leaf


def check_specs(element: Any) -> None:
    """Raise DataError unless a dataset's elements, given by their ``element_spec``, are tuples of one to three parts.

    The parts must be dense tensors or nested structures of them; targets and weights must not be texts. Shapes are not
    checked.
    """
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


def explain_refusal(data: Any) -> str:
    """Return the end of an error message: what kind of object was returned as data, and what to return instead.

    There are texts of their own for objects of PyTorch and Hugging Face's datasets, and for generators.
    """
    kind = type(data)
    home = kind.__module__.partition(".")[0]
    if home == "torch":
        return (
            f"a {home} {kind.__name__}, whose batches and order are its own; expected examples: hand over its dataset "
            "as arrays (np.stack), or as a keras.utils.PyDataset that reads one batch of it for each index"
        )
    if home == "datasets":
        expected = "trainables.data.huggingface.columns(dataset, inputs=..., target=...)"
        return f"a {home}.{kind.__name__}, expected {expected}"
    if hasattr(data, "__next__") or (hasattr(data, "__iter__") and not hasattr(data, "__len__")):
        return (
            f"a {kind.__name__}, which can be read once and in one order; expected arrays, or "
            "tf.data.Dataset.from_generator(function, output_signature=...), which calls the function for each epoch"
        )
    return f"{kind.__name__}, expected (x, y), (x, y, sample_weight), (x,) or a tf.data.Dataset of examples"
