"""Image augmentation inside the graph, with draws per example and strengths that may be live numbers.

Images are (examples, height, width, channels), as floats of any scale or as bytes. The type is kept, and bytes are
clipped to 0..255. A strength of 0 returns exactly the same images.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainables.numbers.draws import Draws

LUMINANCE = (0.299, 0.587, 0.114)  # weights of red, green and blue (ITU-R BT.601)


# ---- geometry


def affine(images: tf.Tensor, draws: Draws, strength: Any) -> tf.Tensor:
    """Return the images, each rotated, scaled and shifted at random; borders repeat the edge.

    ``strength`` is a number or a live number for all images. At 1, images are rotated by up to 30 degrees, scaled by up
    to 25 % and shifted by up to 20 % of a side; other strengths are in proportion.
    """
    terms = affine_terms(images, draws, strength)
    zero = tf.zeros_like(terms[0])
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([*terms, zero, zero], axis=1),  # the last two would add perspective
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )


def affine_terms(images: tf.Tensor, draws: Draws, strength: Any) -> list[tf.Tensor]:
    """Return the terms by which `affine` finds the input position (x', y') of each output pixel (x, y), per image.

    They are a, b, c, d, e, f of x' = ax + by + c and y' = dx + ey + f, each of shape (examples,), for the column x and
    the row y of a pixel from 0.
    """
    strength = tf.convert_to_tensor(strength, tf.float32)
    height, width = _sides(images)
    u = draws.uniform((4,), -1.0, 1.0) * strength
    angle = u[:, 0] * (3.14159265 / 6)  # in radians; 30 degrees at most
    zoom = 1.0 + 0.25 * u[:, 1]
    cos = tf.cos(angle) / zoom
    sin = tf.sin(angle) / zoom
    centre_x = (width - 1) / 2
    centre_y = (height - 1) / 2
    shift_x = u[:, 2] * 0.2 * width
    shift_y = u[:, 3] * 0.2 * height
    # Output to input coordinates, about the image's centre.
    to_x = centre_x - cos * centre_x + sin * centre_y + shift_x
    to_y = centre_y - sin * centre_x - cos * centre_y + shift_y
    return [cos, -sin, to_x, sin, cos, to_y]


def flip(images: tf.Tensor, draws: Draws, share: Any = 0.5) -> tf.Tensor:
    """Return the images, of which each is mirrored left to right with probability ``share``."""
    mirrored = draws.uniform() < tf.convert_to_tensor(share, tf.float32)
    return tf.where(_broadcast_to_pixels(mirrored), tf.reverse(images, [2]), images)


def crop(images: tf.Tensor, draws: Draws, padding: Any) -> tf.Tensor:
    """Return the images, each shifted by up to ``padding`` whole pixels in each direction at random.

    ``padding`` is a whole number of pixels, possibly a live number. Zeros fill the border. This is the same as padding
    and a random crop.
    """
    shift = crop_shifts(draws, padding)
    right, down = shift[:, 0], shift[:, 1]
    one = tf.ones_like(right)
    zero = tf.zeros_like(right)
    # x' = x + right, y' = y + down; the last two terms would add perspective
    transforms = tf.stack([one, zero, right, zero, one, down, zero, zero], axis=1)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )


def crop_shifts(draws: Draws, padding: Any) -> tf.Tensor:
    """Return the whole pixels (right, down) by which `crop` shifts the position that it reads, per image.

    They are floats of shape (examples, 2), from -``padding`` to ``padding``, which must be a whole number.
    """
    padding = tf.convert_to_tensor(padding, tf.float32)
    # All whole numbers from -padding to padding are equally likely.
    return tf.floor(draws.uniform((2,)) * (2 * padding + 1)) - padding


# ---- values of pixels


def brightness(
    images: tf.Tensor, draws: Draws, strength: Any, value_range: float = 1.0
) -> tf.Tensor:
    """Return the images, with one random number added to all values of each.

    It is at most ``strength`` times the value range, up or down. The value range of float images is given as
    ``value_range``, and that of integer images is 255. Only integer images are clipped.
    """
    u = _signed(draws, strength)
    return _cast_like(
        images,
        tf.cast(images, tf.float32) + u * (255.0 if images.dtype.is_integer else value_range),
    )


def contrast(images: tf.Tensor, draws: Draws, strength: Any) -> tf.Tensor:
    """Return the images, with each one's distance from its mean scaled by a random factor.

    There is one factor for each image, between 1 - ``strength`` and 1 + ``strength``; the mean is that of all values of
    an image. Only integer images are clipped.
    """
    pixels = tf.cast(images, tf.float32)
    mean = tf.reduce_mean(pixels, axis=(1, 2, 3), keepdims=True)
    return _cast_like(images, pixels + (pixels - mean) * _signed(draws, strength))


def saturation(images: tf.Tensor, draws: Draws, strength: Any) -> tf.Tensor:
    """Return the images, with each one's distance from its grey version scaled by a random factor.

    There is one factor for each image, between 1 - ``strength`` and 1 + ``strength``. The images must have three
    channels: red, green, blue. Only integer images are clipped.
    """
    pixels = tf.cast(images, tf.float32)
    grey = tf.reduce_sum(pixels * tf.constant(LUMINANCE), axis=3, keepdims=True)
    return _cast_like(images, pixels + (pixels - grey) * _signed(draws, strength))


def noise(images: tf.Tensor, draws: Draws, strength: Any, value_range: float = 1.0) -> tf.Tensor:
    """Return the images with normal noise added to every value.

    Its standard deviation is drawn per image, up to ``strength`` times the value range. The value range of float images
    is given as ``value_range``, and that of integer images is 255. Only integer images are clipped.
    """
    spread = _broadcast_to_pixels(draws.uniform()) * tf.convert_to_tensor(strength, tf.float32)
    drawn = draws.normal(tuple(images.shape[1:])) * spread
    return _cast_like(
        images,
        tf.cast(images, tf.float32) + drawn * (255.0 if images.dtype.is_integer else value_range),
    )


def cutout(images: tf.Tensor, draws: Draws, strength: Any, fill: float = 0.0) -> tf.Tensor:
    """Return the images, with a square in each filled with ``fill``; its centre is drawn anywhere in the image.

    Its side is ``strength`` times the shorter side of the image; what lies outside of the image is cut off. DeVries and
    Taylor, Improved Regularization of Convolutional Neural Networks with Cutout, section 3.2.
    """
    return _filled(images, *square(images, draws, strength), fill)


def square(images: tf.Tensor, draws: Draws, strength: Any) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the upper left and the lower right corner (row, column) of the square that `cutout` fills, per image.

    Both have the shape (examples, 2), in pixels as floats, and may lie outside of the image.
    """
    height, width = _sides(images)
    half = tf.minimum(height, width) * tf.convert_to_tensor(strength, tf.float32) / 2
    centre = draws.uniform((2,)) * tf.stack([height, width])
    return centre - half, centre + half


