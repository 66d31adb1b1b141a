"""Arguments of an author's own training step, and the assignment of its losses to weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from trainables.numbers.draws import Draws
from trainables.numbers.live import LiveNumber
from trainables.recipe.rates import check_follows
from trainables.recipe.refusals import Refused


@dataclass(frozen=True)
class Update:
    """One step of an optimizer: the loss that `train_step` returns under the name ``loss`` trains the weights ``of``.

    ``of`` is a model, layers or variables. If there is no ``optimizer``, the trial's own optimizer trains them, at the
    trial's rate. An optimizer of your own keeps its rate or schedule; with ``rate``, it follows the trial's rate times
    ``rate``. The step is repeated ``times`` times for each batch.
    """

    loss: str
    of: Any
    optimizer: keras.optimizers.Optimizer | None = None
    times: int = 1
    rate: LiveNumber | float | None = None

    @property
    def variables(self) -> list[keras.Variable]:
        """The weights that this update trains, each once: trainable weights of models and layers, and given variables.

        Raises: TypeError: if ``of`` has anything but models, layers and variables.
        """
        found: dict[int, keras.Variable] = {}
        for part in keras.tree.flatten(self.of):
            given = part.trainable_variables if isinstance(part, keras.Layer) else [part]
            for variable in given:
                if not isinstance(variable, keras.Variable):
                    raise TypeError(
                        f"Update({self.loss!r}) is given {type(variable).__name__}, expected a model, layers or their "
                        "variables"
                    )
                found[id(variable)] = variable
        return list(found.values())


Turn: TypeAlias = tuple[Update, ...]
"""One turn of a batch: updates that are applied together, whose gradients all come from one forward pass."""


class Batch:
    """A slice of a batch, as passed to `train_step` and `test_step`.

    ``x`` and ``y`` are its examples, and ``draws`` has random numbers for each of them. ``turn`` is the name of the
    loss that is minimised next (the names of several at once, joined by +). ``first`` is the row of the batch at which
    the slice begins, and ``size`` is the number of examples in the whole batch.
    """

    def __init__(
        self,
        x: Any,
        y: Any,
        sample_weight: Any,
        draws: Draws | None,
        *,
        turn: str,
        first: tf.Tensor,
        size: tf.Tensor,
        gather: Callable[[Any], Any],
        measure: Callable[[Any], None],
        one_hot: Callable[[int], Any],
    ) -> None:
        if draws is None:
            raise RuntimeError("a slice without draws")
        self.x = x
        self.draws = draws
        self.turn = turn
        self.first = first
        self.size = size
        self._y = y
        self._sample_weight = sample_weight
        self._gather = gather
        self._measure = measure
        self._one_hot = one_hot
        self.y_was_read = self.weight_was_read = False

    @property
    def y(self) -> Any:
        """The targets, or None; a whole number that mixup or cutmix has mixed is the label with the larger share.

        That the step has read them is recorded in ``y_was_read``.
        """
        self.y_was_read = True
        return self._y

    def one_hot(self, classes: int) -> Any:
        """Return the labels as shares of ``classes`` classes, on a new last axis.

        They are floats; an example has the share 1 of its class or, if mixup or cutmix has mixed it, shares of two
        classes.
        """
        return self._one_hot(classes)

    @property
    def sample_weight(self) -> Any:
        """The weights of the examples, including class weights; None if there are no weights.

        That the step has read them is recorded in ``weight_was_read``.
        """
        self.weight_was_read = True
        return self._sample_weight

    def gather(self, values: Any) -> Any:
        """Return ``values`` for all examples of the batch, for losses that compare examples; differentiable.

        ``values`` has a row for each example of the slice. Raises Refused if there are micro-batches.
        """
        return self._gather(values)

    def measure(self, predicted: Any) -> None:
        """Update the trial's metrics with the outputs ``predicted`` for this slice.

        Raises: Refused: if the trial has no metrics.
        """
        self._measure(predicted)


def parse_turns(updates: Any) -> tuple[Turn, ...]:
    """Return the turns of a batch in order, each a tuple of updates, from what the author's `updates` returned.

    ``updates`` is a list of updates and tuples of updates, or one update. An update with ``times`` above 1 has several
    turns, which are the same tuple; updates in one tuple are one turn.
    Raises: Refused: if ``updates`` is anything else or empty, an update has nothing to train or wrong ``times`` or
    ``rate``, two updates in one tuple have the same loss, or any two would share an optimizer, such as the trial's.
    TypeError: if an update is for something else than models, layers and variables.
    """
    if isinstance(updates, Update):
        updates = [updates]
    if not isinstance(updates, Sequence) or not updates:
        raise Refused(
            f"updates() returned {updates!r:.80}, expected a list of Update, or of tuples of them"
        )
    found: list[Turn] = []
    for item in updates:
        together = isinstance(item, tuple)
        turn = item if together else (item,)
        _check_types(turn)
        _check(turn, together=together)
        if together:
            found.append(turn)
        else:
            found += [turn] * item.times
    # A turn that is repeated uses its optimizer again, which is not sharing.
    distinct = [update for turn in _list_distinct(found) for update in turn]
    by_trial_optimizer = [update for update in distinct if update.optimizer is None]
    if len(by_trial_optimizer) > 1:
        names = " and ".join(repr(update.loss) for update in by_trial_optimizer)
        raise Refused(
            f"updates() gives {names} no optimizer: they would share the trial's, whose moments and rate are those of "
            "one of them; give an Update an optimizer of its own"
        )
    for first, second in _list_pairs([update.optimizer for update in distinct]):
        if first is second and first is not None:
            raise Refused(
                "updates() gives two of its Updates the same optimizer, expected one each"
            )
    return tuple(found)


def _check_types(turn: Sequence[Any]) -> None:
    """Raise Refused if a turn is empty or has anything but updates."""
    if not turn:
        raise Refused("updates() returned an empty tuple in its list, expected one with Updates")
    for update in turn:
        if not isinstance(update, Update):
            raise Refused(
                f"updates() returned {type(update).__name__} in its list, expected Update"
            )


def list_optimizers(
    turns: Iterable[Turn], own: keras.optimizers.Optimizer
) -> list[tuple[Update, Any]]:
    """Return each distinct update once, with its optimizer, in the order of their first turns.

    An update without an optimizer of its own is paired with ``own``, the trial's optimizer.
    """
    return [(update, update.optimizer or own) for turn in _list_distinct(turns) for update in turn]


def follow_the_rate(turns: Sequence[Turn]) -> bool:
    """Return whether the trial's learning rate affects any update in ``turns``; True if ``turns`` is empty."""
    if not turns:
        return True
    return any(u.optimizer is None or u.rate is not None for turn in turns for u in turn)


