"""One configuration of a sweep as a sweep file of its own: a grid of constants that gives one trial, or its repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweep.errors import printable
from sweep.events import Params, Value
from sweep.spec.blocks import Block, Metric, Training
from sweep.spec.document import flow
from sweep.spec.models import Spec

_NAMED = ("name", "goal")  # of a metric; always written


def of_trial(spec: Spec, params: Params, seed: int, name: str, folds: int | None = None) -> dict[str, Value]:
    """The keys of a sweep file that trains a trial as this sweep has trained it, and nothing else.

    One of a cross-validation comes with the other ``folds`` of its cut.
    """
    metrics = [_metric(metric) for metric in spec.metrics]
    keys: dict[str, Value] = {
        "name": name,
        "description": spec.description,
        "trainable": spec.trainable,
        "method": "grid",
        **({"metric": metrics[0]} if len(metrics) == 1 else {"metrics": metrics}),
        "parameters": {parameter: _constant(value) for parameter, value in params.items()},
        "epochs": spec.epochs,
        "folds": folds,
        "seed": seed,
        "training": _training(spec, seed),
        "resources": _changed(spec.resources),
        "max_restarts": spec.max_restarts,
        "retries": spec.retries,
        "checkpoint": _changed(spec.checkpoint),
    }
    return {key: value for key, value in keys.items() if value not in ({}, "", None) and _DEFAULTS.get(key) != value}


def text(keys: Mapping[str, Value], comments: Sequence[str]) -> str:
    """The file: comments, then a line for each key, and one for each parameter."""
    lines = [f"# {line}" for comment in comments for line in printable(comment).splitlines()]
    for key, value in keys.items():
        if key == "parameters" and isinstance(value, dict):
            lines += ["parameters:", *(f"  {flow(name)}: {flow(block)}" for name, block in value.items())]
        else:
            lines.append(f"{key}: {flow(value)}")
    return "\n".join(lines) + "\n"


def _training(spec: Spec, seed: int) -> Value:
    """How it trains; data that were not loaded under the trial's own seed are loaded under that of the sweep again."""
    changed = {key: value for key, value in spec.training.items() if value != _TRAINING.get(key)}
    return {**changed, "data_seed": spec.data_seed} if spec.data_seed != seed else changed


def _constant(value: Value) -> Value:
    if isinstance(value, str) and value.startswith("="):
        return {"distribution": "constant", "value": value}
    return {"value": value}


def _metric(metric: Metric) -> Value:
    dumped: dict[str, Value] = metric.model_dump(mode="json")
    return {key: value for key, value in dumped.items() if key in _NAMED or key in _changed(metric)}


def _changed(block: Block) -> dict[str, Value]:
    changed: dict[str, Value] = block.model_dump(mode="json", exclude_defaults=True)
    return changed


_TRAINING: dict[str, Value] = Training().described()
_DEFAULTS: dict[str, Value] = {"max_restarts": 3, "retries": 0}
