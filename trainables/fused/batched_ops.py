"""Batched forms of operations for `tf.vectorized_map`, if TensorFlow has none or computes one trial after the other.

They are added to TensorFlow's registry of converters (`tensorflow/python/ops/parallel_for/pfor.py`). In a converter, a
stacked tensor has one more dimension in front, the trials.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from trainables import tensorflow_private
from trainables.recipe.refusals import Refused

MISSING = "No pfor vectorization defined for "
"""Start of TensorFlow's message about an operation that has no batched form."""

_present = threading.local()


@dataclass(frozen=True, eq=False)
class Streams:
    """The number of the stream of each trial; trials of one stream draw the same random numbers.

    They have the same seed and are at the same update.
    """

    count: int
    first: tf.Tensor  # one trial of each stream
    of: tf.Tensor  # the stream of each trial


@contextmanager
def drawing_per_stream(streams: Streams) -> Iterator[None]:
    """Make `map_over_trials` draw random numbers once for each stream inside the block, in this thread.

    Blocks may be nested; the former streams are set again afterwards.
    """
    before = getattr(_present, "streams", None)
    _present.streams = streams
    try:
        yield
    finally:
        _present.streams = before


@dataclass(frozen=True, eq=False)
class Lookup:
    """One lookup of rows in a table that differs between trials."""

    table: tf.Tensor  # (trials, rows, ...)
    places: tf.Tensor  # row numbers: for each trial or, if `alike`, the same for all
    alike: bool
    found: tf.Tensor  # the rows, (trials, ..., the rest of a row)


@contextmanager
def recording_lookups() -> Iterator[list[Lookup]]:
    """Yield a list of the lookups of rows that `map_over_trials` converts inside the block, in this thread.

    It is empty at first and filled meanwhile. Only lookups along the first axis of tables that differ between trials
    are added. From them, `Stack` computes sparse gradients. In a block within the block, only its own list is filled.
    """
    before = getattr(_present, "lookups", None)
    found = list[Lookup]()
    _present.lookups = found
    try:
        yield found
    finally:
        _present.lookups = before


@functools.cache
def install_converters() -> None:
    """Add all converters to TensorFlow's registry, once per process."""
    for kinds, convert in _CONVERTERS:
        for kind in kinds:
            tensorflow_private.replace_converter(kind, convert)


def map_over_trials(function: Callable[..., Any], values: Any) -> Any:
    """Compute ``function`` for all trials at once, by `tf.vectorized_map`; return the results with trials in front.

    ``values`` is a nested structure of tensors whose first axis is the trials; ``function`` is traced with the values
    of one trial. Raises Refused for an operation without a batched form, and whatever ``function`` raises. The first
    call in a process adds the converters of this module to TensorFlow's.
    """
    install_converters()
    try:
        return tf.vectorized_map(function, values, fallback_to_while_loop=False, warn=False)
    except ValueError as error:
        text = str(error)
        if MISSING not in text:
            raise
        kind = text.partition(MISSING)[2].split()[0].strip("'\".,:")
        raise Refused(f"{kind} has no form for several trials at once") from error


# ---- converters
#
# A converter gets the type of the operation (`kind`), TensorFlow's own converter of it (`converter`), and the operation
# with its converted inputs (`call`), whose method `input` returns a tensor `t` and `is_stacked`: whether it is stacked.


def _wrap_stacked(tensor: Any, *, stacked: bool = True) -> Any:
    """Return a tensor as converters return it: ``stacked`` if its first axis is the trials, else shared by all."""
    return tensorflow_private.wrap_tensor(tensor, stacked)


def _dimensions(tensor: tf.Tensor) -> list[Any]:
    """Return the sizes of a tensor: numbers, and tensors where a size is unknown while tracing."""
    sizes: list[Any] = []
    for i, size in enumerate(tensor.shape.as_list()):
        sizes.append(tf.shape(tensor)[i] if size is None else size)
    return sizes


def _flatten(tensor: tf.Tensor) -> tf.Tensor:
    """Reshape (trials, examples, ...) to (trials * examples, ...), so that all trials are one batch."""
    return tf.reshape(tensor, [-1, *_dimensions(tensor)[2:]])


def _unflatten(tensor: tf.Tensor, trials: Any, static: Sequence[int | None]) -> tf.Tensor:
    """Undo `_flatten`: reshape a batch of all trials to (trials, *static); None in ``static`` is an unknown size."""
    found = tf.reshape(tensor, [trials, -1, *_dimensions(tensor)[1:]])
    found.set_shape([found.shape[0], *static])
    return found


