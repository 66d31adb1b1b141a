from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers
from small import Small, assignment, metrics, train

from trainables.state import weights

# Keras and h5py, with NumPy 2
pytestmark = [
    pytest.mark.keras,
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]


def _net(units: int = 3) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(units, name="a"),
            layers.Dropout(0.1),
            layers.Dense(2, name="b"),
        ]
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.weights.h5"
    _net().save_weights(path)
    return path


def _spoil(file: Path) -> None:
    """Other content, the same size and time: who reads it again fails."""
    about = file.stat()
    file.write_bytes(b"\0" * about.st_size)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))


def test_a_file_is_read_once_and_sets_the_same(file: Path) -> None:
    with weights.caching_weights():
        first, second = _net(), _net()
        first.load_weights(file)
        _spoil(file)
        second.load_weights(str(file))
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_file_that_has_changed_is_read_again(file: Path) -> None:
    with weights.caching_weights():
        _net().load_weights(file)
        other = _net()
        other.save_weights(file)
        os.utime(file, (1, 1))
        found = _net()
        found.load_weights(file)
    np.testing.assert_array_equal(found.get_weights()[0], other.get_weights()[0])


@pytest.mark.filterwarnings("ignore:A total of:UserWarning")
def test_what_a_file_does_not_set_is_drawn_anew(file: Path) -> None:
    with weights.caching_weights():
        made = []
        for _ in range(2):
            made.append(_net(4))
            before = made[-1].get_weights()
            made[-1].load_weights(file, skip_mismatch=True)
            np.testing.assert_array_equal(made[-1].get_weights()[0], before[0])  # of another shape
    assert not np.array_equal(made[0].get_weights()[0], made[1].get_weights()[0])


def test_what_a_file_sets_is_known_from_the_file_and_not_by_its_value(tmp_path: Path) -> None:
    """A bias of zeros, with which the model that reads the file first begins as well, and the next one does not."""

    def net(bias: str) -> keras.Model:
        return keras.Sequential(
            [keras.Input((6,)), layers.Dense(3, bias_initializer=bias, name="a")]
        )

    net("zeros").save_weights(tmp_path / "zero.weights.h5")
    with weights.caching_weights():
        for bias in ("zeros", "ones"):
            found = net(bias)
            found.load_weights(tmp_path / "zero.weights.h5")
            assert found.get_weights()[1].tolist() == [0, 0, 0]


def test_a_file_that_cannot_be_read_leaves_the_model_as_it_was(file: Path) -> None:
    _spoil(file)
    found = _net()
    before = found.get_weights()
    with weights.caching_weights(), pytest.raises(OSError, match="signature"):
        found.load_weights(file)
    for a, b in zip(found.get_weights(), before, strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_more_is_kept_than_there_is_room_for(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other.weights.h5"
    _net().save_weights(other)
    read, load = list[Path](), keras.Model.load_weights

    def noted(model: keras.Model, path: Path) -> None:
        read.append(path)
        load(model, path)

    monkeypatch.setattr(keras.Model, "load_weights", noted)
    weights.limit_cache(1)
    try:
        with weights.caching_weights():
            _net().load_weights(file)
            _net().load_weights(other)
            read.clear()
            _net().load_weights(other)
            assert read == []
            _net().load_weights(file)
            assert read == [file]
    finally:
        weights.limit_cache(weights.MOST_BYTES)


def test_outside_keras_reads_as_ever(file: Path) -> None:
    before = keras.Model.load_weights
    with weights.caching_weights():
        _net().load_weights(file)
    assert keras.Model.load_weights is before
    _spoil(file)
    with pytest.raises(OSError, match="signature"):
        _net().load_weights(file)


@pytest.mark.exhaustive
def test_an_application_is_read_once_for_all_trials_and_its_head_is_drawn_for_each(
    tmp_path: Path,
) -> None:
    def base(source: Any) -> keras.Model:
        return keras.applications.MobileNetV3Small(
            (32, 32, 3),
            include_top=False,
            weights=source,
            pooling="avg",
            alpha=0.75,
            include_preprocessing=False,
        )

    path = tmp_path / "mobilenet.weights.h5"
    base(None).save_weights(path)

    class Transfer(Small):
        def data(self, hp: Any) -> Any:
            x = np.random.default_rng(0).normal(size=(8, 32, 32, 3)).astype(np.float32)
            return (x, np.arange(8) % 3), None

        def model(self, hp: Any) -> keras.Model:
            front = base(str(path))
            front.trainable = False
            inputs = keras.Input((32, 32, 3))
            return keras.Model(inputs, layers.Dense(3, name="head")(front(inputs, training=False)))

    used, given = Transfer(), [assignment(epochs=1, seed=seed, batch_size=8) for seed in (0, 1)]
    train(used, given[0])
    fresh = metrics(train(Transfer(), given[1]))
    _spoil(path)
    assert metrics(train(used, given[1])) == fresh  # of another seed: model() is called again


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_preset_of_kerashub_is_read_once_for_all_trials(tmp_path: Path) -> None:
    keras_hub = pytest.importorskip("keras_hub", reason="an extra of its own")
    options = {
        "vocabulary_size": 20,
        "num_layers": 1,
        "num_heads": 2,
        "hidden_dim": 8,
        "intermediate_dim": 8,
    }
    keras_hub.models.BertBackbone(**options, max_sequence_length=6).save_to_preset(tmp_path)
    x = np.random.default_rng(0).integers(0, 20, (8, 6)).astype(np.int32)
    inputs = {"token_ids": x, "segment_ids": np.zeros_like(x), "padding_mask": np.ones_like(x)}

    class Classifier(Small):
        def data(self, hp: Any) -> Any:
            return (inputs, np.arange(8) % 3), None

        def model(self, hp: Any) -> keras.Model:
            backbone = keras_hub.models.Backbone.from_preset(str(tmp_path))
            named = backbone.input
            return keras.Model(named, layers.Dense(3)(backbone(named)["pooled_output"]))

    used, given = Classifier(), [assignment(epochs=1, seed=seed, batch_size=8) for seed in (0, 1)]
    train(used, given[0])
    fresh = metrics(train(Classifier(), given[1]))
    _spoil(tmp_path / "model.weights.h5")
    assert metrics(train(used, given[1])) == fresh


def test_layers_that_load_weights_by_name_get_their_own_values(tmp_path: Path) -> None:
    def net(*names: str) -> keras.Model:
        return keras.Sequential([keras.Input((6,)), *[layers.Dense(6, name=n) for n in names]])

    both, path = net("block_1", "block_2"), tmp_path / "both.h5"
    both.save(path)
    with weights.caching_weights():
        for name in ("block_1", "block_2"):
            found = net(name)
            found.load_weights(path, by_name=True)
            np.testing.assert_array_equal(found.get_weights()[0], both.get_layer(name).kernel)
