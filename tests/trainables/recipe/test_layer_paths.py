from __future__ import annotations

from typing import Any

import keras
import pytest

from sweep.hyperparameters import Hyperparameters
from trainables.recipe import groups

pytestmark = pytest.mark.keras


def nested() -> keras.Model:
    def block(name: str) -> keras.Model:
        return keras.Sequential(
            [keras.layers.Dense(4, name="in"), keras.layers.LayerNormalization(name="norm")],
            name=name,
        )

    backbone = keras.Sequential(
        [keras.Input((6,)), keras.layers.Dense(4, name="stem"), block("block_1"), block("block_2")],
        name="backbone",
    )
    inputs = keras.Input((6,))
    turned = keras.layers.Bidirectional(keras.layers.LSTM(2, name="cell"), name="turn")
    x = keras.layers.Reshape((2, 2), name="reshape")(backbone(inputs))
    return keras.Model(inputs, keras.layers.Dense(3, name="head")(turned(x)))


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("backbone", ["backbone"]),
        ("backbone/block_*", ["backbone/block_1", "backbone/block_2"]),
        ("backbone/*/norm", ["backbone/block_1/norm", "backbone/block_2/norm"]),
        ("**/norm", ["backbone/block_1/norm", "backbone/block_2/norm"]),
        ("/backbone/stem/", ["backbone/stem"]),
        ("turn/forward_cell", ["turn/forward_cell"]),
        ("*d", ["head"]),
        ("block_1", []),
        ("back*/in", []),
    ],
)
def test_a_pattern_names_layers_part_by_part(pattern: str, found: list[str]) -> None:
    assert [path for path, _ in groups.select_layers(nested(), pattern)] == found


@pytest.mark.parametrize(
    ("frozen", "left"),
    [
        (["backbone"], {"turn", "head"}),
        (
            "backbone/block_1",
            {"backbone/stem", "backbone/block_2/in", "backbone/block_2/norm", "turn", "head"},
        ),
        (
            ["**/norm", "turn"],
            {"backbone/stem", "backbone/block_1/in", "backbone/block_2/in", "head"},
        ),
        (1, {"turn", "head"}),
        (3, set()),
        ([], {"backbone/stem", "backbone/block_1", "backbone/block_2", "turn", "head"}),
    ],
)
def test_what_is_frozen(frozen: Any, left: set[str]) -> None:
    model = nested()
    groups.freeze_layers(model, Hyperparameters({"frozen_layers": frozen}))
    by_path = dict(groups.list_layer_paths(model))
    still = {id(v) for v in model.trainable_variables}
    assert still == {id(v) for path in left for v in by_path[path].weights}


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        (4, "expected 0 to 3"),
        (["backbone/neck"], "'backbone/neck', expected a number or names among backbone, "),
    ],
)
def test_what_is_not_there(frozen: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        groups.freeze_layers(nested(), Hyperparameters({"frozen_layers": frozen}))