def _convert_l2_loss(kind: str, converter: Any, call: Any) -> Any:
    """Return half the sum of squares of each trial's tensor."""
    x = call.stacked_input(0)
    axes = list(range(1, x.shape.rank))
    return _wrap_stacked(tf.reduce_sum(tf.square(x), axis=axes) / 2)


def _convert_bitcast(kind: str, converter: Any, call: Any) -> Any:
    """Return the tensors of all trials as another type of the same bits."""
    return _wrap_stacked(tf.bitcast(call.stacked_input(0), call.get_attr("type")))


def _convert_zeros_like(kind: str, converter: Any, call: Any) -> Any:
    """Return zeros like the input; TensorFlow's converter is used except for tensors of type variant."""
    tensor, stacked, _ = call.input(0)
    if tensor.dtype != tf.variant:
        return converter(call)
    return _wrap_stacked(tf.zeros_like(tensor), stacked=stacked)


def _convert_transform(kind: str, converter: Any, call: Any) -> Any:
    """Transform the images of all trials as one batch."""
    call.stack_inputs([0, 1])  # what all trials share is repeated for each
    images = call.stacked_input(0)
    transforms = call.stacked_input(1)
    found = tf.raw_ops.ImageProjectiveTransformV3(
        images=_flatten(images),
        transforms=_flatten(transforms),
        output_shape=call.unstacked_input(2),
        fill_value=call.unstacked_input(3),
        interpolation=call.get_attr("interpolation"),
        fill_mode=call.get_attr("fill_mode"),
    )
    return _wrap_stacked(_unflatten(found, _dimensions(images)[0], call.outputs[0].shape))


def _convert_resize(kind: str, converter: Any, call: Any) -> Any:
    """Resize the images of all trials as one batch."""
    call.stack_inputs([0])
    images = call.stacked_input(0)
    found = getattr(tf.raw_ops, kind)(
        images=_flatten(images),
        size=call.unstacked_input(1),
        align_corners=call.get_attr("align_corners"),
        half_pixel_centers=call.get_attr("half_pixel_centers"),
    )
    return _wrap_stacked(_unflatten(found, _dimensions(images)[0], call.outputs[0].shape))


def _convert_in_top_k(kind: str, converter: Any, call: Any) -> Any:
    """Compare the predictions of all trials with their targets as one batch."""
    call.stack_inputs([0, 1])
    predictions = call.stacked_input(0)
    targets = call.stacked_input(1)
    found = tf.raw_ops.InTopKV2(
        predictions=_flatten(predictions),
        targets=tf.reshape(targets, [-1]),
        k=call.unstacked_input(2),
    )
    return _wrap_stacked(tf.reshape(found, tf.shape(targets)))


def _convert_stacked(kind: str, converter: Any, call: Any) -> Any:
    """Use TensorFlow's converter after stacking the first input: if all trials share it, it is repeated for each."""
    call.stack_inputs([0])
    return converter(call)


def _convert_draws(kind: str, converter: Any, call: Any) -> Any:
    """Draw once for each stream of trials, and give each trial the draws of its stream.

    Returns the one stacked output, or a list if the operation has several. Raises ValueError, which `map_over_trials`
    turns into Refused, if streams are not set (see `drawing_per_stream`), or if other inputs than seeds, keys and
    counters differ between trials.
    """
    streams: Streams | None = getattr(_present, "streams", None)
    inputs = [call.input(i) for i in range(call.num_inputs)]
    # Seeds, keys and counters are vectors, and have rank 2 if they are stacked.
    if streams is None or any(one.is_stacked and one.t.shape.rank != 2 for one in inputs):
        raise ValueError(f"{MISSING}{kind}, whose seed or numbers differ between trials")
    # Of inputs that differ between trials, the values of one trial of each stream.
    inputs_by_stream = []
    for one in inputs:
        inputs_by_stream.append(tf.gather(one.t, streams.first) if one.is_stacked else one.t)
    outputs_by_stream = []
    for stream in range(streams.count):
        own_inputs = []
        for tensor, one in zip(inputs_by_stream, inputs, strict=True):
            own_inputs.append(tensor[stream] if one.is_stacked else tensor)
        types = [output.dtype for output in call.outputs]
        drawing = tensorflow_private.create_operation(
            kind, own_inputs, types, call.op.node_def.attr
        )
        outputs_by_stream.append(drawing.outputs)
    stacked = []
    for drawn_by_stream in zip(*outputs_by_stream, strict=True):
        stacked.append(tf.gather(tf.stack(drawn_by_stream), streams.of))  # one row for each trial
    for tensor, output in zip(stacked, call.outputs, strict=True):
        tensor.set_shape([None, *output.shape] if output.shape.rank is not None else None)
    found = [_wrap_stacked(tensor) for tensor in stacked]
    return found[0] if len(found) == 1 else found


