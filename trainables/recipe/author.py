"""The base class of an author's trainable, whose methods are called with the trial's hyperparameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from sweep.errors import TrainableError
from sweep.hyperparameters import Hyperparameters
from sweep.standard_hyperparameters import OF_MIXING
from trainables.data import trial_parts
from trainables.numbers.draws import Draws
from trainables.numbers.live import Live
from trainables.recipe import groups, losses, optimizers, phases, schedules
from trainables.recipe.author_updates import Batch, Update
from trainables.recipe.groups import Group, Rated
from trainables.recipe.phases import Phase


def overrides(author: Author, name: str) -> bool:
    """Return whether an author's class overrides the method ``name`` of `Author`."""
    return getattr(type(author), name) is not getattr(Author, name)


class Author:
    """A Keras model and its data; whatever is not overridden follows the standard hyperparameters."""

    live: Live
    """Provides the numbers of ``hp.live(...)``."""
    first_example: tuple[Any, ...]
    """The first training example, as a batch of one; its shapes and types are part of every program."""
    some_targets: Any
    """The targets of the first training examples, some megabytes of them; of a stream those of one example.

    None without targets. A program that has read them while it was built is used only for the same targets.
    """

    target_traits: losses.Targets | None
    """The properties of the targets that determine the default loss; None for nested targets, and without targets."""
    validates: bool
    """True if `data` has returned validation data."""
    memory: dict[str, Any]
    """Plain values that `on_epoch_end` keeps between epochs, saved in checkpoints; empty at first."""

    def __init_subclass__(cls) -> None:
        """Refuse a plain value in place of a method.

        Raises: TrainableError: naming the method's expected signature.
        """
        super().__init_subclass__()
        for name, value in vars(cls).items():
            method = getattr(Author, name, None)
            is_plain = not hasattr(type(value), "__get__")  # neither function nor descriptor
            if is_plain and inspect.isfunction(method):
                arguments = ", ".join(inspect.signature(method).parameters)
                raise TrainableError(
                    f"{cls.__name__}.{name} is {value!r}, expected a method: def {name}({arguments}): return ..."
                )

    @property
    def example(self) -> tuple[Any, ...]:
        """The first training example, as a batch of one: (x,), (x, y) or (x, y, sample_weight).

        A program that has read it while it was built is used only for the same example.
        """
        return self.first_example

    def data(self, hp: Hyperparameters) -> tuple[Any, Any] | tuple[Any, Any, Any]:
        """Return training and validation data: each (x, y), (x, y, sample_weight) or a `tf.data.Dataset` of examples.

        Called once per node and values of the parameters that it reads. The validation data may be None. A third part
        is test data, which is evaluated once, for the finalists of `sweep confirm`, and never used to choose between
        trials. Every trainable must override this method.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no data(self, hp)")

    def model(self, hp: Hyperparameters) -> keras.Model:
        """Return a new model; called inside the strategy's scope, under the trial's precision and seed.

        Called again for the initial weights if its program is used with another seed. If the model is compiled here,
        its own optimizer, loss and metrics are used. Every trainable must override this method.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no model(self, hp)")

    def features(self, hp: Hyperparameters) -> keras.Model | None:
        """Return a frozen model in front of the trained one, whose outputs are the inputs of `model`; by default None.

        It is applied, in inference mode, to the arrays of `data`: once per node and values of the parameters that it
        reads. It is part of the graph instead if ``cache_features`` is false or, without that parameter, if `augment`
        is overridden or the trial has mixup, cutmix or random_erasing.
        """
        return None

    def loss(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Return any loss that `Model.compile` accepts; by default crossentropy for labels, squared error for numbers.

        The default crossentropy is smoothed by ``label_smoothing``, if the trial has it.
        Raises: losses.Undecided: by default, if targets and last activation fit no loss, or more than one. ValueError:
        by default, if there is ``label_smoothing`` for numbers.
        """
        if "label_smoothing" in hp:
            smoothing = hp.live("label_smoothing", standard=True)
        else:
            smoothing = None
        return losses.default_loss(self.target_traits, model, smoothing)

    def metrics(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Return metrics as `Model.compile` accepts; by default accuracy for labels, absolute error for numbers.

        There are no default metrics if targets and last activation fit no default loss.
        """
        return losses.default_metrics(self.target_traits, model)

    def weighted_metrics(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Return metrics that use the sample weights, as the argument of `Model.compile`; by default none."""
        return None

    def loss_weights(self, hp: Hyperparameters) -> Mapping[str, Any]:
        """Return weights of the outputs' losses by output name; by default the parameters ``loss_weights.<output>``.

        By default, they are live numbers, and there are none if the trial has no such parameters.
        """
        weights = {}
        for name in hp.below("loss_weights"):
            weights[name] = self.live.number(f"loss_weights.{name}", standard=True)
        return weights

    def class_weights(self, hp: Hyperparameters, labels: Any) -> Mapping[int, float] | None:
        """Return weights of the training examples by label, or None; by default as ``class_weights`` says.

        ``labels`` are the targets of all training examples, with one-hot targets as whole numbers; None if they are
        not known, as for a stream. A label that is left out has the weight 1, and all have if the result is None. By
        default, all classes get the same sum of weights if ``class_weights`` is balanced, and the result is None
        otherwise.
        """
        return trial_parts.compute_class_weights(hp, labels)

    def optimizer(self, hp: Hyperparameters) -> keras.optimizers.Optimizer:
        """Return a new optimizer; by default the one that ``optimizer`` and the related parameters describe.

        An optimizer of your own keeps its learning rate or schedule, unless the trial has a ``learning_rate`` that this
        method does not read. In that case, the loop sets the rate.
        """
        return optimizers.build(hp, self.live)

    def groups(self, hp: Hyperparameters, model: keras.Model) -> Sequence[Group | Rated]:
        """Return weights with their own rate, decay or optimizer; by default as ``layer_decay``, ``layer_rates`` say.

        Weights in no group are trained by `optimizer`. Gradients are clipped over all groups together.
        """
        return groups.read_layer_rates(hp, self.live, model)

    def phases(self, hp: Hyperparameters) -> Sequence[Phase]:
        """Return the consecutive phases of a trial, each with its own hyperparameters.

        By default as ``frozen_epochs`` says: first with ``frozen_layers``, then without, at
        ``fine_tune_learning_rate`` if it is set. Without ``frozen_epochs``, there is one phase.
        """
        return phases.read_standard_phases(hp)

    def schedule(self, hp: Hyperparameters) -> schedules.Schedule:
        """Return the learning-rate schedule after warm-up; by default the one that ``lr_schedule`` names.

        It is a function that takes a `schedules.Moment` and returns a factor of ``learning_rate``.
        """
        return schedules.build(hp)

    def dropout(self, hp: Hyperparameters) -> Any:
        """Return the rate ``dropout`` for `keras.layers.Dropout`, as a live number; the float 0.0 if it is not set."""
        if "dropout" not in hp:
            return 0.0
        return hp.live("dropout", standard=True)

    def augment(self, x: Any, hp: Hyperparameters, draws: Draws) -> Any:
        """Return augmented inputs of a training batch, inside the graph; by default the inputs unchanged.

        ``augment(self, x, y, hp, draws)`` returns (x, y); with ``sample_weight`` after ``y`` it returns all three. As
        in Keras's layers, use `tf.where` or `tf.cond` for conditions on tensors, not Python's ``if``.
        """
        return x

    def preprocessing(self, hp: Hyperparameters) -> str:
        """Return how raw inputs must be preprocessed for this model, in words, to be stored with an exported model.

        By default, the text is empty.
        """
        return ""

    # ---- the author's own training step

    def train_step(
        self, model: keras.Model, batch: Batch, hp: Hyperparameters
    ) -> Mapping[str, Any]:
        """Return the losses of a slice of a batch by name, as one number per example or their mean, inside the graph.

        The loop takes gradients over the whole batch and applies them as `updates` says. Values that no update
        minimises are only reported. Create other networks in `model`, and keep them on this object. Without an
        override, the loop trains with `loss`, and this method is not called.
        """
        raise NotImplementedError  # never called: without an override, the loop uses loss()

    def test_step(self, model: keras.Model, batch: Batch, hp: Hyperparameters) -> Mapping[str, Any]:
        """Return values for a slice of the validation data, reported as ``val_...``; by default loss and metrics."""
        raise NotImplementedError  # never called: without an override, the loop uses loss() and metrics()

    def updates(
        self, hp: Hyperparameters, model: keras.Model
    ) -> Sequence[Update | tuple[Update, ...]]:
        """Return which loss of `train_step` trains which weights, in order; by default "loss" trains the model.

        Updates in one tuple are applied together.
        """
        return [Update("loss", model)]

    # ---- hooks

    def on_train_begin(self, model: keras.Model, hp: Hyperparameters) -> None:
        """Run before a trial's first update, in Python; not when a trial continues from a checkpoint."""

    def on_epoch_begin(self, epoch: int, model: keras.Model, hp: Hyperparameters) -> None:
        """Run before an epoch (from 1), in Python; changes to the model and its optimizer apply in this epoch."""

    def on_epoch_end(
        self, epoch: int, logs: dict[str, float], model: keras.Model, hp: Hyperparameters
    ) -> None:
        """Run after an epoch (from 1) and its validation, in Python; values that are added to ``logs`` are reported.

        Values that ``logs`` has already must stay. Hooks between epochs may assign variables, keep plain values in
        ``self.memory``, and call `stop` and `scale_rate`; changes to other attributes of this object are refused.
        """

    def on_train_batch_end(
        self,
        update: tf.Tensor,
        logs: Mapping[str, tf.Tensor],
        gradients: Sequence[tuple[Any, keras.Variable]],
        model: keras.Model,
        hp: Hyperparameters,
    ) -> Mapping[str, Any] | None:
        """Run after each update (from 0), inside the graph; the means of numbers returned by name are reported.

        ``logs`` has the losses of the batch; ``gradients`` those of the whole batch, clipped, with their weights.
        """
        return None

    def callbacks(self, hp: Hyperparameters) -> Sequence[keras.callbacks.Callback]:
        """Return Keras's callbacks; by default there are none.

        Those that must hear of single updates need `training: {loop: fit}`. Read ``self.trial_number`` for the paths of
        files that they write. What they change on themselves must be plain values; otherwise an interrupted trial
        starts again from its beginning.
        """
        return ()


def has_mixing(hp: Hyperparameters) -> bool:
    """Return whether a trial has ``mixup``, ``cutmix`` or ``random_erasing``, even with the value 0."""
    return any(name in hp for name in OF_MIXING)
