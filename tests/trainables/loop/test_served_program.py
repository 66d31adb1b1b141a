"""Weights on servers, in real processes: with one worker the numbers are those of one process."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import served_calls
from rank_processes import Here, Together, together

from sweep.contract import Assignment, Devices
from sweep.hyperparameters import Hyperparameters
from trainables.click_through import ClickThrough

pytestmark = [pytest.mark.keras, pytest.mark.slow]

BASE: dict[str, Any] = {"batch_size": 90, "examples": 1000, "rows": 400, "learning_rate": 0.02}
FEW = {
    "sgd": {"optimizer": "sgd", "learning_rate": 0.5},
    "adam": {"optimizer": "adam"},
}
MORE = {
    "nesterov": {"optimizer": "sgd", "momentum": 0.9, "nesterov": True},
    "adamw": {
        **{"optimizer": "adamw", "weight_decay": 0.1, "global_clipnorm": 0.05},
        **{"lr_schedule": "cosine", "warmup_epochs": 1},
    },
    "clipnorm": {"optimizer": "adam", "clipnorm": 0.01},
    "clipvalue": {"optimizer": "sgd", "clipvalue": 0.001},
}
SERVER = "/job:ps/replica:0/task:{}/device:CPU:0"


def in_one_process(params: dict[str, Any], epochs: int) -> served_calls.Found:
    """The same trial without servers."""
    it = ClickThrough()
    it.begin(Assignment(trial=0, params=params, seed=3, epochs=epochs))
    return served_calls.trained(it, 0)


def joined(gang: Together) -> None:
    assert gang.call(served_calls.join) == [True, *[False] * (len(gang.pids) - 1)]


def trained(
    gang: Together, params: dict[str, Any], epochs: int, **paths: Path
) -> served_calls.Found:
    found = gang.call(
        served_calls.train, params, epochs, *[paths.get(name) for name in ("save", "restore")]
    )[0]
    if isinstance(found, Exception):
        raise found
    return found


def check(found: served_calls.Found, expected: served_calls.Found) -> None:
    for mine, theirs in zip(found.metrics[-len(expected.metrics) :], expected.metrics, strict=True):
        assert mine.keys() == theirs.keys()
        for name in ("loss", "val_loss"):
            assert abs(mine[name] - theirs[name]) <= 1e-6
        # of 200 thresholds, which one example may be at
        assert abs(mine["auc"] - theirs["auc"]) <= 1e-3
    np.testing.assert_allclose(found.table, expected.table, atol=1e-6)
    for path, value in expected.weights.items():
        np.testing.assert_allclose(found.weights[path], value, atol=1e-6)


def check_exported(folder: Path, found: served_calls.Found) -> None:
    """Without servers and without this package, the files predict what the servers had."""
    params = BASE | FEW["adam"] | {"epochs": 2}
    it = ClickThrough()
    it.begin(Assignment(trial=0, params=params, seed=3, epochs=2, training=served_calls.TRAINING))
    assert it.restore(folder) == 2
    exported = it.export(folder, ("keras", "saved_model"))
    assert exported.needs == ()
    assert max(exported.differences.values()) <= 1e-6
    assert exported.metrics["val_loss"] == pytest.approx(found.metrics[-1]["val_loss"], abs=1e-6)
    with zipfile.ZipFile(folder / "model.keras") as archive:
        assert b"trainables" not in archive.read("config.json")
    model = keras.models.load_model(folder / "model.keras")
    _, (ids, _) = it.data(Hyperparameters(params))
    (hidden, bias, last, offset) = found.weights.values()
    units = np.maximum(found.table[ids].reshape(len(ids), -1) @ hidden + bias, 0)
    expected = 1 / (1 + np.exp(-(units @ last + offset)))
    np.testing.assert_allclose(model.predict(ids, verbose=0), expected, atol=1e-6)


def test_one_worker_trains_what_one_process_does_and_no_server_has_the_table(
    tmp_path: Path,
) -> None:
    with together(4, servers=2) as gang:
        joined(gang)
        for case in FEW.values():
            found = trained(gang, BASE | case, 2, save=tmp_path if case is FEW["adam"] else None)
            check(found, in_one_process(BASE | case, 2))
            assert found.shards["sharded_embedding"] == [
                (0, 200, SERVER.format(0)),
                (200, 400, SERVER.format(1)),
            ]
        assert set(found.shards) == {
            f"sharded_embedding{slot}" for slot in ("", "/momentum", "/velocity")
        }
        assert found.facts.strategy == "parameter_server"
        assert not found.facts.reproducible
    check_exported(tmp_path, found)


@pytest.mark.parametrize("kind", [served_calls.Constrained, served_calls.Sequences])
def test_one_worker_trains_models_of_other_kinds(kind: type[ClickThrough]) -> None:
    params = BASE | FEW["sgd"]
    with together(3, servers=1) as gang:
        joined(gang)
        found = gang.call(served_calls.train_kind, kind, params)[0]
    if isinstance(found, Exception):
        raise found
    expected = served_calls.train_kind(Here(Devices()), kind, params)
    assert expected is not None
    check(found, expected)


def test_test_data_are_evaluated_without_validation_data() -> None:
    params = BASE | FEW["sgd"]
    with together(4, servers=2) as gang:
        found = gang.call(served_calls.test_alone, params)[0]
    it = served_calls.TestedOnly()
    it.begin(Assignment(trial=0, params=params, seed=3, epochs=1))
    it.train(lambda epoch: True)
    expected = it.test()
    assert expected is not None
    assert found == pytest.approx(expected, abs=1e-3)


@pytest.mark.exhaustive
def test_more_optimizers() -> None:
    with together(4, servers=2) as gang:
        joined(gang)
        for case in MORE.values():
            check(trained(gang, BASE | case, 2), in_one_process(BASE | case, 2))


@pytest.mark.exhaustive
def test_a_checkpoint_of_two_servers_goes_on_with_one_and_three_and_without(tmp_path: Path) -> None:
    params, whole = BASE | FEW["adam"], in_one_process(BASE | FEW["adam"], 4)
    with together(4, servers=2) as gang:
        joined(gang)
        trained(gang, params | {"epochs": 2}, 2, save=tmp_path)
    expected = served_calls.Found(whole.metrics[2:], whole.table, whole.weights, whole.facts)
    for servers in (1, 3):
        with together(2 + servers, servers=servers) as gang:
            joined(gang)
            found = trained(gang, params, 4, restore=tmp_path)
            assert len(found.shards["sharded_embedding"]) == servers
            check(found, expected)
    it = ClickThrough()
    it.begin(Assignment(trial=0, params=params, seed=3, epochs=2, training=served_calls.TRAINING))
    assert it.restore(tmp_path) == 2
    alone = in_one_process(params, 2)  # nothing is left to train: the weights are what was restored
    check(
        served_calls.trained(it, 2), served_calls.Found([], alone.table, alone.weights, alone.facts)
    )
