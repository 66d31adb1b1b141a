"""What the author of a trainable writes and may override; each method is called with the trial's hyperparameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from sweep.errors import TrainableError
from sweep.hyperparameters import Hyperparameters
from trainables.data import trial_parts
from trainables.numbers.draws import Draws
from trainables.numbers.live import Live
from trainables.recipe import groups, losses, optimizers, phases, schedules
from trainables.recipe.author_updates import Batch, Update
from trainables.recipe.groups import Group, Rated
from trainables.recipe.phases import Phase


def overrides(author: Author, name: str) -> bool:
    """Whether the author has a method of his own."""
    return getattr(type(author), name) is not getattr(Author, name)


class Author:
    """A Keras model and its data; whatever is not overridden follows the standard hyperparameters."""

    live: Live
    """What gives ``hp.live(...)`` its numbers."""
    first_example: tuple[Any, ...]
    """The first training example, as a batch of one; its shapes and types are part of every program."""
    some_targets: Any
    """The targets of the first training examples, some megabytes of them; of a stream those of one, None without.

    A program whose making has read them is made for them alone.
    """

    target_traits: losses.Targets | None
    """What of the targets decides about the default loss; None for nested ones, and without targets."""
    validates: bool
    """Whether `data` has returned validation data."""
    memory: dict[str, Any]
    """Plain values that `on_epoch_end` keeps from one epoch to the next, for checkpoints to hold; empty at first."""

    def __init_subclass__(cls) -> None:
        """Refuse a plain value in the place of a method. Raises TrainableError."""
        super().__init_subclass__()
        for name, value in vars(cls).items():
            method = getattr(Author, name, None)
            is_plain = not hasattr(type(value), "__get__")  # no function, nor anything else that becomes a method
            if is_plain and inspect.isfunction(method):
                arguments = ", ".join(inspect.signature(method).parameters)
                raise TrainableError(
                    f"{cls.__name__}.{name} is {value!r}, expected a method: def {name}({arguments}): return ..."
                )

    @property
    def example(self) -> tuple[Any, ...]:
        """The first training example, as a batch of one; a program whose making has read it is made for it alone."""
        return self.first_example

    def data(self, hp: Hyperparameters) -> tuple[Any, Any] | tuple[Any, Any, Any]:
        """Training and validation data: (x, y), (x, y, sample_weight) or a `tf.data.Dataset` of examples each.

        Loaded once per node and set of parameters that it reads. Validation may be None. A third part is test data,
        which is evaluated once, for the finalists of `sweep confirm`, and seen by nothing that chooses.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no data(self, hp)")

    def model(self, hp: Hyperparameters) -> keras.Model:
        """A new model; called inside the strategy's scope, under the trial's precision and seed.

        Called again for the initial weights where its program is used again with another seed. A model that is
        compiled here brings its optimizer, loss and metrics with it.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no model(self, hp)")

    def features(self, hp: Hyperparameters) -> keras.Model | None:
        """A frozen model in front of the one that is trained: `model` then takes its outputs as inputs.

        It is applied to the arrays of `data` once per node and set of parameters that it reads, without dropout and the
        like. Where `augment` is overridden, or ``cache_features`` is false, it is part of the graph instead.
        """
        return None

    def loss(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Anything that `Model.compile` takes; by default crossentropy for labels and squared error for numbers.

        Only where targets and last activation leave no doubt; raises `losses.Undecided` elsewhere.
        """
        smoothing = hp.live("label_smoothing", standard=True) if "label_smoothing" in hp else None
        return losses.default_loss(self.target_traits, model, smoothing)

    def metrics(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Anything that `Model.compile` takes; by default accuracy for labels, absolute error for numbers."""
        return losses.default_metrics(self.target_traits, model)

    def weighted_metrics(self, hp: Hyperparameters, model: keras.Model) -> Any:
        """Metrics that take the sample weights, as the argument of `Model.compile`; by default none."""
        return None

    def loss_weights(self, hp: Hyperparameters) -> Mapping[str, Any]:
        """Weights of the outputs' losses by output name; by default the parameters ``loss_weights.<output>``."""
        return {name: self.live.number(f"loss_weights.{name}", standard=True) for name in hp.below("loss_weights")}

    def class_weights(self, hp: Hyperparameters, labels: Any) -> Mapping[int, float] | None:
        """Weights of the training examples by label; ``class_weights`` may be balanced."""
        return trial_parts.balanced(hp, labels)

    def optimizer(self, hp: Hyperparameters) -> keras.optimizers.Optimizer:
        """A new optimizer; by default the one that ``optimizer`` and its kin name.

        One of your own keeps its learning rate or schedule, unless the trial has a ``learning_rate`` that this
        method does not read: then the loop sets it.
        """
        return optimizers.build(hp, self.live)

    def groups(self, hp: Hyperparameters, model: keras.Model) -> Sequence[Group | Rated]:
        """Weights with a rate, a decay or an optimizer of their own; by default as ``layer_decay`` and its kin say.

        All that is in no group is trained by `optimizer`. Clipping sees the gradients of all groups together.
        """
        return groups.by_layers(hp, self.live, model)

    def phases(self, hp: Hyperparameters) -> Sequence[Phase]:
        """The parts that a trial has one after the other, each with hyperparameters of its own; by default as
        ``frozen_epochs`` says: first with ``frozen_layers``, then without.
        """
        return phases.standard(hp)

    def schedule(self, hp: Hyperparameters) -> schedules.Schedule:
        """The learning-rate schedule after warm-up, as a factor of ``learning_rate``."""
        return schedules.build(hp)

    def dropout(self, hp: Hyperparameters) -> Any:
        """The rate ``dropout`` for `keras.layers.Dropout`, live; 0 where the trial has none."""
        return hp.live("dropout", standard=True) if "dropout" in hp else 0.0

    def augment(self, x: Any, hp: Hyperparameters, draws: Draws) -> Any:
        """Change the inputs of a training batch, inside the graph; by default not at all.

        ``augment(self, x, y, hp, draws)`` returns (x, y); with ``sample_weight`` after ``y`` it returns that as well.
        As in Keras's layers, what depends on a tensor is said with `tf.where` or `tf.cond`, not with Python's ``if``.
        """
        return x

    def preprocessing(self, hp: Hyperparameters) -> str:
        """What must be done to raw inputs before this model predicts, in words; it goes along with an exported one."""
        return ""

    # ---- a training step of one's own

    def train_step(self, model: keras.Model, batch: Batch, hp: Hyperparameters) -> Mapping[str, Any]:
        """The losses of a slice of a batch by name, one number for each example or their mean, inside the graph.

        The loop takes gradients over the whole batch and applies them as `updates` says; what it minimises nowhere is
        reported. Other networks are made in `model` and kept on this object.
        """
        raise NotImplementedError  # never called: without one, the loop trains by loss()

    def test_step(self, model: keras.Model, batch: Batch, hp: Hyperparameters) -> Mapping[str, Any]:
        """The values of a slice of the validation data, reported as ``val_...``; without it `loss` and `metrics`."""
        raise NotImplementedError  # never called, as above

    def updates(self, hp: Hyperparameters, model: keras.Model) -> Sequence[Update | tuple[Update, ...]]:
        """Which loss of `train_step` trains what, in order; those in a tuple at once. By default "loss" the model."""
        return [Update("loss", model)]

    # ---- hooks

    def on_train_begin(self, model: keras.Model, hp: Hyperparameters) -> None:
        """Before a trial's first update, in Python; not of one that goes on from a checkpoint."""

    def on_epoch_begin(self, epoch: int, model: keras.Model, hp: Hyperparameters) -> None:
        """Before an epoch (from 1), in Python: what it sets on the model and its optimizer holds in this epoch."""

    def on_epoch_end(self, epoch: int, logs: dict[str, float], model: keras.Model, hp: Hyperparameters) -> None:
        """Between epochs (from 1), in Python, after validation: what it adds to ``logs`` is reported.

        Hooks between epochs may assign variables, keep plain values in ``self.memory``, and call `stop` and
        `scale_rate`.
        """

    def on_train_batch_end(
        self,
        update: tf.Tensor,
        logs: Mapping[str, tf.Tensor],
        gradients: Sequence[tuple[Any, keras.Variable]],
        model: keras.Model,
        hp: Hyperparameters,
    ) -> Mapping[str, Any] | None:
        """After each update (from 0), inside the graph; numbers that it returns by name are reported as means.

        ``logs``: the losses of the batch; ``gradients``: those of the whole batch, clipped, with their weights.
        """
        return None

    def callbacks(self, hp: Hyperparameters) -> Sequence[keras.callbacks.Callback]:
        """Keras's callbacks. Those that hear single batches need `training: {loop: fit}`.

        What they change on themselves must be plain values, or a trial that is interrupted begins anew.
        """
        return ()