def _convert_gather(kind: str, converter: Any, call: Any) -> Any:
    """Gather rows by TensorFlow's converter, and record lookups in tables that differ between trials.

    They are added to the list of `recording_lookups`, if it is active.
    """
    # whether tables and row numbers differ between trials
    table, tables_differ, _ = call.input(0)
    rows, rows_differ, _ = call.input(1)
    axis = tf.get_static_value(call.unstacked_input(2))
    found = converter(call)
    lookups: list[Lookup] | None = getattr(_present, "lookups", None)
    if lookups is not None and tables_differ and axis == 0 and not call.get_attr("batch_dims"):
        lookups.append(Lookup(table, rows, not rows_differ, found.t))
    return found


def _convert_multiply(kind: str, converter: Any, call: Any) -> Any:
    """Multiply examples that all trials share by each trial's weights.

    TensorFlow's own form, which is used for all other products, would copy the weights side by side.
    """
    examples, examples_differ, _ = call.input(0)
    weights, weights_differ, _ = call.input(1)
    if examples_differ or not weights_differ:
        return converter(call)
    product = tf.matmul(
        examples[None],  # with an axis for the trials
        weights,
        transpose_a=call.get_attr("transpose_a"),
        transpose_b=call.get_attr("transpose_b"),
    )
    return _wrap_stacked(product)


# Loops over time steps


def _convert_loop(kind: str, converter: Any, call: Any) -> Any:
    """Run a loop that all trials leave at the same step as one loop.

    TensorFlow's own form, which is used for all other loops, allows trials to leave one by one. It checks at each step
    which trials remain, and so knows neither their number nor any shape. It is also used where only some of the trials
    take part, as inside such a loop.
    """
    trials = tf.get_static_value(call.pfor.loop_len_vector)  # a vector with their number
    if trials is None or call.pfor.all_indices_partitioned:
        return converter(call)
    condition, body, output_shapes = tensorflow_private.while_loop_of(call)
    # positions of inputs that all trials share before the first step, but not after it
    differ: set[int] = set()

    # Raise `_DifferingLoops` while this is traced, if the answer differs between trials.
    def goes_on(*values: tf.Tensor) -> tf.Tensor:
        (continues,) = _convert_function(condition, values, call, trials)
        if continues.is_stacked:
            raise _DifferingLoops
        return tf.reshape(continues.t, [])

    # Raise `_DifferingLoops` while this is traced, if a value of the loop differs only after the step.
    def step(*values: tf.Tensor) -> list[tf.Tensor]:
        before_and_after = list(
            zip(call.inputs, _convert_function(body, values, call, trials), strict=True)
        )
        differ.update(_inputs_that_differ(before_and_after))
        if differ or any(_is_unstacked_list(before, after) for before, after in before_and_after):
            raise _DifferingLoops
        return [_stack_like(before, after, trials) for before, after in before_and_after]

    # `tf.while_loop` traces `goes_on` and `step`, and raises their errors. Each round stacks what differed in the round
    # before, and another value may then differ, too.
    while True:
        pairs = zip(output_shapes(), call.inputs, strict=True)
        shapes = [_add_trials_axis(shape, before, int(trials[0])) for shape, before in pairs]
        try:
            found = tf.while_loop(
                goes_on, step, [one.t for one in call.inputs], [*map(tf.TensorShape, shapes)]
            )
        except _DifferingLoops:
            # stacking cannot help: trials leave the loop at different steps, for example
            if not differ:
                return converter(call)
            call.stack_inputs(sorted(differ), tile_variants=True)
            differ.clear()
        else:
            return [
                _wrap_stacked(t, stacked=one.is_stacked)
                for t, one in zip(found, call.inputs, strict=True)
            ]


def _convert_function(function: Any, values: Sequence[tf.Tensor], call: Any, trials: Any) -> Any:
    """Return the results of a loop's condition or body, ``function``, for all trials at once.

    ``values`` are the loop's present values, each stacked if the loop's input is. ``trials`` is a vector with the
    number of trials.
    """
    inputs = []
    for value, before in zip(values, call.inputs, strict=True):
        inputs.append(_wrap_stacked(value, stacked=before.is_stacked))
    return tensorflow_private.convert_function(function, call, trials[0], inputs)


