"""Small data for the zoo: 70 examples to train on, so that a batch of 16 leaves a partial one, and 20 to validate."""

from __future__ import annotations

from typing import Any

import numpy as np

TRAINED = 70


def _halves(*arrays: Any) -> tuple[Any, Any]:
    return tuple(a[:TRAINED] for a in arrays), tuple(a[TRAINED:] for a in arrays)


def points() -> tuple[Any, Any]:
    """(90, 6) floats, labels of three classes."""
    x = np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32)
    return _halves(x, x[:, :3].argmax(axis=1).astype(np.int32))


def curve() -> tuple[Any, Any]:
    """(90, 6) floats, two numbers to predict."""
    (x, _), (v, _) = points()
    return tuple(
        (a, np.stack([a[:, 0] * a[:, 1], np.tanh(a[:, 2])], 1).astype(np.float32)) for a in (x, v)
    )


def images() -> tuple[Any, Any]:
    """(90, 8, 8, 2) floats, labels of three classes."""
    random = np.random.default_rng(1)
    y = random.integers(0, 3, 90).astype(np.int32)
    x = random.normal(size=(90, 8, 8, 2)).astype(np.float32)
    x[np.arange(90), y * 2, :, 0] += 2.0
    return _halves(x, y)


def series() -> tuple[Any, Any]:
    """(90, 7, 4) floats whose ends are zero, labels of three classes."""
    random = np.random.default_rng(2)
    x = random.normal(size=(90, 7, 4)).astype(np.float32)
    for row, length in zip(x, random.integers(3, 8, 90), strict=True):
        row[length:] = 0.0
    return _halves(x, x.sum(1)[:, :3].argmax(1).astype(np.int32))


def tokens() -> tuple[Any, Any]:
    """(90, 7) numbers of words, 0 after the end, labels of two classes."""
    random = np.random.default_rng(3)
    x = random.integers(1, 12, (90, 7)).astype(np.int32)
    for row, length in zip(x, random.integers(3, 8, 90), strict=True):
        row[length:] = 0
    return _halves(x, (x == 3).any(1).astype(np.int32))


def tags() -> tuple[Any, Any]:
    """(90, 7) numbers of words and a label for each, -1 where there is none."""
    (x, _), (v, _) = tokens()
    return tuple((a, np.where(a == 0, -1, a % 3).astype(np.int32)) for a in (x, v))