def erase(images: tf.Tensor, draws: Draws, share: Any, fill: float = 0.0) -> tf.Tensor:
    """Return the images, each of which has with probability ``share`` a random rectangle filled with ``fill``.

    The rectangle has 2 to 33 % of the area and an aspect ratio of 0.3 to 3.3; a side that would be too long is cut to
    the image's. Zhong et al., Random Erasing Data Augmentation, algorithm 1.
    """
    height, width = _sides(images)
    # One number each for: whether to erase, the area, the aspect ratio, and the place (row, column).
    u = draws.uniform((5,))
    area = (0.02 + 0.31 * u[:, 1]) * height * width
    # The logarithm is uniform, so that a ratio and its inverse are equally likely; 1 / 3.3 is 0.3.
    ratio = tf.exp(tf.math.log(3.3) * (2 * u[:, 2] - 1))
    drawn = tf.stack([tf.sqrt(area * ratio), tf.sqrt(area / ratio)], axis=1)
    sides = tf.minimum(drawn, tf.stack([height, width]))
    corner = u[:, 3:] * (tf.stack([height, width]) - sides)
    erased = _filled(images, corner, corner + sides, fill)
    is_erased = u[:, 0] < tf.convert_to_tensor(share, tf.float32)
    return tf.where(_broadcast_to_pixels(is_erased), erased, images)


def _filled(images: tf.Tensor, low: tf.Tensor, high: tf.Tensor, fill: float) -> tf.Tensor:
    return tf.where(rectangle(images, low, high), tf.cast(fill, images.dtype), images)


def rectangle(images: tf.Tensor, low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
    """Return a mask of the pixels whose centres lie in [low, high) of (row, column): (examples, height, width, 1).

    ``low`` and ``high`` have the shape (examples, 2); the centre of the first pixel is (0.5, 0.5).
    """
    sizes = tf.shape(images)  # sizes stay integers, whose values the host knows
    rows, columns = (tf.cast(tf.range(sizes[axis]), tf.float32) + 0.5 for axis in (1, 2))
    down = (rows >= low[:, :1]) & (rows < high[:, :1])
    across = (columns >= low[:, 1:]) & (columns < high[:, 1:])
    return down[:, :, None, None] & across[:, None, :, None]


def _signed(draws: Draws, strength: Any) -> tf.Tensor:
    return _broadcast_to_pixels(draws.uniform((), -1.0, 1.0)) * tf.convert_to_tensor(
        strength, tf.float32
    )


def _broadcast_to_pixels(values: tf.Tensor) -> tf.Tensor:
    """Reshape one value per image, (examples,), to (examples, 1, 1, 1), to broadcast against its pixels."""
    return values[:, None, None, None]


def _sides(images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    shape = tf.cast(tf.shape(images), tf.float32)
    return shape[1], shape[2]


def _cast_like(images: tf.Tensor, pixels: tf.Tensor) -> tf.Tensor:
    """Return pixels in the dtype of the images; for integer images they are rounded and clipped to 0 to 255."""
    if images.dtype.is_integer:
        pixels = tf.clip_by_value(tf.round(pixels), 0.0, 255.0)
    return tf.cast(pixels, images.dtype)
