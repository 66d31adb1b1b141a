"""Layers by the path of their names: ``backbone/block_1/conv``, also with wildcards."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import keras

from sweep.hyperparameters import Hyperparameters

MOST = 30  # paths that a message lists

Found: TypeAlias = "list[tuple[str, keras.Layer]]"
"""Layers with their paths; several of them may have one path."""


def paths(model: keras.Model) -> Found:
    """All layers of a model by their paths, those within layers too."""
    return list(_below(model, ""))


def chosen(model: keras.Model, pattern: str) -> Found:
    """The layers that a pattern names; what is within them is not listed.

    Each name between slashes is matched by itself, with wildcards; ``**`` stands for any number of names.
    """
    parts = pattern.strip("/").split("/")
    return [(path, layer) for path, layer in paths(model) if _matches(path.split("/"), parts)]


def freeze(model: keras.Model, hp: Hyperparameters) -> None:
    """Freeze the layers that ``frozen_layers`` says: the first n with weights, or paths with wildcards.

    Raises ValueError for too many, and for a path that no layer has.
    """
    if "frozen_layers" not in hp:
        return  # as the author has set them
    frozen = hp["frozen_layers"]
    layers = [layer for layer in model.layers if layer.weights]
    if isinstance(frozen, int) and not isinstance(frozen, bool):
        if not 0 <= frozen <= len(layers):
            raise ValueError(f"frozen_layers is {frozen}, expected 0 to {len(layers)}, the layers with weights")
        found = layers[:frozen]
    else:
        patterns = [str(pattern) for pattern in frozen] if isinstance(frozen, list) else [str(frozen)]
        named_ones = [named(model, pattern, "frozen_layers", "a number or names") for pattern in patterns]
        found = [layer for pairs in named_ones for _, layer in pairs]
    for layer in found:
        layer.trainable = False


def named(model: keras.Model, pattern: str, parameter: str, expected: str = "names") -> Found:
    """As `chosen`; raises ValueError where there are none."""
    found = chosen(model, pattern)
    if not found:
        known = list(dict.fromkeys(path for path, layer in paths(model) if layer.weights))
        more = f" and {len(known) - MOST} more" if len(known) > MOST else ""
        raise ValueError(f"{parameter} names {pattern!r}, expected {expected} among {', '.join(known[:MOST])}{more}")
    return found


def _below(layer: keras.Layer, path: str) -> Iterator[tuple[str, keras.Layer]]:
    within = layer.layers if isinstance(layer, keras.Model) else layer._flatten_layers(False, False)
    for part in within:
        if isinstance(part, keras.Layer) and part is not layer:
            yield f"{path}{part.name}", part
            yield from _below(part, f"{path}{part.name}/")


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_matches(names[skipped:], patterns[1:]) for skipped in range(len(names) + 1))
    return bool(names) and fnmatch.fnmatchcase(names[0], patterns[0]) and _matches(names[1:], patterns[1:])
