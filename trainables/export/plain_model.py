"""A trained model without the loop, as the author's `model` creates it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sweep.contract import NotExportable
from trainables.devices.precision import HALF
from trainables.keras_private import Functional, has_functional_call
from trainables.loop import building, own_methods
from trainables.loop.trial import ReadyTrial
from trainables.numbers import seeds
from trainables.numbers.live import PlainNumbers
from trainables.recipe import features, global_settings
from trainables.recipe.author import Author
from trainables.recipe.author_data import AuthorData
from trainables.replicas import keras_corrections, random_layers, sharded_embedding
from trainables.state import origins
from trainables.state.initial import list_untracked
from trainables.state.origins import CreatedVariables, is_seed_state
from trainables.state.program_variables import unwrap_variable


@dataclass(frozen=True)
class Plain:
    """A trained model as a plain Keras model, without the training loop, with inputs to try it with."""

    model: keras.Model
    # variables of the model that Keras does not track, so that Keras's own format omits them
    unknown: tuple[str, ...]
    example: Any  # inputs for the model, as a batch of one
    # raw inputs of the examples to compare on, if the trial had other inputs
    raw_inputs: Any = None
    reads_data: bool = True  # whether the model's inputs are the data's
    # maps inputs of the data to those that the model takes, in the structure that it declares
    select_inputs: Callable[[Any], Any] = lambda inputs: inputs


def rebuild_model(author: Author, trial: ReadyTrial) -> Plain:
    """Build the author's model again outside any strategy, with the weights that the trial is validated with.

    ``author`` must have the attributes that `data` has left; its attribute `live` is replaced, and `model` runs. Layers
    compute in the types that they were trained in, because another mixed policy would give other predictions; outputs
    are float32. The trial's own model is not changed. The caller's random numbers and layer names are restored.
    Raises: NotExportable: if the new model cannot take over the weights, or reads texts that are not those of the data.
    Whatever `model` raises.
    """
    record = CreatedVariables(trial.assignment.seed)
    author.live = PlainNumbers(trial.hp)
    with (
        # these two restore the caller's own random numbers and layer names afterwards
        seeds.seeding_python_and_numpy(trial.assignment.seed),
        keras_corrections.keeping_numbering(),
        global_settings.trial_settings(trial.dtype, trains=False),
        origins.recording_variables(record),
    ):
        with (
            random_layers.replacing_unseeded_draws(),
            sharded_embedding.creating_keras_embeddings(),
        ):
            model = building.build_model(
                author, trial.hp, trial.assignment.seed, features.chain_models
            )
            if own_methods.lacks_weights(model):
                building.make_weights_by_step(author, trial.hp, model, record)
            model = _copy_if_shared(model, trial, record)
        keras_corrections.set_outputs_to_float32(model)
        model = _convert_to_keras_class(model)
    with trial.swapping_average():  # averaged weights, if the trial is validated with these
        untracked = _take_over(trial, model, record)
    select_inputs = functools.partial(_select_inputs, model)
    example_of_data = select_inputs(author.first_example[0])
    example = _find_inputs(model, example_of_data, trial.program.called_with)
    return Plain(
        _cast_outputs_to_float32(model, example),
        untracked,
        example,
        reads_data=example is example_of_data,
        select_inputs=select_inputs,
    )


def _take_over(trial: ReadyTrial, model: keras.Model, record: CreatedVariables) -> tuple[str, ...]:
    """Assign the trained state to a new model: weights, seeds, and variables that Keras does not track.

    ``record`` has the variables that were created for the new ``model``. Returns the names of its untracked variables.
    Raises NotExportable if the models have other variables.
    """
    trained = trial.program.model
    pairs = _pair_model_variables(trained.variables, model.variables)
    trained_untracked = list_untracked(trial.program.parts.created, trained)
    untracked = list_untracked(record.created, model)
    # The model's come first, before those of losses and optimizers, which the new model does not have.
    pairs += _pair_by_position(trained_untracked[: len(untracked)], untracked)
    for source, target in pairs:
        if unwrap_variable(source) is not unwrap_variable(target):  # else the models share it
            target.assign(np.asarray(_read_first_replica(source, trial)))
    return tuple(str(variable.name).partition(":")[0] for variable in untracked)


def _pair_model_variables(
    trained: Sequence[keras.Variable], fresh: Sequence[keras.Variable]
) -> list[tuple[Any, Any]]:
    """Return pairs of the variables of two models: weights by position, states of seed generators by path.

    In each pair, the variable of ``trained`` is first. Generators that only one of the models has are left out: a layer
    with a live rate always has a generator, and one with the plain rate 0 has none.
    Raises: NotExportable: if numbers or shapes of weights differ.
    """
    trained_weights = []
    trained_seeds = {}  # states of seed generators, by path
    for variable in trained:
        if is_seed_state(variable.value):
            trained_seeds[variable.path] = variable
        else:
            trained_weights.append(variable)
    fresh_weights = []
    pairs_of_seeds = []
    for variable in fresh:
        if not is_seed_state(variable.value):
            fresh_weights.append(variable)
        elif variable.path in trained_seeds:
            pairs_of_seeds.append((trained_seeds[variable.path], variable))
    return [*_pair_by_position(trained_weights, fresh_weights), *pairs_of_seeds]


def _pair_by_position(trained: Sequence[Any], fresh: Sequence[Any]) -> list[tuple[Any, Any]]:
    """Return pairs of the variables of two models by their positions, first that of ``trained``.

    Raises NotExportable if their numbers or shapes differ.
    """
    trained_shapes = [tuple(variable.shape) for variable in trained]
    fresh_shapes = [tuple(variable.shape) for variable in fresh]
    if trained_shapes != fresh_shapes:
        raise NotExportable(
            f"model() makes {len(fresh)} variables now, and made {len(trained)} when the trial was prepared; "
            "it must give the same model whenever it is called with the same hyperparameters"
        )
    return list(zip(trained, fresh, strict=True))


def _read_first_replica(variable: Any, trial: ReadyTrial) -> Any:
    """Return the value of a trial's variable on the first replica of this process."""
    return trial.placement.replicas.first(unwrap_variable(variable))


