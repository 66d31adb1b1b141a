"""The top level of a sweep file: all its keys, types and defaults, including the `early_terminate:` block.

Also checks which keys can be used with parameter servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, get_args, get_type_hints

from pydantic import Field, JsonValue, create_model

from sweep.events import Value
from sweep.space import early_terminate
from sweep.space.domains import list_choices
from sweep.space.early_terminate import EarlyTermination, Misfit
from sweep.spec.blocks import (
    Amount,
    Block,
    Budget,
    Checkpoint,
    Confirm,
    Count,
    Metric,
    Notify,
    Resources,
    StopWhen,
    Text,
    Training,
)
from sweep.spec.parameters import Entry
from sweep.spec.search_methods import METHODS, SEARCHED
from sweep.spec.validation import Document, KeyPath
from sweep.text import counted, join_words


def _make_block(rule: type[early_terminate.Rule]) -> type[Block]:
    """Create the pydantic model of an early-stopping rule, with ``type`` and the rule's fields as keys.

    The limits of each key are those in the field's metadata. The default of ``min_iter`` is None, because it depends on
    the method; the others are those of the rule. A key whose default is None may be null.
    """
    keys: dict[str, Any] = {"type": (Literal[rule.type], ...)}
    kinds = get_type_hints(rule)
    for one in fields(rule):
        bounds = Field(ge=one.metadata["low"], le=one.metadata["high"])
        about = one.metadata["description"]
        kind = kinds[one.name]
        # The first type of ``int | None`` is that of the number; other types have no arguments.
        number: Any = Annotated[next(iter(get_args(kind)), kind), bounds]
        if one.name == "min_iter":
            default = None  # it depends on the method
        else:
            default = one.default
        # As pydantic expects it, the type and then the field; a key whose default is None may be null.
        keys[one.name] = (
            number if default is not None else number | None,
            Field(default, description=about),
        )
    return create_model(
        rule.__name__, __base__=Block, __doc__=(rule.__doc__ or "").splitlines()[0], **keys
    )


RULES = {kind: _make_block(rule) for kind, rule in early_terminate.RULES.items()}
"""The pydantic blocks of `early_terminate`, by type."""

if TYPE_CHECKING:
    EarlyTerminate: TypeAlias = Block
else:
    EarlyTerminate = Annotated[reduce(or_, RULES.values()), Field(discriminator="type")]


def build_rule(
    block: EarlyTerminate | str | None, path: KeyPath, document: Document
) -> EarlyTermination:
    """Return the early-stopping rule that a block describes; add a mistake if its keys do not make a rule.

    ``block`` may also be the ``module:Name`` of a rule of the user's own, or None for no rule. As in W&B, ``min_iter``
    is ignored beside both ``s`` and ``max_iter``, and ``s`` is ignored beside ``min_iter`` alone. After a mistake, the
    result is `NoTermination`.
    """
    if isinstance(block, str):
        return early_terminate.Own(block)
    keys: dict[str, Any] = {"type": "none"} if block is None else block.model_dump()
    match keys:
        case {"s": int(), "max_iter": int()}:  # as in W&B, they take precedence over min_iter
            keys["min_iter"] = None
        case {"s": int(), "min_iter": int()}:  # as in W&B, s alone has no effect
            keys["s"] = None
    given = {}
    for key, value in keys.items():
        if value is not None:
            given[key] = value
    try:
        return early_terminate.RULES[given.pop("type")](**given)
    except Misfit as misfit:
        document.add_mistake((*path, *misfit.key), misfit.what)
        return early_terminate.NoTermination()


def check_rule_can_act(
    rule: EarlyTermination,
    epochs: int,
    path: KeyPath,
    document: Document,
    *,
    length: str = "",
    is_default: bool = False,
) -> None:
    """Add a mistake if a rule, or one of its brackets, can never act on a trial of ``epochs`` epochs.

    ``path`` is the place of the rule; the mistake is at its key for the first rung or for the brackets. ``length``
    describes the epochs in the message, by default as a number of epochs. ``is_default`` says that the file does not
    set the number of epochs. A rule that never acts by design, and one of the user's own, has no mistake.
    """
    length = length or counted(epochs, "epoch")
    if is_default:
        why = ", the default, for the file names none"
        hint = "write epochs: and how many a trial trains"
    else:
        why = ""
        hint = "lower it, train more epochs"
    # the epochs of each bracket; () if there are none to check
    brackets = early_terminate.list_brackets(rule, epochs)
    if isinstance(rule, early_terminate.Rule) and brackets and not any(brackets):
        does = "pause" if rule.pauses else "stop"
        what = f"can never {does} a trial of {length}{why}"
        document.add_mistake(
            (*path, rule.key_of_first_rung), what, f"{hint}, or remove early_terminate"
        )
    elif not all(brackets):  # the first bracket has the most rungs, and each later one a rung less
        rungs = len(brackets[0])
        what = f"number {len(brackets)}, expected at most {rungs}, the number of rungs within {length}{why}"
        document.add_mistake((*path, "brackets"), what, hint if is_default else "")


def rule_to_dict(rule: EarlyTermination) -> Value:
    """Return a rule as the value of `early_terminate` in a sweep file.

    That is ``module:Name`` for a rule of the user's own, and otherwise a mapping with its type and all keys that are
    not None.
    """
    if isinstance(rule, early_terminate.Own):
        return rule.target
    return {
        "type": rule.type,
        **{key: value for key, value in asdict(rule).items() if value is not None},
    }


class PopulationBlock(Block):
    """Population based training, of `method: pbt` and `pb2`."""

    size: Annotated[int, Field(ge=2, le=1000)] = Field(
        8, description="Members that train at the same time."
    )
    interval: Count = Field(
        1, description="Epochs of a generation, after which the worst are replaced."
    )
    quantile: Annotated[float, Field(ge=0.01, le=0.5)] = Field(
        0.25, description="Share of the members that copies of the best ones replace; at least one."
    )
    resample: Annotated[float, Field(ge=0, le=1)] = Field(
        0.25,
        description="Chance that a parameter which pbt moves is drawn anew; else it is multiplied by 0.8 or 1.2.",
    )
    perturb: Annotated[
        tuple[Text, ...], Field(strict=False, examples=[["learning_rate", "weight_decay"]])
    ] = Field(
        (), description="Parameters that copies change; by default all numbers that have a range."
    )


if TYPE_CHECKING:
    MethodName: TypeAlias = str
else:
    MethodName = Literal[tuple(METHODS)]

NAME = r"[A-Za-z0-9_][^/\\\n]{0,99}"
TARGET = r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
MAX_EPOCHS = 1_000_000
MAX_SEED = 2**32 - 1  # the limit of NumPy and TensorFlow

SweepName: TypeAlias = Annotated[
    str,
    Field(
        pattern=f"^{NAME}$",
        json_schema_extra={
            "expected": "up to 100 characters without / and \\, beginning with A-Z, a-z, 0-9 or _"
        },
    ),
]
Target: TypeAlias = Annotated[
    str,
    Field(
        pattern=f"^{TARGET}$",
        json_schema_extra={"expected": "module:Name, such as my_model:MyModel"},
    ),
]
OwnPart: TypeAlias = Annotated[
    str,
    Field(
        pattern=f"^{TARGET}$", json_schema_extra={"expected": "module:Name of a class of your own"}
    ),
]
Metrics: TypeAlias = Annotated[
    tuple[Metric, ...],
    Field(strict=False, min_length=1, examples=[[{"name": "val_loss"}, {"name": "size"}]]),
]
Parameters: TypeAlias = Annotated[
    dict[str, JsonValue], Field(min_length=1, examples=[{"learning_rate": {"values": [0.1, 0.01]}}])
]
Constraints: TypeAlias = Annotated[tuple[Text, ...], Field(strict=False)]
StartWith: TypeAlias = Annotated[
    tuple[Annotated[dict[str, JsonValue], Field(min_length=1)], ...],
    Field(strict=False, examples=[[{"learning_rate": 1e-3}]]),
]
Prior: TypeAlias = Annotated[
    dict[str, JsonValue],
    Field(
        min_length=1,
        examples=[{"learning_rate": 1e-3, "optimizer": {"value": "adamw", "confidence": "high"}}],
    ),
]
Baseline: TypeAlias = Annotated[
    dict[str, JsonValue], Field(min_length=1, examples=[{"learning_rate": 1e-3}])
]
Folds: TypeAlias = Annotated[
    int, Field(ge=2, json_schema_extra={"expected": "a whole number from 2, such as 5"})
]
Notices: TypeAlias = Annotated[
    tuple[Notify, ...],
    Field(
        strict=False,
        max_length=10,
        examples=[[{"webhook": "https://host/path", "on": ["finished", "failed"]}]],
    ),
]
Folders: TypeAlias = Annotated[
    tuple[Text, ...], Field(strict=False, examples=[["results/last_week"]])
]

NOT_WITH_A_POPULATION = {
    "early_terminate": "it replaces its worst members itself",
    "run_cap": "population.size says how many train",
    "repeats": "a copy goes on with the seed of its parent",
    "folds": "a copy goes on with the examples of its parent",
    "baseline": "what it finds is a schedule, and one configuration does not train like it",
    "confirm": "what it finds is a schedule, and the last configuration alone does not train like it",
    "metrics": "the worst and the best are by one metric",
}
"""Keys that cannot be combined with a population, with the reasons."""


REQUIRED = ("trainable", "parameters")
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
"""Keys of W&B files for W&B's server only; accepted and ignored."""

