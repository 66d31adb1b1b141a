from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from keras import layers
from small import Small, assignment, metrics, train
from zoo_sources import WORDS, OnTexts, texts

from sweep.hyperparameters import Hyperparameters
from trainables.data import chunks, sources, trial_parts
from trainables.data.chunks import make_examples
from trainables.data.sources import DataError
from trainables.devices.replicas import Replicas
from trainables.keras_trainable import KerasTrainable

ONE = Replicas(tf.distribute.OneDeviceStrategy("/cpu:0"))
Y = np.zeros(3, np.int32)
WANTED = ["röt", "", "blue"]


@pytest.mark.parametrize(
    "x",
    [
        np.array(WANTED),
        np.array(WANTED, object),
        np.array([one.encode() for one in WANTED]),
        np.array(WANTED, np.dtypes.StringDType()),
        pd.Series(WANTED).to_numpy(),
        tf.constant(WANTED),
        tf.data.Dataset.from_tensor_slices((WANTED, Y)),
    ],
    ids=["U", "object", "S", "T", "pandas", "tensor", "dataset"],
)
def test_texts_come_in_any_form(x: Any) -> None:
    data = make_examples(x if isinstance(x, tf.data.Dataset) else (x, Y), ONE, "training data")
    (chunk,) = data.chunks(4, None, 0)
    assert chunk.tensors[0].numpy().tolist() == [one.encode() for one in WANTED]
    assert data.example()[0].dtype == tf.string
    assert chunks.compute_fingerprint(data) is not None


def test_other_texts_have_another_fingerprint() -> None:
    one, other = (
        chunks.compute_fingerprint(make_examples((np.array(x), Y), ONE, "data"))
        for x in (["ab", "c", "d"], ["a", "bc", "d"])
    )
    assert one != other


def test_large_texts_are_gathered() -> None:
    data = make_examples((np.array(WANTED), Y), ONE, "training data", resident_bytes=0)
    (chunk,) = data.chunks(4, None, 0)
    assert chunk.tensors[0].numpy().tolist() == [one.encode() for one in WANTED]


def test_arrays_of_numbers_are_no_texts() -> None:
    assert not sources.is_text(np.zeros(3))
    assert not sources.is_text(np.array([], object))


@pytest.mark.keras
def test_texts_in_the_model_train_as_their_numbers_do() -> None:
    class Mapped(OnTexts):
        def data(self, hp: Any) -> Any:
            number = layers.TextVectorization(vocabulary=WORDS, output_sequence_length=6)
            return tuple((np.asarray(number(x), np.int32), y) for x, y in texts())

        def model(self, hp: Any) -> keras.Model:
            body = [
                layers.Embedding(12, 5, mask_zero=True),
                layers.GlobalAveragePooling1D(),
                layers.Dense(2),
            ]
            return keras.Sequential([keras.Input((6,), dtype="int32"), *body])

    one, other = (metrics(train(kind(), assignment(epochs=2))) for kind in (OnTexts, Mapped))
    assert one[-1] == pytest.approx(other[-1], abs=1e-6)


def frame(floats: Any) -> pd.DataFrame:
    return pd.DataFrame({"age": np.asarray(floats), "id": [7, 8, 9], "is_red": [True, False, True]})


@pytest.mark.parametrize(
    ("x", "kind"),
    [
        (frame([0.5, 1.5, 2.5]), np.float32),
        (frame(np.array([0.5, 1.5, 2.5], np.float32)), np.float32),
        (frame([1, 2, 3]), np.int64),
        (frame([1, 2, 3]).astype({"id": "Int64", "is_red": "boolean"}), np.int64),
        (
            pd.get_dummies(pd.DataFrame({"n": [1.0, 2.0, 3.0], "colour": ["red", "blue", "red"]})),
            np.float32,
        ),
    ],
    ids=["float64", "float32", "int", "nullable", "dummies"],
)
def test_frames_with_columns_of_booleans_are_numbers(x: pd.DataFrame, kind: type) -> None:
    (train, _) = sources.split_returned(((x, Y), None))
    for given in (train, (x, Y)):  # batches of a dataset in Python come as they are
        (found, _) = sources.convert_arrays(given)
        assert found.dtype == kind
        assert found.tolist() == x.astype("float64").to_numpy().astype(kind).tolist()


@pytest.mark.keras
def test_labels_in_a_frame_have_classes() -> None:
    given = pd.DataFrame({"age": [0.5, 1.5, 2.5]}), pd.DataFrame({"label": [0, 1, 1]})
    training, _ = sources.split_returned((given, None))
    balanced = Hyperparameters({"class_weights": "balanced"})
    weights = trial_parts.compute_class_weights(balanced, trial_parts.get_labels(training))
    assert weights == {0: 1.5, 1: 0.75}
    assert trial_parts.add_class_weights(training, weights)[2].tolist() == [[1.5], [0.75], [0.75]]


