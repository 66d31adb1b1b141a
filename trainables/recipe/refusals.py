"""Checks that raise `Refused` for what an author wrote and a training loop would ignore."""

from __future__ import annotations

import inspect
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import keras

from sweep import keras_backend, standard_hyperparameters
from sweep.author_code import is_author_file
from sweep.contract import Incompatible
from sweep.hyperparameters import Hyperparameters
from trainables import keras_private
from trainables.recipe.schedules import is_plateau

FIT = "set `training: {loop: fit}` in the sweep file"


TRACED = ("train_step", "test_step", "updates", "on_train_batch_end")
"""Methods of a trainable that are traced into our loop's graph."""

OF_TESTS = ("on_test_begin", "on_test_end", "on_test_batch_begin", "on_test_batch_end")
OF_BATCHES = ("on_batch_begin", "on_batch_end", "on_train_batch_begin", "on_train_batch_end")
"""Methods of Keras's callbacks: those of validation, and those of single updates, which only `Model.fit` calls."""

INSTEAD = {
    "EarlyStopping": "`training: {patience: N}`, or early_terminate",
    "ReduceLROnPlateau": "`lr_schedule: plateau`",
    "LearningRateScheduler": "a schedule() method, or lr_schedule",
    "SwapEMAWeights": "the parameter ema_momentum",
    "ModelCheckpoint": '`save_freq="epoch"`, or the block `checkpoint:`',
    "OrbaxCheckpoint": "a ModelCheckpoint, or the block `checkpoint:`",
    "BackupAndRestore": "`python -m sweep resume`",
    "TerminateOnNaN": "nothing: a trial that diverges ends",
    "CSVLogger": "metrics.parquet, which has every epoch",
    "TensorBoard": "`python -m sweep run FILE --tensorboard`, which writes the event files of all trials",
}
"""Replacements for Keras's callbacks, by the name of the callback."""

BETWEEN_EPOCHS = (
    keras.callbacks.ModelCheckpoint,  # saves at the ends of epochs, unless its save_freq is a number of updates
    keras.callbacks.ProgbarLogger,  # prints nothing, as in `fit` with verbose=0
    keras.callbacks.TerminateOnNaN,  # any loop ends a trial whose loss is not finite, as diverged
)
"""Keras's callbacks whose methods for single updates and for validation need not be called."""

WRITTEN = {keras.callbacks.CSVLogger: "filename", keras.callbacks.ModelCheckpoint: "filepath"}
"""Keras's callbacks that write a file, with the attribute that has its path."""


class Refused(Incompatible):
    """Raised if the author's code asks for something that the chosen training loop would silently ignore."""


def check_backend() -> None:
    """Raise Refused if Keras does not run on TensorFlow."""
    if what := keras_backend.explain_wrong_backend(keras.config.backend()):
        raise Refused(f"{what}; {keras_backend.HINT}")


def list_overridden_methods(model: keras.Model, *names: str) -> list[str]:
    """Return which of the methods ``names`` of `keras.Model` the model's class overrides, in the order of ``names``.

    Keras's own subclasses count as well: a functional or Sequential model overrides `call`.
    """
    overridden = []
    for name in names:
        if getattr(type(model), name) is not getattr(keras.Model, name):
            overridden.append(name)
    return overridden


def check_model(model: keras.Model, *, fit: bool) -> None:
    """Raise Refused if a model has its own training steps or `compile`, a fixed batch size, or stateful layers.

    Training steps are `train_step` and `test_step`. With ``fit``, which says that Keras's or the model's own steps
    train, own steps are accepted, and so is a model that its own `compile` has compiled already.
    """
    kind = type(model)
    own_steps = list_overridden_methods(model, "train_step", "test_step")
    if own_steps and not fit:
        raise Refused(
            f"{kind.__name__} has its own {own_steps[0]}, which would not be called where the trainable has a "
            "train_step(); let that return the losses (docs/steps.md), or leave it out"
        )
    if list_overridden_methods(model, "compile") and not (fit and model.compiled):
        raise Refused(
            f"{kind.__name__}.compile() takes arguments of its own; call it inside model(), "
            f"which sweep then leaves as it is, and {FIT}"
        )
    # Checked before fixed batches: Keras makes a stateful layer only with one, and the layer is the cause.
    for layer in keras_private.flatten_layers(model):
        if getattr(layer, "stateful", False):
            raise Refused(
                f"layer {layer.name!r} is stateful: it carries its state from one batch to the next, also from "
                "training to validation and into the smaller last batch of an epoch, whether or not examples are "
                "shuffled; set stateful=False, and leave out batch_size and batch_shape in keras.Input"
            )
    for tensor in keras.tree.flatten(getattr(model, "inputs", None) or []):
        if tensor.shape and tensor.shape[0] is not None:
            raise Refused(
                f"input {tensor.name!r} has a fixed batch of {tensor.shape[0]}, but batch_size cuts the batches and "
                "the last of an epoch is smaller; leave out batch_size and batch_shape in keras.Input"
            )


def check_inputs(model: keras.Model, inputs: Any) -> None:
    """Raise Refused if a functional model declares a dictionary of inputs, and ``inputs`` has names that it lacks.

    Keras would pair the values of both dictionaries in alphabetical order, so that inputs would get wrong values.
    Nothing is checked if ``inputs``, the data's, are no dictionary, or the model's class overrides `call`. Inputs of
    the model that the data lack are no reason by themselves.
    """
    if not keras_private.has_functional_call(model) or not isinstance(inputs, dict):
        return
    declared = model.input
    if not isinstance(declared, dict):
        return
    unknown = sorted(map(str, inputs.keys() - declared.keys()))
    missing = sorted(map(str, declared.keys() - inputs.keys()))
    if not unknown:
        return
    problem = f"the data have the inputs {', '.join(unknown)}, which the model lacks"
    if missing:
        raise Refused(
            f"{problem}, and the model has the inputs {', '.join(missing)}, which the data lack; use the same names in "
            "both, because Keras would pair all inputs in alphabetical order, whatever their names"
        )
    raise Refused(
        f"{problem}, and Keras would pair all inputs in alphabetical order, so that "
        f"{', '.join(sorted(map(str, declared)))} would get wrong values; leave out {', '.join(unknown)} in data()"
    )


def check_compiled(model: keras.Model, training: Mapping[str, object]) -> None:
    """Raise Refused if an author has compiled a model to run op by op, and the sweep file does not ask for that.

    ``training`` is the block of this name, which asks for it by ``run_eagerly: true``.
    """
    if model.compiled and model.run_eagerly and training.get("run_eagerly") is not True:
        raise Refused(
            "model() compiles its model with run_eagerly=True, and each epoch is one graph; leave that out, and write "
            "`training: {run_eagerly: true}` in the sweep file, or run it with `--inline --eager`"
        )


def list_callback_methods(callback: keras.callbacks.Callback, names: Sequence[str]) -> list[str]:
    """Return which of the methods ``names`` a callback has, by its class or, as a `LambdaCallback`, by the instance.

    Methods that Keras gives the classes `BETWEEN_EPOCHS` are left out, unless the callback saves after a number of
    updates.
    """
    base = keras.callbacks.Callback
    kind = type(callback)
    # callbacks without this attribute save nothing
    if getattr(callback, "save_freq", "epoch") == "epoch":
        base = next((known for known in BETWEEN_EPOCHS if isinstance(callback, known)), base)
    overridden = []
    for name in names:
        if getattr(kind, name) is not getattr(base, name) or name in vars(callback):
            overridden.append(name)
    return overridden


