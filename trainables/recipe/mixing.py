"""Mixup, cutmix and random erasing of training examples, by a trial's parameters.

Sources: Zhang et al., mixup: Beyond Empirical Risk Minimization; Yun et al., CutMix: Regularization Strategy to Train
Strong Classifiers with Localizable Features; Zhong et al., Random Erasing Data Augmentation. As in Keras's layers, a
permutation of the whole batch gives each example a partner, and each example draws its own share from Beta(alpha,
alpha). With both alphas above 0, each example is mixed in one of the two ways, with equal probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.data.passes import unpack_example
from trainables.numbers.draws import Draws
from trainables.numbers.live import Live, LiveNumber
from trainables.recipe import augmentation
from trainables.recipe.refusals import Refused

MIXING, ERASING = 2**18, 2**19
"""Offsets of their draws, so that the draws of the author and of layers do not change."""
OWN_GEOMETRY = ("boxes", "bounding_boxes", "points", "keypoints", "key_points")
ONE_HOT = (
    "return one-hot targets from data(), as keras.utils.to_categorical(y), with a loss for them"
)


@dataclass(frozen=True)
class Mixing:
    """The parameters of mixup, cutmix and random erasing of a trial; None if the trial does not use one of them."""

    mixup: LiveNumber | None = None
    cutmix: LiveNumber | None = None
    erasing: LiveNumber | None = None

    @classmethod
    def of(cls, hp: Hyperparameters, live: Live) -> Mixing:
        """Return the parameters of mixing and erasing that a trial has, as live numbers of ``live``.

        Raises what `Live.number` raises for a wrong value.
        """
        return cls(
            live.number("mixup", standard=True) if "mixup" in hp else None,
            live.number("cutmix", standard=True) if "cutmix" in hp else None,
            live.number("random_erasing", standard=True) if "random_erasing" in hp else None,
        )

    @property
    def mixes(self) -> bool:
        """Whether the trial has the parameter ``mixup`` or ``cutmix``, by which examples are mixed.

        Also True if its value is 0, which mixes none.
        """
        return self.mixup is not None or self.cutmix is not None

    def find_draws(self, draws: Draws) -> Draws:
        """Return the draws of mixing, which are numbered after all of augmentation; ``draws`` do not advance.

        They are for the same examples as ``draws``.
        """
        return draws.from_call(draws.calls + MIXING)

    def check(self, example: tuple[Any, ...]) -> None:
        """Raise Refused if inputs or targets cannot be mixed or erased.

        ``example`` is (x,), (x, y) or (x, y, sample_weight) of tensors or their specs. Mixing needs targets, among them
        no texts and none with a name in `OWN_GEOMETRY`, such as boxes, and inputs of floats or bytes. Cutmix needs
        images of one size as the only inputs, and erasing needs an image among the inputs.
        """
        x, y, _ = unpack_example(example)
        inputs = tf.nest.flatten(x)
        names = " and ".join(self._names())
        if self.mixes and y is None:
            raise Refused(
                f"{names} mixes targets with the inputs, and the data has none; leave it out"
            )
        for leaf in inputs:
            if self.mixes and not (leaf.dtype.is_floating or leaf.dtype == tf.uint8):
                raise Refused(
                    f"{names} mixes inputs, and there are some of {leaf.dtype.name}, expected floats or images of "
                    "bytes; mix what an Embedding gives in a model of your own, or leave it out"
                )
        images = [leaf for leaf in inputs if leaf.shape.rank == 4]
        if self.erasing is not None and not images:
            raise Refused(
                f"random_erasing is set, and {_shapes(inputs)} are no images of (height, width, channels)"
            )
        sides = {tuple(leaf.shape[1:3]) for leaf in images}
        if self.cutmix is not None and (len(sides) != 1 or len(images) != len(inputs)):
            raise Refused(
                f"cutmix is set, and the inputs {_shapes(inputs)} are no images of one height and width; use mixup"
            )
        if not self.mixes:
            return
        for path, leaf in _paths(y):
            if leaf.dtype == tf.string:
                raise Refused(
                    f"{names} mixes targets, and there are texts; let data() return numbers"
                )
            if any(part in OWN_GEOMETRY for part in path):
                raise Refused(
                    f"{names} mixes targets, and {'.'.join(path)} says where things are, which has no mean; leave out "
                    f"{names}"
                )

    def erase(self, x: Any, draws: Draws) -> Any:
        """Return the inputs, with a random rectangle filled with zeros in some images (see `augmentation.erase`).

        Only inputs of four axes are images; all images of an example are erased by the same random numbers. All inputs
        are unchanged if the trial does not have ``random_erasing``. ``draws`` do not advance.
        """
        if self.erasing is None:
            return x
        start = draws.calls + ERASING  # all image inputs of an example get the same draws
        share = self.erasing

        def erase(leaf: tf.Tensor) -> tf.Tensor:
            if leaf.shape.rank == 4:
                return augmentation.erase(leaf, draws.from_call(start), share)
            return leaf

        return tf.nest.map_structure(erase, x)

    def mix(self, own: tuple[Any, ...], other: tuple[Any, ...], draws: Draws) -> Mixed:
        """Return the examples ``own``, each mixed with the example of ``other`` in the same row.

        Both are (x, y, sample_weight or None), and ``draws`` advance. Only for a trial that `mixes`.
        """
        return Mixed.of(self, own, other, draws)

    def _names(self) -> list[str]:
        names = []
        for name, number in (("mixup", self.mixup), ("cutmix", self.cutmix)):
            if number is not None:
                names.append(name)
        return names


@dataclass(frozen=True)
class Mixed:
    """Mixed examples, as returned by `Mixing.mix`; ``share`` is the weight of each example's own label.

    Integer targets cannot be averaged: ``labels`` has both labels, by the index of the target in the flattened targets.
    """

    x: Any
    y: Any
    sample_weight: Any
    share: tf.Tensor
    labels: dict[int, tuple[tf.Tensor, tf.Tensor]]

    @classmethod
    def of(
        cls, mixing: Mixing, own: tuple[Any, ...], other: tuple[Any, ...], draws: Draws
    ) -> Mixed:
        """Return the examples ``own`` mixed with those of ``other``, as ``mixing`` says.

        Inputs, targets and weights are mixed with the same random shares; for cutmix, inputs get a rectangle of the
        other image instead. Whole-number targets are those of the example with the larger share, except that targets
        for each pixel are pasted like the image. Weights become float32. Examples are (x, y, sample_weight or None).
        """
        inputs = tf.nest.flatten(own[0])
        # `mask` has the pixels to paste, and `is_pasted` whether an example has any; None without cutmix
        share, mask, is_pasted = _draw_mix(mixing, inputs[0], draws)
        if is_pasted is None:
            share_of_images = share
        else:
            # a pasted image is not averaged as well
            share_of_images = tf.where(is_pasted, 1.0, share)

        def mix_input(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            pasted = a if mask is None else tf.where(_reshape_mask(mask, a), b, a)
            return _mix_values(pasted, b, share_of_images)

        def mix_weight(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            return _mix_values(tf.cast(a, tf.float32), tf.cast(b, tf.float32), share)

        labels: dict[int, tuple[tf.Tensor, tf.Tensor]] = {}
        targets = []
        for place, (a, b) in enumerate(
            zip(tf.nest.flatten(own[1]), tf.nest.flatten(other[1]), strict=True)
        ):
            has_pixels = False  # whether something may be pasted into these targets
            if mask is not None and is_pasted is not None:
                has_pixels = a.shape.rank >= 3 and a.shape[1:3] == inputs[0].shape[1:3]
            if has_pixels:  # targets per pixel are pasted like the image
                a = tf.where(_reshape_mask(mask, a), b, a)
                # Where something is pasted, both labels are the pasted one, and the shares have no effect.
                b = tf.where(_broadcast_to_leaf(is_pasted, a), a, b)
            if a.dtype.is_floating:
                targets.append(_mix_values(a, b, share))
            elif has_pixels and mixing.mixup is None:  # nothing is averaged, so no label is lost
                targets.append(a)
            else:
                labels[place] = a, b
                # The label with the larger share stands for both.
                targets.append(tf.where(_broadcast_to_leaf(share >= 0.5, a), a, b))
        if own[2] is None:
            weights = None
        else:
            weights = tf.nest.map_structure(mix_weight, own[2], other[2])
        mixed_x = tf.nest.map_structure(mix_input, own[0], other[0])
        return cls(mixed_x, tf.nest.pack_sequence_as(own[1], targets), weights, share, labels)


def _draw_mix(
    mixing: Mixing, image: tf.Tensor, draws: Draws
) -> tuple[tf.Tensor, tf.Tensor | None, tf.Tensor | None]:
    """Draw each example's own share, the mask of pasted pixels, and whether pixels are pasted into the example.

    The mask and the last result are None if the trial does not use cutmix. The own share is 1 minus the area of pasted
    pixels as a share of the image, or the share drawn for mixup. The mask has the shape (examples, height, width, 1).
    """
    # the parameters alpha of the distribution of shares; None if the trial does not have one of them
    mixup = None if mixing.mixup is None else tf.convert_to_tensor(mixing.mixup)
    cutmix = None if mixing.cutmix is None else tf.convert_to_tensor(mixing.cutmix)
    if cutmix is None:
        return _draw_share(mixup, draws), None, None
    share_left = _draw_share(cutmix, draws)  # of the image, where something is pasted
    if mixup is None:
        share = tf.ones_like(share_left)
    else:
        share = _draw_share(mixup, draws)
    height, width = (tf.cast(n, tf.float32) for n in tf.unstack(tf.shape(image)[1:3]))
    sides = tf.stack([height, width])
    uniform = draws.uniform((3,))  # the centre (row, column), and the choice between the two ways
    # a rectangle with the area 1 - share_left
    size = tf.floor(sides * tf.sqrt(1.0 - share_left)[:, None])
    half = tf.floor(size / 2)
    centre = tf.floor(uniform[:, :2] * sides)
    if mixup is None:
        pasted = tf.ones_like(share_left, tf.bool)
    else:
        pasted = (uniform[:, 2] < 0.5) | (mixup <= 0)  # one way or the other, if both are on
    pasted &= cutmix > 0
    half = tf.where(pasted[:, None], half, 0.0)  # where nothing is pasted, the rectangle is empty
    low = tf.maximum(centre - half, 0.0)
    high = tf.minimum(centre + half, sides)
    # A rectangle that reaches over the border is cut off, so the area may be smaller than drawn.
    area = tf.reduce_prod(high - low, axis=1) / (height * width)
    mask = augmentation.rectangle(image, low, high)
    return tf.where(pasted, 1.0 - area, share), mask, pasted


def _draw_share(alpha: tf.Tensor, draws: Draws) -> tf.Tensor:
    # An alpha of 0 turns mixing off; `beta` needs a number above 0 in any case.
    return tf.where(alpha > 0, draws.beta(tf.where(alpha > 0, alpha, 1.0)), 1.0)


def _mix_values(a: tf.Tensor, b: tf.Tensor, share: tf.Tensor) -> tf.Tensor:
    """Return ``share`` of a plus the rest of b, in the type of a, rounded for integers; exactly a if the share is 1.

    There is one share for each example. Means are computed in float32.
    """
    shares = _broadcast_to_leaf(share, a)
    mean = shares * tf.cast(a, tf.float32) + (1.0 - shares) * tf.cast(b, tf.float32)
    if a.dtype.is_integer:
        mean = tf.round(mean)
    return tf.where(shares < 1.0, tf.cast(mean, a.dtype), a)


def _reshape_mask(box: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
    """Return a mask of shape (examples, height, width, 1), reshaped to broadcast against ``leaf``.

    ``leaf`` has an image or a target per pixel for each example, with or without channels.
    """
    channels = [1] * (leaf.shape.rank - 3)
    return tf.reshape(box, tf.concat([tf.shape(leaf)[:3], channels], 0))


def _broadcast_to_leaf(values: tf.Tensor, leaf: tf.Tensor) -> tf.Tensor:
    # one value for each example, reshaped to broadcast against ``leaf``
    return tf.reshape(values, [-1, *[1] * (leaf.shape.rank - 1)])


def _paths(y: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    # The leaves of nested targets, each after its path of keys and indices; ``path`` is that of ``y``.
    if isinstance(y, dict):
        parts = list(y.items())
    elif isinstance(y, list | tuple):
        parts = list(enumerate(y))
    else:
        return [(path, y)]
    found = []
    for key, part in parts:
        found += _paths(part, (*path, str(key)))
    return found


def _shapes(leaves: list[Any]) -> str:
    return " and ".join(str(tuple(leaf.shape[1:])) for leaf in leaves)
