"""Masks, boxes and points go where the pixels go."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import zoo_mixing
from small import assignment, metrics, train

from trainables.numbers.draws import Draws
from trainables.recipe import augmentation
from trainables.recipe.movement import BOXES, Movement
from trainables.recipe.refusals import Refused

pytestmark = pytest.mark.keras

SIZE, HEIGHT, WIDTH = 64, 40, 56
IMAGES = np.random.default_rng(0).normal(size=(SIZE, HEIGHT, WIDTH, 2)).astype(np.float32)
STEPS: dict[str, Callable[[Movement], Movement]] = {
    "flip": lambda move: move.flip(),
    "flip_down": lambda move: move.flip_down(),
    "crop": lambda move: move.crop(9),
    "affine": lambda move: move.affine(0.8),
    "all": lambda move: move.flip().affine(0.6).crop(3).flip_down(0.3),
}
FORMS = [*BOXES, *(f"rel_{form}" for form in BOXES)]


def draws(start: int = 0, stop: int = SIZE) -> Draws:
    return Draws(*map(tf.constant, (5, 1, SIZE, start, stop)))


def movement(name: str, start: int = 0, stop: int = SIZE) -> Movement:
    return STEPS[name](Movement(tf.constant(IMAGES[start:stop]), draws(start, stop)))


@pytest.fixture
def rng() -> np.random.Generator:
    """Draw the same for a test in whatever order the tests run."""
    return np.random.default_rng(0)


def boxes(rng: np.random.Generator) -> Any:
    """(examples, 2, 4) left, top, right, bottom, whole pixels."""
    low = rng.integers(0, (WIDTH - 16, HEIGHT - 16), (SIZE, 2, 2))
    return np.concatenate([low, low + rng.integers(6, 16, (SIZE, 2, 2))], axis=2).astype(np.float32)


def rendered(corners: Any) -> Any:
    """(examples, height, width): 1 within the box, whose edges need be no whole pixels."""
    left, top, right, bottom = (corners[:, i, None] for i in range(4))
    x, y = np.arange(WIDTH) + 0.5, np.arange(HEIGHT) + 0.5
    return (
        ((y >= top) & (y < bottom))[:, :, None] & ((x >= left) & (x < right))[:, None, :]
    ).astype(np.uint8)


@pytest.mark.parametrize("name", STEPS)
def test_a_box_and_its_mask_go_to_the_same_place(name: str, rng: np.random.Generator) -> None:
    corners, labels = boxes(rng), np.tile(np.int32([1, 2]), (SIZE, 1))
    move = movement(name)
    found, seen = (t.numpy() for t in move.boxes(tf.constant(corners), tf.constant(labels), "xyxy"))
    apart = 0.0 if name not in ("affine", "all") else 1.0  # a turned edge passes between pixels
    gone = 0
    for number in range(2):
        mask = move.masks(tf.constant(rendered(corners[:, number]))).numpy()
        for row in range(SIZE):
            there = np.argwhere(mask[row])
            if len(there) < 4:
                gone += 1
                continue
            assert seen[row, number] == number + 1
            (top, left), (bottom, right) = there.min(0), there.max(0) + 1
            box, held = found[row, number], np.float32([left, top, right, bottom])
            # of a turned one that sticks out
            if apart and (box % np.float32([WIDTH, HEIGHT] * 2) == 0).any():
                assert (box[:2] <= held[:2] + apart).all()
                assert (box[2:] >= held[2:] - apart).all()
            else:
                np.testing.assert_allclose(box, held, atol=apart + 1e-3)
    assert gone < SIZE // 4


@pytest.mark.parametrize("name", ["flip", "crop", "all"])
@pytest.mark.parametrize("form", FORMS)
def test_forms_are_those_of_keras(name: str, form: str, rng: np.random.Generator) -> None:
    corners, labels = boxes(rng), np.ones((SIZE, 2), np.int32)
    move = movement(name)
    by_corners, _ = move.boxes(tf.constant(corners), tf.constant(labels), "xyxy")
    if form == "rel_center_yxhw":  # Keras knows all but this
        relative = corners / np.tile([WIDTH, HEIGHT], 2)
        centre, sides = (
            (relative[..., :2] + relative[..., 2:]) / 2,
            relative[..., 2:] - relative[..., :2],
        )
        given = np.concatenate([centre[..., ::-1], sides[..., ::-1]], -1).astype(np.float32)
        found, _ = move.boxes(tf.constant(given), tf.constant(labels), form)
        centre, sides = found[..., 1::-1].numpy(), found[..., :1:-1].numpy()
        back = np.concatenate([centre - sides / 2, centre + sides / 2], -1) * np.tile(
            [WIDTH, HEIGHT], 2
        )
    else:
        convert = keras.utils.bounding_boxes.convert_format
        given = np.asarray(convert(corners, "xyxy", form, height=HEIGHT, width=WIDTH), np.float32)
        found, _ = move.boxes(tf.constant(given), tf.constant(labels), form)
        back = np.asarray(convert(found.numpy(), form, "xyxy", height=HEIGHT, width=WIDTH))
    np.testing.assert_allclose(back, by_corners, atol=1e-3)


def test_boxes_that_left_are_marked_and_padding_stays_padding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        augmentation, "crop_shifts", lambda draws, padding: tf.constant([[6.0, 0.0]] * 3)
    )
    images = tf.zeros((3, 10, 10, 1))
    far = Movement(images, draws(0, 3)).crop(6)  # all goes 6 to the left
    given = tf.constant([[[0.0, 0, 4, 4], [2, 2, 8, 8], [7, 1, 9, 9], [0, 0, 0, 0]]] * 3)
    labels = tf.constant([[0, 1, 2, -1]] * 3)
    found, seen = far.boxes(given, labels, "xyxy")
    assert seen.numpy()[0].tolist() == [-1, 1, 2, -1]
    assert found.numpy()[0].tolist() == [[0, 0, 0, 4], [0, 2, 2, 8], [1, 1, 3, 9], [0, 0, 0, 0]]
    _, seen = far.boxes(given, labels, "xyxy", least=0.5)  # a third of the second is left
    assert seen.numpy()[0].tolist() == [-1, -1, 2, -1]
    points, inside = far.points(tf.constant([[[7.5, 2.0], [3.0, 3.0]]] * 3))
    assert points.numpy()[0].tolist() == [[1.5, 2.0], [-3.0, 3.0]]
    assert inside.numpy()[0].tolist() == [True, False]


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("form", ["xy", "yx", "rel_xy", "rel_yx"])
def test_a_point_goes_with_its_pixel(name: str, form: str, rng: np.random.Generator) -> None:
    at = rng.integers(12, (WIDTH - 12, HEIGHT - 12), (SIZE, 2))
    lit = np.zeros((SIZE, HEIGHT, WIDTH, 1), np.float32)
    for row, (x, y) in enumerate(at):
        lit[row, y - 1 : y + 2, x - 1 : x + 2] = 1
    move = movement(name)
    moved = move.images(tf.constant(lit), fill=0).numpy()[..., 0]
    scale = np.array([WIDTH, HEIGHT]) if form.startswith("rel_") else np.ones(2)
    order = slice(None, None, 1 if form.endswith("xy") else -1)
    given = ((at + 0.5) / scale)[:, None, order].astype(np.float32)
    found, inside = move.points(tf.constant(given), form)
    found = found.numpy()[:, 0, order] * scale
    cut = (moved > 0).any(2)[:, [0, -1]].any(1) | (moved > 0).any(1)[:, [0, -1]].any(1)
    # the centre of what the edge cuts lies elsewhere
    held = np.flatnonzero((moved.sum((1, 2)) > 1) & ~cut)
    assert len(held) > SIZE // 3
    for row in held:
        y, x = (
            np.average(np.argwhere(moved[row] > 0), axis=0, weights=moved[row][moved[row] > 0])
            + 0.5
        )
        np.testing.assert_allclose(found[row], [x, y], atol=0.2)
        assert inside[row, 0]


def test_sides_change_places_in_a_mirrored_picture() -> None:
    move = Movement(tf.constant(IMAGES), draws()).flip()
    eyes = tf.constant(np.tile(np.float32([[10, 5], [30, 6], [20, 9]]), (SIZE, 1, 1)))
    found, _ = move.points(eyes, mirror=[1, 0, 2])
    mirrored = (move.images(tf.constant(IMAGES)).numpy() != IMAGES).any((1, 2, 3))
    assert 10 < mirrored.sum() < SIZE - 10
    assert found.numpy()[mirrored][0].tolist() == [
        [WIDTH - 30, 6],
        [WIDTH - 10, 5],
        [WIDTH - 20, 9],
    ]
    assert found.numpy()[~mirrored][0].tolist() == eyes.numpy()[0].tolist()


def test_single_steps_are_the_functions_of_augmentation() -> None:
    images = tf.constant(IMAGES)
    for step, expected in (
        ("flip", augmentation.flip(images, draws())),
        ("crop", augmentation.crop(images, draws(), 9)),
        ("affine", augmentation.affine(images, draws(), 0.8)),
    ):
        moved = movement(step).images(images, fill=0 if step == "crop" else None)
        np.testing.assert_allclose(moved, expected, atol=1e-6)
    covered = Movement(images, draws()).cutout(0.5)
    assert (
        covered.images(images).numpy().tobytes()
        == augmentation.cutout(images, draws(), 0.5).numpy().tobytes()
    )
    masks = tf.ones((SIZE, HEIGHT, WIDTH), tf.int32)
    assert (covered.masks(masks).numpy() == 1).all()
    hidden = covered.masks(masks, cover=255).numpy() == 255
    assert (hidden == (covered.images(images).numpy() == 0).all(3)).all()


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "int16", "bool", "float32"])
def test_masks_keep_their_labels_and_type(dtype: str, rng: np.random.Generator) -> None:
    labels = rng.integers(0, 2, (SIZE, HEIGHT, WIDTH)).astype(dtype)
    for given in (labels, labels[..., None]):
        found = movement("affine").masks(tf.constant(given), fill=1)
        assert (found.dtype, found.shape) == (dtype, given.shape)
        assert set(np.unique(found.numpy())) <= set(np.unique(labels)) | {1}


@pytest.mark.parametrize("name", STEPS)
def test_parts_of_a_batch_move_as_the_whole(name: str) -> None:
    whole = movement(name).images(tf.constant(IMAGES)).numpy()
    for cuts in ([0, 1, 30, SIZE], [0, 32, SIZE]):
        parts = [
            movement(name, *cut).images(tf.constant(IMAGES[slice(*cut)]))
            for cut in itertools.pairwise(cuts)
        ]
        # The kernel of cos() rounds the last of a number of angles otherwise: 1e-5 of pure noise.
        np.testing.assert_allclose(
            np.concatenate(parts), whole, atol=1e-4 if name in ("affine", "all") else 0
        )


def test_what_does_not_fit_is_refused() -> None:
    move = movement("all")
    with pytest.raises(
        Refused, match=r"masks of shape \(64, 20, 56, 1\) are moved with pictures of \(40, 56\)"
    ):
        move.masks(tf.zeros((SIZE, 20, WIDTH)))
    with pytest.raises(Refused, match="'xxyy' is no form, expected one of xyxy, yxyx, xywh"):
        move.boxes(tf.zeros((SIZE, 1, 4)), tf.zeros((SIZE, 1), tf.int32), "xxyy")
    with pytest.raises(Refused, match="let it be last"):
        move.cutout(0.2).flip()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_segmentation_and_a_detection_learn() -> None:
    """From seventy noisy pictures whose masks and boxes move with them."""
    given = assignment(epochs=24, batch_size=16)
    del given.params["learning_rate"]

    class Segmented(zoo_mixing.Segmented):
        def optimizer(self, hp: Any) -> Any:
            return keras.optimizers.Adam(0.01)

    class Detected(zoo_mixing.Detected):
        def optimizer(self, hp: Any) -> Any:
            return keras.optimizers.Adam(0.01)

    assert metrics(train(Segmented(), given))[-1]["val_iou"] > 0.8
    last = metrics(train(Detected(), given))[-1]
    assert last["val_labels_accuracy"] > 0.9
    assert last["val_boxes_mae"] < 0.04  # of a side