def check_methods(
    own: Sequence[str], callbacks: Iterable[keras.callbacks.Callback], *, fit: bool
) -> None:
    """Raise Refused if the trainable's methods ``own``, or methods of callbacks, are not called by the chosen loop.

    With ``fit``, the loop is `Model.fit`, which calls none of ``own``. Any other loop calls no methods for single
    updates of ``callbacks``.
    """
    if fit and own:
        raise Refused(
            f"the trainable defines {' and '.join(own)}(), which Model.fit does not call; leave out "
            "`training: {loop: fit}`"
        )
    if fit:
        return
    reasons = list(filter(None, map(_explain_batch_methods, callbacks)))
    if reasons:
        raise Refused(f"callbacks() returns {'; and '.join(reasons)}; or {FIT}")


def check_files(
    callbacks: Iterable[keras.callbacks.Callback], *, by_number: bool, processes: int
) -> None:
    """Raise Refused for a callback whose file other trials would write as well, or other processes of the trial.

    These are a `CSVLogger` or a `ModelCheckpoint` unless ``by_number``, which says that the author's `callbacks` has
    read the number of the trial, presumably for the path; and a `ModelCheckpoint` in any case if the trial has several
    ``processes``. A `CSVLogger` is accepted then, because all processes write the same rows.
    """
    for callback in callbacks:
        name = type(callback).__name__
        if isinstance(callback, keras.callbacks.ModelCheckpoint) and processes > 1:
            raise Refused(
                f"callbacks() returns a {name}, and the trial has {processes} processes, each of which would write its "
                "file; use instead the block `checkpoint:`"
            )
        for kind, attribute in WRITTEN.items():
            if isinstance(callback, kind) and not by_number:
                raise Refused(
                    f"callbacks() returns a {name} that writes {getattr(callback, attribute)!r}, and does not read "
                    "self.trial_number, so that all trials would write the same file; make the number a part of its "
                    'path, as in f"trial-{self.trial_number}.keras"'
                )


def check_callbacks(callbacks: Sequence[keras.callbacks.Callback], *, fit: bool) -> None:
    """Raise Refused if a callback cannot be used in any loop.

    That is a `BackupAndRestore`, a callback with a true ``restore_best_weights``, or one with methods for validation
    (`OF_TESTS`). The message names all such callbacks. Unless ``fit`` says that `Model.fit` trains, it also names those
    with methods for single updates; these alone are not refused here, but by `check_methods`.
    """
    if not any(map(_explain_refusal, callbacks)):
        return
    reasons = []
    for callback in callbacks:
        reason = _explain_refusal(callback)
        if not reason and not fit:
            reason = _explain_batch_methods(callback)
        reasons.append(reason)
    raise Refused(f"callbacks() returns {'; and '.join(filter(None, reasons))}")


def _explain_batch_methods(callback: keras.callbacks.Callback) -> str:
    """Return why only `Model.fit` can use a callback: its methods for single updates; "" if it has none."""
    kind = type(callback)
    batches = list_callback_methods(callback, OF_BATCHES)
    if not batches:
        return ""
    methods = " and ".join(batches)
    return f"a {kind.__name__}, whose {methods}() only Model.fit calls. Use instead {_suggest_replacement(kind)}"


def _explain_refusal(callback: keras.callbacks.Callback) -> str:
    """Return why a callback cannot be used in any loop; "" if it can, see `check_callbacks`."""
    kind = type(callback)
    if isinstance(callback, keras.callbacks.BackupAndRestore):
        return (
            f"a {kind.__name__}, which would begin a trial with what another has left; leave it out, for what does its "
            f"work is {_suggest_replacement(kind)}"
        )
    if getattr(callback, "restore_best_weights", False):
        return (
            f"a {kind.__name__} with restore_best_weights, after which the weights are not those of the last epoch "
            "that was reported; leave that out, and take the best epoch's model with "
            "`python -m sweep best NAME --epoch best` or model(epoch='best')"
        )
    if unheard := list_callback_methods(callback, OF_TESTS):
        instead = _suggest_replacement(kind, "on_epoch_end(), whose logs have its values")
        return (
            f"a {kind.__name__}, whose {' and '.join(unheard)}() would not be called: validation is told of as an "
            f"epoch ends; use {instead}"
        )
    return ""