def _inputs_that_differ(before_and_after: Sequence[tuple[Any, Any]]) -> list[int]:
    """Return the positions of the loop's values that all trials share before a step but not after it."""
    positions = []
    for position, (before, after) in enumerate(before_and_after):
        if after.is_stacked and not before.is_stacked:
            positions.append(position)
    return positions


def _is_unstacked_list(before: Any, after: Any) -> bool:
    """Return whether a loop's value is a list of tensors that is stacked on one side of a step and shared on the other.

    The type of such lists is variant. False for all other types.
    """
    return after.t.dtype == tf.variant and bool(after.is_stacked != before.is_stacked)


def _stack_like(before: Any, after: Any, trials: Any) -> tf.Tensor:
    """Return a loop's value ``after`` a step, repeated for each trial if only the value ``before`` was stacked.

    ``trials`` is a vector with the number of trials.
    """
    if before.is_stacked and not after.is_stacked:
        return tensorflow_private.stack_tensor(after.t, trials)
    return after.t


def _add_trials_axis(shape: Any, before: Any, trials: int) -> Any:
    """Return the shape of a loop's value; its first size is ``trials`` if the value was stacked ``before`` the loop.

    The shape of a list of tensors, of type variant, is returned unchanged.
    """
    if not before.is_stacked or before.t.dtype == tf.variant:
        return shape
    return [trials, *shape[1:]]


class _DifferingLoops(Exception):
    """Raised if trials leave a loop at different steps, or if a value that they should share differs."""


# Convolutions: the channels of all trials are put side by side, in as many groups as there are trials.


def _side_by_side(tensor: tf.Tensor) -> tf.Tensor:
    """Reshape images or filters from [trials, a, b, c, channels] to [a, b, c, trials * channels]."""
    k, a, b, c, channels = _dimensions(tensor)
    trials_last = tf.transpose(tensor, [1, 2, 3, 0, 4])
    return tf.reshape(trials_last, [a, b, c, k * channels])


