"""Random movements of images, drawn once for all that belongs to an image: pixels, masks, boxes and points.

move = Movement(x, draws).flip().affine(0.5).crop(4)
x, mask = move.images(x), move.masks(mask, fill=255)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from trainables.numbers.draws import Draws
from trainables.recipe import augmentation
from trainables.recipe.refusals import Refused

BOXES = ("xyxy", "yxyx", "xywh", "center_xywh", "center_yxhw")
"""Formats of boxes, as in `keras.utils.bounding_boxes`.

With the prefix ``rel_``, numbers are shares of the image's width and height.
"""
POINTS = ("xy", "yx")
DOWN_FIRST = ("yxyx", "center_yxhw")
NOWHERE = -1


@dataclass(frozen=True)
class DrawnMovement:
    """A drawn movement of images: where each pixel comes from, which images are mirrored, and what is covered.

    ``source`` has terms as in `augmentation.affine_terms`. They are combined number by number, because a product of
    matrices is rounded differently for another number of images.
    """

    source: tuple[tf.Tensor, ...]
    mirrored: tf.Tensor
    covered: tuple[tuple[tf.Tensor, tf.Tensor], ...] = ()


class Movement:
    """A movement of the pixels of each image of a slice; each step returns a new movement.

    Consecutive steps are combined, so that images are interpolated only once. ``images``, of shape (examples, height,
    width, channels), determine the size only. Coordinates start at the upper left corner of the image (0, 0); the
    centre of its first pixel is (0.5, 0.5).
    """

    def __init__(self, images: tf.Tensor, draws: Draws, steps: DrawnMovement | None = None) -> None:
        self._images, self._draws = images, draws
        shape = tf.cast(tf.shape(images), tf.float32)
        self._height = shape[1]
        self._width = shape[2]
        count = tf.shape(images)[0]
        one = tf.ones([count])
        zero = tf.zeros([count])
        # Without steps, each pixel comes from its own place.
        self._steps = steps or DrawnMovement(
            (one, zero, zero, zero, one, zero), tf.zeros([count], tf.bool)
        )

    # ---- steps

    def flip(self, share: Any = 0.5) -> Movement:
        """Return this movement, after which each image is mirrored left to right with probability ``share``.

        Raises: Refused: after `cutout`.
        """
        mirrored = self._draws.uniform() < tf.convert_to_tensor(share, tf.float32)
        # A mirrored pixel x comes from width - 1 - x.
        sign = tf.where(mirrored, -1.0, 1.0)
        shift = tf.where(mirrored, self._width - 1, 0.0)
        moved = self._after([sign, 0.0, shift, 0.0, 1.0, 0.0])
        return moved._with(
            replace(moved._steps, mirrored=tf.math.logical_xor(moved._steps.mirrored, mirrored))
        )

    def flip_down(self, share: Any = 0.5) -> Movement:
        """Return this movement, after which each image is mirrored top to bottom with probability ``share``.

        Raises: Refused: after `cutout`.
        """
        mirrored = self._draws.uniform() < tf.convert_to_tensor(share, tf.float32)
        sign = tf.where(mirrored, -1.0, 1.0)
        shift = tf.where(mirrored, self._height - 1, 0.0)
        moved = self._after([1.0, 0.0, 0.0, 0.0, sign, shift])
        # Any mirroring exchanges left and right of what is shown; two of them are a rotation.
        return moved._with(
            replace(moved._steps, mirrored=tf.math.logical_xor(moved._steps.mirrored, mirrored))
        )

    def affine(self, strength: Any) -> Movement:
        """Return this movement, after which each image is rotated, scaled and shifted as by `augmentation.affine`.

        Raises: Refused: after `cutout`.
        """
        return self._after(augmentation.affine_terms(self._images, self._draws, strength))

    def crop(self, padding: Any) -> Movement:
        """Return this movement, after which each image is shifted as by `augmentation.crop`, up to ``padding`` pixels.

        Raises: Refused: after `cutout`.
        """
        shift = augmentation.crop_shifts(self._draws, padding)
        return self._after([1.0, 0.0, shift[:, 0], 0.0, 1.0, shift[:, 1]])

    def cutout(self, strength: Any) -> Movement:
        """Return this movement, after which a square of each image is covered, as by `augmentation.cutout`.

        The side of the square is ``strength`` times the shorter side of the image. Only cutouts may follow.
        """
        corners = augmentation.square(self._images, self._draws, strength)
        return self._with(replace(self._steps, covered=(*self._steps.covered, corners)))

    # ---- what the movement is applied to

    def images(
        self, images: tf.Tensor, fill: float | None = None, *, cover: float = 0.0
    ) -> tf.Tensor:
        """Apply the movement to images and return them, interpolated, in their type.

        The border is repeated, or filled with ``fill`` if given; covered pixels become ``cover``.
        Raises: Refused: if the images do not have four axes, and the height and width of this movement.
        """
        return self._pixels(images, fill, cover, "BILINEAR", "images")

    def masks(self, masks: tf.Tensor, fill: float = 0, *, cover: float | None = None) -> tf.Tensor:
        """Apply the movement to labels of pixels and return them; each pixel gets the label of the nearest one.

        ``masks`` have the shape (examples, height, width) or (examples, height, width, channels). The border gets
        ``fill``, such as a label that the loss ignores. Covered pixels keep their label, or get ``cover`` if given.
        Raises: Refused: if the masks do not have the height and width of this movement.
        """
        lacks_channels = masks.shape.rank == 3
        with_channels = masks[..., None] if lacks_channels else masks
        dtype = masks.dtype
        if not dtype.is_floating and dtype not in (tf.uint8, tf.int32, tf.int64):
            # the kernel has no other integer types, such as int8
            with_channels = tf.cast(with_channels, tf.int32)
        moved = tf.cast(self._pixels(with_channels, fill, cover, "NEAREST", "masks"), dtype)
        return moved[..., 0] if lacks_channels else moved

    def boxes(
        self, boxes: tf.Tensor, labels: tf.Tensor, form: str, *, least: float = 0.0
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Apply the movement to boxes and return them, clipped to the image, and their labels.

        Boxes have the shape (examples, boxes, 4), labels (examples, boxes). ``form`` is one of `BOXES`, possibly with
        the prefix ``rel_``; the result has the same form. Boxes of floats keep their type, and those of whole numbers
        become float32. A rotated box becomes the smallest box that contains it. The label of a box becomes -1 if
        nothing of the moved box remains in the image, or at most the share ``least`` of its area. Boxes labelled -1,
        which are padding, keep that label. Cutouts have no effect.
        Raises: Refused: if the form is unknown.
        """
        corners = self._to_corners(boxes, form)
        x, y = corners[..., 0::2], corners[..., 1::2]  # each of shape (examples, boxes, 2)
        # All four corners, because those of a rotated box need not be its extremes.
        x_of_four = tf.gather(x, [0, 1, 1, 0], axis=2)
        y_of_four = tf.gather(y, [0, 0, 1, 1], axis=2)
        four_corners = tf.stack([x_of_four, y_of_four], axis=3)
        moved = self._forward(tf.reshape(four_corners, [tf.shape(four_corners)[0], -1, 2]))
        moved = tf.reshape(moved, tf.shape(four_corners))
        # the upper left and the lower right corner, before and after clipping
        low = tf.reduce_min(moved, axis=2)
        high = tf.reduce_max(moved, axis=2)
        sides = tf.stack([self._width, self._height])
        clipped_low = tf.clip_by_value(low, 0.0, sides)
        clipped_high = tf.clip_by_value(high, 0.0, sides)
        whole_area = tf.reduce_prod(high - low, axis=-1)
        area = tf.reduce_prod(clipped_high - clipped_low, axis=-1)
        remains = (area > 0) & (area > least * whole_area)
        clipped = self._from_corners(tf.concat([clipped_low, clipped_high], axis=-1), form)
        if boxes.dtype.is_floating:
            clipped = tf.cast(clipped, boxes.dtype)
        # What is left of a padding box does not matter: its label is -1 in any case.
        padding = tf.cast(tf.constant(NOWHERE), labels.dtype)
        return clipped, tf.where(remains, labels, padding)

    def points(
        self, points: tf.Tensor, form: str = "xy", *, mirror: Sequence[int] | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Apply the movement to points and return them, as float32, and whether each is in the image.

        Points have the shape (examples, points, 2), the second result (examples, points). Points outside of the image
        are not clipped. ``form`` is xy or yx, possibly with the prefix ``rel_``; the result has the same form.
        ``mirror`` has for each point the index of the point that replaces it in a mirrored image, such as the right eye
        for the left one. Cutouts have no effect.
        Raises: Refused: if the form is unknown.
        """
        order, scale = self._form(form, POINTS)
        xy = tf.cast(points, tf.float32)
        if order == "yx":
            xy = xy[..., ::-1]
        moved = self._forward(xy * scale)
        if mirror is not None:
            swapped = tf.gather(moved, list(mirror), axis=1)
            moved = tf.where(self._steps.mirrored[:, None, None], swapped, moved)
        sides = tf.stack([self._width, self._height])
        inside = tf.reduce_all((moved >= 0) & (moved < sides), axis=-1)
        moved = moved / scale
        if order == "yx":
            moved = moved[..., ::-1]
        return moved, inside

    # ---- internals

    def _with(self, steps: DrawnMovement) -> Movement:
        return Movement(self._images, self._draws, steps)

    def _after(self, terms: Sequence[Any]) -> Movement:
        """Return this movement followed by a step with the six affine ``terms`` (see `augmentation.affine_terms`).

        Raises: Refused: if this movement has a cutout.
        """
        if self._steps.covered:
            raise Refused(
                "cutout() is followed by a movement, and covers squares of the moved picture; let it be last"
            )
        a, b, c, d, e, f = self._steps.source
        p, q, r, s, t, u = terms
        # `source` leads from output to input: the new step comes first, then the earlier ones. This is the product of
        # the two matrices (a, b, c; d, e, f; 0, 0, 1) and (p, q, r; s, t, u; 0, 0, 1).
        first = (a * p + b * s, a * q + b * t, a * r + b * u + c)
        second = (d * p + e * s, d * q + e * t, d * r + e * u + f)
        return self._with(replace(self._steps, source=(*first, *second)))

    def _pixels(
        self, images: tf.Tensor, fill: float | None, cover: float | None, how: str, name: str
    ) -> tf.Tensor:
        # ``fill`` is for the border, which is repeated if it is None; ``cover`` is for covered pixels, which stay if it
        # is None. ``how`` is the interpolation, and ``name`` what the images are, for the message.
        given = images.shape[1:3]
        own = self._images.shape[1:3]
        if images.shape.rank != 4 or not given.is_compatible_with(own):
            raise Refused(
                f"{name} of shape {tuple(images.shape)} are moved with pictures of {tuple(own)}"
            )
        zero = tf.zeros_like(self._steps.source[0])
        moved = tf.raw_ops.ImageProjectiveTransformV3(
            images=images,
            transforms=tf.stack([*self._steps.source, zero, zero], axis=1),
            output_shape=tf.shape(images)[1:3],
            fill_value=float(fill or 0),  # without effect if the border is repeated
            interpolation=how,
            fill_mode="NEAREST" if fill is None else "CONSTANT",
        )
        if cover is not None:
            for low, high in self._steps.covered:
                hidden = augmentation.rectangle(self._images, low, high)
                moved = tf.where(hidden, tf.cast(cover, moved.dtype), moved)
        return tf.ensure_shape(moved, images.shape)

    def _forward(self, points: tf.Tensor) -> tf.Tensor:
        """Return the positions (x, y) to which the movement takes points of shape (examples, points, 2)."""
        a, b, c, d, e, f = (term[:, None] for term in self._steps.source)
        # Invert `source`, which leads from output to input, and whose pixels have their centres at whole numbers.
        x = points[..., 0] - 0.5 - c
        y = points[..., 1] - 0.5 - f
        determinant = a * e - b * d
        moved_x = (e * x - b * y) / determinant
        moved_y = (a * y - d * x) / determinant
        return tf.stack([moved_x, moved_y], axis=-1) + 0.5

    def _form(self, form: str, known: Sequence[str]) -> tuple[str, tf.Tensor]:
        """Return the order of a form's numbers, such as "xywh", and the factors (x, y) that convert them to pixels.

        The order is the form without ``rel_``. The factors are the image's width and height for a form with ``rel_``,
        and 1 for any other. ``known`` has the orders that are accepted.
        Raises: Refused: if the form is unknown.
        """
        order = form.removeprefix("rel_")
        if order not in known:
            raise Refused(
                f"{form!r} is no form, expected one of {', '.join(known)}, or rel_ and one of them"
            )
        sides = tf.stack([self._width, self._height])
        if form.startswith("rel_"):
            return order, sides
        return order, tf.ones_like(sides)

    def _to_corners(self, boxes: tf.Tensor, form: str) -> tf.Tensor:
        """Return boxes in the format ``form`` as left, top, right, bottom, in pixels, as float32.

        Raises Refused for other forms.
        """
        order, scale = self._form(form, BOXES)
        # Two corners, a corner and the sides, or the centre and the sides.
        first, second = tf.split(tf.cast(boxes, tf.float32), 2, axis=-1)
        if order in DOWN_FIRST:
            first = first[..., ::-1]
            second = second[..., ::-1]
        if order.startswith("center"):
            first, second = first - second / 2, first + second / 2
        elif order == "xywh":
            second = first + second
        return tf.concat([first * scale, second * scale], axis=-1)

    def _from_corners(self, corners: tf.Tensor, form: str) -> tf.Tensor:
        # The inverse of `_to_corners`, with its steps in reverse order.
        order, scale = self._form(form, BOXES)
        first, second = (part / scale for part in tf.split(corners, 2, axis=-1))
        if order.startswith("center"):
            first, second = (first + second) / 2, second - first
        elif order == "xywh":
            second = second - first
        if order in DOWN_FIRST:
            first = first[..., ::-1]
            second = second[..., ::-1]
        return tf.concat([first, second], axis=-1)
