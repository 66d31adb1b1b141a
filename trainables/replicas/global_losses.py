"""Keras's losses, averaged over the global batch instead of one replica's part of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from trainables import keras_private
from trainables.keras_private import (
    apply_mask,
    squeeze_or_expand_to_same_rank,
    standardize_reduction,
)
from trainables.numbers.live import LiveNumber
from trainables.recipe.refusals import Refused, check_losses, overrides_call
from trainables.replicas import keras_corrections, slices
from trainables.replicas.slices import Slice

MEANS = ("sum_over_batch_size", "mean", "mean_with_sample_weight")


class GlobalLoss:
    """A loss of a compiled model, which is called for slices of a batch.

    The average of its values over all slices, weighted by their fractions of the examples, is the loss that Keras
    computes on one device for the whole batch, with masks and sample weights. The reduction must be a mean or a sum.
    Source of the reductions: keras/src/losses/loss.py, `reduce_weighted_values`.
    """

    def __init__(
        self,
        name: str,
        loss: keras.losses.Loss,
        weight: LiveNumber | float | None,
        scale: float = 1.0,
    ) -> None:
        """Wrap ``loss``, whose results are multiplied by ``scale`` inside a slice; what is recorded is not.

        ``name`` is the key of the recorded value. ``weight`` is the loss's weight in the total, which Keras applies; it
        only enters the recorded losses of single examples. Raises ValueError for a reduction that is neither a mean nor
        a sum.
        """
        self.name = name
        self._weight = weight
        self._scale = scale
        self.reduction = standardize_reduction(loss.reduction)
        if self.reduction not in (*MEANS, "sum"):
            raise ValueError(
                f"loss {name!r} has reduction {loss.reduction!r}, expected a mean or a sum"
            )
        # True if the loss's divisor is unknown until all slices are computed once
        self.counts_first = False
        self.loss = loss

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        cut = slices.get_current_slice()
        value = self._of_slice(cut, y_true, y_pred, sample_weight)
        if cut is not None:
            _record_example_losses(cut, self.loss, self._weight, y_true, y_pred, sample_weight)
            cut.losses[self.name] = value * cut.share
            value = value * self._scale
        return value

    def _of_slice(
        self, cut: slices.Slice | None, y_true: Any, y_pred: Any, sample_weight: Any
    ) -> Any:
        """Return the loss of the slice ``cut``; times the slice's share of the examples, it is its part of the batch's.

        With None for ``cut``, the losses are called symbolically or outside of slices, and a result of the right type
        is enough. Sets `counts_first` if a mask or sample weights determine the divisor of the mean; inside a slice,
        that divisor is recorded by `Slice.total`. Raises Refused for sample weights if the loss gives one number for a
        batch, and for mixed labels as `_adapt_to_mixture` does.
        """
        # outside of slices, there is nothing to correct
        if cut is None and overrides_call(self.loss):
            return self.loss(y_true, y_pred, sample_weight)
        loss, y_true = _adapt_to_mixture(self.loss, cut, y_true)
        dtype = self.loss.dtype
        mask = keras_private.mask_of(y_pred)
        y_true = _convert_tensors(y_true, dtype)
        y_pred = _convert_tensors(y_pred, dtype)
        values = keras.ops.convert_to_tensor(loss.call(y_true, y_pred), dtype)
        mask = _join_masks(mask, keras_private.mask_of(values))  # the second is from `ignore_class`
        divides_by_weights = (
            self.reduction == "mean_with_sample_weight" and sample_weight is not None
        )
        # whether the divisor is another one than the number of elements
        needs_count = self.reduction != "sum" and (mask is not None or divides_by_weights)
        self.counts_first |= needs_count  # augment() may add weights that the validation data lacks
        if values.shape.rank == 0 and sample_weight is not None:
            raise Refused(
                f"loss {self.name!r} gives one number for a batch, which sample and class weights cannot weigh; "
                "let its call() return one loss for each example"
            )
        if cut is None:  # Keras builds the model symbolically
            return tf.reduce_sum(values)
        if values.shape.rank == 0:
            return values  # the author has averaged over the slice
        weight = apply_mask(sample_weight, mask, dtype=dtype, reduction="sum")  # 0 where masked
        if weight is not None:
            values, weight = squeeze_or_expand_to_same_rank(values, tf.cast(weight, dtype))
            total = tf.reduce_sum(values * weight)
        else:
            total = tf.reduce_sum(values)
        # The result is multiplied by the slice's share later. For a sum, and with the divisor of the whole batch, that
        # would be wrong: dividing by the share here undoes it.
        if self.reduction == "sum":
            return tf.math.divide_no_nan(total, cut.share)
        elements = tf.cast(tf.size(values), dtype)
        if not needs_count:
            return tf.math.divide_no_nan(total, elements)
        if self.reduction == "mean_with_sample_weight":
            count = tf.reduce_sum(weight)
        else:
            valid = tf.reduce_sum(tf.cast(mask, dtype))
            # A mask may lack the last axes of the values: each of its entries stands for several.
            count = tf.math.divide_no_nan(valid * elements, tf.cast(tf.size(mask), dtype))
        return tf.math.divide_no_nan(total, cut.total(self.name, count) * cut.share)


class RecordedLoss:
    """A loss of a compiled model that Keras computes; its values are recorded for the mean over an epoch.

    Keras's own means give a partial batch the same weight as a whole one.
    """

    counts_first = False

    def __init__(
        self, name: str, loss: keras.losses.Loss, weight: LiveNumber | float | None
    ) -> None:
        """Wrap ``loss``, whose values are recorded under ``name``; ``weight`` is its weight in the total.

        Keras applies the weight to the total. Here, it only enters the recorded losses of single examples.
        """
        self.name = name
        self.loss = loss
        self._weight = weight

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        cut = slices.get_current_slice()
        loss, y_true = _adapt_to_mixture(self.loss, cut, y_true)
        value = loss(y_true, y_pred, sample_weight)
        if cut is not None:
            cut.losses[self.name] = value
            _record_example_losses(cut, self.loss, self._weight, y_true, y_pred, sample_weight)
        return value


class _MixedLabelLoss(keras.losses.Loss):
    """A loss against two labels at once, weighted by their shares.

    For crossentropy, this equals the loss against the mixed distribution.
    """

    def __init__(self, loss: keras.losses.Loss, mixture: slices.Mixture) -> None:
        super().__init__(loss.name, loss.reduction, loss.dtype)
        self._loss, self._mixture = loss, mixture

    def call(self, y_true: Any, y_pred: Any) -> tf.Tensor:
        """Return the loss of each example (or element of it) against both labels, weighted by their shares.

        ``y_true`` is ignored. Raises Refused if the loss is one number for a batch, or ignores a class.
        """
        labels = (self._mixture.own, self._mixture.other)
        own, other = (self._loss.call(tf.cast(y, self.dtype), y_pred) for y in labels)
        if own.shape.rank == 0:
            raise Refused(
                f"loss {self.name!r} gives one number for a batch, which the shares of mixed labels cannot weigh; "
                "let its call() return one loss for each example"
            )
        if keras_private.mask_of(own) is not None:
            raise Refused(
                f"loss {self.name!r} ignores a class, which has no share in a mixture; leave out mixup"
            )
        shape = [-1, *[1] * (own.shape.rank - 1)]
        share = tf.reshape(tf.cast(self._mixture.share, own.dtype), shape)
        return share * own + (1 - share) * other


def _record_example_losses(
    cut: slices.Slice, loss: keras.losses.Loss, weight: LiveNumber | float | None, *of: Any
) -> None:
    """Add the losses of single examples to those of the slice ``cut``, if it records them.

    ``of`` are y_true, y_pred and sample_weight; see `compute_example_losses`.
    """
    if cut.examples is not None:
        cut.examples.append(compute_example_losses(loss, weight, *of))


def _adapt_to_mixture(
    loss: keras.losses.Loss, cut: slices.Slice | None, y_true: Any
) -> tuple[keras.losses.Loss, Any]:
    """Return (``loss``, ``y_true``) or, for mixed labels, (a loss against both labels, the first of them).

    Mixed labels are those that ``y_true`` stands for in the slice ``cut``; their `Mixture.lost` is set to True. Raises
    Refused for mixed labels if the loss overrides `__call__`, and for other floating-point targets of a slice that
    mixes examples if the loss takes labels as whole numbers.
    """
    if cut is None:
        mixture = None
    else:
        mixture = cut.mixture(y_true)
    if mixture is None:
        # Keras's losses for labels that are whole numbers wrap a function such as sparse_categorical_crossentropy
        function = getattr(getattr(loss, "fn", None), "__name__", "")
        if (
            cut is not None
            and cut.mixes
            and y_true.dtype.is_floating
            and function.startswith("sparse")
        ):
            raise Refused(
                f"loss {loss.name!r} takes labels, and the targets are {y_true.dtype.name}, of which mixup and cutmix "
                "would take the mean; let data() return whole numbers"
            )
        return loss, y_true
    if overrides_call(loss):
        raise Refused(
            f"loss {loss.name!r} ({type(loss).__name__}) overrides __call__, where mixup and cutmix give labels of two "
            "examples at once; override call(), which gives a loss for each example"
        )
    mixture.lost = True
    return _MixedLabelLoss(loss, mixture), mixture.own


def replace_losses(
    model: keras.Model,
    weights: Mapping[str, LiveNumber | float],
    batch: tuple[Any, ...] | None,
    scale: float = 1.0,
    *,
    whole: bool,
) -> tuple[GlobalLoss | RecordedLoss, ...]:
    """Replace the losses of a compiled and built model by losses for slices, and return the new losses.

    With ``whole``, each batch is one slice: Keras computes the losses, and they are only recorded (`RecordedLoss`).
    Otherwise they are replaced by `GlobalLoss`, and their values are multiplied by ``scale``. ``weights`` has the
    weights of losses in the total, by output; losses that it does not name keep theirs. Equal names of losses get
    numbers, as mse_1. Returns an empty tuple if the model has no compiled losses.

    ``batch``, (x, y, sample_weight) or a beginning of it, is an example of what the losses are called with: it shows
    which of them need their divisors counted first, and which cannot be weighed. If it is None, because the model's own
    steps may call them with something else, this shows only when they are called in training.
    Raises: ValueError: if a weight is for an output without a loss, or a reduction is neither a mean nor a sum.
    Refused: if a loss overrides `__call__` and ``whole`` is False; or, in either case, if ``batch`` has sample weights
    and a loss gives one number for a batch.
    """
    compiled = keras_private.compiled_loss(model)
    if compiled is None:
        entries = None
    else:
        entries = keras_private.flat_losses(compiled)
    if entries is None:  # the model's own compute_loss does not use them
        if weights:
            raise ValueError(
                f"loss_weights names {', '.join(sorted(weights))}, but the model has no losses to weigh"
            )
        return ()
    keras_corrections.make_loss_names_unique(model)
    unknown = set(weights) - {entry.name for entry in entries}
    if unknown:
        names = ", ".join(entry.name for entry in entries)
        raise ValueError(
            f"loss_weights names {', '.join(sorted(unknown))}, the model's losses are: {names}"
        )
    weighted = []
    for entry in entries:
        weighted.append(entry._replace(loss_weights=weights.get(entry.name, entry.loss_weights)))
    if not whole:
        check_losses({entry.name: entry.loss for entry in entries})
    installed = tuple(
        GlobalLoss(entry.name, entry.loss, entry.loss_weights, scale) for entry in weighted
    )
    _install_losses(compiled, weighted, installed)
    if batch is not None:  # tells which losses count first, and refuses what they cannot weigh
        keras_corrections.call_losses_symbolically(model, batch)
    if whole:  # the call above has used `GlobalLoss` for the same checks as in slices
        noted = tuple(
            RecordedLoss(entry.name, entry.loss, entry.loss_weights) for entry in weighted
        )
        _install_losses(compiled, weighted, noted)
        return noted
    return installed


def _install_losses(compiled: Any, entries: Iterable[Any], losses: Iterable[Any]) -> None:
    """Make a compiled model call ``losses``, one for each of ``entries``, whose names and weights stay.

    ``compiled`` is the container of its losses, and ``entries`` are Keras's entries of them, one for each output.
    """
    pairs = zip(entries, losses, strict=True)
    keras_private.set_flat_losses(compiled, [entry._replace(loss=loss) for entry, loss in pairs])


SPREAD = ("examples_mean", "examples_square")
"""Names of two sums over the examples of an evaluation: of each one's loss, and of its square."""


