"""What sweep.json says, as far as it says it."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweep.errors import StoreError
from sweep.store.sweep_info import SweepInfo


def info(**content: object) -> SweepInfo:
    return SweepInfo(Path("results/first/sweep.json"), content)


def identity(**resources: int) -> object:
    source = {"trainable": "m:M", "sha256": "0", "packages": {}}
    spec = {
        "training": {},
        "resources": {"gpus": 1, **resources},
        "metrics": [{"name": "loss", "goal": "minimize"}],
    }
    return info(source=source, spec=spec, provenance={"packages": {}, "python": "3"}).identity


def test_another_number_of_workers_is_another_training() -> None:
    assert identity(workers=2) != identity(workers=1) == identity() is not None  # sweeps of before had no such key


def test_a_parameter_servers_numbers_are_doubted() -> None:
    served = info(spec={"training": {"strategy": "parameter_server"}})
    assert "no two trials are alike" in (served.doubt or "")


def test_a_file_of_an_earlier_release_may_lack_everything() -> None:
    empty = info()
    assert (empty.name, empty.objectives, empty.spec, empty.import_folders) == ("first", (), {}, None)
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
