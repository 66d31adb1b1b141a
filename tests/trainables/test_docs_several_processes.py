"""The example of the page on several processes trains: in one process here, in five with `-m exhaustive`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small import assignment, train

import sweep

PAGE = (Path(__file__).parents[2] / "docs" / "several_processes.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0]
SERVED = next(
    block
    for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    if "parameter_server" in block
)

STRANGER = """
import sys
sys.modules["sweep"] = sys.modules["trainables"] = None  # cannot be imported
import keras, numpy as np
rng = np.random.default_rng(0)
ids, taste = rng.integers(0, 1000, (5000, 4)), rng.normal(size=1000)
clicked = (taste[ids].sum(1, keepdims=True) > 0).astype("float32")
model = keras.models.load_model("out/model.keras")
assert type(model.layers[1]) is keras.layers.Embedding
model.compile(loss=keras.losses.BinaryCrossentropy())
print(model.evaluate(ids[4000:], clicked[4000:], verbose=0))
"""


@pytest.mark.keras
def test_the_table_of_the_page_trains_in_one_process() -> None:
    found: dict[str, Any] = {"__name__": __name__}
    exec(compile(CODE, "several_processes.md", "exec"), found)
    first, last = train(found["Clicks"](), assignment(epochs=2, batch_size=64, learning_rate=0.01))
    assert last.metrics["loss"] < first.metrics["loss"]


@pytest.mark.exhaustive
@pytest.mark.keras
@pytest.mark.ray
def test_it_trains_on_servers(tmp_path: Path) -> None:
    (tmp_path / "clicks.py").write_text(CODE)
    parameters = "parameters: {learning_rate: {value: 0.01}, batch_size: {value: 64}}\n"
    head = f"trainable: clicks:Clicks\nmethod: grid\n{parameters}"
    (tmp_path / "clicks.yaml").write_text(
        head + "epochs: 2\n" + SERVED.replace("cpus: 4", "cpus: 0.2")
    )

    def done(*command: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", *command],
            cwd=tmp_path,
            env=os.environ,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    done("-m", "sweep", "run", "clicks.yaml")
    found = sweep.load(tmp_path / "results" / "clicks")
    (trial,) = found.trials.to_dict("records")
    assert (trial["strategy"], trial["num_replicas"], trial["devices"]) == (
        "parameter_server",
        2,
        "cpu:0;cpu:0",
    )
    assert trial["reproducible"] is False
    first, last = found.metrics["metric.loss"]
    assert last < first
    assert "in a fresh process on 1,000 validation examples" in done(
        "-m", "sweep", "best", "clicks", "--export", "out"
    )
    assert "never the same numbers twice" in (tmp_path / "out" / "sweep.yaml").read_text()
    assert float(done("-c", STRANGER)) == pytest.approx(
        found.metrics["metric.val_loss"].iloc[-1], abs=1e-5
    )
