"""Classes and functions that no module has, on a Ray that the process has started itself."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sweep

SPACE = {
    "method": "grid",
    "metric": {"name": "loss"},
    "parameters": {"x": {"values": [1, 2, 3, 4]}},
    "epochs": 4,
    "early_terminate": {"type": "asha", "min_iter": 1, "eta": 2},
}


def make(folder: Path, offsets: Any) -> Any:
    def train(hp: Any, report: Any) -> None:
        try:
            while report(loss=hp.x / (report.epoch + 1) + offsets.sum()):
                pass
        finally:
            (folder / f"ended-{report.trial}").touch()

    return train


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Ray's own
def test_functions_by_value_on_a_ray_that_is_there(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    import ray

    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
    )
    try:
        ended = project / "ended"
        ended.mkdir()
        large = np.zeros(1_000_000)
        done = sweep.run(SPACE, trainable=make(ended, large), name="it", quiet=True)
        assert len(done.trials) == 4
        assert set(done.trials["status"]) <= {"completed", "pruned"}
        assert done.best()["objective"].item() == 0.25
        assert sorted(path.name for path in ended.iterdir()) == [
            f"ended-{trial}" for trial in range(4)
        ]
        assert done.info["source"]["unknown"] == ["train.offsets is a ndarray"]
        lock = threading.Lock()
        with pytest.raises(
            sweep.InputError,
            match="train cannot be sent to Ray's workers: TypeError: cannot pickle",
        ):
            sweep.run(SPACE, trainable=make(ended, lock), name="locked", quiet=True)
        with pytest.raises(
            sweep.InputError, match="simulate_gpus: a Ray that runs already cannot be given GPUs"
        ):
            sweep.run(SPACE, trainable=make(ended, large), name="gpus", simulate_gpus=2, quiet=True)
        with pytest.raises(sweep.InputError, match="this process is connected to another Ray"):
            sweep.run(
                SPACE, trainable=make(ended, large), name="other", address="127.0.0.1:1", quiet=True
            )
        assert [path.name for path in (project / "results").iterdir()] == ["it"]
        assert ray.is_initialized()
    finally:
        ray.shutdown()
    assert capfd.readouterr() == ("", "")