def compute_example_losses(
    loss: keras.losses.Loss,
    weight: LiveNumber | float | None,
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
) -> tf.Tensor | None:
    """Return each example's contribution, times ``weight``, to the mean of a compiled loss, of shape (examples,).

    They are float32, and multiplied by ``sample_weight``; None as a weight changes nothing. Returns None if the loss is
    not a mean over examples (a sum, one number per batch, masked, or divided by weights), has an unknown number of
    axes, overrides `__call__`, or is an author's own, because a second call could change its state.
    """
    function = getattr(
        loss, "fn", loss
    )  # of a function that a loss object of Keras's wraps, also an author's
    if not all(
        module.startswith("keras.") for module in (type(loss).__module__, function.__module__)
    ):
        return None
    reduction = standardize_reduction(loss.reduction)
    weighed = sample_weight is not None
    if (
        overrides_call(loss)
        or reduction in ("sum", "none")
        or (reduction == "mean_with_sample_weight" and weighed)
    ):
        return None
    if keras_private.mask_of(y_pred) is not None:
        return None
    y_true = _convert_tensors(y_true, loss.dtype)
    y_pred = _convert_tensors(y_pred, loss.dtype)
    values = keras.ops.convert_to_tensor(loss.call(y_true, y_pred), loss.dtype)
    if keras_private.mask_of(values) is not None or not values.shape.rank:  # rank 0, or unknown
        return None
    if weighed:
        values, weights = squeeze_or_expand_to_same_rank(
            values, tf.cast(sample_weight, values.dtype)
        )
        values = values * weights
    values = tf.cast(tf.reduce_mean(values, axis=list(range(1, values.shape.rank))), tf.float32)
    if weight is None:
        return values
    return values * tf.convert_to_tensor(weight, tf.float32)


