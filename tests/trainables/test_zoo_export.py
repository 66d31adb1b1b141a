"""The zoo: what is exported is the trial's model, in each format, or refused by name. All: ``-m keras``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from small import train
from zoo_checks import given
from zoo_entries import ENTRIES

from sweep.contract import NotExportable
from trainables.export.model_files import FILES

pytestmark = [pytest.mark.keras, pytest.mark.slow]

CHECKED_ALWAYS = ("SeveralInputsAndOutputs", "Subclassed")
OWN_CLASS = r"does not load in a fresh process: .*needs a get_config\(\) that its __init__ takes"
OF_TEXTS = "model.onnx cannot hold a model that reads texts"
NO_COUNTERPART = "not all that TensorFlow computes has a counterpart there; use saved_model"
REFUSED = {
    "keras": {
        "Adversaries": r"Adversary defines no call\(\)",
        "DrawnConstant": "does not load in a fresh process",
        "DrawnTable": OWN_CLASS,
        "Lambdas": "the code of a Lambda layer finds nothing of the module",
        "NoisyEvaluation": OWN_CLASS,
        "Subclassed": OWN_CLASS,
        "TaughtByFit": OWN_CLASS,
        "TeachesItself": OWN_CLASS,
        "TensorFlowNoise": "would leave out .*Variable, which is no weight of its layer",
        "TensorFlowState": OWN_CLASS,
        "TwinLosses": OWN_CLASS,
    },
    "saved_model": {"Adversaries": r"Adversary defines no call\(\)"},
    "onnx": {
        "Adversaries": r"Adversary defines no call\(\)",
        "Categories": NO_COUNTERPART,  # hashes texts
        "DrawnConstant": NO_COUNTERPART,
        "DrawnTable": NO_COUNTERPART,
        "Half": "model.onnx cannot hold a model that computes in bfloat16",
        "MixedHalf": "model.onnx cannot hold a model that computes in bfloat16",
        "NoisyEvaluation": NO_COUNTERPART,
        "OfTexts": OF_TEXTS,
        "OfTextsAdapted": OF_TEXTS,
        "OfTextsAdaptedInTheModel": OF_TEXTS,
    },
}
DRIFTING = ("LossState", "NoisyEvaluation")  # evaluating changes its loss, its seeds
NOISY = ("NoisyEvaluation", "TensorFlowNoise")
NAMES = [
    pytest.param(name, marks=() if name in CHECKED_ALWAYS else pytest.mark.exhaustive)
    for name in ENTRIES
]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_exported_is_the_model_of_the_trial(name: str, tmp_path: Path) -> None:
    found = ENTRIES[name]
    trainable = found.trainable()
    log = dict(train(trainable, given(found))[-1].metrics)
    kinds = [kind for kind in FILES if name not in REFUSED[kind]]
    for kind in FILES:
        if kind not in kinds:
            with pytest.raises(NotExportable) as caught:
                trainable.export(tmp_path, [kind])
            assert re.search(REFUSED[kind][name], str(caught.value), re.DOTALL), caught.value
    if not kinds:
        return
    (tmp_path / "out").mkdir()
    exported = trainable.export(tmp_path / "out", kinds)
    assert sorted(exported.files) == sorted(kinds)
    assert set(exported.differences) == (set() if name in NOISY else set(kinds))
    validated = any(metric.startswith("val_") for metric in log)
    assert bool(exported.metrics) is (validated and name not in DRIFTING)
    for metric, value in exported.metrics.items():
        assert value == pytest.approx(log[metric], rel=1e-6, abs=1e-6), metric


def test_the_table_names_no_others() -> None:
    assert {name for table in REFUSED.values() for name in table} <= set(ENTRIES)
    assert {*DRIFTING, *NOISY, *CHECKED_ALWAYS} <= set(ENTRIES)
