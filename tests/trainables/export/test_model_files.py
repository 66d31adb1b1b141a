"""The lines that load an exported model and predict with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainables.export import exporting, model_files

pytestmark = pytest.mark.keras


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ("float32", "x"),
        ({"a": "float32", "b": "int32"}, "x"),
        ("string", "keras.ops.convert_to_tensor(x)"),
        ({"text": "string"}, '{"text": keras.ops.convert_to_tensor(x)}'),
        (["string", "float32"], "[keras.ops.convert_to_tensor(input_0), input_1]"),
        (
            {"page": {"title": "string", "links": "float32"}, "query": "string"},
            '{"page": {"links": page_links, "title": keras.ops.convert_to_tensor(page_title)}, '
            '"query": keras.ops.convert_to_tensor(query)}',
        ),
    ],
)
def test_texts_are_handed_over_as_tensors(inputs: Any, expected: str) -> None:
    import keras

    def leaf(dtype: str) -> Any:
        return np.array([["a"]]) if dtype == "string" else np.zeros((1, 1), dtype)

    example = keras.tree.map_structure(leaf, inputs)
    given = model_files.make_signature(
        keras.Sequential(), keras.tree.map_structure(keras.ops.convert_to_tensor, example)
    )
    assert (
        model_files.format_predict_call(given).replace("'", '"')
        == f"predictions = model.predict({expected})"
    )


COLUMNS = ("1stFlrSF", "Lot Area", "Lot_Area", "class", "self", "_id", "é", "ö")


def test_inputs_of_any_name_are_handed_over_by_the_lines_that_load_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import keras

    inputs = {column: keras.Input((1,), name=column) for column in COLUMNS}
    stacked = keras.layers.Concatenate()([inputs[column] for column in COLUMNS])
    model = keras.Model(inputs, keras.layers.Dense(2)(stacked))
    rows = {column: np.full((3, 1), i, np.float32) for i, column in enumerate(COLUMNS)}
    given = model_files.make_signature(model, rows)
    assert len(set(given.names)) == len(COLUMNS)
    written = model_files.write_format(model, tmp_path, "saved_model", given)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = dict(zip(given.names, map(rows.get, sorted(COLUMNS)), strict=True))
    exec(written.usage, names)
    (predictions,) = names["predictions"].values()
    np.testing.assert_allclose(predictions, model.predict(rows, verbose=0), atol=1e-5)


@pytest.mark.parametrize("named", ["output_{}", "day_{}"])
def test_outputs_with_numbers_are_compared_each_with_itself(named: str, tmp_path: Path) -> None:
    import keras

    x = keras.Input((2,))
    outputs = [keras.layers.Dense(1)(x) for _ in range(11)]
    by_name = {named.format(i): output for i, output in enumerate(outputs)}
    model = keras.Model(x, outputs if named == "output_{}" else by_name)
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    predictions = keras.tree.flatten(model.predict(rows, verbose=0))
    given = model_files.make_signature(model, rows)
    written = model_files.write_format(model, tmp_path, "saved_model", given)
    sample = exporting.Sample("3 examples", rows, predictions, 3, steady=True)
    found = exporting.compare_predictions([written], sample, given, on_gpu=False)
    assert found["saved_model"] <= 1e-5
