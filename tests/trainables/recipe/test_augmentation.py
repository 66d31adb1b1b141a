from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainables.numbers.draws import Draws
from trainables.recipe import augmentation

pytestmark = pytest.mark.keras

SIZE = 13
FLOATS = np.random.default_rng(0).normal(size=(SIZE, 8, 10, 3)).astype(np.float32)
BYTES = np.random.default_rng(0).integers(0, 256, (SIZE, 8, 10, 3)).astype(np.uint8)
METHODS: dict[str, Callable[..., Any]] = {
    name: getattr(augmentation, name)
    for name in (
        "affine",
        "flip",
        "crop",
        "brightness",
        "contrast",
        "saturation",
        "noise",
        "cutout",
        "erase",
    )
}


@tf.function
def _augmented(
    method: Any,
    images: tf.Tensor,
    strength: tf.Tensor,
    update: tf.Tensor,
    start: tf.Tensor,
    stop: tf.Tensor,
) -> tf.Tensor:
    slice_of = Draws(tf.constant(3), update, tf.constant(SIZE), start, stop)
    return METHODS[method](images[start:stop], slice_of, strength)


def _run(
    name: str, images: Any, strength: float, update: int = 0, start: int = 0, stop: int = SIZE
) -> Any:
    numbers = (tf.constant(strength), *map(tf.constant, (update, start, stop)))
    return _augmented(name, tf.constant(images), *numbers).numpy()


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("images", [FLOATS, BYTES], ids=["floats", "bytes"])
def test_methods(name: str, images: Any) -> None:
    whole = _run(name, images, 0.7)
    assert (whole.shape, whole.dtype) == (images.shape, images.dtype)
    assert not np.array_equal(whole, images)
    assert _run(name, images, 0.0).tobytes() == images.tobytes(), "strength 0 changes nothing"
    for cuts in ([0, 1, 7, SIZE], [0, 6, 12, SIZE]):  # replicas and micro-batches
        parts = [_run(name, images, 0.7, 0, *cut) for cut in itertools.pairwise(cuts)]
        # The sine of one number differs in its last digit from one of many, of which a processor takes eight at once.
        np.testing.assert_allclose(
            np.concatenate(parts), whole, atol=0 if images is BYTES else 2e-6, rtol=0
        )
    assert _run(name, images, 0.7).tobytes() == whole.tobytes()
    assert _run(name, images, 0.7, update=1).tobytes() != whole.tobytes()


def test_each_example_has_its_own_draws() -> None:
    alike = np.repeat(FLOATS[:1], SIZE, axis=0)
    changed = _run("brightness", alike, 0.5) - alike
    assert len({round(float(c[0, 0, 0]), 5) for c in changed}) == SIZE
    assert np.abs(changed).max() <= 0.5
    assert np.ptp(changed[0]) < 1e-6  # one number for all of an image


def test_bytes_are_clipped_not_wrapped() -> None:
    bright = _run("brightness", np.full_like(BYTES, 250), 1.0)
    assert bright.max() == 255
    assert ((bright >= 250) | (bright <= 250)).all()
    assert (bright[bright.mean(axis=(1, 2, 3)) > 250] == 255).any()


def test_a_cutout_has_the_size_that_was_asked_for() -> None:
    images = np.ones((SIZE, 40, 40, 1), np.float32)
    filled = 1 - _run("cutout", images, 0.5).mean(axis=(1, 2, 3))
    assert filled.max() <= 0.25 + 1e-6
    assert filled.max() > 0.2
    assert filled.min() > 0.05  # centred on the image's border at worst


def test_a_share_of_images_is_erased() -> None:
    images = np.ones((SIZE, 40, 40, 1), np.float32)
    filled = 1 - _run("erase", images, 1.0).mean(axis=(1, 2, 3))
    assert (filled > 0.01).all()
    assert (filled < 0.4).all()
    assert 0 < (_run("erase", images, 0.5) != images).any(axis=(1, 2, 3)).sum() < SIZE


def test_contrast_keeps_the_mean_and_saturation_the_luminance() -> None:
    assert np.allclose(
        _run("contrast", FLOATS, 0.9).mean(axis=(1, 2, 3)), FLOATS.mean(axis=(1, 2, 3)), atol=1e-6
    )
    weights = np.array(augmentation.LUMINANCE)
    assert np.allclose(_run("saturation", FLOATS, 0.9) @ weights, FLOATS @ weights, atol=1e-5)


def test_no_two_calls_of_any_update_draw_the_same() -> None:
    seen = set()
    for update in (0, 1, 2, 2**26, 2**31 - 1):
        slice_of = Draws(*map(tf.constant, (0, update, 4, 0, 4)))
        seen |= {slice_of.uniform().numpy().tobytes() for _ in range(70)}
    assert len(seen) == 5 * 70