def average_values(returned: Any, method: str) -> dict[str, tf.Tensor]:
    """Return the mean of each value that `train_step` or `test_step` returned for a slice, as a float32 by its name.

    The mean is over all numbers of a value. ``method`` is the name of the step, for the message.
    Raises: Refused: if ``returned`` is not a dictionary with at least one value.
    """
    if not isinstance(returned, Mapping) or not returned:
        raise Refused(
            f"{method}() returned {type(returned).__name__}, expected a dictionary of names and numbers: one for each "
            "example, or their mean"
        )
    averages = {}
    for name, value in returned.items():
        averages[str(name)] = tf.reduce_mean(tf.cast(value, tf.float32))
    return averages


def _check(turn: Turn, *, together: bool) -> None:
    # ``together`` says whether the author has written the turn as a tuple.
    for update in turn:
        if not isinstance(update.times, int) or update.times < 1 or (together and update.times > 1):
            raise Refused(
                f"Update({update.loss!r}) has times={update.times!r}, expected a whole number from 1"
                + (", and 1 among those that happen at once" if together else "")
            )
        if update.optimizer is None and update.rate is not None:
            raise Refused(
                f"Update({update.loss!r}) has a rate and no optimizer: the trial's own follows learning_rate; give it "
                "an optimizer"
            )
        if update.optimizer is not None and update.rate is not None:
            check_follows(update.optimizer, f"Update({update.loss!r})")
        if not update.variables:
            raise Refused(
                f"Update({update.loss!r}) has no weights to train: what it is given has none"
            )
    for one, other in _list_pairs(turn):
        if one.loss == other.loss:
            raise Refused(f"updates() minimises {one.loss!r} twice at once")


def _list_distinct(turns: Iterable[Turn]) -> list[Turn]:
    return list({id(turn): turn for turn in turns}.values())


def _list_pairs(items: Sequence[Any]) -> list[tuple[Any, Any]]:
    return [(a, b) for i, a in enumerate(items) for b in items[i + 1 :]]
