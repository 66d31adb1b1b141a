"""Layers selected by path, to be frozen or trained in groups with an optimizer or a rate of their own.

To the loop, several optimizers look like one with a single rate; each trains its own weights.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables import keras_private
from trainables.numbers.live import Live, LiveNumber
from trainables.recipe import clipping
from trainables.recipe.rates import check_follows, get_rate_or_schedule
from trainables.recipe.refusals import Refused

MOST = 30  # paths listed in a message

Found: TypeAlias = "list[tuple[str, keras.Layer]]"
"""Layers with their paths; several layers may have the same path."""


def list_layer_paths(model: keras.Model) -> Found:
    """Return all layers of a model, also those within layers, as pairs of path and layer.

    An example of a path is ``encoder/block_1/dense``. A layer comes before those within it; the model is left out.
    """
    return list(_walk_layers(model, ""))


def select_layers(model: keras.Model, pattern: str) -> Found:
    """Return the layers whose paths match a pattern, with their paths; layers inside them must match themselves.

    Each name between slashes is matched separately, with wildcards as in `fnmatch`; ``**`` matches any number of names,
    also none. The list is empty if no layer matches.
    """
    parts = pattern.strip("/").split("/")
    matching = []
    for path, layer in list_layer_paths(model):
        if _matches(path.split("/"), parts):
            matching.append((path, layer))
    return matching


def freeze_layers(model: keras.Model, hp: Hyperparameters) -> None:
    """Freeze the layers in ``frozen_layers``: the first n that have weights, or those of a path or a list of paths.

    n counts the model's outermost layers, and paths may have wildcards as in `select_layers`. A layer is frozen with
    all layers inside it. Nothing is changed if the trial does not have this parameter, and no layer is unfrozen.
    Raises: ValueError: if n is negative, there are fewer than n layers with weights, or a path matches none.
    """
    if "frozen_layers" not in hp:
        return  # keep what the author has set
    frozen = hp["frozen_layers"]
    if isinstance(frozen, int) and not isinstance(frozen, bool):  # in Python, a bool is an int
        layers = [layer for layer in model.layers if layer.weights]
        if not 0 <= frozen <= len(layers):
            raise ValueError(
                f"frozen_layers is {frozen}, expected 0 to {len(layers)}, the layers with weights"
            )
        found = layers[:frozen]
    else:
        found = []
        for pattern in frozen if isinstance(frozen, list) else [frozen]:
            matching = find_layers(model, str(pattern), "frozen_layers", "a number or names")
            found += [layer for _, layer in matching]
    # only now, so that a wrong pattern changes nothing
    for layer in found:
        layer.trainable = False


def find_layers(model: keras.Model, pattern: str, parameter: str, expected: str = "names") -> Found:
    """Return the layers that a pattern matches, with their paths, as `select_layers` does.

    Raises: ValueError: if the pattern matches no layer. In its message, ``parameter`` names where the pattern comes
    from, and ``expected`` says what is expected there; it lists at most 30 paths of layers with weights.
    """
    found = select_layers(model, pattern)
    if found:
        return found
    # each path once, in the order of the layers
    known = list(dict.fromkeys(path for path, layer in list_layer_paths(model) if layer.weights))
    if len(known) > MOST:
        more = f" and {len(known) - MOST} more"
    else:
        more = ""
    raise ValueError(
        f"{parameter} names {pattern!r}, expected {expected} among {', '.join(known[:MOST])}{more}"
    )


def _walk_layers(layer: keras.Layer, path: str) -> Iterator[tuple[str, keras.Layer]]:
    # ``path`` is that of ``layer``, with a slash at its end; empty for the model.
    if isinstance(layer, keras.Model):
        within = layer.layers
    else:
        within = keras_private.flatten_layers(layer, include_self=False, recursive=False)
    for part in within:
        if isinstance(part, keras.Layer) and part is not layer:
            yield f"{path}{part.name}", part
            yield from _walk_layers(part, f"{path}{part.name}/")


def _matches(names: Sequence[str], patterns: Sequence[str]) -> bool:
    # Whether the names of a path match a pattern, which was split at its slashes.
    if not patterns:
        return not names
    first, rest = patterns[0], patterns[1:]
    if first == "**":
        return any(_matches(names[skipped:], rest) for skipped in range(len(names) + 1))
    if not names or not fnmatch.fnmatchcase(names[0], first):
        return False
    return _matches(names[1:], rest)


Rate = LiveNumber | float


@dataclass(eq=False)
class Part:
    """An optimizer with the weights that it trains.

    Its learning rate is the loop's rate times ``factors``, or a rate of its own.
    """

    optimizer: keras.optimizers.Optimizer
    variables: list[keras.Variable]
    # with exponents; None: the optimizer has its own rate or schedule
    factors: Sequence[tuple[Rate, int]] | None
    is_the_trials: bool  # False: the author has given the optimizer to a group

    def rate(self, rate: Any) -> tf.Tensor:
        """Return the learning rate of this part: the loop's ``rate`` times each factor raised to its exponent.

        Only for a part without a rate of its own; for any other part, the result is ``rate`` itself.
        """
        for factor, power in self.factors or ():
            rate = rate * tf.cast(factor**power, tf.float32)
        return tf.convert_to_tensor(rate)


class GroupedOptimizer(keras.optimizers.Optimizer):
    """An optimizer that trains groups of weights by different optimizers, with the loop's learning rate as its own.

    Create it under the strategy's scope. Clipping that the trial's own optimizer asks for is applied to the gradients
    of all parts that use it together.
    """

    def __init__(self, parts: Sequence[Part], learning_rate: Any) -> None:
        super().__init__(learning_rate=learning_rate, name="grouped")
        self.parts = tuple(parts)
        # the part that trains a weight, by the weight's id
        self._place = {id(v): part for part in parts for v in part.variables}
        own = [part for part in parts if part.is_the_trials]
        # The trial's bounds for clipping, by kind. All its optimizers are made alike, so the first one tells them.
        bounds: dict[str, Any] = {}
        for kind in clipping.KINDS:
            if own:
                bounds[kind] = getattr(own[0].optimizer, kind)
            for part in own:
                # otherwise, each would clip the gradients of its part alone
                setattr(part.optimizer, kind, None)
        self.bounds: Mapping[str, Any] = bounds

    @property
    def variables(self) -> list[keras.Variable]:
        """The variables of this optimizer and of the optimizers of all parts."""
        return [*super().variables, *(v for part in self.parts for v in part.optimizer.variables)]

    @property
    def follows(self) -> bool:
        """Whether the learning rate that the loop sets affects any part."""
        return any(part.factors is not None for part in self.parts)

    def build(self, variables: Sequence[keras.Variable]) -> None:
        """Create the variables of all parts' optimizers, once; weights that are in no part belong to the first part.

        A second call has no effect. A part without any of ``variables`` is not built.
        """
        if self.built:
            return
        super().build(list(variables))
        self._given = list(variables)  # for `apply` without weights
        for part in self.parts:
            of_part = [v for v in variables if self._part(v) is part]
            if of_part:
                part.optimizer.build(of_part)

    def apply(
        self, grads: Sequence[Any], trainable_variables: Sequence[keras.Variable] | None = None
    ) -> None:
        """Clip gradients, set the rates of parts that have no rate of their own, and let each part update its weights.

        Gradients that are None are left out, and a part without gradients does nothing. Without
        ``trainable_variables``, they belong to the weights given to `build`. Weights are given to `build` if it was not
        called before. Called on each replica.
        """
        if trainable_variables is None:
            weights = self._given  # the weights given to `build`
        else:
            weights = list(trainable_variables)
        if not self.built:
            self.build(weights)
        with_gradient = []
        for g, v in zip(grads, weights, strict=True):
            if g is not None:
                with_gradient.append((g, v))
        # First by this optimizer's own settings, as for `Model.fit`, then by those of the trial's own optimizer.
        clipped = keras_private.clip_gradients(self, [g for g, _ in with_gradient])
        with_part = []
        for g, (_, v) in zip(clipped, with_gradient, strict=True):
            with_part.append((g, v, self._part(v)))
        clipped_again = iter(self._bounded([g for g, _, part in with_part if part.is_the_trials]))
        final = []
        for g, v, part in with_part:
            final.append((next(clipped_again) if part.is_the_trials else g, v, part))
        for part in self.parts:
            of_part = [(g, v) for g, v, its_part in final if its_part is part]
            if not of_part:
                continue
            if part.factors is not None:  # otherwise it has a rate of its own
                part.optimizer.learning_rate.assign(
                    part.rate(tf.convert_to_tensor(self.learning_rate))
                )
            part.optimizer.apply_gradients(of_part)  # as in `fit`: an author's own may override it
        self.iterations.assign_add(1)

    def _part(self, variable: keras.Variable) -> Part:
        return self._place.get(id(variable), self.parts[0])

    def _bounded(self, gradients: list[Any]) -> list[Any]:
        # Return the gradients clipped by `bounds`. Keras clips by the attributes of the optimizer, such as `clipnorm`,
        # so `bounds` replace them meanwhile.
        before = {kind: getattr(self, kind) for kind in self.bounds}
        try:
            self.__dict__.update(self.bounds)
            return list(keras_private.clip_gradients(self, gradients))
        finally:
            self.__dict__.update(before)


def list_parts(optimizer: keras.optimizers.Optimizer) -> list[keras.optimizers.Optimizer]:
    """Return an optimizer, followed by those inside it if it is a `LossScaleOptimizer` or a `GroupedOptimizer`."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return [optimizer, *list_parts(optimizer.inner_optimizer)]
    if isinstance(optimizer, GroupedOptimizer):
        return [optimizer, *(part.optimizer for part in optimizer.parts)]
    return [optimizer]


