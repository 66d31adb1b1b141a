"""Weights by layers: each group with a learning rate, a weight decay or an optimizer of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras

from sweep.hyperparameters import Hyperparameters
from trainables.numbers.live import Live
from trainables.recipe import grouped, layer_paths
from trainables.recipe.grouped import Grouped, Part, Rate
from trainables.recipe.refusals import Refused


@dataclass(frozen=True, eq=False)
class Group:
    """Weights that are trained in their own way: those of a model, layers, variables, or of layers by their paths.

    Without an ``optimizer`` it is the trial's own, with other moments, at the trial's rate times ``rate`` (1). One of
    your own keeps its rate or schedule, or follows the trial's rate times ``rate``. ``weight_decay``: instead of the
    optimizer's; 0 for none.
    """

    of: Any
    optimizer: keras.optimizers.Optimizer | None = None
    rate: Rate | None = None
    weight_decay: Rate | None = None


@dataclass(frozen=True, eq=False)
class Rated:
    """Weights whose rate is the trial's times several factors, each with its power."""

    variables: Sequence[keras.Variable]
    factors: Sequence[tuple[Rate, int]]


def by_layers(hp: Hyperparameters, live: Live, model: keras.Model) -> list[Rated]:
    """What ``layer_decay`` and ``layer_rates.<layers>`` make of the rates; none where a trial has neither."""
    named = hp.below("layer_rates")
    decays = "layer_decay" in hp
    if not named and not decays:
        return []
    found: dict[tuple[int | str, ...], list[keras.Variable]] = {}
    names = _pattern_by_weight(model, named)
    heights = _heights(model) if decays else {}
    for weight in model.trainable_variables:
        found.setdefault((heights.get(id(weight), 0), names.get(id(weight), "")), []).append(weight)
    rated = []
    for (height, name), weights in found.items():
        factors: list[tuple[Rate, int]] = []
        if height:
            factors.append((live.number("layer_decay", standard=True), int(height)))
        if name:
            factors.append((live.number(f"layer_rates.{name}", standard=True), 1))
        rated.append(Rated(weights, factors))
    if decays:
        live.number("layer_decay", standard=True)  # also of a model of one layer
    return rated


def combined(
    optimizer: keras.optimizers.Optimizer,
    again: Callable[[], keras.optimizers.Optimizer] | None,
    model: keras.Model,
    given: Any,
) -> keras.optimizers.Optimizer:
    """The trial's optimizer, or where ``given`` groups ask for several one that is made of them.

    ``again`` makes the trial's optimizer once more; None where it came with a compiled model.
    """
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        if given:
            raise Refused("optimizer() returned a MultiOptimizer, and there are groups() or layer rates; leave out one")
        return grouped.of_keras(optimizer, model.trainable_variables)
    groups = _checked(given, model)
    if not groups:
        return optimizer
    if again is None:
        raise Refused(
            "there are groups() or layer rates, and compile() or updates() bring their own optimizers; leave out one"
        )
    rate = grouped.rate_of(optimizer)
    if not isinstance(rate, float) and any(group.optimizer is None and factors for group, _, factors in groups):
        raise Refused("layers have a rate of their own, and optimizer() brings a schedule; use lr_schedule instead")
    taken = {id(v) for _, variables, _ in groups for v in variables}
    rest = [v for v in model.trainable_variables if id(v) not in taken]
    parts = [Part(optimizer, rest, () if isinstance(rate, float) else None, is_the_trials=True)]
    for group, variables, factors in groups:
        one = group.optimizer or again()
        if any(one is part.optimizer for part in parts):
            raise Refused(
                "two groups share an optimizer, expected one each; optimizer() must make a new one at each call"
            )
        follows = isinstance(rate, float) if group.optimizer is None else group.rate is not None
        if group.weight_decay is not None:
            one.weight_decay = group.weight_decay or None
            if hasattr(one, "adam_weight_decay"):
                one.adam_weight_decay = one.weight_decay
        parts.append(Part(one, variables, factors if follows else None, is_the_trials=group.optimizer is None))
    return Grouped([part for part in parts if part.variables or part is parts[0]], rate)


