from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

pytestmark = pytest.mark.keras


@pytest.mark.exhaustive
def test_the_benchmark_of_gpus_runs_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    import gpu

    assert gpu.main(["--cpu"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[:28].strip() for line in lines[1:]] == [
        "loop float32",
        "loop float32 + XLA",
        "loop mixed_bfloat16",
        "loop mixed_bfloat16 + XLA",
        "fit, XLA, float32",
        "fit, XLA, mixed_bfloat16",
        "2 at a time on one GPU",
    ]
    assert "on the host" in lines[1]  # one CPU device gathers bytes as they are
    assert not any("failed" in line for line in lines)
