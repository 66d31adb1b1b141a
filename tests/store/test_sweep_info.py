"""What sweep.json says, as far as it says it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from sweep.errors import StoreError
from sweep.store.sweep_info import SweepInfo, list_identity_differences


def info(**content: object) -> SweepInfo:
    return SweepInfo(Path("results/first/sweep.json"), content)


def known(
    training: Mapping[str, object] = MappingProxyType({}),
    keras: str = "3.0",
    code: str = "0",
    **resources: int,
) -> SweepInfo:
    source = {"trainable": "m:M", "sha256": code, "packages": {"pillow": "9"}}
    spec = {
        "training": dict(training),
        "resources": {"gpus": 1, **resources},
        "metrics": [{"name": "loss", "goal": "minimize"}],
    }
    return info(source=source, spec=spec, provenance={"packages": {"keras": keras}, "python": "3"})


def identity(**resources: int) -> object:
    return known(**resources).identity


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"training": {"precision": "mixed_float16"}}, ["training.precision"]),
        ({"training": {"precision": "float32", "data_seed": 3}}, []),
        ({"training": {"precision": "float32", "later": 1}}, []),  # a setting of a later release
        (
            {"training": {"precision": "float32", "patience": 2}},
            ["the metric of training.patience"],
        ),
        ({"keras": "3.1"}, ["the version of keras"]),
        (
            {"code": "1", "gpus": 2, "workers": 2},
            ["the code", "resources.gpus", "resources.workers"],
        ),
    ],
)
def test_in_what_the_trainings_of_sweeps_differ(changes: dict[str, Any], told: list[str]) -> None:
    first, second = (
        known({"precision": "float32"}),
        known(**{"training": {"precision": "float32"}, **changes}),
    )
    assert (
        list_identity_differences([first, second])
        == list_identity_differences([first, first, second])
        == told
    )
    assert (first.identity == second.identity) is (
        not told and "later" not in changes.get("training", {})
    )
    assert list_identity_differences([first, second, info()]) == []


def test_another_number_of_workers_is_another_training() -> None:
    # sweeps of before had no such key
    assert identity(workers=2) != identity(workers=1) == identity() is not None


def test_a_parameter_servers_numbers_are_doubted() -> None:
    served = info(spec={"training": {"strategy": "parameter_server"}})
    assert "no two trials are alike" in (served.doubt or "")


def test_a_file_of_an_earlier_release_may_lack_everything() -> None:
    empty = info()
    assert (empty.name, empty.objectives, empty.spec, empty.import_folders) == (
        "first",
        (),
        {},
        None,
    )
    assert (empty.repeats, empty.folds, empty.simulated_gpus, empty.memo) == (1, None, None, True)
    assert (empty.source, empty.provenance, empty.origin, empty.warm_start) == ({}, {}, {}, [])
    assert (empty.identity, empty.doubt, empty.co2_g_per_kwh) == (None, None, None)


def test_a_damaged_part_matters_to_those_who_ask_for_it() -> None:
    damaged = info(objectives=["loss"], warm_start=[3], simulated_gpus="two", memo=False)
    assert (damaged.simulated_gpus, damaged.memo) == (None, False)
    with pytest.raises(StoreError, match="objectives: expected a list"):
        _ = damaged.objectives
    with pytest.raises(StoreError, match="warm_start holds 3, expected a path and log_bytes"):
        _ = damaged.warm_start


def test_changes_leave_other_keys_as_they_are() -> None:
    changed = info(seed=1, later="key").changed(seed=2)
    assert changed.content == {"seed": 2, "later": "key"}
