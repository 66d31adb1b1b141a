"""Image augmentation inside the graph, with draws per example and strengths that may be live numbers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from trainables.draws import Draws


def affine(images: tf.Tensor, draws: Draws, strength: Any) -> tf.Tensor:
    """Rotate, scale and shift each image a little; ``images``: (examples, height, width, channels).

    At strength 1: up to 30 degrees, 25 % of scale, 20 % of the side; borders repeat the edge.
    """
    strength = tf.convert_to_tensor(strength, tf.float32)
    height, width = tf.cast(tf.shape(images)[1], tf.float32), tf.cast(tf.shape(images)[2], tf.float32)
    u = draws.uniform((4,), -1.0, 1.0) * strength
    angle = u[:, 0] * (3.14159265 / 6)
    zoom = 1.0 + 0.25 * u[:, 1]
    cos, sin = tf.cos(angle) / zoom, tf.sin(angle) / zoom
    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    shift_x, shift_y = u[:, 2] * 0.2 * width, u[:, 3] * 0.2 * height
    # Output to input coordinates, about the image's centre.
    to_x = centre_x - cos * centre_x + sin * centre_y + shift_x
    to_y = centre_y - sin * centre_x - cos * centre_y + shift_y
    zero = tf.zeros_like(cos)
    transforms = tf.stack([cos, -sin, to_x, sin, cos, to_y, zero, zero], axis=1)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="NEAREST",
    )


def flip(images: tf.Tensor, draws: Draws) -> tf.Tensor:
    """Mirror half of the images left to right."""
    mirrored = draws.uniform() < 0.5
    return tf.where(mirrored[:, None, None, None], tf.reverse(images, [2]), images)


def crop(images: tf.Tensor, draws: Draws, padding: Any) -> tf.Tensor:
    """Shift each image by up to ``padding`` whole pixels, zeros moving in (pad and random crop)."""
    padding = tf.convert_to_tensor(padding, tf.float32)
    shift = tf.floor(draws.uniform((2,)) * (2 * padding + 1)) - padding
    one, zero = tf.ones_like(shift[:, 0]), tf.zeros_like(shift[:, 0])
    transforms = tf.stack([one, zero, shift[:, 0], zero, one, shift[:, 1], zero, zero], axis=1)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=tf.shape(images)[1:3],
        fill_value=0.0,
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )
