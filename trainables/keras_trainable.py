"""The base class `KerasTrainable`: subclasses define data and a model, and `TrialSession` trains them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras

from sweep.contract import Assignment, Devices, Exported, Facts, Report, Value
from sweep.contract import Group as TrialGroup
from trainables.recipe.author import Author
from trainables.recipe.author_updates import Batch, Update
from trainables.recipe.groups import Group
from trainables.recipe.phases import Phase
from trainables.replicas.sharded_embedding import ShardedEmbedding
from trainables.session import TrialSession

__all__ = ["Batch", "Group", "KerasTrainable", "Phase", "ShardedEmbedding", "Update"]


class KerasTrainable(Author):
    """A Keras model and its data, trained with the hyperparameters of a trial.

    Subclasses define `data` and `model`, and override any other method of `Author`. In a test or a notebook, an
    instance is a `sweep.contract.Trainable` itself: ``begin(assignment)``, then ``train(report)``. A sweep calls its
    `TrialSession` instead, so a subclass may have its own ``self.train``, ``self.test`` or ``def save``.
    """

    __trainable__ = TrialSession

    @property
    def example(self) -> tuple[Any, ...]:
        """Return the first training example, as a batch of one: (x,), (x, y) or (x, y, sample_weight).

        It can be read once `data` was called; before, AttributeError is raised. A program whose making reads it serves
        only trials with the same example.
        """
        session_of(self).example_read = True
        return self.first_example

    @property
    def some_targets(self) -> Any:
        """Return the targets of the first training examples, some megabytes of them; None if there are no targets.

        Of a stream, they are those of one example. A program whose making reads them serves only trials with the same
        targets. They can be read once `data` was called; before, AttributeError is raised.
        """
        session_of(self).targets_read = True
        return self._some_targets

    @some_targets.setter
    def some_targets(self, targets: Any) -> None:
        self._some_targets = targets

    @property
    def trial_number(self) -> int:
        """Return the number of the present trial, for example to name a file.

        It can be read in `callbacks` and in the hooks of trials and epochs. Raises RuntimeError before the first trial
        and while data, a model or a step is made or traced, because other trials will also use these.
        """
        return session_of(self).number

    def stop(self, reason: str) -> None:
        """End the trial as completed after the present epoch; to be called in `on_epoch_end`.

        This returns as usual; `train` later raises Stopped with ``reason``, or with a standard text if it is empty.
        Raises RuntimeError before the first trial has begun.
        """
        session_of(self).stop(reason)

    def scale_rate(self, factor: float) -> None:
        """Multiply the learning rates of all later epochs by ``factor``; to be called in `on_epoch_end`.

        Factors of several calls are multiplied. Raises Refused if the loop does not set the learning rate, as with a
        schedule of the optimizer's own, and RuntimeError before the first trial has begun.
        """
        session_of(self).scale_rate(factor)

    # ---- without a sweep: the methods of `TrialSession`

    def join(self, devices: Devices, training: Mapping[str, Value]) -> None:
        """Connect to the other ranks, those in ``devices.ranks``, and wait until all of them are connected.

        With parameter servers, all ranks but 0 only start their server, and return at once. ``training`` is the
        ``training`` block of a sweep file. Raises DeviceError if the devices cannot be used as asked, and
        NewProcessNeeded if this process already has others.
        """
        session_of(self).join(devices, training)

    def leave(self, reason: str) -> None:
        """Abort what this process does together with the other ranks, and tell them the reason.

        Errors are ignored. It may be called from any thread, such as while another one waits in `join`.
        """
        session_of(self).leave(reason)

    def begin(self, assignment: Assignment) -> None:
        """Prepare a trial for `train`: choose devices, load the data, and build a program or reset a kept one.

        The state of the previous trial is discarded. Raises what `TrialSession.begin` raises.
        """
        session_of(self).begin(assignment)

    def train(self, report: Report) -> None:
        """Train until the trial is finished or ``report``, which is called after each epoch, returns False.

        All phases are trained. A trial is finished by its epochs, minutes or patience. After False, a further call
        continues it. Raises Diverged if a loss, a gradient or a weight becomes NaN or infinite, Stopped if the author's
        code ends the trial, Refused if the next phase does not fit, and RuntimeError before the first trial has begun.
        """
        session_of(self).train(report)

    def save(self, folder: Path) -> Callable[[], None]:
        """Copy the state of the trial and return a function that writes it into ``folder`` as a checkpoint.

        The folder must exist. The function can be called in any thread. Tables on parameter servers are written before
        this returns. Raises RuntimeError before the first trial has begun.
        """
        return session_of(self).save(folder)

    def restore(self, folder: Path) -> int:
        """Restore the present trial from the checkpoint in ``folder``; return the number of epochs trained.

        `begin` must have been called for the same trial. Also restores the author's ``memory``. Raises CheckpointError
        if the checkpoint is damaged or does not fit, and OtherData if the data has changed.
        """
        return session_of(self).restore(folder)

    def group(self) -> TrialGroup:
        """Return a new, empty group that trains several trials of one structure together."""
        return session_of(self).group()

    def facts(self) -> Facts:
        """Return where and how the present trial runs."""
        return session_of(self).facts()

    def trained_model(self) -> keras.Model:
        """Return a new model, made by `model` without what training adds, with the weights used for validation.

        The trial itself does not change. If it averages weights, these are the averages. A frozen model of `features`
        is put in front. Raises NotExportable if the new model cannot take over the weights.
        """
        return session_of(self).trained_model()

    def export(self, folder: Path, formats: Sequence[str] = ("keras", "saved_model")) -> Exported:
        """Write the model into ``folder`` in each of ``formats``, and check the predictions of the files.

        The formats are ``keras``, ``saved_model`` and ``onnx``. The model is that of `trained_model`; a fresh process
        loads the files and compares what they predict, unless the model draws random numbers. Raises NotExportable if a
        format is not available or cannot be written, or a file predicts something else.
        """
        return session_of(self).export(folder, formats)

    def test(self) -> dict[str, float] | None:
        """Return loss and metrics of the trial's model on the test data, the third part of `data`, by name.

        Names have no ``val_`` in front. `data` is called again for them. Returns None if there are no test data. Raises
        DataError if they cannot be used, and OtherData if `data` no longer returns the trial's other data.
        """
        return session_of(self).test()


def session_of(trainable: KerasTrainable) -> TrialSession:
    """Return the session that trains this object.

    It is created at the first use and kept as the attribute ``_session``, so that the `__init__` of a subclass need not
    call that of `KerasTrainable`.
    """
    if "_session" not in vars(trainable):
        trainable.__trainable__(trainable)  # `TrialSession` sets the attribute
    session: TrialSession = vars(trainable)["_session"]
    return session
