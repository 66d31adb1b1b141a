"""Preparation of training examples inside the graph: they are gathered, augmented and mixed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.data.passes import gather_examples
from trainables.devices.replicas import Replicas
from trainables.numbers.draws import Draws
from trainables.recipe.author import Author, has_mixing
from trainables.recipe.refusals import Refused
from trainables.replicas import slices
from trainables.replicas.slices import Mixture, Slice

if TYPE_CHECKING:
    from trainables.numbers.live import Live
    from trainables.recipe.mixing import Mixed, Mixing

FORMS = (
    ("x", "hp", "draws"),
    ("x", "y", "hp", "draws"),
    ("x", "y", "sample_weight", "hp", "draws"),
)
ROWS = 3  # rows of the trace that checks what augment() returns

Example = tuple[Any, Any, Any]
"""x, y and sample_weight; the last two may be None."""


@dataclass(frozen=True, eq=False)
class PreparedExamples:
    """Examples prepared by `Intake.take`, with what their slice has recorded about them.

    `Intake.take` also accepts this in place of tensors, so that examples can be prepared outside of what XLA compiles.
    """

    tensors: Any  # x, y, sample_weight, and the labels of each mixture by position in y
    draws: Draws  # the slice's draws after the examples were prepared
    mixes: bool  # whether examples of the slice are mixed

    @classmethod
    def of(cls, example: Example, cut: Slice, draws: Draws) -> PreparedExamples:
        """Return ``example``, which `Intake.take` has prepared for the slice ``cut``, with the labels that were mixed.

        ``draws`` are the slice's draws afterwards.
        """
        targets = [] if example[1] is None else tf.nest.flatten(example[1])
        labels = {}
        for position, leaf in enumerate(targets):
            mixture = cut.mixture(leaf)  # None if this array was not mixed, or could be averaged
            if mixture:
                labels[position] = (mixture.own, mixture.other, mixture.share)
        return cls((*example, labels), draws, cut.mixes)

    def copy_to_slice(self, cut: Slice) -> Example:
        """Return x, y and sample_weight, and record in ``cut`` what the slice that prepared them has recorded.

        Missing ones are None. That is whether examples are mixed at all, the counts of draws (unless ``cut`` has no
        draws), and the mixed labels. The labels of each mixture are recorded under the tensor of the returned y that
        they belong to, because losses look them up by that tensor.
        """
        x, y, sample_weight, labels = self.tensors
        targets = tf.nest.flatten(y)
        cut.mixes = self.mixes
        if cut.draws is not None:
            cut.draws.follow(self.draws)
        # the tensors are others than those for which the first slice has recorded the labels
        for position, mixed in labels.items():
            cut.mixtures[id(targets[position])] = targets[position], Mixture(*mixed)
        return x, y, sample_weight


class Intake:
    """Prepares the examples of each slice of a training batch, independent of how the batch is cut."""

    def __init__(
        self, author: Author, present: Callable[[], Hyperparameters], hp: Hyperparameters
    ) -> None:
        """Read how the trial mixes and erases examples, and check the signature of the author's `augment`.

        ``hp`` are the hyperparameters now; ``present`` is called at each trace and returns those of that moment. Raises
        Refused if the signature is not a known one (see `FORMS`).
        """
        self._author = author
        self._get_hyperparameters = present
        self._mixing = _read_mixing(hp, author.live)
        self._author_class = type(author).__name__
        # names of what `augment` takes, and of what it returns: the same without hp and draws
        self._augment_takes = _get_augment_parameters(author)
        self._augment_returns = self._augment_takes[:-2]
        self._overrides_augment = type(author).augment is not Author.augment

    @property
    def mixes(self) -> bool:
        """Whether the trial has ``mixup`` or ``cutmix``, even with the value 0, which mixes no examples."""
        return self._mixing is not None and self._mixing.mixes

    def take(
        self, tensors: Any, rows: tf.Tensor, cut: Slice, after: Sequence[tf.Tensor] = ()
    ) -> Example:
        """Gather, augment, erase and mix a slice's examples; return x, y and sample_weight, with None for missing ones.

        ``cut`` is the slice. ``tensors`` is (x,), (x, y) or (x, y, sample_weight), and ``rows`` has the row numbers of
        the whole batch in it. Examples are only gathered after the tensors in ``after`` are computed. Partners for
        mixing come from the whole batch; if it is cut into slices, each slice augments its partners again, with the
        same draws as in their own slice. The draws of ``cut`` advance, and mixed labels are recorded in it. If
        ``tensors`` is `PreparedExamples`, these examples are returned, with the same effects on ``cut``, and ``rows``
        and ``after`` have no effect. Raises RuntimeError for a slice without draws, and Refused if `augment` returns
        something wrong.
        """
        if cut.draws is None:
            raise RuntimeError("a slice without draws")
        if isinstance(tensors, PreparedExamples):
            return tensors.copy_to_slice(cut)
        # the slice and the draws with which `augment` is called; both change if partners are augmented as well
        augmented, draws = cut, cut.draws
        rows_to_gather = rows[cut.start : cut.stop]
        partners = None  # for each example of the slice, the position in the batch of the one it is mixed with
        if self._mixing is not None and self._mixing.mixes:
            mixing_draws = self._mixing.find_draws(cut.draws)
            partners = mixing_draws.partners()
            # partners may be in other slices, so they are gathered and augmented here as well
            if cut.parts > 1:
                places = tf.concat([tf.cast(tf.range(cut.start, cut.stop), tf.int64), partners], 0)
                rows_to_gather = tf.gather(rows, places)
                draws = cut.draws.at(places)
                augmented = replace(cut, draws=draws)
        with tf.control_dependencies(list(after)):
            example = gather_examples(tensors, rows_to_gather)
        with slices.entering(augmented):
            example = self._augment(example, draws)
        cut.draws.follow(draws)  # the model's own draws are numbered after those of augmentation
        if partners is None or self._mixing is None:
            return example
        if cut.parts == 1:  # the slice is the batch, so all partners are among its examples
            others = _map_example(lambda leaf: tf.gather(leaf, partners), example)
            return _record_mixture(self._mixing.mix(example, others, mixing_draws), cut)
        # The slice's own examples come first, then their partners.
        count = cut.stop - cut.start
        own = _map_example(lambda t: _cut_rows(t, 0, count), example)
        others = _map_example(lambda t: _cut_rows(t, count), example)
        return _record_mixture(self._mixing.mix(own, others, mixing_draws), cut)

    def check_losses(self, cut: Slice) -> None:
        """Raise Refused if whole-number targets of a slice were mixed, and no loss has used both labels of an example.

        If none were mixed, nothing is done. With several arrays of such targets, each must have been used so. Call it
        after the slice's losses are computed.
        """
        # `lost`: a loss has used both labels
        if not all(mixture.lost for _, mixture in cut.mixtures.values()):
            from trainables.recipe.mixing import ONE_HOT

            raise Refused(
                "mixup and cutmix give whole-number targets of two examples at once, which compiled losses weigh; here "
                "something else takes them (a compute_loss() or train_step() of your own); let a train_step() take "
                f"batch.one_hot(classes), or {ONE_HOT}"
            )

    def _augment(self, example: Example, draws: Draws) -> Example:
        """Return examples changed by the author's `augment`, if overridden, and then by random erasing of x, if set.

        ``draws`` are those of these examples, and advance. Raises Refused if `augment` returns something wrong.
        """
        x, y, sample_weight = example
        calls_before = draws.calls  # erasing is numbered from here, however often `augment` draws
        if self._overrides_augment:
            values = {
                "x": x,
                "y": y,
                "sample_weight": sample_weight,
                "hp": self._get_hyperparameters(),
                "draws": draws,
            }
            arguments = [values[name] for name in self._augment_takes]
            returned = self._author.augment(*arguments)
            x, y, sample_weight = self._merge_returned(returned, example)
        if self._mixing is not None:
            x = self._mixing.erase(x, draws.from_call(calls_before))
        return x, y, sample_weight

    def _merge_returned(self, returned: Any, example: Example) -> Example:
        """Return x, y and sample_weight of ``example``, replaced by what `augment` returned.

        If `augment` takes x alone (besides ``hp`` and ``draws``), a tuple is refused unless x is a tuple, and nothing
        else is checked. Otherwise, the values become tensors, and Refused is raised if it returned another number of
        values than it takes, one of another structure or number of rows, or no weights for examples that have weights.
        Values for what the examples lack, such as weights, are accepted.
        """
        x, y, sample_weight = example
        names = (
            self._augment_returns
        )  # "x", "y" and "sample_weight", or the first one or two of them
        called = f"{self._author_class}.augment({', '.join(self._augment_takes)})"
        if len(names) == 1:
            if isinstance(returned, tuple) and not isinstance(x, tuple):
                raise Refused(
                    f"{called} returned {len(returned)} values, expected x alone; to return y, take it: "
                    f"{_format_augment_call(FORMS[1])}"
                )
            return returned, y, sample_weight
        if not isinstance(returned, tuple) or len(returned) != len(names):
            is_tuple = isinstance(returned, tuple)
            what = f"{len(returned)} values" if is_tuple else type(returned).__name__
            raise Refused(f"{called} returned {what}, expected ({', '.join(names)})")
        if len(names) == 3 and sample_weight is not None and returned[2] is None:
            raise Refused(f"{called} returned no sample_weight for examples that have weights")
        # not strict: `example` always has three parts, also if y alone was returned with x
        for name, given, part in zip(names, example, returned, strict=False):
            if given is not None:
                _check_structure(called, name, given, part)
        returned = tuple(_map_part(tf.convert_to_tensor, part) for part in returned)
        rows = tf.nest.flatten(x)[0].shape[0]
        for name, part in zip(names, returned, strict=True):
            if part is not None:
                _check_rows(called, name, part, rows)
        if len(returned) == 3:
            sample_weight = returned[2]
        return returned[0], returned[1], sample_weight

    # ---- before training

    def trace_example(self, example: Any, replicas: Replicas) -> Any:
        """Return the shapes and types of an example after augmentation and mixing, found by a separate trace.

        ``example`` is a batch of one: (x,), (x, y) or (x, y, sample_weight). It is itself returned if `augment` takes x
        alone and nothing is mixed or erased. Otherwise the result is such a tuple of `tf.TensorSpec` for a batch of
        one, with weights if `augment` adds them. Raises Refused if `augment` returns something wrong or the example
        cannot be mixed.
        """
        if self._augment_returns == ("x",) and self._mixing is None:
            return example
        # Several rows, so that it is noticed if `augment` returns another number of them.
        several = tf.nest.map_structure(
            lambda leaf: tf.repeat(tf.convert_to_tensor(leaf), ROWS, axis=0), example
        )
        if self._mixing is not None:
            self._mixing.check(tf.nest.map_structure(tf.TensorSpec.from_tensor, several))
        specs: list[Any] = []  # of each replica; all are alike

        def store_specs() -> None:
            rows = tf.constant(ROWS)
            zero = tf.constant(0)
            cut = Slice.whole(rows, "keras")
            cut.draw(zero, zero)  # any draws do: only shapes and types are looked at
            x, y, weight = self.take(several, tf.range(ROWS), cut)
            found = tuple(part for part in (x, y, weight) if part is not None)
            specs.append(
                tf.nest.map_structure(
                    lambda leaf: tf.TensorSpec([1, *leaf.shape[1:]], leaf.dtype), found
                )
            )

        # thrown away; only the types are needed
        tf.function(lambda: replicas.run(store_specs), autograph=False).get_concrete_function()
        return specs[0]


def _map_example(change: Callable[[Any], Any], example: Example) -> Example:
    """Return x, y and sample_weight with ``change`` applied to each array; missing ones stay None."""
    x, y, sample_weight = (_map_part(change, part) for part in example)
    return x, y, sample_weight


def _map_part(change: Callable[[Any], Any], part: Any) -> Any:
    """Return ``part``, a nested structure, with ``change`` applied to each array; None if it is None."""
    if part is None:
        return None
    return tf.nest.map_structure(change, part)


def _read_mixing(hp: Hyperparameters, live: Live) -> Mixing | None:
    """Return the trial's ``mixup``, ``cutmix`` and ``random_erasing`` as live numbers of ``live``.

    None if the trial has none of these parameters; a parameter with the value 0 counts.
    """
    if not has_mixing(hp):
        return None
    from trainables.recipe.mixing import Mixing

    return Mixing.of(hp, live)


def _record_mixture(mixed: Mixed, cut: Slice) -> Example:
    """Return mixed examples, and record in their slice that it mixes and which labels were mixed.

    Only labels that cannot be averaged are recorded: both of them, under the array of the returned y that stands for
    them.
    """
    targets = tf.nest.flatten(mixed.y)
    cut.mixes = True
    for position, labels in mixed.labels.items():
        cut.mixtures[id(targets[position])] = targets[position], Mixture(*labels, mixed.share)
    return mixed.x, mixed.y, mixed.sample_weight


def _get_augment_parameters(author: Author) -> tuple[str, ...]:
    """Return the signature in `FORMS` that the author's `augment` has, as names of parameters.

    Parameters of other names count as x, hp and draws, in this order, if the method can be called with three arguments
    by position and none of its parameters is named y or sample_weight. Raises Refused for other signatures.
    """
    signature = inspect.signature(author.augment)
    names = tuple(signature.parameters)
    if names in FORMS:
        return names
    try:
        signature.bind(*FORMS[0])  # any three values do
    except TypeError:
        takes_x_alone = False
    else:
        takes_x_alone = not {"y", "sample_weight"} & set(names)
    if not takes_x_alone:
        expected = " or ".join(map(_format_augment_call, FORMS))
        raise Refused(f"{type(author).__name__}.augment({', '.join(names)}), expected {expected}")
    return FORMS[0]


def _format_augment_call(names: Sequence[str]) -> str:
    """Return the text of a call of `augment` with these parameters, for messages."""
    return f"augment({', '.join(names)})"


def _check_structure(called: str, name: str, example: Any, part: Any) -> None:
    """Raise Refused unless ``part`` has the same nested structure as ``example``.

    For the message, ``called`` is the signature of `augment`, and ``name`` that of the returned value.
    """
    try:
        tf.nest.assert_same_structure(example, part)
    except (ValueError, TypeError):
        raise Refused(
            f"{called} returned {name} as {_describe_structure(part)}, "
            f"expected {_describe_structure(example)} as it was given"
        ) from None


def _check_rows(called: str, name: str, part: Any, rows: int | None) -> None:
    """Raise Refused unless all arrays of ``part`` have ``rows`` rows, one for each example.

    ``rows`` is None if the number is unknown while tracing; then only scalars are refused. An array whose own number of
    rows is unknown is accepted. ``called`` and ``name`` are for the message, as in `_check_structure`.
    """
    for leaf in tf.nest.flatten(part):
        if leaf.shape.rank == 0 or (rows is not None and leaf.shape[0] not in (None, rows)):
            raise Refused(
                f"{called} returned {name} of shape {tuple(leaf.shape)} for {rows or 'a batch of'} examples, "
                "expected one row for each of them"
            )


def _describe_structure(part: Any) -> str:
    """Describe the outermost level of a nested structure in a few words, for messages.

    A dictionary gives its keys, a list or tuple its length. Anything else but None counts as one array.
    """
    if isinstance(part, dict):
        return "{" + ", ".join(map(str, part)) + "}"
    if isinstance(part, list | tuple):
        return f"a {type(part).__name__} of {len(part)}"
    return "None" if part is None else "one array"


def _cut_rows(leaf: tf.Tensor, start: Any, stop: Any = None) -> tf.Tensor:
    """Return the rows from ``start`` to before ``stop``, or to the end if that is None.

    int32 tensors are cut as int64, because TensorFlow's kernels for int32 run on the host.
    """
    if leaf.dtype != tf.int32:
        return leaf[start:stop]
    return tf.cast(tf.cast(leaf, tf.int64)[start:stop], tf.int32)