def check_own_loop(model: keras.Model, *, validates: bool) -> None:
    """Raise Refused if the model's class overrides `fit` or `make_train_function`, which sweep's loop does not call.

    With ``validates``, `evaluate` and `make_test_function` count as well. Overrides in the files of installed packages
    are accepted: KerasHub's tasks prepare their data there, which a trainable does in `data`.
    """
    names = ["fit", "make_train_function"]
    if validates:
        names += ["evaluate", "make_test_function"]
    for name in list_overridden_methods(model, *names):
        # the code of the author's function, also within decorators; what has none is no function of a package
        code = getattr(inspect.unwrap(getattr(type(model), name)), "__code__", None)
        if code is None or is_author_file(code.co_filename):
            raise Refused(
                f"{type(model).__name__} has its own {name}(), which sweep's loop would not call; "
                f"leave it out, or {FIT}"
            )


def _suggest_replacement(
    callback: type, otherwise: str = "on_epoch_end() or on_train_batch_end()"
) -> str:
    """Return the words of `INSTEAD` for the class of Keras from which the class ``callback`` derives.

    Returns ``otherwise`` if it derives from none of them, and those of the first one if from several.
    """
    for name, replacement in INSTEAD.items():
        if issubclass(callback, getattr(keras.callbacks, name)):
            return replacement
    return otherwise


def check_fit(model: keras.Model, number: int, *, validates: bool) -> None:
    """Raise Refused for models that Keras's or their own steps cannot train correctly.

    On several replicas (``number`` above 1), models with an own step or `compile` are refused, because it is unknown
    whether they scale their loss by the number of replicas. If the trial ``validates``, the model's class must override
    `call` or `test_step`; functional models override `call`.
    """
    kind = type(model)
    own = list_overridden_methods(model, "train_step", "test_step", "compile")
    if own and number > 1:
        raise Refused(
            f"{kind.__name__} has its own {' and '.join(own)}, and there are {number} replicas: whether losses and "
            "gradients are those of the whole batch cannot be known; give its trials one GPU"
        )
    if validates and not list_overridden_methods(model, "call", "test_step"):
        raise Refused(
            f"{kind.__name__} has neither call() nor test_step(), so nothing can validate it; define one of them, or "
            "return None as validation data"
        )


def explain_step_error(model: keras.Model, step: str, data: Any, error: Exception) -> str:
    """Return a message about a model's own step that cannot unpack its data; "" if ``error`` is about something else.

    ``step`` is the name of the method, ``data`` the data that it was given (x, or a tuple of one to three entries),
    ``error`` what it raised. Only the text of the error tells what it is about: Python's about a wrong number of values
    to unpack, which must fit the number of entries.
    """
    if isinstance(data, tuple):
        parts = len(data)
    else:
        parts = 1
    unpacked = re.search(
        r"(too many|not enough) values to unpack \(expected (\d)(?:, got (\d))?", str(error)
    )
    if unpacked is None:
        return ""
    kind, expected, got = unpacked.groups()
    if kind == "too many":  # here, Python may not tell how many there were
        is_about_data = int(expected) < parts
    else:
        is_about_data = int(got) == parts
    if not is_about_data:
        return ""
    given = ("x", "(x, y)", "(x, y, sample_weight)")[parts - 1]
    if parts == 3:
        why = "; the weights come from class_weights, or are the third part of the data"
    else:
        why = ""
    return (
        f"{type(model).__name__}.{step}() fails with {str(error)!r}, and is given {given} as by Model.fit{why}. Take "
        "that apart with `x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)`, and weigh its losses by "
        "sample_weight where it is not None"
    )