def _convert_tensors(structure: Any, dtype: Any) -> Any:
    """Return ``structure`` with each leaf as a tensor of type ``dtype``."""
    return keras.tree.map_structure(
        lambda leaf: keras.ops.convert_to_tensor(leaf, dtype), structure
    )


def _join_masks(mask: Any, other: Any) -> Any:
    """Return the mask of the elements that both masks keep; None keeps everything."""
    if mask is None:
        return other
    return mask if other is None else mask & other


def compute_spread_shares(cut: Slice) -> dict[str, tf.Tensor]:
    """Return a slice's contributions to two means over the global batch: of the examples' losses, and their squares.

    The keys are the names in `SPREAD`. The losses of an example are added up. The values are NaN if the losses of
    single examples were not recorded, or are unknown for one of the losses, and 0 if a row stands in for an empty
    slice.
    """
    recorded: Sequence[tf.Tensor | None] = cut.examples or ()  # one for each loss, None if unknown
    vectors = [vector for vector in recorded if vector is not None]
    if not vectors or len(vectors) < len(recorded):
        return dict.fromkeys(SPREAD, tf.constant(float("nan")))
    each = tf.add_n(vectors)
    size = tf.cast(cut.size, tf.float32)
    sums = [tf.reduce_sum(each) / size, tf.reduce_sum(tf.square(each)) / size]
    shares = {}
    for name, value in zip(SPREAD, sums, strict=True):
        shares[name] = tf.where(cut.count > 0, value, 0.0)
    return shares


def compute_deviation(mean: float, square: float) -> float:
    """Return the standard deviation of examples' losses, from their ``mean`` and the mean of their squares.

    It is not corrected for the size of a sample. Returns 0 if rounding makes the variance negative, and NaN if ``mean``
    or ``square`` is NaN.
    """
    return math.sqrt(max(square - mean * mean, 0.0))
