"""Optimizers built from the standard hyperparameters, whose numbers can change without a new graph."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras

from sweep import standard_hyperparameters
from sweep.hyperparameters import Hyperparameters
from trainables.numbers.live import Live
from trainables.recipe import clipping, groups

_OTHERS = (
    keras.optimizers.Optimizer,
    keras.optimizers.LossScaleOptimizer,
    keras.optimizers.MultiOptimizer,
)


def _list_optimizers() -> dict[str, Callable[..., keras.optimizers.Optimizer]]:
    """Return Keras's optimizer classes by name in snake case, such as schedule_free_adamw for ScheduleFreeAdamW.

    The base class and the classes that wrap other optimizers (`_OTHERS`) are left out.
    """
    kinds = []
    for kind in vars(keras.optimizers).values():
        if isinstance(kind, type):
            kinds.append(kind)
    found = []
    for kind in kinds:
        if issubclass(kind, keras.optimizers.Optimizer) and kind not in _OTHERS:
            found.append(kind)
    # An underscore before each capital that begins a word; the W of AdamW does not.
    return {re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", kind.__name__).lower(): kind for kind in found}


OPTIMIZER_CLASSES = _list_optimizers()
"""Keras's optimizers by name."""

OPTIMIZERS = tuple(sorted(OPTIMIZER_CLASSES))
LIVE = frozenset(
    {
        *(
            "beta_1",
            "beta_2",
            "adam_beta_1",
            "adam_beta_2",
            "rho",
            "momentum",
            "beta",
            "beta_2_decay",
        ),
        *(
            "epsilon",
            "epsilon_1",
            "epsilon_2",
            "clip_threshold",
            "adam_lr_ratio",
            "learning_rate_power",
        ),
        *(f"{kind}_regularization_strength" for kind in ("l1", "l2", "l2_shrinkage")),
        *("muon_a", "muon_b", "muon_c", "rms_rate"),
    }
)
"""Arguments that Keras's optimizers use in each update; all others determine the graph."""
DECAYS = ("weight_decay", "adam_weight_decay")
NOT_THEIRS = frozenset(
    {
        *("learning_rate", "warmup_steps"),  # the loop uses them with all optimizers
        *("name", "use_ema", "ema_momentum", "ema_overwrite_frequency"),
        *("loss_scale_factor", "gradient_accumulation_steps", *clipping.KINDS),
        "weight_decay",  # an argument of all optimizers
    }
)
READS = (
    *("weight_decay", "adam_weight_decay"),
    *("beta_1", "beta_2", "adam_beta_1", "adam_beta_2", "rho", "momentum", "beta", "beta_2_decay"),
    *(
        "epsilon",
        "epsilon_1",
        "epsilon_2",
        "clip_threshold",
        "adam_lr_ratio",
        "learning_rate_power",
    ),
    *(
        "l1_regularization_strength",
        "l2_regularization_strength",
        "l2_shrinkage_regularization_strength",
    ),
    *("initial_accumulator_value", "amsgrad", "centered", "nesterov", "relative_step"),
    *("muon_a", "muon_b", "muon_c", "rms_rate", "ns_steps", "exclude_layers", "exclude_embeddings"),
)


def build(hp: Hyperparameters, live: Live) -> keras.optimizers.Optimizer:
    """Return the optimizer that the hyperparameters name (``optimizer``, default adam; ``module:Name`` for your own).

    Keras's names are compared without case and underscores. Arguments of the optimizer that the trial has as
    hyperparameters are set to their values, see `list_arguments`; those in `LIVE` become live numbers. Without
    ``weight_decay``, an optimizer of Keras's does not decay, and ``adam_weight_decay`` of Muon is ``weight_decay`` by
    default. Keras multiplies both by the learning rate. The learning rate is 1 until the loop sets it before each
    update. `_import_optimizer` makes your own, of which only ``weight_decay`` is a live number.
    Raises: ValueError or TypeError: if the optimizer is unknown, cannot be imported or refuses its arguments, or an
    argument has a wrong type. ValueError: if an argument of an optimizer of Keras's, or ``weight_decay``, is out of
    bounds.
    """
    name = hp.text("optimizer", "adam")
    if ":" in name:
        return _import_optimizer(name, hp, live)
    kind = next(
        (
            kind
            for known, kind in OPTIMIZER_CLASSES.items()
            if _normalize_name(known) == _normalize_name(name)
        ),
        None,
    )
    if kind is None:
        raise ValueError(
            f"optimizer is {name!r}, expected one of {', '.join(OPTIMIZERS)}, or module:Name"
        )
    fixed_arguments = _read_arguments(hp, kind, but=(*LIVE, *DECAYS))
    for arg, value in fixed_arguments.items():
        standard_hyperparameters.check_standard_value(arg, value)
    optimizer = _create_optimizer(name, kind, fixed_arguments)
    # Keras reads these attributes whenever it traces an update, so they may be set to live numbers after creation.
    for arg in list_arguments(kind):
        if arg in LIVE and arg in hp:
            setattr(optimizer, arg, live.number(arg, standard=True))
    if "weight_decay" in hp:
        decay = live.number("weight_decay", standard=True)
    else:
        decay = None
    optimizer.weight_decay = decay  # Keras's own defaults would be hidden hyperparameters
    if hasattr(optimizer, "adam_weight_decay"):  # Muon, which trains some weights by AdamW
        if "adam_weight_decay" in hp:
            optimizer.adam_weight_decay = live.number("adam_weight_decay", standard=True)
        else:
            optimizer.adam_weight_decay = decay
    return optimizer


