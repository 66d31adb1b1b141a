"""Layers that `data` has fitted and kept: each program has a copy of its own, made where its variables belong."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import keras


def copies(kept: Mapping[str, object]) -> dict[str, object]:
    """Return by name what of an author's attributes holds layers or a `FeatureSpace`, with a copy of each.

    Call it inside of the strategy's scope, while the variables of a program are made. What cannot be saved by Keras
    stays as it is, and is refused as a part of the model.
    """
    found = {name: _copied(value, f"fitted_{name}") for name, value in kept.items()}
    return {name: value for name, value in found.items() if value is not kept[name]}


def _copied(value: Any, name: str) -> Any:
    if isinstance(value, keras.Layer | keras.utils.FeatureSpace):
        return _copy(value, name)
    if type(value) not in (dict, list, tuple):
        return value
    parts = dict(value.items() if isinstance(value, dict) else enumerate(value))
    new = {key: _copied(part, f"{name}_{key}") for key, part in parts.items()}
    if all(new[key] is part for key, part in parts.items()):
        return value
    return new if isinstance(value, dict) else type(value)(new.values())


def _copy(value: Any, name: str) -> Any:
    """Save and load it, as Keras does with what `adapt` has found."""
    own = {type(value).__name__: type(value)}
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), _named(value, name):
            warnings.simplefilter("ignore")  # lookup layers have no weights to be built
            path = Path(folder) / "fitted.keras"
            keras.saving.save_model(value, path)
            return keras.saving.load_model(path, custom_objects=own, safe_mode=False)  # it is the author's own code
    except Exception:  # whatever a layer's own code raises
        return value


@contextmanager
def _named(value: Any, name: str) -> Iterator[None]:
    """Let it have this name: its own depends on how many layers the process has made, and checkpoints go by names."""
    before, value.name = value.name, name
    try:
        yield
    finally:
        value.name = before
