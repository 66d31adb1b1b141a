"""The top level of a sweep file: all its keys, their types and defaults."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, JsonValue

from sweep.spec.blocks import Block, Budget, Checkpoint, Count, Metric, Resources, StopWhen, Text, Training
from sweep.spec.stopping import EarlyTerminate

Method: TypeAlias = Literal["grid", "random", "sobol", "tpe", "bayes", "gp", "cmaes", "nsga2"]
Failures: TypeAlias = Annotated[int, Field(ge=0)]

NAME = r"[A-Za-z0-9_]([A-Za-z0-9._ -]{0,98}[A-Za-z0-9._-])?"
TARGET = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
MAX_EPOCHS = 1_000_000
REQUIRED = ("trainable", "method", "parameters")
SERVER_KEYS = (
    "apiVersion",
    "command",
    "controller",
    "entity",
    "image_uri",
    "job",
    "kind",
    "program",
    "project",
)
"""Keys of W&B files that only their server understands: accepted and ignored."""

_SERVER = Field(None, description="A key of W&B's server, accepted and ignored.")


class SweepFile(Block):
    """One sweep: what is searched, how, for how long, on what.

    A key that a sweep needs is optional here, so that a file without it is still understood as a whole.
    """

    name: Annotated[str, Field(pattern=f"^{NAME}$", examples=["lr_wd_aug"])] | None = Field(
        None, description="Name of the results folder, spaces as -; the file's name by default."
    )
    description: str | None = Field(None, description="What the sweep is for.")
    trainable: Annotated[str, Field(pattern=f"^{TARGET}$", examples=["my_model:MyModel"])] | None = Field(
        None, description="What is trained, as module:Name."
    )
    method: Method | None = Field(None, description="How configurations are chosen; bayes is tpe.")
    metric: Metric | None = Field(None, description="What to optimize; val_loss to minimize by default.")
    metrics: Annotated[tuple[Metric, ...], Field(strict=False, min_length=1)] | None = Field(
        None, description="Several objectives, in place of metric."
    )
    parameters: Annotated[dict[str, JsonValue], Field(min_length=1)] | None = Field(
        None, description="The hyperparameters by name."
    )
    constraints: Annotated[tuple[Text, ...], Field(strict=False)] = Field(
        (), description="Expressions over parameters that hold in every trial."
    )
    epochs: Annotated[int, Field(ge=1, le=MAX_EPOCHS)] = Field(
        10, description="Epochs per trial; a parameter called epochs takes its place."
    )
    early_terminate: EarlyTerminate | None = Field(None, description="When trials are stopped early.")
    run_cap: Count | None = Field(None, description="Number of configurations to try.")
    repeats: Count = Field(1, description="Trainings per configuration, each with its own seed.")
    seed: Annotated[int, Field(ge=0, lt=2**32)] = Field(0, description="Seed of the search and of all trials.")
    training: Training = Field(Training(), description="How every trial trains.")
    resources: Resources = Field(Resources(), description="What each trial is given.")
    budget: Budget = Field(Budget(), description="Where the sweep stops.")
    stop_when: StopWhen | None = Field(None, description="When the sweep is no longer worth its cost.")
    max_failures: Failures = Field(5, description="Failed trials that the sweep puts up with.")
    max_restarts: Failures = Field(3, description="Restarts of a trial whose worker was lost.")
    checkpoint: Checkpoint = Field(Checkpoint(), description="How often trials are saved.")
    warm_start: Annotated[tuple[Text, ...], Field(strict=False)] = Field(
        (), description="Folders of earlier sweeps that the search learns from."
    )
    apiVersion: JsonValue = _SERVER
    command: JsonValue = _SERVER
    controller: JsonValue = _SERVER
    entity: JsonValue = _SERVER
    image_uri: JsonValue = _SERVER
    job: JsonValue = _SERVER
    kind: JsonValue = _SERVER
    program: JsonValue = _SERVER
    project: JsonValue = _SERVER


HINTS = {
    "custom": "custom search programs are not run; choose a method",
    "pbt": "pbt is not available yet",
    **{
        word: f"that is {key!r} here"
        for word, key in (
            ("algorithm", "method"),
            ("direction", "metric.goal"),
            ("gpu", "gpus"),
            ("cpu", "cpus"),
            ("cpus", "resources.cpus"),
            ("gpus", "resources.gpus"),
            ("max_concurrent", "resources.max_concurrent"),
            ("max_trials", "run_cap"),
            ("mode", "metric.goal"),
            ("n_trials", "run_cap"),
            ("num_samples", "run_cap"),
            ("objective", "metric"),
            ("precision", "training.precision"),
            ("pruner", "early_terminate"),
            ("sampler", "method"),
            ("scheduler", "early_terminate"),
            ("search_alg", "method"),
            ("strategy", "training.strategy"),
            ("time_budget_s", "budget.hours"),
            ("trials", "run_cap"),
        )
    },
}
"""Help with words that other programs use, or that belong elsewhere."""
