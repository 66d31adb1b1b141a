"""The standard hyperparameters of a `KerasTrainable`: their bounds and the meaning of 0.

The service checks a sweep file against this table before anything starts, and training checks each value that it reads
against it. Other kinds of trainables may use the same names for parameters of their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sweep.events import Value, is_number


@dataclass(frozen=True, slots=True)
class Number:
    """The numbers between two bounds; both are included unless ``above`` or ``below`` excludes one."""

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False
    above: bool = False
    below: bool = False
    zero: str = ""  # meaning of 0, if it has a special one

    def accepts(self, value: Value) -> bool:
        """Return whether a value is a finite number between the bounds; 2.0 counts as whole, True as no number."""
        if not is_number(value) or (self.whole and value != int(value)):
            return False
        if self.above:
            is_high_enough = value > self.low
        else:
            is_high_enough = value >= self.low
        return is_high_enough and (value < self.high if self.below else value <= self.high)

    def __str__(self) -> str:
        words = ["a whole number" if self.whole else "a number"]
        if math.isfinite(self.low):
            words.append(f"{'above' if self.above else 'from'} {self.low:g}")
        if math.isfinite(self.high):
            to = "to" if math.isfinite(self.low) else "up to"
            words.append(f"{'and below' if self.below else to} {self.high:g}")
        return " ".join(words)


@dataclass(frozen=True, slots=True)
class Flag:
    """The values true and false."""

    zero: str = ""

    def accepts(self, value: Value) -> bool:
        return isinstance(value, bool)

    def __str__(self) -> str:
        return "true or false"


@dataclass(frozen=True, slots=True)
class Words:
    """A set of allowed strings."""

    words: tuple[str, ...]
    zero: str = ""

    def accepts(self, value: Value) -> bool:
        return isinstance(value, str) and value in self.words

    def __str__(self) -> str:
        return f"one of {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Names:
    """One name or a list of names that must exist in the model or in Keras, or else a number within bounds."""

    number: Number | None
    said: str
    zero: str = ""
    # names that are known without looking into the model; others are taken as well
    known: tuple[str, ...] = ()

    def accepts(self, value: Value) -> bool:
        if isinstance(value, str) or (isinstance(value, list) and value):
            return True
        return self.number is not None and self.number.accepts(value)

    def __str__(self) -> str:
        return self.said


Bounds: TypeAlias = Number | Flag | Words | Names

OPTIMIZERS = (
    *(
        "adadelta",
        "adafactor",
        "adagrad",
        "adam",
        "adamax",
        "adamw",
        "ftrl",
        "lamb",
        "lion",
        "muon",
    ),
    *("nadam", "rmsprop", "schedule_free_adamw", "sgd"),
)
"""The optimizers of Keras; a newer one may have more."""
SCHEDULES = (
    *("constant", "step", "piecewise", "linear", "polynomial", "exponential"),
    *("cosine", "cosine_restarts", "one_cycle", "plateau"),
)
_COUNT = Number(1, whole=True)
_FROM_0 = Number(0)
_SHARE = Number(0, 1)
_ABOVE_0 = Number(0, above=True)
_OFF = Number(0, zero="off")
_SHARE_OFF = replace(_SHARE, zero="off")

OF_MIXING = ("mixup", "cutmix", "random_erasing")
"""The hyperparameters that mix or erase training examples."""

FRAME: Mapping[str, Bounds] = {
    **dict.fromkeys(
        ("batch_size", "per_replica_batch_size", "validation_batch_size", "micro_batches"), _COUNT
    ),
    **dict.fromkeys(("steps_per_epoch", "validation_steps", "shuffle_buffer", "swa_from"), _COUNT),
    **dict.fromkeys(("clipnorm", "global_clipnorm", "clipvalue", "sam_rho"), _OFF),
    **dict.fromkeys(("mixup", "cutmix"), Number(0, 1e6, zero="off")),
    "ema_momentum": _SHARE_OFF,
    "random_erasing": _SHARE_OFF,
    "frozen_layers": Names(
        Number(0, whole=True), "a whole number from 0, or names of layers", zero="none"
    ),
    **dict.fromkeys(("shuffle", "cache_features", "gradient_checkpointing"), Flag()),
}
"""Bounds of the hyperparameters that every `KerasTrainable` reads, whichever methods are overridden."""

OVERRIDABLE: Mapping[str, Bounds] = {
    "learning_rate": Number(0, zero="nothing is trained"),
    "fine_tune_learning_rate": Number(0, zero="nothing is trained"),
    "lr_scaling": Words(("none", "linear", "sqrt")),
    "reference_batch_size": _COUNT,
    "warmup_epochs": _OFF,
    "warmup_steps": Number(0, whole=True, zero="off"),
    "lr_schedule": Words(SCHEDULES),
    **dict.fromkeys(("lr_final", "lr_initial"), _SHARE),
    **dict.fromkeys(("lr_power", "lr_lengthening", "lr_drop_factor"), _ABOVE_0),
    "lr_rise": Number(0, 1, above=True, below=True),
    **dict.fromkeys(("lr_restarts", "lr_drops"), Number(0, whole=True, zero="none")),
    "lr_patience": Number(0, whole=True),
    "lr_drop_epochs": Names(None, "a list of epochs such as [30, 60]"),
    "optimizer": Names(None, "an optimizer of Keras by name, or module:Name", known=OPTIMIZERS),
    **dict.fromkeys(("weight_decay", "adam_weight_decay"), _OFF),
    **dict.fromkeys(("beta_1", "beta_2", "adam_beta_1", "adam_beta_2", "rho"), _SHARE),
    "momentum": _SHARE_OFF,
    **dict.fromkeys(
        ("epsilon", "epsilon_1", "epsilon_2", "clip_threshold", "adam_lr_ratio"), _FROM_0
    ),
    "initial_accumulator_value": _FROM_0,
    **dict.fromkeys(
        (f"{kind}_regularization_strength" for kind in ("l1", "l2", "l2_shrinkage")), _OFF
    ),
    **dict.fromkeys(("beta_2_decay", "learning_rate_power"), Number(high=0)),
    **dict.fromkeys(("beta", "muon_a", "muon_b", "muon_c", "rms_rate"), Number()),
    "ns_steps": _COUNT,
    **dict.fromkeys(
        ("amsgrad", "nesterov", "centered", "relative_step", "exclude_embeddings"), Flag()
    ),
    "exclude_layers": Names(None, "names of layers"),
    "layer_decay": _SHARE,
    "layer_rates.*": Number(0, zero="these layers are not trained"),
    "label_smoothing": _SHARE_OFF,
    "loss_weights.*": Number(zero="this loss does not count"),
    "class_weights": Words(("none", "balanced")),
    "frozen_epochs": Number(0, whole=True, zero="off"),
    "dropout": _SHARE_OFF,
}
"""Bounds of the hyperparameters that overridable methods of `KerasTrainable` read.

