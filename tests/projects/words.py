"""What the texts of this project consist of; other modules call `learn` once and then `vectorizer`."""

from __future__ import annotations

from typing import Any

import keras

STATE: dict[str, Any] = {}


def learn(texts: Any, most: int) -> None:
    layer = keras.layers.TextVectorization(max_tokens=most)
    layer.adapt(texts)
    STATE["vocabulary"] = layer.get_vocabulary()


def size() -> int:
    return len(STATE["vocabulary"])


def vectorizer(length: int) -> Any:
    return keras.layers.TextVectorization(
        vocabulary=STATE["vocabulary"], output_sequence_length=length
    )