def check_optimizer(optimizer: keras.optimizers.Optimizer) -> None:
    """Raise Refused for an optimizer that works only inside `Model.fit`, or not under a strategy.

    That is a `LossScaleOptimizer`, or one with ``gradient_accumulation_steps``, with ``loss_scale_factor``, with both
    ``use_ema`` and ``ema_overwrite_frequency``, or with its own `scale_loss`.
    """
    name = type(optimizer).__name__
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise Refused(
            f"the optimizer is a {name}; `training: {{precision: mixed_float16}}` scales the loss"
        )
    for option, instead in (
        ("gradient_accumulation_steps", "the parameter micro_batches"),
        ("loss_scale_factor", "`training: {precision: mixed_float16}`, which scales the loss"),
    ):
        if getattr(optimizer, option, None):
            raise Refused(f"the optimizer is a {name} with {option}, expected {instead} instead")
    if optimizer.use_ema and optimizer.ema_overwrite_frequency:
        raise Refused(
            f"the optimizer is a {name} with ema_overwrite_frequency, which fails under a strategy; leave it out: "
            "use_ema alone validates with the averaged weights"
        )
    if _has_own_method(optimizer, "scale_loss"):
        raise Refused(
            f"the optimizer is a {name} with its own scale_loss(), which sweep's loop does not call; leave it out, "
            f"or {FIT}"
        )


def check_finalizing(optimizer: keras.optimizers.Optimizer | None) -> None:
    """Raise Refused for an optimizer with its own `finalize_variable_values`, which sweep does not call.

    Without an optimizer (None), nothing is refused.
    """
    if _has_own_method(optimizer, "finalize_variable_values"):
        raise Refused(
            f"the optimizer is a {type(optimizer).__name__} with its own finalize_variable_values(), which Keras calls "
            "after the last epoch, and sweep does not; leave it out, or let on_epoch_end() assign the weights"
        )


def _has_own_method(optimizer: keras.optimizers.Optimizer | None, method: str) -> bool:
    """Return whether the class of an optimizer overrides a method of Keras's optimizers; False without an optimizer.

    The overrides in Keras's own `LossScaleOptimizer` and `MultiOptimizer` do not count.
    """
    kinds = (
        keras.optimizers.Optimizer,
        keras.optimizers.LossScaleOptimizer,
        keras.optimizers.MultiOptimizer,
    )
    known = [getattr(kind, method) for kind in kinds]
    return optimizer is not None and getattr(type(optimizer), method) not in known


def check_rates(hp: Hyperparameters, *, read: bool) -> None:
    """Raise Refused for learning-rate parameters of the trial that have no effect beside another schedule.

    These are ``learning_rate`` and the names in `SHAPING` of the standard hyperparameters, such as ``lr_schedule``.
    Call it only if the optimizer or `compile` brings a schedule or a rate of its own. ``read`` says that the author's
    code for it reads ``learning_rate``, which is then accepted.
    """
    names = [*standard_hyperparameters.SHAPING]
    if not read:
        names.append("learning_rate")
    both = [name for name in names if name in hp]
    if both:
        raise Refused(
            f"there is a learning-rate schedule or a compile() of its own, and the trial has {', '.join(both)}, which "
            "would have no effect; leave out one of them, or read it there",
            about=both,
        )