def _undo_side_by_side(tensor: tf.Tensor, trials: Any) -> tf.Tensor:
    """Undo `_side_by_side`: reshape from [a, b, c, trials * channels] to [trials, a, b, c, channels]."""
    a, b, c, channels = _dimensions(tensor)
    trials_last = tf.reshape(tensor, [a, b, c, trials, channels // trials])
    return tf.transpose(trials_last, [3, 0, 1, 2, 4])


def _read_attributes(call: Any) -> dict[str, Any]:
    """Return the attributes of a convolution by name: strides, padding, dilations and data_format.

    Raises ValueError, which `map_over_trials` turns into Refused, for channels first or explicit padding.
    """
    found: dict[str, Any] = {}
    for name in ("strides", "padding", "dilations", "data_format"):
        value = call.get_attr(name)
        if isinstance(value, bytes):
            found[name] = value.decode()
        else:
            found[name] = value
    if found["data_format"] != "NHWC" or call.get_attr("explicit_paddings"):
        raise ValueError(f"{MISSING}{call.op_type} with channels first")
    return found


@functools.cache
def differentiates_groups() -> bool:
    """Return whether this process can compute gradients of convolutions in groups; tried once, by a small example.

    It is run at the first call, also if a graph is being traced, and the answer is kept. Kernels for GPUs can, and so
    can oneDNN's, which TensorFlow uses on recent CPUs. TensorFlow's own kernels for other CPUs raise an error at the
    gradient.
    """

    def differentiate() -> Any:
        images = tf.zeros([1, 2, 2, 2])
        filters = tf.zeros([1, 1, 1, 2])
        return tf.gradients(tf.nn.conv2d(images, filters, 1, "VALID"), [images, filters])

    with tf.init_scope():  # run it now, although a graph is being traced
        try:
            tf.function(differentiate, autograph=False)()
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
            return False
    return True


def _stack_results(compute: Callable[..., Any], *stacked: tf.Tensor) -> tf.Tensor:
    """Call ``compute`` with the tensors of each trial, one trial after the other, and return the stacked results.

    Each of ``stacked`` has the trials as its first axis, whose length must be known.
    """
    of_trials = zip(*map(tf.unstack, stacked), strict=True)
    return tf.stack([compute(*tensors) for tensors in of_trials])


def _convert_convolution(kind: str, converter: Any, call: Any) -> Any:
    """Convolve images with the filters of all trials.

    This is one convolution if its gradient can be computed, or if all trials share the images; otherwise it is one
    trial after the other. TensorFlow's converter is used if all trials share the filters.
    """
    images = call.input(0)
    filters = call.input(1)
    if not filters.is_stacked:
        return converter(call)
    trials = _dimensions(filters.t)[0]
    attributes = _read_attributes(call)
    convolve = functools.partial(
        tf.nn.conv2d,
        strides=attributes["strides"],
        padding=attributes["padding"],
        dilations=attributes["dilations"],
    )
    if images.is_stacked and not differentiates_groups():
        return _wrap_stacked(_stack_results(convolve, images.t, filters.t))
    # Images that all trials share are convolved once, with the filters of all trials.
    found = convolve(
        _side_by_side(images.t) if images.is_stacked else images.t, _side_by_side(filters.t)
    )
    return _wrap_stacked(_undo_side_by_side(found, trials))


def _convert_convolution_input(kind: str, converter: Any, call: Any) -> Any:
    """Return the gradients of convolutions with respect to the images of all trials.

    They are computed one trial after the other where groups have no gradients. TensorFlow's converter is used if all
    trials share the filters.
    """
    if not call.input(1).is_stacked:
        return converter(call)
    call.stack_inputs([1, 2])
    filters = call.stacked_input(1)
    gradients = call.stacked_input(2)
    differentiate = functools.partial(tf.raw_ops.Conv2DBackpropInput, **_read_attributes(call))
    sizes = call.unstacked_input(0)
    if not differentiates_groups():

        def differentiate_trial(own_filters: tf.Tensor, own_gradients: tf.Tensor) -> tf.Tensor:
            return differentiate(input_sizes=sizes, filter=own_filters, out_backprop=own_gradients)

        return _wrap_stacked(_stack_results(differentiate_trial, filters, gradients))
    trials = _dimensions(filters)[0]
    of_all = differentiate(
        input_sizes=sizes * tf.stack([1, 1, 1, trials]),  # the channels of all trials
        filter=_side_by_side(filters),
        out_backprop=_side_by_side(gradients),
    )
    of_each = _undo_side_by_side(of_all, trials)
    of_each.set_shape([of_each.shape[0], *call.outputs[0].shape])
    return _wrap_stacked(of_each)


def _convert_convolution_filter(kind: str, converter: Any, call: Any) -> Any:
    """Return the gradients of convolutions with respect to the filters of all trials.

    They are computed one trial after the other where groups have no gradients. TensorFlow's converter is used if all
    trials share the images and the gradients of the results.
    """
    if not (call.input(0).is_stacked or call.input(2).is_stacked):
        return converter(call)
    call.stack_inputs([0, 2])
    images = call.stacked_input(0)
    gradients = call.stacked_input(2)
    differentiate = functools.partial(tf.raw_ops.Conv2DBackpropFilter, **_read_attributes(call))
    sizes = call.unstacked_input(1)
    if not differentiates_groups():

        def differentiate_trial(own_images: tf.Tensor, own_gradients: tf.Tensor) -> tf.Tensor:
            return differentiate(input=own_images, filter_sizes=sizes, out_backprop=own_gradients)

        return _wrap_stacked(_stack_results(differentiate_trial, images, gradients))
    trials = _dimensions(images)[0]
    of_all = differentiate(
        input=_side_by_side(images),
        filter_sizes=sizes * tf.stack([1, 1, 1, trials]),  # the output channels of all trials
        out_backprop=_side_by_side(gradients),
    )
    return _wrap_stacked(_undo_side_by_side(of_all, trials))


_CONVERTERS: Sequence[tuple[Sequence[str], Callable[[str, Any, Any], Any]]] = (
    (("L2Loss",), _convert_l2_loss),
    (("Bitcast",), _convert_bitcast),
    (("ZerosLike",), _convert_zeros_like),
    (("ImageProjectiveTransformV3",), _convert_transform),
    (("ResizeBilinear", "ResizeNearestNeighbor", "ResizeBicubic"), _convert_resize),
    (("InTopKV2",), _convert_in_top_k),
    (("GatherV2",), _convert_gather),
    (("DepthwiseConv2dNative",), _convert_stacked),
    (("MatMul",), _convert_multiply),
    (("StatelessWhile", "While"), _convert_loop),
    (("Conv2D",), _convert_convolution),
    (("Conv2DBackpropInput",), _convert_convolution_input),
    (("Conv2DBackpropFilter",), _convert_convolution_filter),
    (
        (
            "StatelessRandomGetKeyCounter",
            "StatelessRandomUniformV2",
            "StatelessRandomNormalV2",
            "StatelessTruncatedNormalV2",
            "StatelessRandomUniformIntV2",
            "StatelessRandomUniformFullIntV2",
        ),
        _convert_draws,
    ),
)