An author's override may use the same name differently.
"""

OF_OPTIMIZERS = (
    *(
        "weight_decay",
        "adam_weight_decay",
        "momentum",
        "nesterov",
        "amsgrad",
        "centered",
        "relative_step",
    ),
    *("beta_1", "beta_2", "adam_beta_1", "adam_beta_2", "rho", "epsilon", "epsilon_1", "epsilon_2"),
    *(
        "beta",
        "beta_2_decay",
        "clip_threshold",
        "adam_lr_ratio",
        "initial_accumulator_value",
        "learning_rate_power",
    ),
    *(f"{kind}_regularization_strength" for kind in ("l1", "l2", "l2_shrinkage")),
    *("muon_a", "muon_b", "muon_c", "rms_rate", "ns_steps", "exclude_layers", "exclude_embeddings"),
)
"""Arguments of Keras's optimizers; each optimizer takes some of them."""
SHAPING = ("lr_schedule", "lr_scaling", "reference_batch_size", "warmup_epochs", "warmup_steps")
"""Hyperparameters that turn a peak learning rate into the rate of each update."""
OF_RATES = (
    *("learning_rate", "fine_tune_learning_rate", *SHAPING),
    *(name for name in OVERRIDABLE if name.startswith("lr_") and name not in SHAPING),
)
"""Hyperparameters that determine the learning rate of each update."""
CLIPPING = ("clipnorm", "global_clipnorm", "clipvalue")

