"""Several optimizers as one: each has weights of its own, and the loop sees a single one with a single rate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from trainables.numbers.live import LiveNumber
from trainables.recipe import clipping
from trainables.recipe.refusals import Refused

Rate = LiveNumber | float


@dataclass(eq=False)
class Part:
    """An optimizer and its weights; it follows the loop's rate times the ``factors``, or has one of its own."""

    optimizer: keras.optimizers.Optimizer
    variables: list[keras.Variable]
    factors: Sequence[tuple[Rate, int]] | None  # each with its power; None: a rate or schedule of its own
    is_the_trials: bool  # or one that the author has given to a group

    def rate(self, rate: Any) -> tf.Tensor:
        """Its rate where the loop's is this."""
        for factor, power in self.factors or ():
            rate = rate * tf.cast(factor**power, tf.float32)
        return tf.convert_to_tensor(rate)


class Grouped(keras.optimizers.Optimizer):
    """Applies gradients by its parts; its rate is that of the loop. Create it under the strategy's scope.

    What the trial's own optimizer clips is clipped over all its parts together.
    """

    def __init__(self, parts: Sequence[Part], learning_rate: Any) -> None:
        super().__init__(learning_rate=learning_rate, name="grouped")
        self.parts = tuple(parts)
        self._place = {id(v): part for part in parts for v in part.variables}
        own = [part for part in parts if part.is_the_trials]
        self.bounds: Mapping[str, Any] = {kind: getattr(own[0].optimizer, kind) for kind in clipping.KINDS if own}
        for part in own:
            for kind in clipping.KINDS:
                setattr(part.optimizer, kind, None)

    @property
    def variables(self) -> list[keras.Variable]:
        """Those of all parts."""
        return [*super().variables, *(v for part in self.parts for v in part.optimizer.variables)]

    @property
    def follows(self) -> bool:
        """Whether the loop's rate has an effect."""
        return any(part.factors is not None for part in self.parts)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Make the moments of all parts; what is none's belongs to the first."""
        if self.built:
            return
        super().build(list(variables))
        self._given = list(variables)
        for part in self.parts:
            mine = [v for v in variables if self._part(v) is part]
            if mine:
                part.optimizer.build(mine)

    def apply(self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None) -> None:
        """Apply gradients; called on each replica."""
        weights = self._given if trainable_variables is None else list(trainable_variables)
        if not self.built:
            self.build(weights)
        known = [(g, v) for g, v in zip(grads, weights, strict=True) if g is not None]
        clipped = self._clip_gradients([g for g, _ in known])
        pairs = [(g, v, self._part(v)) for g, (_, v) in zip(clipped, known, strict=True)]
        bounded = iter(self._bounded([g for g, _, part in pairs if part.is_the_trials]))
        pairs = [(next(bounded) if part.is_the_trials else g, v, part) for g, v, part in pairs]
        for part in self.parts:
            mine = [(g, v) for g, v, its in pairs if its is part]
            if not mine:
                continue
            if part.factors is not None:
                part.optimizer.learning_rate.assign(part.rate(tf.convert_to_tensor(self.learning_rate)))
            part.optimizer.apply([g for g, _ in mine], [v for _, v in mine])
        self.iterations.assign_add(1)

    def _part(self, variable: keras.Variable) -> Part:
        return self._place.get(id(variable), self.parts[0])

    def _bounded(self, gradients: list[Any]) -> list[Any]:
        before = {kind: getattr(self, kind) for kind in self.bounds}
        try:
            self.__dict__.update(self.bounds)
            return list(self._clip_gradients(gradients))
        finally:
            self.__dict__.update(before)


def parts(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """An optimizer, and those that it is made of."""
    return [optimizer, *(part.optimizer for part in optimizer.parts)] if isinstance(optimizer, Grouped) else [optimizer]


def clips(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether an optimizer, or one that it is made of, clips by itself."""
    joint = optimizer.bounds.values() if isinstance(optimizer, Grouped) else ()
    return any([*joint, *(getattr(part, kind, None) for part in parts(optimizer) for kind in clipping.KINDS)])


def standing_for_the_trials(optimizer: keras.optimizers.Optimizer) -> Iterable[keras.optimizers.Optimizer]:
    """Those that the trial's own optimizer has become."""
    if isinstance(optimizer, Grouped):
        return [part.optimizer for part in optimizer.parts if part.is_the_trials]
    return [optimizer]


def follows_the_rate(optimizer: keras.optimizers.Optimizer) -> bool:
    """Whether the loop's rate has an effect on it."""
    return not isinstance(optimizer, Grouped) or optimizer.follows


def of_keras(optimizer: keras.optimizers.MultiOptimizer, weights: Sequence[keras.Variable]) -> Grouped:
    """Keras's own optimizer of several, each of which keeps its rate or schedule.

    It has neither a rate that could be asked for, nor does it apply a part of the gradients.
    """
    place = optimizer._optimizer_map
    found: dict[int, tuple[Any, list[keras.Variable]]] = {}
    for weight in weights:
        one = place(weight)
        if not isinstance(one, keras.optimizers.Optimizer):
            raise Refused(f"the MultiOptimizer gives {weight.path} no optimizer, but {type(one).__name__}")
        found.setdefault(id(one), (one, []))[1].append(weight)
    made = [Part(one, its, None, is_the_trials=False) for one, its in found.values()]
    return Grouped(made, rate_of(made[0].optimizer))


def rate_of(optimizer: keras.optimizers.Optimizer) -> Any:
    """The learning rate, or the schedule, that an optimizer was made with."""
    rate = optimizer._learning_rate
    return float(rate.numpy()) if isinstance(rate, keras.Variable) else rate
