"""Settings of a sweep file that have no effect on the trainable, as far as its source shows."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sweep import keras_backend, standard_hyperparameters
from sweep.errors import Problem
from sweep.inspection import KERAS_TRAINABLE, Source
from sweep.space.domains import list_choices
from sweep.spec import Spec
from sweep.spec.blocks import Training
from sweep.text import format_setting

BY_DEFAULT = {name: field.default for name, field in Training.model_fields.items()}


def list_changed_settings(spec: Spec) -> tuple[str, ...]:
    """Return the keys of `training`, such as ``precision``, whose values are not the defaults."""
    return tuple(name for name, value in spec.training.items() if value != BY_DEFAULT[name])


def ignored(spec: Spec, source: Source) -> Iterator[Problem]:
    """Yield a problem for `folds` and each changed key of `training` that the trainable certainly does not read.

    `folds` count only if the sweep file sets them, and keys of `training` only if they differ from their defaults.
    ``fuse`` and, for a function, ``patience`` are left out. Yield nothing for a `KerasTrainable`.
    """
    if source.derives_from(KERAS_TRAINABLE):
        return
    if source.is_function:
        kind, report = "is a function", "report"
    else:
        kind, report = "is not a KerasTrainable", "assignment"
    if spec.folds and source.list_unread_trial_facts(["fold"]):
        what = f"{spec.folds}, but {spec.trainable} {kind} and does not read {report}.fold: all folds would be alike"
        hint = f"leave fold {report}.fold out of training and validate with it, or write repeats in place of folds"
        yield Problem("folds", what, hint)
    # keys that are refused or handled elsewhere
    if source.is_function:
        elsewhere = {"fuse", "patience"}
    else:
        elsewhere = {"fuse"}
    to_check = []
    for name in list_changed_settings(spec):
        if name not in elsewhere:
            to_check.append(name)
    for name in source.list_unread_trial_facts(to_check, "training"):
        value = format_setting(spec.training[name])
        what = f"{value}, but {spec.trainable} {kind} and does not read {report}.training"
        hint = f"leave it out, or read {report}.training[{name!r}] and do what it says"
        yield Problem(f"training.{name}", what, hint)


def find_idle_settings(spec: Spec, where: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for each standard hyperparameter of a `KerasTrainable` that certainly has no effect.

    The reason is that the author's own methods or model do not read it. Only the parameters of the sweep file are
    looked at. Those of the schedule ``plateau`` are left out if a trial may have that schedule. ``where`` names the
    sweep file in messages.
    """
    why = source.find_idle_hyperparameters()  # reasons by hyperparameter
    for name in spec.space.names:
        if name in why:
            entry = name
        else:  # all nested names of a group have one entry, such as loss_weights.*
            entry = f"{name.partition('.')[0]}.*"
        if entry in why and not (entry in PLATEAUS and _may_be_a_plateau(spec)):
            place = spec.places.get(name, f"{where}: parameters.{name}")
            yield Problem(
                place, f"it has no effect: {why[entry]}", "leave it out, or read it there"
            )


def list_sometimes_read(spec: Spec, source: Source) -> tuple[str, ...]:
    """Return the parameters that a `KerasTrainable` reads only with certain models or values of other parameters.

    For example, it reads ``momentum`` for some optimizers, ``lr_final`` for some schedules, and ``dropout`` if its
    model has any. Only parameters in the sweep's space are returned; () for other trainables.
    """
    if not source.derives_from(KERAS_TRAINABLE):
        return ()
    known = {name for names in standard_hyperparameters.OF_METHODS.values() for name in names}
    # ``reference_batch_size`` belongs to no method; it is read only if ``lr_scaling`` is linear or sqrt
    return tuple(name for name in spec.space.names if name in known | {"reference_batch_size"})


PLATEAUS = ("lr_schedule", "lr_patience", "lr_drop_factor", "lr_final")
"""Parameters that the schedule ``plateau`` reads outside of schedule(), because that method sees no results."""


def _may_be_a_plateau(spec: Spec) -> bool:
    """Return whether the search space has ``lr_schedule`` and it may be ``plateau`` in a trial.

    True also if its values are not known, as for a tied parameter.
    """
    for one in spec.space.parameters:
        if one.name == "lr_schedule":
            choices = list_choices(one.domain)
            if not choices or "plateau" in choices:
                return True
    return False


def find_other_backend(where: str, source: Source) -> Iterator[Problem]:
    """Yield a problem if Keras would use another backend than TensorFlow for a `KerasTrainable`.

    The backend is that of ``KERAS_BACKEND``, as the source or the environment sets it, or of Keras's own settings.
    Yield nothing for other trainables, or if only importing the source would show the backend. ``where`` names the
    sweep file.
    """
    if not source.derives_from(KERAS_TRAINABLE):
        return
    try:
        backend = source.environment_value("KERAS_BACKEND")
        set_by = source.trainable.partition(":")[0]
    except ValueError:  # only importing it would show the value, which the first trial does
        return
    if not backend:  # the source does not set it
        backend, set_by = keras_backend.find_backend(os.environ)
    what = keras_backend.explain_wrong_backend(backend)  # "" for TensorFlow
    if what:
        yield Problem(
            f"{where}: trainable",
            f"{source.trainable} is a KerasTrainable, and {what} ({set_by})",
            keras_backend.HINT,
        )