def _checked(given: Any, model: keras.Model) -> list[tuple[Group, list[keras.Variable], Sequence[tuple[Rate, int]]]]:
    """The groups with their trainable weights, and the factors of their rates."""
    if isinstance(given, Group | Rated) or not isinstance(given, Sequence) or isinstance(given, str):
        raise Refused(f"groups() returned {type(given).__name__}, expected a list of Group")
    found: list[tuple[Group, list[keras.Variable], Sequence[tuple[Rate, int]]]] = []
    trainable = {id(v) for v in model.trainable_variables}
    taken: dict[int, int] = {}
    for place, group in enumerate(given):
        if isinstance(group, Rated):
            continue
        if not isinstance(group, Group):
            raise Refused(f"groups() returned {type(group).__name__} in its list, expected Group")
        variables = _variables(group.of, model)
        if group.optimizer is not None:
            _check_optimizer(group.optimizer, place)
        for variable in variables:
            if taken.setdefault(id(variable), place) != place:
                raise Refused(
                    f"groups() has {variable.path} in groups {taken[id(variable)] + 1} and {place + 1}, expected one"
                )
        factors = [] if group.rate is None else [(group.rate, 1)]
        found.append((group, [v for v in variables if id(v) in trainable], factors))
    for rated in given:
        if isinstance(rated, Rated):
            found.append((Group(None), [v for v in rated.variables if id(v) not in taken], rated.factors))
    return found


def _check_optimizer(optimizer: Any, place: int) -> None:
    others = (keras.optimizers.MultiOptimizer, keras.optimizers.LossScaleOptimizer, Grouped)
    if not isinstance(optimizer, keras.optimizers.Optimizer) or isinstance(optimizer, others):
        raise Refused(f"group {place + 1} of groups() has {type(optimizer).__name__} as its optimizer")
    if optimizer.use_ema:
        raise Refused(f"the optimizer of group {place + 1} averages weights, which only the trial's own may")


def _variables(of: Any, model: keras.Model) -> list[keras.Variable]:
    found: dict[int, keras.Variable] = {}
    for part in keras.tree.flatten(of):
        if isinstance(part, str):
            layers: list[Any] = [layer for _, layer in layer_paths.named(model, part, "groups()")]
        else:
            layers = [part]
        for layer in layers:
            for variable in layer.weights if isinstance(layer, keras.Layer) else [layer]:
                if not isinstance(variable, keras.Variable):
                    raise TypeError(
                        f"a Group is given {type(variable).__name__}, expected a model, layers, variables or the paths "
                        "of layers"
                    )
                found[id(variable)] = variable
    return list(found.values())


def _pattern_by_weight(model: keras.Model, patterns: Sequence[str]) -> dict[int, str]:
    """The pattern of each weight: of several the one that names the innermost layer."""
    found: dict[int, tuple[int, str]] = {}
    for pattern in patterns:
        for path, layer in layer_paths.named(model, pattern.replace(".", "/"), "layer_rates"):
            depth = path.count("/")
            for weight in layer.weights:
                before = found.get(id(weight), (-1, pattern))
                if before[0] == depth and before[1] != pattern:
                    raise ValueError(
                        f"layer_rates names {path} as {before[1]!r} and as {pattern!r}, expected one of them"
                    )
                if before[0] < depth:
                    found[id(weight)] = depth, pattern
    return {weight: pattern for weight, (_, pattern) in found.items()}


def _heights(model: keras.Model) -> dict[int, int]:
    """How many layers lie above that of each weight; what has no matrix (normalisation) belongs to the one before it.

    Nested models are taken apart, other layers with layers in them count as one, as a block of a transformer.
    """
    depth, depths = -1, dict[int, int]()
    for layer in _in_order(model):
        new = [weight for weight in layer.weights if id(weight) not in depths]
        if any(len(weight.shape) > 1 for weight in new) or (new and depth < 0):
            depth += 1
        depths.update((id(weight), depth) for weight in new)
    return {weight: depth - at for weight, at in depths.items()}


def _in_order(model: keras.Model) -> list[keras.Layer]:
    return [
        part for layer in model.layers for part in (_in_order(layer) if isinstance(layer, keras.Model) else [layer])
    ]
