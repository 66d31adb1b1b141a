"""Mixup, cutmix and random erasing against NumPy, and beside Keras's layers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainables.numbers.draws import Draws
from trainables.numbers.live import LiveNumber
from trainables.recipe import mixing
from trainables.recipe.mixing import Mixing
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras

SIZE = 40
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(SIZE, 12, 16, 3)).astype(np.float32)
BYTES = RANDOM.integers(0, 256, IMAGES.shape).astype(np.uint8)
LABELS = RANDOM.integers(0, 5, SIZE).astype(np.int32)
WEIGHTS = RANDOM.uniform(0.5, 2.0, SIZE).astype(np.float32)


def draws(calls: int = 7) -> Draws:
    return Draws(*map(tf.constant, (3, 0, SIZE, 0, SIZE)), calls=calls)


def of(**numbers: float) -> Mixing:
    return Mixing(**{name: LiveNumber(name, value) for name, value in numbers.items()})


def mixed(how: Mixing, x: Any, y: Any, weight: Any = None) -> tuple[Any, Any, Any, Any]:
    """What is mixed, and the partners."""
    found = draws()
    partners = found.partners()
    own = (
        tf.constant(x),
        tf.nest.map_structure(tf.constant, y),
        None if weight is None else tf.constant(weight),
    )
    other = tuple(
        None if a is None else tf.nest.map_structure(lambda t: tf.gather(t, partners), a)
        for a in own
    )
    result = how.mix(own, other, found)
    return result, partners.numpy(), result.share.numpy(), own


def by_numpy(alpha: float, x: Any, cutmix: float = 0.0) -> tuple[Any, Any]:
    """The papers' recipes with the same draws: pictures and shares; of both ways one for each example."""
    found = draws()
    partners = found.partners().numpy()
    rest = found.beta(cutmix).numpy() if cutmix else np.ones(SIZE)
    share = found.beta(alpha).numpy() if alpha else np.ones(SIZE)
    u = found.uniform((3,)).numpy() if cutmix else np.ones((SIZE, 3))
    result, shares = np.array(x, np.float64), np.array(share, np.float64)
    height, width = x.shape[1:3]
    for i, partner in enumerate(partners):
        if cutmix and (not alpha or u[i, 2] < 0.5):  # Yun et al., algorithm A1 and equation 2
            ratio = np.sqrt(np.float32(1) - np.float32(rest[i]))
            high, wide = int(np.float32(height) * ratio), int(np.float32(width) * ratio)
            row, column = int(u[i, 0] * height), int(u[i, 1] * width)
            rows = slice(max(row - high // 2, 0), min(row + high // 2, height))
            columns = slice(max(column - wide // 2, 0), min(column + wide // 2, width))
            result[i, rows, columns] = x[partner, rows, columns]
            area = (rows.stop - rows.start) * (columns.stop - columns.start)
            shares[i] = 1 - area / (height * width)
        else:
            result[i] = share[i] * x[i].astype(np.float64) + (1 - share[i]) * x[partner]
    return result, shares


@pytest.mark.parametrize(("mixup", "cutmix"), [(0.4, 0.0), (0.0, 1.0), (0.4, 1.0)])
@pytest.mark.parametrize("x", [IMAGES, BYTES], ids=["floats", "bytes"])
def test_pictures_shares_labels_and_weights_are_those_of_the_papers(
    mixup: float, cutmix: float, x: Any
) -> None:
    numbers = {name: value for name, value in (("mixup", mixup), ("cutmix", cutmix)) if value}
    y = {"label": LABELS, "number": WEIGHTS * 3}
    result, partners, share, _ = mixed(of(**numbers), x, y, WEIGHTS)
    expected, shares = by_numpy(mixup, x, cutmix)
    np.testing.assert_allclose(share, shares, atol=1e-6)
    np.testing.assert_allclose(
        result.x.numpy(), np.round(expected) if x is BYTES else expected, atol=1e-5
    )
    assert result.x.dtype == x.dtype
    for found, given in ((result.sample_weight, WEIGHTS), (result.y["number"], WEIGHTS * 3)):
        np.testing.assert_allclose(
            found, shares * given + (1 - shares) * given[partners], rtol=1e-5
        )
    own, other = result.labels[0]
    assert (own.numpy().tolist(), other.numpy().tolist()) == (
        LABELS.tolist(),
        LABELS[partners].tolist(),
    )
    assert (
        result.y["label"].numpy().tolist()
        == np.where(share >= 0.5, LABELS, LABELS[partners]).tolist()
    )
    assert len(set(np.round(share, 4))) > SIZE // 2, "each example has a share of its own"


def test_targets_for_each_pixel_are_pasted_with_the_picture() -> None:
    places = np.broadcast_to(np.arange(SIZE, dtype=np.int32)[:, None, None], (SIZE, 12, 16)).copy()
    x = np.repeat(places[..., None], 3, 3).astype(np.float32)
    result, *_ = mixed(of(cutmix=1.0), x, places)
    assert not result.labels
    assert (result.y.numpy() == result.x.numpy()[..., 0]).all()
    result, _, share, _ = mixed(of(cutmix=1.0, mixup=0.4), x, places)
    own, other = (t.numpy() for t in result.labels[0])
    cut = (own == other).all(axis=(1, 2))
    assert 5 < cut.sum() < SIZE - 5
    np.testing.assert_allclose(
        share[:, None, None] * own + (1 - share)[:, None, None] * other,
        result.x.numpy()[..., 0],
        rtol=1e-5,
        atol=1e-4,
    )
    result, *_ = mixed(of(cutmix=1.0), x, x)  # numbers for each pixel, as of an autoencoder
    assert (result.y.numpy() == result.x.numpy()).all()


def test_an_alpha_of_0_changes_nothing_and_both_ways_are_drawn() -> None:
    for numbers in ({"mixup": 0.0}, {"cutmix": 0.0}, {"mixup": 0.0, "cutmix": 0.0}):
        with_nan = np.where(np.arange(SIZE)[:, None, None, None] == 3, np.nan, IMAGES).astype(
            np.float32
        )
        result, _, share, _ = mixed(of(**numbers), with_nan, LABELS, WEIGHTS)
        assert (share == 1).all()
        assert result.x.numpy().tobytes() == with_nan.tobytes()
        assert result.sample_weight.numpy().tobytes() == WEIGHTS.tobytes()
    alone, *_ = mixed(of(cutmix=1.0), IMAGES, LABELS)
    one_off, partners, share, _ = mixed(of(cutmix=1.0, mixup=0.0), IMAGES, LABELS)
    changed = (one_off.x.numpy() != IMAGES).any(axis=(1, 2, 3))
    assert (changed == (share < 1) & (partners != np.arange(SIZE))).all()
    assert (share < 1).mean() == pytest.approx((alone.share.numpy() < 1).mean(), abs=0.2)


def test_mixup_is_that_of_keras_but_for_the_draws() -> None:
    """The layer keeps its own generator; what it does with permutation and shares is the same."""
    result, partners, share, _ = mixed(
        of(mixup=0.4), IMAGES, keras.utils.to_categorical(LABELS, 5).astype(np.float32)
    )
    drawn = {"mix_weight": tf.constant(share), "permutation_order": tf.constant(partners)}
    layer = keras.layers.MixUp(0.4)
    np.testing.assert_allclose(
        layer.transform_images(tf.constant(IMAGES), drawn), result.x, atol=1e-6
    )
    np.testing.assert_allclose(
        layer.transform_labels(tf.one_hot(LABELS, 5), drawn), result.y, atol=1e-6
    )


def test_cutmix_of_keras_differs_in_the_rectangle_alone() -> None:
    """It lies within the picture and weighs by an area that is no whole number of pixels."""
    result, partners, share, _ = mixed(
        of(cutmix=1.0), IMAGES, keras.utils.to_categorical(LABELS, 5).astype("float32")
    )
    covered = (result.x.numpy() != IMAGES).any(axis=3, keepdims=True)
    drawn = {
        "batch_masks": tf.constant(np.repeat(covered, 3, 3)),
        "mix_weight": tf.constant(share),
        "permutation_order": tf.constant(partners),
    }
    layer = keras.layers.CutMix(1.0)
    np.testing.assert_allclose(
        layer.transform_images(tf.constant(IMAGES), drawn), result.x, atol=1e-6
    )
    np.testing.assert_allclose(
        layer.transform_labels(tf.one_hot(LABELS, 5), drawn), result.y, atol=1e-6
    )
    same = partners == np.arange(SIZE)
    np.testing.assert_allclose(1 - covered.mean(axis=(1, 2, 3))[~same], share[~same], atol=1e-6)
    masks, weight = layer._generate_batch_mask(
        (1, 12, 16, 3), tuple(tf.constant([v]) for v in (0.5, 2.6, 0.5, 2.6))
    )
    assert weight.numpy().item() != pytest.approx(
        1 - float(tf.reduce_mean(tf.cast(masks, tf.float32))), abs=1e-3
    )


def test_a_share_of_pictures_is_erased_and_vectors_are_not() -> None:
    ones = np.ones((SIZE, 12, 16, 3), np.float32)
    points = np.random.default_rng(1).normal(size=(SIZE, 6)).astype(np.float32)
    found = of(erasing=0.5).erase({"a": tf.constant(ones), "b": tf.constant(points)}, draws())
    hit = (found["a"].numpy() == 0).any(axis=(1, 2, 3))
    assert 10 < hit.sum() < 30
    assert found["b"].numpy().tobytes() == points.tobytes()
    assert (of(erasing=0.0).erase(tf.constant(ones), draws()).numpy() == 1).all()


@pytest.mark.parametrize(
    ("numbers", "x", "y", "said"),
    [
        (
            {"mixup": 0.2},
            np.zeros((2, 6), np.int32),
            LABELS[:2],
            "mixup mixes inputs, and there are some of int32",
        ),
        (
            {"cutmix": 0.2},
            np.zeros((2, 6), np.float32),
            LABELS[:2],
            r"the inputs \(6,\) are no images",
        ),
        (
            {"erasing": 0.2},
            np.zeros((2, 6), np.float32),
            LABELS[:2],
            r"random_erasing is set, and \(6,\) are no images",
        ),
        (
            {"mixup": 0.2},
            IMAGES[:2],
            np.array(["a", "b"]),
            "mixup mixes targets, and there are texts",
        ),
        (
            {"mixup": 0.2, "cutmix": 1.0},
            IMAGES[:2],
            {"boxes": WEIGHTS[:2]},
            "mixup and cutmix mixes targets, and boxes",
        ),
        (
            {"cutmix": 1.0},
            {"a": IMAGES[:2], "b": IMAGES[:2, :4]},
            LABELS[:2],
            "no images of one height and width",
        ),
    ],
)
def test_what_has_no_mean_is_refused_by_name(numbers: Any, x: Any, y: Any, said: str) -> None:
    example = tf.nest.map_structure(
        lambda leaf: tf.TensorSpec.from_tensor(tf.constant(leaf)), (x, y)
    )
    with pytest.raises(Refused, match=said):
        of(**numbers).check(example)


def test_its_draws_are_nobody_elses() -> None:
    assert mixing.MIXING != mixing.ERASING