def check_own_optimizers(
    model: keras.Model, hp: Hyperparameters, read: Container[str], *, idle: bool
) -> None:
    """Raise Refused for parameters of the trial's optimizer if the model is trained by optimizers of its own.

    That is so if it has its own `compile`, or if training does not use the optimizer that Keras and the loop know
    (``idle``). Refused are ``optimizer``, the parameters of learning rates and layers, arguments of optimizers unless
    ``optimizer`` is in ``read``, and those of clipping if ``idle`` or if several attributes of the model are
    optimizers. ``read`` has the parameters that model() reads, possibly for its optimizers; they are accepted.
    """
    has_own_compile = bool(list_overridden_methods(model, "compile"))
    if not idle and not has_own_compile:
        return
    has_several = (
        sum(isinstance(value, keras.optimizers.Optimizer) for value in vars(model).values()) > 1
    )
    without_effect = ["optimizer", *standard_hyperparameters.OF_RATES, "layer_decay"]
    if idle or has_several:  # a single optimizer that Keras knows gets the trial's clipping
        without_effect += standard_hyperparameters.CLIPPING
    # If model() reads it, it makes the optimizer of this name, which has some of these arguments.
    if "optimizer" not in read:
        without_effect += standard_hyperparameters.OF_OPTIMIZERS
    for layers in hp.below("layer_rates"):
        without_effect.append(f"layer_rates.{layers}")
    unread = []
    for name in without_effect:
        if name in hp and name not in read:
            unread.append(name)
    if unread:
        if has_own_compile:
            cause = "has a compile() of its own"
        else:
            cause = "trains itself by optimizers of its own"
        instead = "leave it out, or read it in model() and make them with it"
        if not has_own_compile:
            instead += ", or apply gradients with self.optimizer, which is the trial's"
        what = f"{type(model).__name__} {cause}, and the trial has {', '.join(unread)}, which would have no effect"
        raise Refused(f"{what} on its optimizers; {instead}", about=unread)


def check_idle_loss(idle: Sequence[str]) -> None:
    """Raise Refused if parameters of the loss are among ``idle``, the trial's parameters without effect on training.

    These are ``label_smoothing`` and ``loss_weights.<output>``.
    """
    names = []
    for name in idle:
        if name == "label_smoothing" or name.startswith("loss_weights."):
            names.append(name)
    if names:
        raise Refused(
            f"the trial has {', '.join(names)}, and training does not use the loss that it belongs to, for a step or a "
            "compute_loss() has its own; leave it out, read it there, or train by self.compute_loss(...)",
            about=names,
        )


def overrides_call(loss: keras.losses.Loss) -> bool:
    """Return whether a loss overrides `__call__`, which reduces the losses of examples to one number."""
    return type(loss).__call__ is not keras.losses.Loss.__call__


def check_losses(losses: Mapping[str, keras.losses.Loss]) -> None:
    """Raise Refused for a loss that overrides `__call__`, because its mean cannot be computed from parts of a batch.

    ``losses`` are by name. Call it only if batches are computed in parts.
    """
    for name, loss in losses.items():
        if overrides_call(loss):
            raise Refused(
                f"loss {name!r} ({type(loss).__name__}) overrides __call__, so that a batch in parts (replicas, "
                "micro-batches) would train another model; override call(), which gives a loss for each example"
            )


def check_metrics(model: keras.Model, returned: Mapping[str, Any]) -> None:
    """Raise Refused if ``returned``, the result of `compute_metrics`, has keys that belong to no metric object.

    A metric object has the key of its name in `Model.get_metrics_result` and, if its result is a dictionary, its keys.
    """
    results = model.get_metrics_result()
    # a metric's result may be a dictionary, whose keys are reported as well
    known = {
        *results,
        *(key for result in results.values() if isinstance(result, Mapping) for key in result),
    }
    extra = sorted(set(returned) - known)
    if extra:
        raise Refused(
            f"compute_metrics() of {type(model).__name__} returns {', '.join(extra)}, which no metric object holds; "
            f"make it a keras.metrics.Metric, or {FIT}"
        )


def check_plateau_validates(hp: Hyperparameters) -> None:
    """Raise Refused if ``lr_schedule`` is plateau; for a trial that trains on all data and has no validation.

    Raises ValueError or TypeError if ``lr_schedule`` is wrong.
    """
    if is_plateau(hp):
        raise Refused(
            "lr_schedule plateau waits for the validation to get no better, and training.all_data holds nothing out; "
            "use a schedule that follows the number of epochs, as cosine"
        )
