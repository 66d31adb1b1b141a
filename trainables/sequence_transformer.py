"""A small transformer encoder that reads scikit-learn's digits row by row: real data, no download."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sweep.hyperparameters import Hyperparameters
from trainables.keras_trainable import KerasTrainable


class SequenceTransformer(KerasTrainable):
    """A transformer that classifies digits as sequences of eight tokens, each a row of eight pixels.

    There are ten classes, 1,437 images for training and 360 for validation. Besides the standard hyperparameters it
    reads ``width`` (32), ``heads`` (4), ``depth`` (2, the number of blocks), ``dropout`` (0) and ``pre_norm`` (true:
    normalise before each part of a block; false: after it, as in the first paper).
    """

    def data(self, hp: Hyperparameters) -> tuple[Any, Any]:
        """Return sequences of shape (examples, 8, 16) with int32 labels, for training and for validation.

        A token has a row's pixels, scaled to [0, 1], and its position as a one-hot vector. The split is the same for
        every trial, stratified by class.
        """
        x, y = load_digits(return_X_y=True)
        places = np.broadcast_to(np.eye(8), (len(x), 8, 8))
        tokens = np.concatenate([x.reshape(-1, 8, 8) / 16, places], axis=-1).astype(np.float32)
        x_train, x_val, y_train, y_val = train_test_split(
            tokens, y.astype(np.int32), test_size=0.2, random_state=0, stratify=y
        )
        return (x_train, y_train), (x_val, y_val)

    def model(self, hp: Hyperparameters) -> keras.Model:
        """Return an encoder whose outputs are averaged over the sequence, with float32 logits."""
        width = hp.integer("width", 32)
        inputs = keras.Input((8, 16))
        x = keras.layers.Dense(width)(inputs)  # also embeds the position, which is a one-hot vector
        for _ in range(hp.integer("depth", 2)):
            x = _apply_transformer_block(
                x,
                width,
                hp.integer("heads", 4),
                self.dropout(hp),
                pre_norm=hp.flag("pre_norm", default=True),
            )
        x = keras.layers.LayerNormalization()(x)
        x = keras.layers.GlobalAveragePooling1D()(x)
        return keras.Model(
            inputs, keras.layers.Dense(10, dtype="float32")(x), name="sequence_transformer"
        )


def _apply_transformer_block(
    x: Any, width: int, heads: int, dropout: Any, *, pre_norm: bool
) -> Any:
    """Apply self-attention and a small network to ``x``, each with a residual connection, and return the result.

    With ``pre_norm``, the input of each part is normalised; otherwise, the sum after it is. Sources: Vaswani et al.,
    Attention Is All You Need, section 3; Xiong et al., On Layer Normalization in the Transformer Architecture, figure
    1, for normalisation before each part.
    """
    # No biases: the softmax cancels the keys' bias, and Adam would amplify its rounding errors.
    attention = keras.layers.MultiHeadAttention(
        heads, width // heads, dropout=dropout, use_bias=False
    )
    net = keras.Sequential(
        [keras.layers.Dense(4 * width, activation="gelu"), keras.layers.Dense(width)]
    )
    for part in (lambda t: attention(t, t), net):
        norm = keras.layers.LayerNormalization()
        drop = keras.layers.Dropout(dropout)
        if pre_norm:
            x = x + drop(part(norm(x)))
        else:
            x = norm(x + drop(part(x)))
    return x