def _copy_if_shared(model: keras.Model, trial: ReadyTrial, record: CreatedVariables) -> keras.Model:
    """Return the model, or a copy with new weights if it contains layers of the trial's own model.

    Before a copy is made, the variables in ``record`` are removed, as they were created for the discarded model.
    Raises: NotExportable: if the model cannot be copied.
    """
    trained_ids = set()
    for variable in trial.program.model.variables:
        trained_ids.add(id(unwrap_variable(variable)))
    if not any(id(unwrap_variable(variable)) in trained_ids for variable in model.variables):
        return model
    record.created.clear()
    try:
        return keras.models.clone_model(model)
    except Exception as error:  # a subclassed model, or a layer without a configuration
        raise NotExportable(
            f"model() gives layers that it keeps, and they cannot be copied ({error}); make them anew at each call"
        ) from error


def _convert_to_keras_class(model: keras.Model) -> keras.Model:
    """Return a functional model of an author's class as a plain one, unless the class overrides `call`."""
    if type(model) is not Functional and has_functional_call(model):
        return keras.Model(model.input, model.output, name=model.name)
    return model


def _select_inputs(model: keras.Model, inputs: Any) -> Any:
    """Return the entries of a dictionary of inputs that a functional model takes, in the structure that it declares.

    Keras finds inputs by their names if the model declares one input, a list of inputs, or a dictionary. ``inputs`` are
    returned unchanged if they are no dictionary, if one of the declared inputs is not among them, if the model declares
    another structure, and if it is not functional or its class overrides `call`.
    """
    if not has_functional_call(model) or not isinstance(inputs, dict):
        return inputs
    declared = model.input
    if isinstance(declared, keras.KerasTensor):
        return inputs.get(declared.name, inputs)
    if isinstance(declared, dict) and declared.keys() <= inputs.keys():
        return {name: inputs[name] for name in declared}
    if not isinstance(declared, list | tuple) or not all(
        isinstance(tensor, keras.KerasTensor) and tensor.name in inputs for tensor in declared
    ):
        return inputs
    return [inputs[tensor.name] for tensor in declared]