_OTHER_NAMES = ", ".join(f"{row.name} is {row.same_as}" for row in METHODS.values() if row.same_as)
_POPULATIONS = join_words([row.name for row in SEARCHED if row.population], "and")
_WITH_PRIOR = join_words([row.name for row in SEARCHED if row.uses_prior], "and")
_SERVER = Field(None, description="A key of W&B's server, without effect here.")


class SweepFile(Block):
    """One sweep: what is searched, how, for how long, on what.

    Keys that a sweep must have are optional here, so that a file without them is still understood.
    """

    name: SweepName | None = Field(
        None,
        description="Name of the results folder: all but A-Z, a-z, 0-9 and . _ become -; by default the file's name.",
    )
    description: str | None = Field(None, description="What the sweep is for.")
    trainable: Target | None = Field(None, description="What is trained, as module:Name.")
    method: MethodName | OwnPart | None = Field(
        None,
        description="How configurations are chosen; auto, the default, chooses the method and the rule; "
        f"{_OTHER_NAMES}, module:Name a searcher of your own.",
    )
    population: PopulationBlock | None = Field(
        None,
        description=f"Of methods {_POPULATIONS}: how many members train, and when the worst are replaced.",
        examples=[{"size": 8, "interval": 2}],
    )
    start_with: StartWith = Field(
        (), description="Configurations that are tried first, whole or in part."
    )
    prior: Prior | None = Field(
        None,
        description=f"Where you believe the best is, for {_WITH_PRIOR}: a value, or {{value: 1e-3, confidence: low}}, "
        "which is medium if left out, or high.",
    )
    baseline: Baseline | None = Field(
        None,
        description="The author's own configuration: trained with the same seeds, what the search has to beat.",
    )
    metric: Metric | None = Field(
        None,
        description="What to optimize; if left out, val_loss is minimized.",
        examples=[{"name": "val_loss", "goal": "minimize"}],
    )
    metrics: Metrics | None = Field(None, description="Several objectives, in place of metric.")
    parameters: Parameters | None = Field(None, description="The hyperparameters by name.")
    constraints: Constraints = Field(
        (),
        description="Expressions over parameters that hold in every trial, or over metrics, without which it is "
        "infeasible.",
        examples=[["learning_rate < 0.1", "latency_ms <= 5"]],
    )
    epochs: Annotated[int, Field(ge=1, le=MAX_EPOCHS)] = Field(
        10, description="Epochs per trial; a parameter called epochs takes its place."
    )
    minutes: Amount | None = Field(
        None,
        description="Minutes of training after which a trial is complete, in place of epochs or, with both, whichever "
        "comes first; rungs are in hundredths of them if the file has no epochs.",
    )
    early_terminate: EarlyTerminate | OwnPart | None = Field(
        None,
        description="When trials are stopped early; module:Name is a scheduler of your own.",
        examples=[{"type": "asha", "min_iter": 1}],
    )
    run_cap: Count | None = Field(None, description="Number of configurations to try.")
    repeats: Count = Field(1, description="Trainings per configuration, each with its own seed.")
    folds: Folds | None = Field(
        None,
        description="Cross-validation: each configuration is trained once for each fold, which is left out of training "
        "and validates; repeats cut anew.",
        examples=[5],
    )
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = Field(
        0, description="Seed of the search and of all trials."
    )
    training: Training = Field(
        Training(), description="How every trial trains.", examples=[{"precision": "auto"}]
    )
    confirm: Confirm | None = Field(
        None,
        description="Once the search has ended: fresh seeds for the configurations that could still be the best.",
        examples=[{"seeds": 8, "budget": "20%"}],
    )
    resources: Resources = Field(
        Resources(), description="What each trial is given.", examples=[{"cpus": 2, "gpus": 0.5}]
    )
    budget: Budget = Field(Budget(), description="Where the sweep ends.", examples=[{"hours": 8}])
    stop_when: StopWhen | None = Field(
        None,
        description="When the sweep is no longer worth its cost.",
        examples=[{"no_improvement": 20}],
    )
    max_failures: Count = Field(
        5, description="Configurations that fail in a row, after which the sweep ends."
    )
    max_restarts: Annotated[int, Field(ge=0)] = Field(
        3, description="Restarts of a trial whose worker was lost."
    )
    retries: Annotated[int, Field(ge=0)] = Field(
        0, description="Times that a failed trial is tried again."
    )
    checkpoint: Checkpoint = Field(
        Checkpoint(), description="How often trials are saved.", examples=[{"every_s": 60}]
    )
    notify: Notices = Field(
        (),
        description="Who is told when the sweep has finished, failed, and so on: commands, webhooks, Slack, mail.",
    )
    warm_start: Folders = Field(
        (), description="Earlier sweeps that the search learns from: their names or folders."
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
    "custom": "name a searcher of your own as module:Name, or choose a method",
    **{
        word: f"that is {key!r} here"
        for word, key in (
            ("algorithm", "method"),
            ("cpu", "cpus"),
            ("cpus", "resources.cpus"),
            ("direction", "metric.goal"),
            ("gpu", "gpus"),
            ("gpus", "resources.gpus"),
            ("grace_period", "min_iter"),
            ("max_concurrent", "resources.max_concurrent"),
            ("max_t", "max_iter"),
            ("max_trials", "run_cap"),
            ("mode", "goal"),
            ("n_trials", "run_cap"),
            ("num_samples", "run_cap"),
            ("objective", "metric"),
            ("precision", "training.precision"),
            ("pruner", "early_terminate"),
            ("reduction_factor", "eta"),
            ("sampler", "method"),
            ("scheduler", "early_terminate"),
            ("search_alg", "method"),
            ("strategy", "training.strategy"),
            ("time_budget_s", "budget.hours"),
            ("trials", "run_cap"),
        )
    },
}
"""Hints for names that other programs use, and for keys in the wrong place."""