def _normalize_name(name: str) -> str:
    """Return a name in lower case without underscores, to compare AdamW with adamw and schedule_free_adamw."""
    return name.lower().replace("_", "")


def list_arguments(kind: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the arguments of an optimizer's class or function that are read as hyperparameters.

    Those that the loop or other hyperparameters set (`NOT_THEIRS`, also ``weight_decay``) are left out, as are
    arguments that cannot be given by name. Empty if Python does not know the arguments.
    """
    given = _get_parameters(kind).values()
    named = (one.name for one in given if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY))
    return tuple(name for name in named if name not in NOT_THEIRS)


def _get_parameters(kind: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class or function by name; empty if Python does not know them."""
    try:
        return inspect.signature(kind).parameters
    except (TypeError, ValueError):  # Python does not know the arguments of some callables
        return {}


def _import_optimizer(name: str, hp: Hyperparameters, live: Live) -> keras.optimizers.Optimizer:
    """Return an optimizer made by the author's class or function ``name``, written ``module:Name``.

    It gets a learning rate of 1, if it takes one, and those of its arguments that the trial has as hyperparameters;
    these are fixed in the graph. Only ``weight_decay`` is a live number; without it, the optimizer keeps its own.
    Raises: ValueError: if ``name`` cannot be imported, raises a TypeError or ValueError, or makes no optimizer, or if
    ``weight_decay`` is out of bounds. TypeError: if an argument has another type than its default, or ``weight_decay``
    is no number. Other errors of the author's code are passed on.
    """
    module, _, attribute = name.partition(":")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    # ValueError: an empty module, as in ":Name"
    except (
        ImportError,
        AttributeError,
        ValueError,
    ) as error:
        raise ValueError(f"optimizer is {name!r}, which cannot be imported: {error}") from error
    if callable(kind):
        optimizer = _create_optimizer(name, kind, _read_arguments(hp, kind))
    else:
        optimizer = None
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise ValueError(
            f"optimizer is {name!r}, expected a class or function that makes a keras.optimizers.Optimizer"
        )
    if "weight_decay" in hp:
        optimizer.weight_decay = live.number("weight_decay", standard=True)
    return optimizer


def _read_arguments(
    hp: Hyperparameters, kind: Callable[..., Any], but: Sequence[str] = ()
) -> dict[str, Any]:
    """Return the trial's hyperparameters that are arguments of ``kind``, by name, except those named in ``but``.

    Arguments that the trial lacks are left out. Raises TypeError if one has another type than its default.
    """
    arguments = {}
    for arg in list_arguments(kind):
        if arg not in but and arg in hp:
            arguments[arg] = _read_argument(hp, arg, kind)
    return arguments


def _read_argument(hp: Hyperparameters, arg: str, kind: Callable[..., Any]) -> Any:
    """Return the hyperparameter ``arg`` as a value of the type that the default of this argument of ``kind`` has.

    A whole number may be written as 2.0, and a float as 2. If the default is no bool, int or float, or there is none,
    the value is returned as it is.
    Raises: TypeError: if it has another type. KeyError: if the trial does not have it.
    """
    match _get_parameters(kind)[arg].default:
        case bool():
            return hp.flag(arg)
        case int():
            return hp.integer(arg)
        case float():
            return hp.number(arg)
    return hp[arg]


def _create_optimizer(name: str, kind: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    """Call ``kind`` with ``arguments``, and a learning rate of 1 if it takes one; return the result.

    Raises ValueError if ``kind`` raises a TypeError or ValueError. The message has ``name`` and the arguments.
    """
    if "learning_rate" in _get_parameters(kind):
        rate = {"learning_rate": 1.0}  # the loop sets it before each update
    else:
        rate = {}
    try:
        return kind(**rate, **arguments)
    except (TypeError, ValueError) as error:
        with_arguments = ""
        if arguments:
            with_arguments = " with " + ", ".join(
                f"{arg}={value!r}" for arg, value in arguments.items()
            )
        raise ValueError(f"optimizer {name}{with_arguments}: {error}") from error


def exclude_from_decay(
    optimizer: keras.optimizers.Optimizer, weights: Sequence[keras.Variable]
) -> None:
    """Exempt those of ``weights`` with at most one axis from weight decay; kernels and embeddings still decay.

    Earlier exemptions are replaced. Does nothing for an optimizer whose weight decay is None. Of a grouped optimizer,
    only the trial's own optimizers are changed, see `groups.list_main_optimizers`. Raises Keras's ValueError if an
    optimizer with weight decay is built already.
    """
    without_decay = [v for v in weights if len(v.shape) <= 1]
    for part in groups.list_main_optimizers(optimizer):
        if any(getattr(part, decay, None) is not None for decay in DECAYS):
            part.exclude_from_weight_decay(var_list=without_decay)


def disable_averaging(optimizer: keras.optimizers.Optimizer) -> float | None:
    """Turn off the averaging of weights in an optimizer and its parts; return its momentum, None if none averages.

    If parts average with different momenta, the largest is returned, and the loop, which averages instead, uses it for
    all weights. Keras averages in the same way, but evaluates with the averages only after `fit` has ended. A second
    call returns None.
    """
    momentum = groups.get_averaging_momentum(optimizer)
    for part in groups.list_parts(optimizer):
        part.use_ema = False
    return momentum