def _find_inputs(model: keras.Model, example: Any, called_with: Any) -> Any:
    """Return inputs that the model accepts, as a batch of one: the example, or other inputs if it does not fit.

    If a functional or Sequential model declares other inputs, they are zeros. If a subclassed model's own steps call it
    with other inputs, ``called_with``, they are those; None means with no others. The example itself is returned where
    it fits, not a copy.
    Raises: NotExportable: if the model declares texts that are not those of the data.
    """
    if not isinstance(model, Functional | keras.Sequential):
        if called_with is None or _have_same_structure(called_with, example):
            return example
        return called_with
    if isinstance(model, Functional):
        declared = model.input
    else:
        declared = model.inputs[0]
    given = keras.tree.flatten(example)
    leaves = keras.tree.flatten(declared)
    if len(leaves) == len(given) and all(map(_input_accepts, leaves, given)):
        return example
    if any(leaf.dtype == "string" for leaf in leaves):
        raise NotExportable(
            "the model reads texts that are not those of the data, so that there is nothing to try it with"
        )
    return keras.tree.map_structure(_make_zeros, declared)


def _make_zeros(declared: Any) -> np.ndarray[Any, Any]:
    """Return zeros for a declared input, in its type: a batch of one example, whose unknown sizes are 1."""
    sizes = [size or 1 for size in declared.shape[1:]]
    return np.zeros([1, *sizes], declared.dtype)


def _have_same_structure(first: Any, second: Any) -> bool:
    """Return whether two examples have the same structure and shapes, without the axis of examples.

    Types may differ, as Keras casts numbers.
    """
    try:
        keras.tree.assert_same_structure(first, second)
    except ValueError:
        return False
    pairs = zip(keras.tree.flatten(first), keras.tree.flatten(second), strict=True)
    return all(a.shape[1:] == b.shape[1:] for a, b in pairs)


def _input_accepts(declared: Any, leaf: Any) -> bool:
    """Return whether the shape of ``leaf`` fits this declared input, up to axes of size 1 and the axis of examples.

    Keras itself adds or drops a last axis of size 1. An unknown size of the input, None, fits any. Types are not
    compared.
    """
    expected = [size for size in declared.shape[1:] if size != 1]
    sizes = [size for size in leaf.shape[1:] if size != 1]
    if len(expected) != len(sizes):
        return False
    return all(a is None or a == b for a, b in zip(expected, sizes, strict=True))


def _cast_outputs_to_float32(model: keras.Model, example: Any) -> keras.Model:
    """Return the model or, if any of its outputs is float16 or bfloat16, a model around it with float32 outputs.

    All outputs of floats are cast then. ``example`` is a batch of inputs, which gives their shapes and types.
    """
    outputs = keras.tree.flatten(model(keras_corrections.make_symbolic(example)))
    if all(str(output.dtype) not in HALF for output in outputs):
        return model
    inputs = keras.tree.map_structure(
        lambda leaf: keras.Input(leaf.shape[1:], dtype=str(leaf.dtype)), example
    )
    wide = keras.tree.map_structure(
        lambda tensor: keras.layers.Activation("linear", dtype="float32")(tensor), model(inputs)
    )
    return keras.Model(inputs, wide, name=f"{model.name}_float32")


def add_features(author: Author, trial: ReadyTrial, plain: Plain, data: AuthorData) -> Plain:
    """Return the trained model with the author's frozen model in front of it, if features were cached.

    In this case, `data` runs once more, for the inputs on which exports are compared: they become ``raw_inputs`` of the
    result, and the first of them its ``example``. Otherwise, or if there is no frozen model, ``plain`` itself is
    returned. ``author`` must have the attributes that `data` has left.
    """
    if not features.are_cached(author, trial.hp):
        return plain
    front = features.make_front_model(author, trial.hp)
    if front is None:
        return plain
    inputs = data.load_raw_inputs(author, trial.hp, trial.assignment)
    example = tf.nest.map_structure(lambda leaf: leaf[:1], inputs)
    model = features.chain_models(front, plain.model, example)
    return replace(plain, model=model, example=example, raw_inputs=inputs)