SERVED_OPTIMIZERS = ("sgd", "adam", "adamw")
NOT_SERVED = {
    "micro_batches": "each update is one batch of one worker",
    "ema_momentum": "averaging weights that several workers change is not supported",
    "swa_from": "averaging weights that several workers change is not supported",
    "sam_rho": "the weights may change between the two passes of an update",
    "frozen_epochs": "weights are not handed on between the phases of a trial",
    "layer_decay": "all weights have one rate",
    "layer_rates": "all weights have one rate",
    "gradient_checkpointing": "weights may change before they are read again",
    "amsgrad": "the servers compute sgd, adam and adamw",
}
"""Standard hyperparameters that cannot be used with parameter servers, with the reasons."""


def check_parameter_server(file: SweepFile, entries: Iterable[Entry], document: Document) -> None:
    """Add mistakes for settings that cannot be combined with parameter servers.

    The strategy `parameter_server` without any server is a mistake as well, and so are servers without the strategy. A
    file with neither has none. ``entries`` are the parameters of the file.
    """
    training = file.training
    resources = file.resources
    if training.strategy != "parameter_server":
        if resources.servers:
            strategy = (
                f"training.strategy is {training.strategy}, which keeps no weights on servers"
            )
            what = f"{resources.servers}, and {strategy}"
            document.add_mistake(
                ("resources", "servers"), what, "write training: {strategy: parameter_server}"
            )
        return
    if not resources.servers:
        what = "parameter_server keeps the weights on servers, and resources.servers is 0"
        document.add_mistake(
            ("training", "strategy"), what, "write resources: {workers: 2, servers: 1}"
        )
    _check_served_training(training, document)
    if resources.gpus not in (0, 1):
        given = resources.gpus if resources.gpus == "auto" else f"{resources.gpus:g}"
        what = f"{given}, expected 0 or 1: each worker of a parameter server computes on one device"
        document.add_mistake(("resources", "gpus"), what, "give a trial more workers instead")
    for entry in entries:
        _check_served_entry(entry, document)