def get_averaging_momentum(optimizer: keras.optimizers.Optimizer) -> float | None:
    """Return the largest momentum with which an optimizer or a part of it averages weights; None if none averages.

    Only parts with ``use_ema`` average.
    """
    return max(
        (float(part.ema_momentum) for part in list_parts(optimizer) if part.use_ema), default=None
    )


def clips_gradients(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether an optimizer, or one of its parts, clips gradients itself; a bound of 0 does not."""
    if isinstance(optimizer, GroupedOptimizer) and any(optimizer.bounds.values()):
        return True
    parts = list_parts(optimizer)
    return any(getattr(part, kind, None) for part in parts for kind in clipping.KINDS)


def list_main_optimizers(
    optimizer: keras.optimizers.Optimizer,
) -> Iterable[keras.optimizers.Optimizer]:
    """Return the optimizers of a grouped optimizer that are the trial's own or copies of it, without those of groups.

    For any other optimizer, return only this optimizer.
    """
    if isinstance(optimizer, GroupedOptimizer):
        main = []
        for part in optimizer.parts:
            if part.is_the_trials:
                main.append(part.optimizer)
        return main
    return [optimizer]


def follows_the_rate(optimizer: keras.optimizers.Optimizer) -> bool:
    """Return whether the learning rate that the loop sets affects any part of a grouped optimizer.

    True for any other optimizer, even for one with a schedule of its own.
    """
    return not isinstance(optimizer, GroupedOptimizer) or optimizer.follows


def convert_multi_optimizer(
    optimizer: keras.optimizers.MultiOptimizer, weights: Sequence[keras.Variable]
) -> GroupedOptimizer:
    """Return a `GroupedOptimizer` with the optimizers of Keras's `MultiOptimizer`, which keep their rates or schedules.

    ``weights`` are all weights to train, at least one; optimizers that get none of them are left out. A
    `MultiOptimizer` has no rate to read and cannot apply the gradients of only some weights. The rate of the result is
    that of its first part.
    Raises: Refused: if it has no optimizer for a weight.
    """
    choose = keras_private.optimizer_choice(optimizer)
    # by the id of an optimizer: the optimizer and its weights
    found: dict[int, tuple[Any, list[keras.Variable]]] = {}
    for weight in weights:
        chosen = choose(weight)
        if not isinstance(chosen, keras.optimizers.Optimizer):
            raise Refused(
                f"the MultiOptimizer gives {weight.path} no optimizer, but {type(chosen).__name__}"
            )
        found.setdefault(id(chosen), (chosen, []))[1].append(weight)
    parts = [Part(one, its, None, is_the_trials=False) for one, its in found.values()]
    return GroupedOptimizer(parts, get_rate_or_schedule(parts[0].optimizer))


@dataclass(frozen=True, eq=False)
class Group:
    """Weights that are trained with a rate, weight decay or optimizer of their own.

    ``of`` is a model, layers, variables, or paths of layers. If there is no ``optimizer``, a copy of the trial's
    optimizer trains them, at the trial's rate times ``rate`` (default 1). An optimizer of your own keeps its rate or
    schedule; with ``rate``, it follows the trial's rate times ``rate``. ``weight_decay`` replaces the weight decay of
    the optimizer; 0 turns it off.
    """

    of: Any
    optimizer: keras.optimizers.Optimizer | None = None
    rate: Rate | None = None
    weight_decay: Rate | None = None


@dataclass(frozen=True, eq=False)
class Rated:
    """Weights whose learning rate is the trial's times several factors, each raised to an exponent."""

    variables: Sequence[keras.Variable]
    factors: Sequence[tuple[Rate, int]]


def read_layer_rates(
    hp: Hyperparameters, live: Live, model: keras.Model, left_out: Container[str] = ()
) -> list[Rated]:
    """Return all trainable weights in groups, each with the factors by which its weights' learning rate differs.

    The factors follow from ``layer_decay`` and ``layer_rates.<layers>`` except those in ``left_out``, and are live
    numbers; a group whose rate is the trial's has none. There are no groups if the trial has none of these parameters.
    The exponent of ``layer_decay`` is the number of layers that follow before the output, see `_compute_heights`.
    Raises: ValueError: if a pattern matches no layer, two patterns match the same layer, or a number is out of bounds.
    """
    patterns = [name for name in hp.below("layer_rates") if f"layer_rates.{name}" not in left_out]
    decays = "layer_decay" in hp and "layer_decay" not in left_out
    if not patterns and not decays:
        return []
    # by the ids of weights
    pattern_of = _pattern_by_weight(model, patterns)
    height_of = _compute_heights(model) if decays else {}
    # weights that have the same height and pattern form a group
    found: dict[tuple[int, str], list[keras.Variable]] = {}
    for weight in model.trainable_variables:
        group = (height_of.get(id(weight), 0), pattern_of.get(id(weight), ""))
        found.setdefault(group, []).append(weight)
    rated = []
    for (height, pattern), weights in found.items():
        factors: list[tuple[Rate, int]] = []
        if height:
            factors.append((live.number("layer_decay", standard=True), height))
        if pattern:
            factors.append((live.number(f"layer_rates.{pattern}", standard=True), 1))
        rated.append(Rated(weights, factors))
    if decays:
        live.number("layer_decay", standard=True)  # read it even if no layer is affected
    return rated


def combine_optimizers(
    optimizer: keras.optimizers.Optimizer,
    make_copy: Callable[[], keras.optimizers.Optimizer] | None,
    model: keras.Model,
    given: Any,
) -> keras.optimizers.Optimizer:
    """Return an optimizer that trains each of the ``given`` groups differently; ``optimizer`` if there are none.

    ``given`` is a list of `Group` and `Rated` objects; weights in none are trained by ``optimizer``, the trial's own. A
    `MultiOptimizer` becomes a `GroupedOptimizer`. ``make_copy`` makes the trial's optimizer once more; it is None if
    the optimizer came with a compiled model or with updates. The ``weight_decay`` of a group is set on its optimizer,
    even on one that the author has given.
    Raises: Refused: if the groups contradict each other or the optimizer, if there are groups and ``make_copy`` is
    None, or if a group has an optimizer that is not allowed there. ValueError: if a path matches no layer. TypeError:
    if a group is for something else than layers, variables and paths.
    """
    if isinstance(optimizer, keras.optimizers.MultiOptimizer):
        if given:
            raise Refused(
                "optimizer() returned a MultiOptimizer, and there are groups() or layer rates; leave out one"
            )
        return convert_multi_optimizer(optimizer, model.trainable_variables)
    groups = _resolve_groups(given, model)
    if not groups:
        return optimizer
    if make_copy is None:
        raise Refused(
            "there are groups() or layer rates, and compile() or updates() bring their own optimizers; leave out one, "
            "or read the layer rates where these optimizers are made"
        )
    rate = get_rate_or_schedule(optimizer)
    has_schedule = not isinstance(rate, float)
    if has_schedule and any(group.optimizer is None and factors for group, _, factors in groups):
        raise Refused(
            "layers have a rate of their own, and optimizer() brings a schedule; use lr_schedule instead"
        )
    taken = {id(v) for _, variables, _ in groups for v in variables}
    in_no_group = [v for v in model.trainable_variables if id(v) not in taken]
    # The factors of a part are None if it does not follow the loop's rate.
    parts = [Part(optimizer, in_no_group, None if has_schedule else (), is_the_trials=True)]
    for group, variables, factors in groups:
        own_or_copy = group.optimizer or make_copy()
        if any(own_or_copy is part.optimizer for part in parts):
            raise Refused(
                "two groups share an optimizer, expected one each; optimizer() must make a new one at each call"
            )
        if group.optimizer is None:
            follows = not has_schedule
        else:
            follows = group.rate is not None
        if group.weight_decay is not None:
            _set_weight_decay(own_or_copy, group.weight_decay)
        parts.append(
            Part(
                own_or_copy,
                variables,
                factors if follows else None,
                is_the_trials=group.optimizer is None,
            )
        )
    # The first part stays even without weights: it has the trial's optimizer, and gets weights that no part has.
    return GroupedOptimizer([part for part in parts if part.variables or part is parts[0]], rate)


def _set_weight_decay(optimizer: Any, decay: Rate) -> None:
    optimizer.weight_decay = decay or None  # for Keras, None means no decay
    # Muon, which trains some weights by AdamW
    if hasattr(optimizer, "adam_weight_decay"):
        optimizer.adam_weight_decay = optimizer.weight_decay


def _resolve_groups(
    groups: Any, model: keras.Model
) -> list[tuple[Group, list[keras.Variable], Sequence[tuple[Rate, int]]]]:
    """Return each group with its trainable weights and the factors of its learning rate, with their exponents.

    A `Rated` becomes a group without the weights that are in any `Group`; these groups come last. The list of weights
    is empty if none of a group's weights is trainable.
    Raises: Refused: if ``groups`` is no list of groups, two groups have the same weight (trainable or not), or an
    optimizer is not allowed (see `_check_optimizer`). ValueError: if a path matches no layer. TypeError: if a group is
    for something else than layers, variables and paths.
    """
    if (
        isinstance(groups, Group | Rated)
        or not isinstance(groups, Sequence)
        or isinstance(groups, str)
    ):
        raise Refused(f"groups() returned {type(groups).__name__}, expected a list of Group")
    found: list[tuple[Group, list[keras.Variable], Sequence[tuple[Rate, int]]]] = []
    trainable = {id(v) for v in model.trainable_variables}
    taken: dict[int, int] = {}  # the index of a weight's group, by the weight's id
    for place, group in enumerate(groups):
        if isinstance(group, Rated):  # added below, when all weights of groups are known
            continue
        if not isinstance(group, Group):
            raise Refused(f"groups() returned {type(group).__name__} in its list, expected Group")
        variables = _list_variables(group.of, model)
        _check_optimizer(group, place)
        for variable in variables:
            if taken.setdefault(id(variable), place) != place:
                raise Refused(
                    f"groups() has {variable.path} in groups {taken[id(variable)] + 1} and {place + 1}, expected one"
                )
        factors = []
        if group.rate is not None:
            factors.append((group.rate, 1))
        found.append((group, [v for v in variables if id(v) in trainable], factors))
    for rated in groups:
        if isinstance(rated, Rated):
            in_no_group = [v for v in rated.variables if id(v) not in taken]
            found.append((Group(None), in_no_group, rated.factors))
    return found


def _check_optimizer(group: Group, place: int) -> None:
    """Raise Refused if a group has an optimizer that averages weights, or of a kind that a group cannot have.

    ``place`` is the index of the group, from 0. With a ``rate``, an optimizer with a schedule is refused as well. A
    group without an optimizer is accepted.
    """
    optimizer = group.optimizer
    if optimizer is None:
        return
    wrappers = (
        keras.optimizers.MultiOptimizer,
        keras.optimizers.LossScaleOptimizer,
        GroupedOptimizer,
    )
    if not isinstance(optimizer, keras.optimizers.Optimizer) or isinstance(optimizer, wrappers):
        raise Refused(
            f"group {place + 1} of groups() has {type(optimizer).__name__} as its optimizer"
        )
    if optimizer.use_ema:
        raise Refused(
            f"the optimizer of group {place + 1} averages weights, which only the trial's own may"
        )
    if group.rate is not None:
        check_follows(optimizer, f"group {place + 1} of groups()")


def _list_variables(of: Any, model: keras.Model) -> list[keras.Variable]:
    # ``of`` is that of a `Group`. Weights that are not trainable are included.
    found: dict[int, keras.Variable] = {}
    for part in keras.tree.flatten(of):
        if isinstance(part, str):
            layers: list[Any] = []
            for _, layer in find_layers(model, part, "groups()"):
                layers.append(layer)
        else:
            layers = [part]
        for layer in layers:  # or a single variable
            variables = layer.weights if isinstance(layer, keras.Layer) else [layer]
            for variable in variables:
                if not isinstance(variable, keras.Variable):
                    raise TypeError(
                        f"a Group is given {type(variable).__name__}, expected a model, layers, variables or the paths "
                        "of layers"
                    )
                found[id(variable)] = variable
    return list(found.values())


def _pattern_by_weight(model: keras.Model, patterns: Sequence[str]) -> dict[int, str]:
    """Return the pattern that applies to each weight, by the weight's id: the one that matches the innermost layer.

    Patterns have dots in place of slashes. Weights to which no pattern applies are left out.
    Raises: ValueError: if two patterns match the same layer, or a pattern matches none.
    """
    found: dict[int, tuple[int, str]] = {}  # by id of a weight: depth of the matched layer, pattern
    for pattern in patterns:
        for path, layer in find_layers(model, pattern.replace(".", "/"), "layer_rates"):
            depth = path.count("/")
            for weight in layer.weights:
                # a depth of -1 if no pattern has matched so far
                best_depth, best_pattern = found.get(id(weight), (-1, pattern))
                if best_depth == depth and best_pattern != pattern:
                    raise ValueError(
                        f"layer_rates names {path} as {best_pattern!r} and as {pattern!r}, expected one of them"
                    )
                if best_depth < depth:  # this layer is further inside
                    found[id(weight)] = depth, pattern
    return {weight: pattern for weight, (_, pattern) in found.items()}


def _compute_heights(model: keras.Model) -> dict[int, int]:
    """Return, by the id of each weight, how many layers follow its layer before the output; 0 for the last layer.

    Layers without matrices, such as normalization, count with the layer before them. Nested models are taken apart;
    other layers with inner layers, such as a block of a transformer, count as one.
    """
    depth = -1  # of the last layer so far, from the input on; -1 if there is none yet
    depths = dict[int, int]()  # by the id of a weight
    for layer in _list_layers_in_order(model):
        new = []
        for weight in layer.weights:
            if id(weight) not in depths:  # a shared weight counts where it is used first
                new.append(weight)
        # Weights in front of the first matrix form a layer of their own, as they have none before them.
        if any(len(weight.shape) > 1 for weight in new) or (new and depth < 0):
            depth += 1
        depths.update((id(weight), depth) for weight in new)
    return {weight: depth - at for weight, at in depths.items()}


def _list_layers_in_order(model: keras.Model) -> list[keras.Layer]:
    layers: list[keras.Layer] = []
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            layers += _list_layers_in_order(layer)
        else:
            layers.append(layer)
    return layers
