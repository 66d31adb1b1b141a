"""Functions that find the steps and hooks of the author and the model, and the arguments to compile the model with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables import keras_private
from trainables.loop.hooks import HOOKS, InGraphHook
from trainables.recipe import author_updates, refusals
from trainables.recipe.author import Author, overrides
from trainables.recipe.author_updates import Turn
from trainables.recipe.losses import Undecided
from trainables.recipe.refusals import Refused

OF_STEPS = ("test_step", "updates")
"""The author's methods that need a `train_step`."""
NEW = ("train_step", *OF_STEPS, *HOOKS, "on_train_batch_end", "callbacks")
"""The author's methods whose signatures are checked."""
_VARIABLE_OWNERS = (keras.Layer, keras.Metric, tf.Module)
_RANDOM_GENERATORS = (keras.random.SeedGenerator, tf.random.Generator)


def overrides_train_step(author: Author) -> bool:
    """Return whether the author overrides `train_step`.

    If not, raises Refused if `test_step` or `updates` is overridden.
    """
    if overrides(author, "train_step"):
        return True
    lone = []
    for name in OF_STEPS:
        if overrides(author, name):
            lone.append(name)
    if lone:
        raise Refused(
            f"{type(author).__name__} defines {' and '.join(lone)}() without train_step()"
        )
    return False


def list_turns(author: Author, hp: Hyperparameters, model: keras.Model) -> tuple[Turn, ...]:
    """Return the turns of a batch in order, each a tuple of updates applied at once; empty without a `train_step`.

    Calls the author's `updates` if there is a `train_step`. Raises what `author_updates.parse_turns` raises if the
    result is wrong, and Refused if `test_step` or `updates` is overridden without `train_step`.
    """
    if not overrides_train_step(author):
        return ()
    return author_updates.parse_turns(author.updates(hp, model))


def first_optimizer(turns: Sequence[Turn]) -> keras.optimizers.Optimizer | None:
    """Return the first update's optimizer if all updates have their own, to be used as the trial's.

    Returns None if any update has no optimizer of its own, or if there are no updates.
    """
    # None for an update without its own
    optimizers = [update.optimizer for turn in turns for update in turn]
    if not optimizers or None in optimizers:
        return None
    return optimizers[0]


def get_compile_options(author: Author, hp: Hyperparameters, model: keras.Model) -> dict[str, Any]:
    """Return the arguments ``loss`` and ``metrics`` for `model.compile`, from the author's methods.

    Both are included, possibly as None, unless the author has a `train_step`. With a `train_step`, they serve
    validation: both are included if there are validation data and no `test_step`; otherwise there is never ``loss``,
    and ``metrics`` only if the author overrides them. Raises Undecided if no default loss fits the targets and the
    model has no `train_step` or `compute_loss` of its own, and Refused as `overrides_train_step` does.
    """
    # The compiled loss trains without a `train_step`, and validates without a `test_step`.
    loss_trains = not overrides_train_step(author)
    loss_validates = author.validates and not overrides(author, "test_step")
    if loss_trains or loss_validates:
        return {"loss": _get_loss(author, hp, model), "metrics": _get_metrics(author, hp, model)}
    if not overrides(author, "metrics"):
        return {}
    return {"metrics": author.metrics(hp, model)}


def _get_loss(author: Author, hp: Hyperparameters, model: keras.Model) -> Any:
    """Return the author's loss or, if the author does not override it, the default loss for the targets.

    There is no default loss, and None is returned, if the training data has no targets, or if the model has no `call`.
    If no default loss fits the targets, returns None if the model has its own `train_step` or `compute_loss`, and
    raises Undecided if it has neither.
    """
    if overrides(author, "loss"):
        return author.loss(hp, model)
    # The default loss is derived from targets and outputs. An example without targets is (x,).
    if len(author.first_example) == 1 or not refusals.list_overridden_methods(model, "call"):
        return None
    try:
        return author.loss(hp, model)
    except Undecided:
        # Such a method may compute its loss without the compiled one.
        if refusals.list_overridden_methods(model, "train_step", "compute_loss"):
            return None
        raise


def _get_metrics(author: Author, hp: Hyperparameters, model: keras.Model) -> Any:
    """Return the author's metrics or the default ones; None if there are none, or the author returns an empty list.

    There are no default metrics for a model without `call`.
    """
    if not refusals.list_overridden_methods(model, "call") and not overrides(author, "metrics"):
        return None
    return author.metrics(hp, model) or None