OF_METHODS: Mapping[str, tuple[str, ...]] = {
    "optimizer": ("optimizer", *OF_OPTIMIZERS),
    "schedule": (
        "lr_schedule",
        *(name for name in OVERRIDABLE if name.startswith("lr_") and name != "lr_scaling"),
    ),
    "loss": ("label_smoothing",),
    "loss_weights": ("loss_weights.*",),
    "class_weights": ("class_weights",),
    "groups": ("layer_decay", "layer_rates.*"),
    "phases": ("frozen_epochs", "fine_tune_learning_rate"),
    "dropout": ("dropout",),
}
"""By method of `KerasTrainable`: the parameters that have no effect if an author overrides the method."""

STANDARD: Mapping[str, Bounds] = {**FRAME, **OVERRIDABLE}


LENGTHS = {
    "epochs": "no trial has begun",
    "updates": "it follows from the data of a KerasTrainable and the batch size; read it in model() or later",
}
"""Lengths that code may read like parameters, with the reason why one may be unknown."""


def get_standard_bounds(name: str) -> Bounds:
    """Return the allowed values of a standard hyperparameter; also of nested ones such as ``loss_weights.depth``.

    The outer name alone, such as ``loss_weights``, has the same. Raises KeyError for any other name.
    """
    if name in STANDARD:
        return STANDARD[name]
    return STANDARD[f"{name.partition('.')[0]}.*"]


def is_standard(name: str) -> bool:
    """Return whether a parameter has the name of a standard hyperparameter, also of one such as ``loss_weights.depth``.

    The outer name of nested ones alone, such as ``loss_weights``, is not one.
    """
    return name in STANDARD or ("." in name and f"{name.partition('.')[0]}.*" in STANDARD)


def expected(of: Bounds) -> str:
    """Return the allowed values in words, with the meaning of 0: ``a number from 0 (0: off)``."""
    if of.zero:
        return f"{of} (0: {of.zero})"
    return str(of)


def choose_bounds(
    name: str, between: tuple[float, float] | None, *, standard: bool
) -> Bounds | None:
    """Return the bounds to check a parameter against; None if it has none.

    With ``standard``, they are those of the standard hyperparameter of this name, and ``between`` is not used; a
    KeyError is raised if there is none. Otherwise they are ``between``, which is (low, high), both included, or None.
    """
    if standard:
        return get_standard_bounds(name)
    if between is None:
        return None
    return Number(*between)


def convert_to_number(
    name: str, value: Value, meaning: Mapping[str, float] | None, of: Bounds | None
) -> float:
    """Return a parameter's value as a float; ``meaning`` maps the choices of a text parameter to numbers.

    Without ``meaning``, raises TypeError if the value is not a number, such as True, and ValueError if it is out of the
    bounds ``of``, where None allows all. With ``meaning``, raises ValueError if it is not one of the choices; the
    number is not checked. ``name`` is the parameter's, for the messages.
    """
    if meaning is not None:
        if not isinstance(value, str) or value not in meaning:
            raise ValueError(f"{name} is {value!r}, expected one of {', '.join(meaning)}")
        return meaning[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}, expected a number")
    if of is not None:
        check_standard_value(name, value, of)
    return float(value)


def check_standard_value(name: str, value: Value, of: Bounds | None = None) -> None:
    """Raise ValueError if a value is outside ``of``, by default the bounds of the standard hyperparameter ``name``.

    Raises KeyError if there is no such hyperparameter and ``of`` is not given.
    """
    of = of or get_standard_bounds(name)
    if not of.accepts(value):
        raise ValueError(f"{name} is {value!r}, expected {expected(of)}")


def check_choice(name: str, value: Value, choices: Sequence[object]) -> None:
    """Raise ValueError if the value is not one of ``choices``; True is not 1, but 1.0 is, and a tuple equals a list.

    ``name`` is the parameter's, for the message, which lists all choices.
    """
    if not any(_is_alike(choice, value) for choice in choices):
        are_texts = all(isinstance(choice, str) for choice in choices)
        listed = ", ".join(map(str if are_texts else repr, choices))
        raise ValueError(f"parameter {name!r} is {value!r}, expected one of {listed}")


def _is_alike(choice: object, value: Value) -> bool:
    """Return whether a choice in code equals a value of a sweep file.

    True is not 1, but 1.0 is, and a tuple equals a list; this also holds for their items, at any depth.
    """
    if isinstance(choice, list | tuple) and isinstance(value, list):
        return len(choice) == len(value) and all(map(_is_alike, choice, value))
    return isinstance(choice, bool) is isinstance(value, bool) and bool(choice == value)