def _check_served_training(training: Training, document: Document) -> None:
    """Add mistakes for keys of `training` that cannot be combined with parameter servers.

    They are the loop `fit`, mixed precision, ``jit_compile: true``, and `cross_device` unless it is ``auto``.
    """
    if training.loop == "fit":
        what = "fit, which in Keras 3 knows no parameter servers"
        document.add_mistake(("training", "loop"), what, "leave loop out")
    if training.precision.startswith("mixed"):
        what = f"{training.precision}, and servers keep and change weights in float32"
        document.add_mistake(("training", "precision"), what, "leave precision out")
    if training.jit_compile is True:
        what = "true, and updates on servers do not go through XLA"
        document.add_mistake(("training", "jit_compile"), what, "leave jit_compile out")
    if training.cross_device != "auto":
        what = (
            f"{training.cross_device}, and nothing is summed over the workers of a parameter server"
        )
        document.add_mistake(("training", "cross_device"), what, "leave cross_device out")


def _check_served_entry(entry: Entry, document: Document) -> None:
    """Add a mistake if a parameter, or a value of `optimizer`, cannot be used with parameter servers.

    Of several such values of `optimizer`, the first one is named. Values that cannot be listed are not checked.
    """
    name = entry.name.partition(".")[0]  # of a nested one such as layer_rates.dense, the outer name
    if name in NOT_SERVED:
        document.add_mistake(
            entry.path, f"not with a parameter server: {NOT_SERVED[name]}", "leave it out"
        )
    elif entry.name == "optimizer" and entry.domain is not None:
        others = []
        for value in list_choices(entry.domain) or ():
            if _normalize_optimizer_name(value) not in SERVED_OPTIMIZERS:
                others.append(value)
        if others:
            known = ", ".join(SERVED_OPTIMIZERS)
            what = (
                f"{others[0]!r}, expected {known}: those that a parameter server's servers compute"
            )
            document.add_mistake(entry.path, what)


def _normalize_optimizer_name(value: object) -> str:
    """Return a name, or the text of any other value, in lower case without underscores, as optimizers are compared."""
    return str(value).lower().replace("_", "")
