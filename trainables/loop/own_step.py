"""The step for an author's own `train_step`, which returns losses; `update.py` takes gradients and applies them.

Gradients are therefore those of the whole batch, and are unscaled, clipped and applied as for compiled losses, with any
number of networks, optimizers, replicas and micro-batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables import keras_private
from trainables.data.passes import gather_examples
from trainables.devices.replicas import Replicas, gather_rows
from trainables.loop.correcting import correct_networks, correct_optimizer
from trainables.loop.intake import Example, Intake
from trainables.loop.own_methods import list_leaves
from trainables.loop.program import AuthorParts, ProgramOptions
from trainables.loop.steps import Shares, Step, trace_shapes
from trainables.loop.update import CALLS, Graph
from trainables.numbers.draws import EVALUATION
from trainables.recipe import author_updates, optimizers
from trainables.recipe.author import Author, overrides
from trainables.recipe.author_updates import Batch, Turn, Update
from trainables.recipe.refusals import Refused
from trainables.replicas import global_losses, keras_corrections
from trainables.replicas.global_losses import GlobalLoss, RecordedLoss
from trainables.replicas.slices import Mode, Slice
from trainables.state import program_variables

TOLD = "_step() gives {what!r} of {whole:.6g} for {size} examples and {parts:.6g} as the mean of their parts"
HINT = (
    "Return one number for each example; a loss that compares examples takes those of the whole batch from "
    "batch.gather()"
)

Own: TypeAlias = Callable[[Batch], Mapping[str, Any]]


class AuthorStep(Step):
    """Computes a slice by the author's `train_step`, and by `test_step` if there is one."""

    def __init__(
        self,
        model: keras.Model,
        losses: Sequence[GlobalLoss | RecordedLoss],
        steps: tuple[Own, Own | None],
        turns: tuple[Turn, ...],
        networks: Sequence[keras.Layer],
        *,
        micro_batches: int,
    ) -> None:
        """Create the step with the author's methods for training and evaluation.

        ``steps`` has the author's `train_step` and `test_step` (None if not overridden) as functions of a `Batch`.
        ``losses`` are the compiled losses, by which evaluation is computed without a `test_step`; empty if there are
        none. ``networks`` has all networks that take part, trained or not. ``micro_batches`` is the number of parts of
        each replica's batch.
        """
        super().__init__(model, losses)
        self._train_step, self._test_step = steps
        self.turns = turns
        self._networks = networks
        self._micro_batches = micro_batches
        # names of the values of training (True) and evaluation, found by `prepare` and `prepare_evaluation`
        self._value_names: dict[bool, tuple[str, ...]] = {True: (), False: ()}
        # has True if `train_step` calls `Batch.measure`, and False if `test_step` does; known once they are traced
        self._modes_with_metrics: set[bool] = set()
        # the following three are set by `prepare`
        self._check_losses: Callable[[Slice], None]
        self._run_on_replicas: Callable[..., Any]  # calls a function on the replicas
        self._example: Any  # of the training data

    @property
    def networks(self) -> Sequence[keras.Layer]:
        """The model and all other networks that take part, trained or not."""
        return self._networks

    @property
    def _is_compiled(self) -> bool:
        """Whether evaluation uses the compiled losses and metrics."""
        return self._test_step is None and keras_private.compiled_loss(self.model) is not None

    def prepare(self, replicas: Replicas, intake: Intake, example: Any) -> None:
        """Find the names of the values that `train_step` returns, by traces that are thrown away.

        Must be called before anything is trained. ``example`` is a batch of one. The traces also find out whether the
        step measures metrics, see `counts_metrics`. Raises Refused if the step returns something wrong.
        """
        self._check_losses = intake.check_losses
        self._run_on_replicas, self._example = replicas.run, example
        # only names matter here; `loss` is the sum that the loop reports
        trained: dict[str, Any] = {"loss": None}
        for turn in self.turns:
            trained |= trace_shapes(
                functools.partial(self._compute_shares, turn=turn, counts=True),
                replicas.run,
                intake,
                example,
            )
        self._value_names = {True: tuple(trained), False: ()}

    def prepare_evaluation(self, example: Any | None) -> None:
        """Find the names of the values that `test_step` returns, by a trace as in `prepare`.

        ``example`` is of the validation data, which may have targets or weights that the training data have not, or the
        other way round; without validation data it is None, and the example of training is used. Raises Refused if the
        step returns something wrong, or if `metrics` is defined and neither a step nor the evaluation updates the
        metrics.
        """
        if self._test_step is not None:
            compute = functools.partial(self._compute_shares, turn=(), counts=True)
            found = trace_shapes(
                compute, self._run_on_replicas, None, self._example if example is None else example
            )
            self._value_names[False] = tuple(found)
        if keras_private.has_compiled_metrics(self.model) and not (
            self._modes_with_metrics or self._is_compiled
        ):
            raise Refused(
                "metrics() are never counted: call batch.measure(outputs) in train_step() or test_step()"
            )

    def zeros(self, *, training: bool) -> Shares:
        """Return zeros, by name, from which the values of an epoch or a validation are summed.

        Training has the values that `train_step` returns and ``loss``, the sum of those that are minimised. Evaluation
        has the values that `test_step` returns or, without one, the compiled losses. `prepare` must have been called,
        and for evaluation `prepare_evaluation`.
        """
        if not training and self._test_step is None:
            return super().zeros(training=False)
        return {name: tf.constant(0.0) for name in self._value_names[training]}

    def counts_metrics(self, *, training: bool) -> bool:
        """Return whether training (or evaluation, if ``training`` is False) updates the metrics.

        It is known after `prepare_evaluation`: a step does so by `Batch.measure`, and an evaluation by compiled losses
        always does.
        """
        return training in self._modes_with_metrics or (self._is_compiled and not training)

    def refuse_untrained(self, update: Update) -> None:
        """Raise Refused, because the loss of ``update`` depends on none of the weights that it trains."""
        raise Refused(
            f"train_step() returns {update.loss!r}, which depends on none of the weights it trains"
        )

    def losses(
        self, cut: Slice, example: Example, turn: Turn, *, counts: bool
    ) -> tuple[Shares, Callable[[], None]]:
        """Return a slice's contributions to the values of `train_step` for one turn, and a function that does nothing.

        A turn is a tuple of updates that are applied at once. In other steps, the function updates the metrics; here,
        `Batch.measure` has done so if ``counts`` is True and the author's method calls it. Raises Refused as
        `_compute_shares`.
        """
        return self._compute_shares(cut, example, turn, counts=counts), lambda: None

    def run_model(self, cut: Slice, example: Example) -> None:
        """Call the author's `train_step` on a slice, because it may call the model with other inputs than x.

        Only what the call changes matters, such as moving statistics; the losses are thrown away, and metrics are not
        updated. It is called for the first turn that trains a weight of the model or, if there is none, for the first
        turn.
        """
        of_model = {id(weight) for weight in self.model.trainable_variables}
        chosen = self.turns[0]
        for turn in self.turns:
            trained = {id(weight) for update in turn for weight in update.variables}
            if of_model & trained:
                chosen = turn
                break
        self._compute_shares(cut, example, chosen, counts=False)

    def evaluate(self, cut: Slice, example: Example, *, training: bool) -> Shares:
        """Return a slice's contributions to the values of `test_step`, or to the compiled losses if there is none.

        The metrics are updated with the slice, by a `test_step` only if it calls `Batch.measure`. ``training`` has no
        effect.
        """
        if self._test_step is None:
            return self.evaluate_compiled(cut, example)
        return self._compute_shares(cut, example, (), counts=True)

    def _compute_shares(self, cut: Slice, example: Example, turn: Turn, *, counts: bool) -> Shares:
        """Call the author's method for a slice; return the slice's contributions to the batch's means, by name.

        An empty ``turn`` means evaluation by `test_step`, which must be defined. `Batch.measure` updates the metrics if
        ``counts`` is True. A row that stands in for an empty slice contributes nothing. Raises Refused if the method
        ignores sample weights, uses only one of two mixed labels, returns no dictionary or lacks a loss of ``turn``,
        measures metrics that are not defined, or needs a whole batch that is cut into micro-batches.
        """
        x, y, sample_weight = example
        training = bool(turn)

        # what `Batch.measure` does, which the author's method may call
        def measure(predicted: Any) -> None:
            if not keras_private.has_compiled_metrics(self.model):
                raise Refused("batch.measure() has nothing to count; define metrics()")
            self._modes_with_metrics.add(training)
            if counts:
                self.count_metrics(cut, example, predicted)

        batch = Batch(
            x,
            y,
            sample_weight,
            cut.draws,
            turn="+".join(update.loss for update in turn),
            first=cut.start,
            size=cut.size,
            gather=functools.partial(self._gather_batch, cut),
            measure=measure,
            one_hot=functools.partial(_encode_one_hot, cut, y),
        )
        step: Callable[[Batch], Mapping[str, Any]] | None
        if training:
            name, step = "train_step", self._train_step
        else:
            name, step = "test_step", self._test_step
        means = author_updates.average_values(step(batch), name)  # type: ignore[misc]  # only called if it is not None
        if sample_weight is not None and not batch.weight_was_read:
            raise Refused(
                f"the examples have weights (of the data, or class_weights), and {name}() does not read "
                "batch.sample_weight; multiply its losses by them"
            )
        if batch.y_was_read:
            self._check_losses(cut)
        missing = [update.loss for update in turn if update.loss not in means]
        if missing:
            raise Refused(
                f"train_step() returned {', '.join(means)}, expected {' and '.join(missing)} among them"
            )
        if self._micro_batches > 1 and self.counted_first:
            raise Refused(
                f"{name}() has a masked or weighted mean, whose divisor micro_batches do not know; leave them"
            )
        if cut.parts == 1:  # the slice is the batch
            return means
        return {key: cut.share_of(mean) for key, mean in means.items()}

    def _gather_batch(self, cut: Slice, values: Any) -> Any:
        """Return the rows of ``values``, a nested structure, of all replicas together, in the order of the batch.

        ``values`` itself is returned if the slice is the whole batch. Raises Refused if the batch is cut into
        micro-batches.
        """
        if cut.parts == 1:
            return values
        if self._micro_batches > 1:
            raise Refused(
                "batch.gather() needs the whole batch, which micro_batches compute part by part; leave them"
            )
        # A row that stands in for an empty slice is left out.
        return gather_rows(tf.nest.map_structure(lambda leaf: leaf[: cut.count], values))

    def modes(self, intake: Intake, *, validates: bool) -> list[Mode]:
        """Return the modes that `additivity.check_parts` tests: each distinct turn and, with ``validates``, evaluation.

        A turn is a tuple of updates that are applied at once; one that is repeated for a batch is tested once. There is
        no mode for evaluation if it has neither a `test_step` nor compiled losses.
        """
        turns = {}  # from the last place to the first, which is then kept for a turn that is repeated
        for place, turn in reversed(list(enumerate(self.turns))):
            turns[id(turn)] = (place, turn)
        modes = []
        for place, turn in turns.values():
            modes.append(
                Mode(
                    "training",
                    functools.partial(self._run_turn_for_test, intake, turn=turn),
                    calls=place * CALLS,  # as in training, each turn has draws of its own
                    totals=self.counted_first,
                    told=f"train{TOLD}",
                    hint=HINT,
                )
            )
        if validates and self._test_step:
            modes.append(
                Mode(
                    "evaluation",
                    functools.partial(self._run_turn_for_test, intake, turn=()),
                    training=False,
                    calls=EVALUATION,
                    totals=self.counted_first,
                    told=f"test{TOLD}",
                    hint=HINT,
                )
            )
        if validates and self._is_compiled:
            modes.append(self.compiled_mode(intake, training=False))
        return modes

    def _run_turn_for_test(
        self, intake: Intake, tensors: Any, rows: tf.Tensor, cut: Slice, *, turn: Turn
    ) -> Shares:
        """Compute a slice for `additivity.check_parts`, and update the metrics if the author's method does.

        ``rows`` has the row numbers of the whole batch in ``tensors``, and ``cut`` says which of them are the slice.
        Return the slice's contributions to the batch's means by name. An empty ``turn`` means evaluation by
        `test_step`, without augmentation.
        """
        if turn:
            example = intake.take(tensors, rows, cut)
        else:
            example = gather_examples(tensors, rows[cut.start : cut.stop])
        return self._compute_shares(cut, example, turn, counts=True)


