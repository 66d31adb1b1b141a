"""Exports a trial's model: written in each format, loaded again in a fresh process, and compared with the trial's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from sweep.contract import Exported, NotExportable
from trainables.data.passes import Examples
from trainables.export import model_files, proof
from trainables.export.model_files import Written
from trainables.export.plain_model import Plain
from trainables.export.proof import Sample
from trainables.loop.trial import Trial


def check(trial: Trial, formats: Sequence[str]) -> None:
    """Raise NotExportable for what needs no look at the model's numbers."""
    model_files.check_formats(formats)
    if type(trial.program.model).call is keras.Model.call:
        kind = type(trial.program.model).__name__
        raise NotExportable(f"{kind} defines no call(), so that there is nothing to predict with; give it one")


def export(trial: Trial, plain: Plain, preprocessing: str, folder: Path, formats: Sequence[str]) -> Exported:
    """Write the trial's model by itself into ``folder`` and prove it; raises NotExportable."""
    model, given = plain.model, proof.sample(trial, plain)
    if "keras" in formats and plain.unknown and not given.steady:
        raise NotExportable(
            f"model.keras would leave out {', '.join(plain.unknown[:3])}, which is no weight of its layer (use "
            "self.add_weight), and the model draws random numbers, so that nothing would tell; use --format saved_model"
        )
    metrics, drifting = proof.evaluated(trial)
    signature = model_files.signature(model, plain.example)
    files = [model_files.write(model, folder, kind, signature) for kind in formats]
    found = proof.differences(files, given, signature, on_gpu=trial.placement.on_gpu)
    return Exported(
        files={one.format: one.path.name for one in files},
        usage={one.format: one.usage for one in files},
        differences=found if given.steady else {},
        metrics={} if drifting else metrics,
        compared=given.name,
        data=_described(trial, plain),
        preprocessing=preprocessing,
        needs=tuple(dict.fromkeys(module for one in files for module in one.own)),
        notes=tuple(_notes(trial, plain, files, given, drifting)),
    )


def _described(trial: Trial, plain: Plain) -> Mapping[str, str]:
    model, held_out = plain.model, trial.held_out
    parts = {"training": trial.walk.data, "validation": None if held_out is None else held_out.split}
    said = {name: _of_split(split, plain.example) for name, split in parts.items() if split is not None}
    return {"model": f"{model.name}, {model.count_params():,} parameters, {trial.dtype}", **said}


def _of_split(split: Examples, inputs: Any) -> str:
    example = inputs, *split.example()[1:]
    leaves = [f"{leaf.dtype} {tuple(leaf.shape[1:])}" for leaf in keras.tree.flatten(example)]
    return f"{split.size:,} examples: {', '.join(leaves)}"


def _notes(trial: Trial, plain: Plain, files: Sequence[Written], given: Sample, drifting: Sequence[str]) -> list[str]:
    notes = []
    if plain.raw_inputs is not None:
        notes.append("the frozen model of features(), whose outputs were kept for training, stands in front")
    if not plain.reads_data:
        notes.append("the model does not read the data as they are: predictions were compared on inputs that are drawn")
    if getattr(trial.program, "average", None) is not None:
        notes.append("the weights are the averages over training with which the trial was validated")
    if trial.dtype != "float32":
        notes.append(f"layers compute in {trial.dtype} as they were trained, outputs are float32")
    if any(one.holds_code for one in files):
        notes.append("model.keras holds the Python code of Lambda layers, so that it loads with safe_mode=False alone")
    if not given.steady:
        notes.append("the model draws random numbers when it predicts: predictions cannot be compared, and were not")
    if drifting:
        notes.append(
            f"evaluating changes {', '.join(drifting[:3])}: the validation's metrics cannot be had once more and were "
            "not compared"
        )
    return notes