def describe_own_steps(author: Author, model: keras.Model) -> str:
    """Return a phrase for messages that names the model's own `train_step` and `test_step`.

    It is "" if the model has neither, or if the author has a `train_step`, which is then used. Raises Refused as
    `overrides_train_step` does.
    """
    if overrides_train_step(author):
        return ""
    own = refusals.list_overridden_methods(model, "train_step", "test_step")
    if not own:
        return ""
    return f"{type(model).__name__} has a {' and a '.join(own)} of its own"


def trains_itself(model: keras.Model) -> bool:
    """Return whether the model has a `train_step` of its own."""
    return bool(refusals.list_overridden_methods(model, "train_step"))


def lacks_weights(model: keras.Model) -> bool:
    """Return whether the model has a `train_step` of its own that must create weights.

    That is so if the model has such a step, and a layer is not built or the model has its own `build` and is not built.
    False for a model without such a step, even if it has no weights yet.
    """
    if not trains_itself(model):
        return False
    if refusals.list_overridden_methods(model, "build") and not model.built:
        return True  # its `build` may create weights of the model itself, or more layers
    return any(not layer.built for layer in keras_private.flatten_layers(model, include_self=False))


def make_batch_hook(
    author: Author, present: Callable[[], Hyperparameters], model: keras.Model
) -> InGraphHook | None:
    """Return the author's `on_train_batch_end`, to be called inside the graph; None if it is not overridden.

    The method gets ``model`` and the hyperparameters that ``present()`` returns when the graph is traced.
    """
    if not overrides(author, "on_train_batch_end"):
        return None
    return InGraphHook(
        lambda update, logs, pairs: author.on_train_batch_end(update, logs, pairs, model, present())
    )


def list_hook_variables(author: Author, attributes: Mapping[str, object]) -> list[Any]:
    """Return the variables in the author's ``attributes``, which hooks between epochs may use although no graph does.

    Nested dictionaries, lists and tuples are searched as well. The variables of networks, metrics and generators of
    random numbers are included, and so are the states of stateful recurrent layers, but not the variables of
    optimizers, which begin anew in each phase. A variable may be in the list several times. Returns an empty list if
    the author has none of `HOOKS`. Tracing may create variables, so call it afterwards.
    """
    if not any(overrides(author, name) for name in HOOKS):
        return []
    variables: list[Any] = []
    for leaf in list_leaves(attributes):
        if isinstance(leaf, keras.Variable | tf.Variable):
            variables.append(leaf)
        elif isinstance(leaf, _RANDOM_GENERATORS):
            variables.append(leaf.state)
        elif isinstance(leaf, _VARIABLE_OWNERS):
            variables += leaf.variables
            if isinstance(leaf, keras.Layer):
                variables += _list_recurrent_states(leaf)
    return variables


def _list_recurrent_states(outer: keras.Layer) -> list[keras.Variable]:
    """Return the states that stateful recurrent layers in ``outer`` keep between calls, which are no variables of it.

    ``outer`` itself is searched, and all layers in it. Layers that are not stateful or have not been called have none.
    """
    states: list[keras.Variable] = []
    for layer in keras_private.flatten_layers(outer):
        for state in keras.tree.flatten(getattr(layer, "states", None)):
            if isinstance(state, keras.Variable):
                states.append(state)
    return states


def check_signatures(author: Author) -> None:
    """Raise Refused if one of the author's steps, hooks or `callbacks` cannot be called with the arguments it gets.

    `updates` is checked as well, but not `model`, `data` and other methods.
    """
    for name in NEW:
        # with `self`, as both are looked up in the class
        arguments = [*inspect.signature(getattr(Author, name)).parameters]
        signature = inspect.signature(getattr(type(author), name))
        try:
            # names stand in for the arguments
            signature.bind(*arguments)
        except TypeError:
            raise Refused(
                f"{type(author).__name__}.{name}({', '.join(signature.parameters)}) is called with "
                f"({', '.join(arguments)})"
            ) from None


def list_leaves(attributes: Mapping[str, object]) -> list[Any]:
    """Return the values of ``attributes``; in place of dictionaries, lists and tuples what these hold, at any depth.

    They are in order, and may occur several times. The keys of dictionaries are left out.
    """
    return [leaf for value in attributes.values() for leaf in _flatten_container(value)]


def _flatten_container(value: Any) -> list[Any]:
    """Return the leaves of nested dictionaries, lists and tuples; a list of ``value`` alone if it is none of these."""
    match value:
        case Mapping():
            return [leaf for part in value.values() for leaf in _flatten_container(part)]
        case list() | tuple():
            return [leaf for part in value for leaf in _flatten_container(part)]
        case _:
            return [value]