def _encode_one_hot(cut: Slice, labels: Any, classes: int) -> tf.Tensor:
    """Return the whole-number ``labels`` of the slice ``cut`` one-hot, with ``classes`` columns as the last axis.

    For an example that mixup or cutmix has mixed, the columns of both its labels have their shares, which add up to 1.
    That these labels are mixed is only known if ``labels`` is the very tensor that `Intake.take` returned as targets.
    It is then recorded in ``cut`` that both labels were used, so that `Intake.check_losses` does not raise Refused.
    """
    mixture = cut.mixture(labels)
    if mixture is None:
        return tf.one_hot(labels, classes)
    mixture.lost = True
    # one number per row, with as many axes as the result
    share = tf.reshape(mixture.share, [-1, *[1] * labels.shape.rank])
    return share * tf.one_hot(mixture.own, classes) + (1 - share) * tf.one_hot(
        mixture.other, classes
    )


def build_graph(made: AuthorParts, options: ProgramOptions, intake: Intake, example: Any) -> Graph:
    """Return the graph that trains by the author's `train_step`.

    Corrects the networks and optimizers of ``made``, builds the optimizers' variables and compiles the model. If
    ``made`` has a loss, which then validates, the model's losses are replaced. The optimizer's own averaging of weights
    is turned off; the graph averages instead. ``example`` is one example after augmentation, as a batch of one. Raises
    Refused or NotInScope for options and networks that cannot be trained in this way, and ValueError if a loss weight
    is for an output without a loss.
    """
    author = made.author
    parts = made.parts
    present = options.present
    replicas = options.placement.replicas
    model = parts.model
    optimizer = parts.optimizer
    networks = _list_networks(model, made.turns, options.kept)
    if present().flag("gradient_checkpointing", default=False):
        raise Refused(
            "gradient_checkpointing is set, which does not reach into a train_step() of your own"
        )
    for network in networks:
        if isinstance(network, keras.Model) and not network.built:
            raise Refused(
                f"network {network.name!r} has no weights yet; give it a keras.Input, or call it once"
            )
    correct_networks(networks, options, fit=False)
    for update, its_own in author_updates.list_optimizers(made.turns, optimizer):
        correct_optimizer(its_own, update.variables, made, fit=False)
        if update.optimizer is not None and its_own.use_ema and its_own is not optimizer:
            raise Refused(
                f"the optimizer of Update({update.loss!r}) averages weights, which only the trial's own may"
            )
        its_own.build(update.variables)
    has_loss = parts.options.get("loss") is not None
    if has_loss:
        keras_corrections.weight_added_losses(model)
    model.compile(optimizer=optimizer, **parts.options, auto_scale_loss=False)
    losses: tuple[Any, ...] = ()  # of validation, if it has no `test_step`
    if has_loss:
        keras_corrections.create_variables(model, author.first_example)
        losses = global_losses.replace_losses(
            model, parts.loss_weights, example, whole=options.whole
        )
    elif author.validates and not overrides(author, "test_step"):
        raise Refused(
            f"{type(author).__name__} has validation data and neither a loss() nor a test_step() to validate with; "
            "define one, or return None as validation data"
        )
    program_variables.check_scope(model, replicas)
    train_step = functools.partial(_call_author, author, "train_step", model, present)
    test_step = None
    if overrides(author, "test_step"):
        test_step = functools.partial(_call_author, author, "test_step", model, present)
    micro_batches = options.recipe.micro_batches
    step = AuthorStep(
        model, losses, (train_step, test_step), made.turns, networks, micro_batches=micro_batches
    )
    # the momentum of the optimizer's own averaging, which this turns off, because the graph averages instead
    momentum = optimizers.disable_averaging(optimizer)
    return Graph(step, replicas, author.live, options.recipe, intake, own_average=momentum)


def _call_author(
    author: Author,
    method: str,
    model: keras.Model,
    present: Callable[[], Hyperparameters],
    batch: Any,
) -> Any:
    """Return what the author's `train_step` or `test_step`, named by ``method``, returns for a batch.

    The method gets the hyperparameters that ``present()`` returns now.
    """
    return getattr(author, method)(model, batch, present())


def _list_networks(
    model: keras.Model, turns: Sequence[Turn], attributes: Mapping[str, object]
) -> list[keras.Layer]:
    """Return the trial's model first, all layers and models in ``turns``, and those in ``attributes``, each once.

    Dictionaries, lists and tuples among the ``attributes`` are searched as well, but not the layers inside others.
    """
    trained = [part for turn in turns for update in turn for part in keras.tree.flatten(update.of)]
    found = []
    for part in (model, *trained, *list_leaves(attributes)):
        if isinstance(part, keras.Layer):
            found.append(part)
    return list({id(part): part for part in found}.values())
