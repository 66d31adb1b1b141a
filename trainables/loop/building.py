"""Building of a program from a trainable: its model, optimizer, loss and metrics, compiled and ready to train."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Container, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from sweep.contract import OutOfMemory
from sweep.hyperparameters import Hyperparameters, Reads
from trainables import keras_private
from trainables.devices.parameter_server import PARAMETER_SERVER
from trainables.devices.replicas import Replicas, in_scope_of_servers
from trainables.loop import own_methods
from trainables.loop.correcting import correct_networks, correct_optimizer
from trainables.loop.graph_program import GraphProgram
from trainables.loop.intake import Intake
from trainables.loop.program import AuthorParts, Program, ProgramOptions
from trainables.loop.steps import CompiledStep
from trainables.loop.update import Graph, Recipe
from trainables.recipe import clipping, groups, optimizers, refusals
from trainables.recipe.author import Author, overrides
from trainables.replicas import global_losses, keras_corrections, random_layers
from trainables.state import constants, origins, program_variables, weights
from trainables.state.initial import InitialModel
from trainables.state.origins import CreatedVariables


def build_model(
    author: Author, hp: Hyperparameters, seed: int, joined: Callable[..., keras.Model] | None = None
) -> keras.Model:
    """Return the author's model with the initial weights of a trial, and with the layers frozen that ``hp`` freezes.

    Seeds `random` and `np.random` with ``seed`` for the whole process. A frozen model from `features` whose outputs are
    not cached is put in front by ``joined(frozen, model, inputs)``, by default `features.join_models`. A model without
    weights is called with symbolic inputs, which creates them. A model whose own `train_step` must create weights is
    returned without these and without frozen layers, see `make_weights_by_step`. A Sequential model accepts batches of
    any size. Raises TypeError if `model` returns anything but a `keras.Model`, ValueError for a wrong
    ``frozen_layers``, Refused if the models cannot be joined, and whatever the author's methods raise.
    """
    # Keras draws the seeds of initializers and random layers from `random`. Seeding TensorFlow as well would empty its
    # kernel cache and cost seconds per trial. The author's own draws come from `random` and `np.random`.
    random.seed(seed)
    np.random.seed(seed)
    keras_corrections.number_layers_anew()  # default names, such as dense_1, must not depend on earlier trials
    with weights.caching_weights():
        model = author.model(hp)
    if not isinstance(model, keras.Model):
        raise TypeError(f"model() returned {type(model).__name__}, expected a keras.Model")
    if overrides(author, "features"):
        model = _join_front_model(author, hp, model, joined)
    # A subclassed model, or a Sequential model without an input shape, has no weights before it is called.
    needs_call_for_weights = (
        not model.built
        and refusals.list_overridden_methods(model, "call")
        and not own_methods.trains_itself(model)
    )
    # The default loss depends on the outputs, which this model has only once it is called.
    needs_call_for_loss = (
        own_methods.lacks_weights(model)
        and isinstance(model, keras.Sequential)
        and type(author).loss is Author.loss
    )
    if needs_call_for_weights or needs_call_for_loss:
        model(keras_corrections.make_symbolic(author.first_example[0]))
    if isinstance(model, keras.Sequential):
        _free_batch_size(model)
    if not own_methods.lacks_weights(model):
        groups.freeze_layers(model, hp)
    return model


def _join_front_model(
    author: Author,
    hp: Hyperparameters,
    model: keras.Model,
    joined: Callable[..., keras.Model] | None,
) -> keras.Model:
    """Return one model that applies the frozen model of `features` and then ``model``, made by ``joined``.

    ``model`` itself is returned if there is no frozen model, or if its outputs are cached and thus in the data.
    ``joined`` is called with the frozen model, ``model`` and the inputs of one example; by default it is
    `features.join_models`.
    """
    from trainables.recipe import features

    if features.are_cached(author, hp):
        return model
    front = features.make_front_model(author, hp)
    if front is None:
        return model
    join = joined or features.join_models
    return join(front, model, author.first_example[0])


def _free_batch_size(model: keras.Sequential) -> None:
    """Change the input of a Sequential model, if its batch size is fixed, so that it accepts batches of any size.

    Keras fixes it when a model is built by a call with examples or for their shape, although it then trains and
    predicts with other sizes as well. The layers and their weights stay the same. Nothing is done if the model is not
    built, or if its input has no axes.
    """
    inputs = getattr(model, "inputs", None)  # absent if Keras knows no single shape of them
    if not inputs:
        return
    batch_axis = inputs[0].shape[:1]  # () for an input without axes
    if batch_axis in ((), (None,)):
        return
    # Take all layers off, the last one first. `model.layers` leaves out the InputLayer, which is popped as well.
    layers = [model.pop(rebuild=False) for _ in range(len(model.layers) + 1)]
    input_layer = layers.pop()
    free_shape = (None, *input_layer.batch_shape[1:])
    layers.append(
        keras.layers.InputLayer(
            batch_shape=free_shape,
            dtype=input_layer.dtype,
            sparse=input_layer.sparse,
            ragged=input_layer.ragged,
            name=input_layer.name,
        )
    )
    for layer in reversed(layers):
        model.add(layer, rebuild=layer is layers[0])  # build the model once, with its last layer


def make_weights_by_step(
    author: Author, hp: Hyperparameters, model: keras.Model, record: CreatedVariables
) -> None:
    """Create the weights of a model that only its own `train_step` creates, by tracing that step; freeze its layers.

    No numbers are computed. A model that is not compiled is compiled for the trace with a temporary optimizer and
    metrics, whose variables are removed from ``record``, and counts as not compiled afterwards. ``record`` also gets
    the variables that the step creates. Call this inside the strategy's scope. Raises Refused for a model that its own
    step cannot train, and ValueError for a wrong ``frozen_layers``.

    Nothing is done, not even layers are frozen, in three cases, each of which `build_program` refuses later: the author
    has a `train_step`, the model has its own `compile` and is not compiled, or the trial trains on parameter servers.
    """
    has_own_compile = bool(refusals.list_overridden_methods(model, "compile"))
    is_refused_later = (
        (has_own_compile and not model.compiled)
        or own_methods.overrides_train_step(author)
        or in_scope_of_servers()
    )
    if is_refused_later:
        return
    from trainables.loop import first_trace

    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    refusals.check_fit(model, replicas, validates=author.validates)
    count_before = len(record.created)
    if model.compiled:  # `model` has compiled it, with the optimizer and the metrics of the trial
        first_trace.make_weights(author, hp, model)
    else:
        optimizer = author.optimizer(hp)
        model.compile(optimizer=optimizer, **own_methods.get_compile_options(author, hp, model))
        first_trace.make_weights(author, hp, model)
        temporary = set()  # ids of the `tf.Variable`s of the temporary optimizer and metrics
        for v in (*optimizer.variables, *model.metrics_variables):
            temporary.add(id(program_variables.unwrap_variable(v)))
        record.created[count_before:] = [
            raw for raw in record.created[count_before:] if id(raw) not in temporary
        ]
        keras_private.mark_uncompiled(model)  # otherwise it would seem that `model` has compiled it
    groups.freeze_layers(model, hp)


def _list_groups(
    author: Author, hp: Hyperparameters, model: keras.Model, read: Container[str], *, own: bool
) -> Sequence[groups.Group | groups.Rated]:
    """Return the groups of weights that are trained in ways of their own: what the author's `groups` returns.

    ``own`` is True if the optimizer came with the compiled model or with the updates of `train_step`, and ``read``
    names the hyperparameters that the author's code has read. If ``own`` is True and the author does not override
    `groups`, the layer rates among these are left out, because the author's optimizers use them.
    """
    if own and not overrides(author, "groups"):
        return groups.read_layer_rates(hp, author.live, model, left_out=read)
    return author.groups(hp, model)


def make_author_parts(
    author: Author, hp: Hyperparameters, seed: int, record: CreatedVariables
) -> AuthorParts:
    """Call the author's methods that make a model and its optimizer, loss and metrics; return their results.

    Seeds `random` and `np.random` with ``seed``. Call this inside the strategy's scope, with the trial's precision,
    while ``record`` records variables. If `model` returns a compiled model, its optimizer, loss and metrics are used;
    if there are groups of weights, the optimizer becomes a `groups.GroupedOptimizer`. Nothing is compiled for training
    yet. Raises what `build_model` and `make_weights_by_step` raise, Refused if the methods contradict each other,
    Undecided if there is no default loss, and `origins.StaleVariable` for a model that has a variable of an earlier
    trial.
    """
    keras_corrections.allow_number_conversion()
    count_before = len(record.created)
    optimizer_reads: Reads = {}  # what the code that makes the optimizer reads, possibly the learning rate
    author_reads: Reads = {}  # what the author's code for the model and its optimizers reads
    with (
        random_layers.replacing_unseeded_draws() as unseeded_draws,
        keras_corrections.counting_seeds() as keras_seeds,
    ):
        has_optimizer_method = type(author).optimizer is not Author.optimizer
        # Without an `optimizer` method, an optimizer of the author's may come from `model`, which compiles with it.
        with (
            hp.recording(author_reads),
            nullcontext() if has_optimizer_method else hp.recording(optimizer_reads),
        ):
            with keras_private.marking_unasked_jit():
                model = build_model(author, hp, seed)
            asked_jit = keras_corrections.get_asked_jit(model) if model.compiled else None
        if own_methods.lacks_weights(model):
            make_weights_by_step(author, hp, model, record)
        # before our `compile`, which adds attributes of Keras's
        model_constants = constants.collect_constants(model)
        count_with_model = len(record.created)
        variables = {}
        for variable in model.variables:
            variables[variable.path] = variable.value
        # A layer that a module made before all trials starts anew in each; one of an earlier trial is refused.
        program_variables.reset_shared_variables(variables.values())
        origins.refuse_stale(variables, record)
        with hp.recording(optimizer_reads), hp.recording(author_reads):
            # None unless `model` has compiled the model
            compile_arguments = _get_author_compile_arguments(author, model)
            turns = own_methods.list_turns(author, hp, model)
            # the optimizer that came with `compile` or with the updates of `train_step`; None if none did
            optimizer = (compile_arguments or {}).pop("optimizer", None)
            optimizer = optimizer or own_methods.first_optimizer(turns)
        live_reads = author.live.names  # records such as `author_reads` have no live reads
        # The standard optimizer is not the author's code: what it reads is left out of `author_reads`.
        with (
            hp.recording(optimizer_reads),
            hp.recording(author_reads) if has_optimizer_method else nullcontext(),
        ):
            own_optimizer = optimizer is not None or has_optimizer_method
            if optimizer is None:
                make_copy = functools.partial(author.optimizer, hp)
            else:
                make_copy = None  # an optimizer that came with `compile` or `updates` cannot be made once more
            optimizer = optimizer or author.optimizer(hp)
        weight_groups = _list_groups(
            author, hp, model, {*author_reads, *live_reads}, own=make_copy is None
        )
        optimizer = groups.combine_optimizers(optimizer, make_copy, model, weight_groups)
        if compile_arguments is None:
            options = own_methods.get_compile_options(author, hp, model)
            weighted = author.weighted_metrics(hp, model)
            if weighted is not None:
                options["weighted_metrics"] = weighted
            loss_weights = author.loss_weights(hp)
        else:
            options, loss_weights = compile_arguments, {}
        # Variables of live numbers have the trial's hyperparameters, not initial values.
        live = set(map(id, author.live.variables))
        created = tuple(raw for raw in record.created[count_before:] if id(raw) not in live)
        parts = InitialModel(
            model,
            optimizer,
            options,
            loss_weights,
            created,
            record,
            created_by_model=tuple(record.created[count_before:count_with_model]),
            constants=model_constants,
        )
    # An own optimizer follows the loop's rate only if the trial has a learning rate that its code does not read.
    keeps_rate = own_optimizer and ("learning_rate" in optimizer_reads or "learning_rate" not in hp)
    return AuthorParts(
        author,
        hp,
        parts,
        turns,
        own_optimizer=own_optimizer,
        keeps_rate=keeps_rate,
        by_itself=own_methods.describe_own_steps(author, model),
        read=frozenset({*author_reads, *live_reads}),
        drew=unseeded_draws.drew or _has_drawn(seed, keras_seeds.given),
        jit_compile=asked_jit,
    )


def _has_drawn(seed: int, seeds_drawn: int) -> bool:
    """Return whether `random` or `np.random` has drawn numbers since both were seeded with ``seed``.

    The ``seeds_drawn`` seeds that Keras has drawn from `random` do not count. Seeding either of them with another seed
    counts as drawing. No state is changed.
    """
    # without a bit generator it would ask the machine for a seed
    fresh = np.random.RandomState(np.random.MT19937(0))
    fresh.seed(seed)
    state_when_seeded = fresh.get_state(legacy=False)
    state_now = np.random.get_state(legacy=False)
    if not isinstance(state_when_seeded, dict) or not isinstance(state_now, dict):
        return True  # a precaution: with legacy=False, states are dictionaries
    # `key` has the random words that are made at once, and `pos` the next one to be used.
    if state_when_seeded["state"]["pos"] != state_now["state"]["pos"]:
        return True
    if (state_when_seeded["state"]["key"] != state_now["state"]["key"]).any():
        return True
    # Keras itself draws seeds from `random`: after as many draws, the states are equal unless somebody else drew.
    replayed = random.Random(seed)
    for _ in range(seeds_drawn):
        replayed.randint(*keras_corrections.SEEDS)
    return replayed.getstate() != random.getstate()


def make_recipe(
    hp: Hyperparameters, dtype: str, accumulate: int, *, batch_size: int, replicas: Replicas
) -> Recipe:
    """Return the settings of a trial that are fixed in its graph.

    ``batch_size`` is that of all replicas together. Each replica's part of a batch is cut into as many micro-batches as
    the hyperparameter ``micro_batches`` says, times ``accumulate``, which is above 1 if the trial ran out of memory
    before. The loss is scaled if the policy ``dtype`` is ``"mixed_float16"``. Raises OutOfMemory if ``accumulate`` is
    above 1 and a batch has not one example for each micro-batch of each replica, and ValueError if ``swa_from`` and
    ``ema_momentum``, or two kinds of clipping, are both set. Without ``accumulate``, more micro-batches than examples
    are accepted.
    """
    number = replicas.number
    micro_batches = hp.integer("micro_batches", 1, standard=True)
    # The author's own `micro_batches` may exceed the examples, but cutting beyond single examples saves no memory.
    if accumulate > 1 and micro_batches * accumulate * number > batch_size:
        raise OutOfMemory(
            f"a batch of {batch_size} on {number} replicas does not fit in micro-batches of 1 either"
        )
    if "swa_from" in hp and "ema_momentum" in hp:
        raise ValueError(
            "swa_from and ema_momentum are both set, expected one average of the weights at most"
        )
    return Recipe(
        clipping=clipping.list_kinds(hp),
        micro_batches=micro_batches * accumulate,
        scale_loss=dtype == "mixed_float16",
        average="ema_momentum" in hp,
        sharpness="sam_rho" in hp,
        by_epoch="swa_from" in hp,
    )


def build_program(made: AuthorParts, options: ProgramOptions) -> Program:
    """Return the program that trains a model: by our loop, by `Model.fit` or on parameter servers.

    The model is compiled, and its losses and layers are changed as the loop needs them. The strategy in ``options``
    chooses parameter servers. Otherwise, `Model.fit` trains if ``options.fit`` is True, or if a model has its own steps
    and a callback has methods for single batches. `Program.compile` must be called before it trains. Call this once for
    each ``made``, inside the strategy's scope, with the trial's precision. Raises Refused, NotInFit or NotInScope for a
    combination of options and methods that cannot be trained, ValueError if a loss weight is for an output without a
    loss, and OutOfMemory if a batch would have to be cut further on parameter servers.
    """
    program = _build_program(made, options)
    program.list_hook_variables = functools.partial(
        own_methods.list_hook_variables, made.author, options.kept
    )
    return program


def _build_program(made: AuthorParts, options: ProgramOptions) -> Program:
    """Return the program of `build_program`, whose docstring has the details, without its `list_hook_variables`."""
    author = made.author
    parts = made.parts
    recipe = options.recipe
    replicas = options.placement.replicas
    own_methods.check_signatures(author)
    if recipe.by_epoch and groups.get_averaging_momentum(parts.optimizer) is not None:
        raise refusals.Refused(
            "swa_from is set, and the optimizer has use_ema, expected one average of the weights at most"
        )
    intake = Intake(author, options.present, made.hp)
    example = intake.trace_example(author.first_example, replicas)
    # `fit` trains a model's own steps as our loop does, so it may be chosen for callbacks that need it.
    fit = options.fit or bool(made.by_itself and options.callbacks.want_batches)
    # whether steps of Keras, or of the model itself, make the updates
    by_keras_steps = fit or bool(made.by_itself)
    traced_methods = _check_traced_methods(made, options, fit=fit)
    if options.placement.name == PARAMETER_SERVER:
        _refuse_on_servers(options, traced_methods, by_keras_steps=by_keras_steps)
        _correct_keras(made, options, by_keras_steps=False, fit=False)
        from trainables.loop.served_program import ServedProgram

        return ServedProgram(made, options, intake, example)
    jit_compile = options.jit_compile
    if made.turns and not fit:
        from trainables.loop import own_step

        graph = own_step.build_graph(made, options, intake, example)
    else:
        _correct_keras(made, options, by_keras_steps=by_keras_steps, fit=fit)
        if by_keras_steps and replicas.span_processes:
            what = "loop: fit" if fit else f"a model's own step ({made.by_itself})"
            raise refusals.Refused(
                f"{what} trains in one process, and the trial has several; leave it out"
            )
        if fit:
            from trainables.loop.fit_program import FitProgram

            return FitProgram(made, options, intake, example)
        if made.by_itself:
            graph = _build_keras_graph(made, options, intake, example)
            # As under `fit`, "may" does not compile a model's own step.
            jit_compile = jit_compile if jit_compile == "must" else ""
        else:
            graph = _build_graph(made, options, intake, example)
    graph.watch = own_methods.make_batch_hook(author, options.present, parts.model)
    graph.created = parts.created
    graph.prepare(author.first_example)  # also traces the hook in `watch`, if any
    program = GraphProgram(graph, parts, jit_compile)
    program.sets_no_rate = not made.follows_the_rate
    if recipe.by_epoch:
        from trainables.loop.epoch_average import EpochAverage

        first = author.live.number("swa_from", standard=True)
        program.by_epoch = EpochAverage(graph, first)
    return program


def _refuse_on_servers(
    options: ProgramOptions, traced_methods: Sequence[str], *, by_keras_steps: bool
) -> None:
    """Raise Refused if a trial on parameter servers has callbacks, steps of Keras or of the model, or traced methods.

    ``traced_methods`` has the names of the author's methods that our loop's graph would call.
    """
    if options.callbacks:
        raise refusals.Refused(
            "callbacks() returns Keras's callbacks, which cannot steer a model on parameter servers; use "
            "on_epoch_end()"
        )
    if by_keras_steps:
        what = "loop: fit"
    elif traced_methods:
        what = f"{' and '.join(traced_methods)}() of the trainable"
    else:
        return
    raise refusals.Refused(
        f"training.strategy is parameter_server, which has a loop of its own without {what}"
    )


def _check_traced_methods(made: AuthorParts, options: ProgramOptions, *, fit: bool) -> list[str]:
    """Return the names of those methods that the author overrides and that our loop traces into its graph.

    These are methods such as `train_step` and `on_train_batch_end`. Raises Refused if the training loop, which is
    `Model.fit` if ``fit`` is True, would not call one of them or a method of the trial's callbacks.
    """
    traced_methods = [name for name in refusals.TRACED if overrides(made.author, name)]
    refusals.check_methods(traced_methods, options.callbacks, fit=fit)
    if made.by_itself and "on_train_batch_end" in traced_methods:
        raise refusals.Refused(
            f"the trainable defines on_train_batch_end(), and {made.by_itself}, so that a step of the model or of "
            "Keras applies the gradients and does not call it; return the values to report from train_step() of the "
            "model, or write a train_step() of the trainable (docs/steps.md)"
        )
    return traced_methods


def _correct_keras(
    parts: AuthorParts, options: ProgramOptions, *, by_keras_steps: bool, fit: bool
) -> None:
    """Check a model and its optimizer before training, and correct what Keras would compute wrongly in our loop.

    ``by_keras_steps`` is True if Keras's or the model's own steps train the model; its optimizer is then neither
    checked nor kept from summing gradients. ``fit`` is True if `Model.fit` calls them. An optimizer that the author has
    not made stops decaying biases in any case. If the trial has ``gradient_checkpointing``, activations are recomputed
    for the gradients, and the optimizer waits for all gradients. Raises Refused for a model or an optimizer that cannot
    be trained in this way, and NotInScope for a model made outside of the strategy's scope.
    """
    author = parts.author
    model = parts.parts.model
    optimizer = parts.parts.optimizer
    if not fit:
        refusals.check_own_loop(model, validates=author.validates)
    correct_networks([model], options, fit=by_keras_steps)
    correct_optimizer(optimizer, model.trainable_variables, parts, fit=by_keras_steps)
    if parts.hp.flag("gradient_checkpointing", default=False):
        from trainables.replicas import recomputation

        # activations are recomputed from the weights before the update
        recomputation.finish_before_updates(optimizer)
        recomputation.recompute_activations(
            model, keras_corrections.find_layers_adding_losses(model, author.first_example)
        )


def _build_graph(made: AuthorParts, options: ProgramOptions, intake: Intake, example: Any) -> Graph:
    """Return the graph that trains a model by its compiled losses or, if it has none, by those that its layers add.

    Compiles the model, creates the variables of its optimizer and metrics, and replaces its losses. The optimizer's own
    averaging of weights is turned off; the graph averages instead. `_correct_keras` must have been called. ``example``
    is one example after augmentation, as a batch of one. Raises Refused if nothing gives a loss, NotInScope for
    variables that were made outside of the strategy's scope, and ValueError if a loss weight is for an output without
    a loss.
    """
    author = made.author
    parts = made.parts
    replicas = options.placement.replicas
    model = parts.model
    optimizer = parts.optimizer
    # the losses that layers add get the weight of their slice in the batch, in place of Keras's division by replicas
    keras_corrections.weight_added_losses(model)
    # the loop itself scales the loss
    model.compile(optimizer=optimizer, **parts.options, auto_scale_loss=False)
    # `replace_losses` needs losses that are built
    keras_corrections.create_variables(model, author.first_example)
    if parts.options.get("loss") is None:
        keras_corrections.check_added_losses(model, author.first_example)
    # with `whole`, each batch is a single slice, and Keras's own losses suffice
    losses = global_losses.replace_losses(model, parts.loss_weights, example, whole=options.whole)
    program_variables.check_scope(model, replicas)
    step = CompiledStep(model, losses, intake)
    # the momentum of the optimizer's own averaging, which this turns off, because the graph averages instead
    momentum = optimizers.disable_averaging(optimizer)
    return Graph(step, replicas, author.live, options.recipe, intake, own_average=momentum)


def _build_keras_graph(
    made: AuthorParts, options: ProgramOptions, intake: Intake, example: Any
) -> Graph:
    """Return the graph of a model with its own `train_step`, which applies gradients by its optimizer itself.

    Compiles the model. ``example`` is one example after augmentation, as a batch of one. Clipping and loss scaling are
    left to the model's optimizer. Raises NotInFit for options that such a step cannot do, and Refused for a model that
    it cannot train.
    """
    from trainables.loop import fit_program

    author = made.author
    parts = made.parts
    replicas = options.placement.replicas
    who = f"The model's own train_step, as {made.by_itself},"
    fit_program.check_options(
        options.recipe,
        replicas,
        parts.optimizer,
        example[1] if intake.mixes else (),
        who=who,
    )
    step = fit_program.keras_step(made, replicas, intake)
    return Graph(
        step, replicas, author.live, replace(options.recipe, clipping=(), scale_loss=False), intake
    )


def _get_author_compile_arguments(author: Author, model: keras.Model) -> dict[str, Any] | None:
    """Return the arguments with which the author's `model` has compiled its model, by name; None if it has not.

    They are those of `keras_corrections.get_compile_arguments`, with the optimizer as ``optimizer``. If the model
    defines its own `compile`, there is only ``optimizer``: the first one among the model's attributes, or None if there
    is none. For other compiled models, raises Refused if the author also overrides `optimizer`, `loss`, `loss_weights`,
    `metrics` or `weighted_metrics`.
    """
    if not model.compiled:
        return None
    if refusals.list_overridden_methods(model, "compile"):  # its compile() sets all that it needs
        for value in vars(model).values():
            if isinstance(value, keras.optimizers.Optimizer):
                return {"optimizer": value}
        return {"optimizer": None}
    kind = type(author)
    both = []
    for name in ("optimizer", "loss", "loss_weights", "metrics", "weighted_metrics"):
        if getattr(kind, name) is not getattr(Author, name):
            both.append(name)
    if both:
        raise refusals.Refused(
            f"model() returns a compiled model, and {kind.__name__} defines {' and '.join(both)}(); leave out one"
        )
    return keras_corrections.get_compile_arguments(model)