@pytest.mark.keras
def test_a_frame_with_booleans_trains_as_keras_fit_trains_it() -> None:
    random = np.random.default_rng(0)
    x = pd.get_dummies(pd.DataFrame({"n": random.normal(size=64), "colour": [*"rgbr"] * 16}))
    y = (x["n"] > 0).to_numpy().astype(np.int32)

    def model() -> keras.Model:
        found = keras.Sequential([keras.Input((4,)), layers.Dense(2, kernel_initializer="ones")])
        found.compile(
            keras.optimizers.SGD(0.1),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
        return found

    class Dummies(KerasTrainable):
        def data(self, hp: Any) -> Any:
            return (x, y), (x, y)

        def model(self, hp: Any) -> keras.Model:
            return model()

    expected = model().fit(x, y, batch_size=64, epochs=3, validation_data=(x, y), verbose=0).history
    for epoch, found in enumerate(
        metrics(train(Dummies(), assignment(epochs=3, learning_rate=0.1, batch_size=64)))
    ):
        assert found == pytest.approx(
            {name: values[epoch] for name, values in expected.items()}, abs=1e-5
        )


@pytest.mark.parametrize(
    "x",
    [
        np.array([[1, True], [0.5, False], [2, True]], object),
        pd.DataFrame({"a": pd.array([1, None, 2], dtype="Int64"), "b": [True, False, True]}),
        pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": pd.to_datetime(["2026-01-01"] * 3)}),
    ],
    ids=["array", "missing", "dates"],
)
def test_mixed_types_of_scalars_are_refused_as_such(x: Any) -> None:
    with pytest.raises(
        DataError,
        match=r'of its columns mixed\? Convert them in data\(\), as df.astype\("float32"\)',
    ):
        sources.convert_arrays((x, Y))
    rows = np.empty(3, object)
    rows[:] = [np.zeros(2), np.zeros(3), np.zeros(1)]
    with pytest.raises(DataError, match="do the rows differ in shape"):
        sources.convert_arrays((rows, Y))


def test_a_sparse_matrix_is_refused_with_how_to_make_it_dense() -> None:
    class Sparse:
        """As SciPy's, which is not needed otherwise."""

        shape, dtype = (3, 2), np.dtype(np.float32)

        def __getitem__(self, rows: Any) -> Any: ...

        def toarray(self) -> Any: ...

    with pytest.raises(
        DataError, match=r"a Sparse within it, expected arrays.*\.toarray\(\) in data"
    ):
        sources.convert_arrays((Sparse(), Y))


def test_a_series_is_a_column_as_in_fit() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(3, 2), pd.Series([1.0, 2.0, 3.0], dtype="float32")
    (chunk,) = make_examples((pd.DataFrame(x), y, y), ONE, "data").chunks(4, None, 0)
    assert [leaf.shape for leaf in chunk.tensors] == [(3, 2), (3, 1), (3, 1)]
    (chunk,) = make_examples(({"a": pd.Series(WANTED), "b": x}, Y), ONE, "data").chunks(4, None, 0)
    assert {name: leaf.shape for name, leaf in chunk.tensors[0].items()} == {
        "a": (3, 1),
        "b": (3, 2),
    }
    labels = trial_parts.get_labels(sources.normalize_examples((x, pd.Series([0, 1, 1]))))
    assert trial_parts.compute_class_weights(
        Hyperparameters({"class_weights": "balanced"}), labels
    ) == {
        0: 1.5,
        1: 0.75,
    }


class OnDoubles(Small):
    """NumPy's float64, a data frame and a tensor, of which the author's own code computes differences to float32."""

    def data(self, hp: Any) -> tuple[Any, Any]:
        random = np.random.default_rng(0)
        x = random.normal(size=(40, 6))
        frame = pd.DataFrame(x[:, :2])
        return (x[:32], frame[:32]), (x[32:].astype(np.float16), tf.constant(x[32:, :2]))

    def model(self, hp: Any) -> keras.Model:
        class Summing(keras.Model):
            def compute_loss(
                self, x: Any, y: Any, y_pred: Any, sample_weight: Any = None, training: bool = True
            ) -> Any:
                return tf.reduce_mean(tf.square(y - y_pred))

        inputs = keras.Input((6,))
        return Summing(inputs, layers.Dense(2)(inputs))

    def loss(self, hp: Any, model: keras.Model) -> Any:
        return None

    def metrics(self, hp: Any, model: keras.Model) -> Any:
        def distance(y_true: Any, y_pred: Any) -> Any:
            return tf.reduce_mean(tf.abs(y_true - y_pred), -1)

        return [distance]

    def augment(self, x: Any, hp: Any, draws: Any) -> Any:
        return x + 0.0 * draws.normal((6,))


@pytest.mark.keras
@pytest.mark.parametrize("loop", ["own", "fit"])
def test_floats_reach_the_authors_code_as_float32_as_in_keras_fit(loop: str) -> None:
    found = metrics(train(OnDoubles(), assignment(epochs=1, training={"loop": loop})))
    assert {"distance", "val_distance"} <= set(found[0])


def test_an_authors_memory_map_is_shared_as_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    x = np.load(tmp_path / "x.npy", mmap_mode="c")
    ((found, _), _) = sources.split_returned(((x, Y), None))
    assert found is x
