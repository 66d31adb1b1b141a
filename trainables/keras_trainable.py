"""`KerasTrainable`: the class whose subclasses give data and a model; `Session` trains them."""

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
from trainables.session import Session

__all__ = ["Batch", "Group", "KerasTrainable", "Phase", "ShardedEmbedding", "Update"]


class KerasTrainable(Author):
    """A Keras model and its data, trained as the hyperparameters of a trial say.

    Subclasses define `data` and `model`, and override whatever else of `Author` they want to do their own way. In a
    test or a notebook, an object is a `sweep.contract.Trainable` itself: ``begin(assignment)``, then ``train(report)``.
    A sweep calls its `Session`, so that an author's own ``self.train``, ``self.test`` or ``def save`` harm nothing.
    """

    __trainable__ = Session

    @property
    def _session(self) -> Session:
        """Made at the first call, so that a subclass's `__init__` need not call this class's."""
        if "_session" not in vars(self):
            self.__trainable__(self)
        session: Session = vars(self)["_session"]
        return session

    @property
    def example(self) -> tuple[Any, ...]:
        """The first training example, as a batch of one; a program whose making has read it is made for it alone."""
        self._session.example_read = True
        return self.first_example

    @property
    def some_targets(self) -> Any:
        """The targets of the first training examples, see `Author.some_targets`."""
        self._session.targets_read = True
        return self._some_targets

    @some_targets.setter
    def some_targets(self, targets: Any) -> None:
        self._some_targets = targets

    @property
    def trial_number(self) -> int:
        """The number of this trial, as for a file of its own; for `callbacks` and the hooks of trials and epochs."""
        return self._session.number

    def stop(self, reason: str) -> None:
        """End this trial as completed after the present epoch; for `on_epoch_end`."""
        self._session.stop(reason)

    def scale_rate(self, factor: float) -> None:
        """Multiply the learning rates of all later epochs; for `on_epoch_end`."""
        self._session.scale_rate(factor)

    # ---- by hand, as `Session` does it

    def join(self, devices: Devices, training: Mapping[str, Value]) -> None:
        """Meet the other ranks; returns when all have come."""
        self._session.join(devices, training)

    def leave(self, reason: str) -> None:
        """Let go of what ranks wait for from one another, and tell the others why."""
        self._session.leave(reason)

    def begin(self, assignment: Assignment) -> None:
        """Prepare a trial."""
        self._session.begin(assignment)

    def train(self, report: Report) -> None:
        """Train epoch by epoch until all are done or the report says to pause; raises Diverged and Stopped."""
        self._session.train(report)

    def save(self, folder: Path) -> Callable[[], None]:
        """Copy an exact checkpoint; the function returned writes it."""
        return self._session.save(folder)

    def restore(self, folder: Path) -> int:
        """Go on from an exact checkpoint; returns its epoch."""
        return self._session.restore(folder)

    def group(self) -> TrialGroup:
        """What trains trials of one structure together."""
        return self._session.group()

    def facts(self) -> Facts:
        """Where and how the present trial runs."""
        return self._session.facts()

    def trained_model(self) -> keras.Model:
        """The present trial's model by itself, with the weights that it is validated with."""
        return self._session.trained_model()

    def export(self, folder: Path, formats: Sequence[str] = ("keras", "saved_model")) -> Exported:
        """Write the model as keras, saved_model or onnx, and prove that it is this trial's."""
        return self._session.export(folder, formats)

    def test(self) -> dict[str, float] | None:
        """The metrics of the present trial's model on the third part of `data`; None without it."""
        return self._session.test()
