"""What of a batch goes into the model in training: gathered, augmented as the author says, mixed as the trial does."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from sweep.hyperparameters import Hyperparameters
from trainables.data.passes import gather_examples
from trainables.devices.replicas import Replicas
from trainables.numbers.draws import Draws
from trainables.recipe.author import Author
from trainables.recipe.mixing import MIXING, ONE_HOT, Mixing
from trainables.recipe.refusals import Refused
from trainables.replicas import slices
from trainables.replicas.slices import Mixture, Slice

FORMS = (("x", "hp", "draws"), ("x", "y", "hp", "draws"), ("x", "y", "sample_weight", "hp", "draws"))
ROWS = 3  # of the trace that looks at what augment() returns

Example = tuple[Any, Any, Any]
"""x, y and sample_weight or None."""


@dataclass(frozen=True, eq=False)
class Taken:
    """What `Intake.take` gave, for those who compute on without it."""

    tensors: Any  # x, y, sample_weight, and by its place in y the labels of each mixture
    draws: Draws  # so far
    mixes: bool

    @classmethod
    def of(cls, example: Example, cut: Slice, draws: Draws) -> Taken:
        """The examples of a slice, with what it was told of them."""
        flat = [] if example[1] is None else tf.nest.flatten(example[1])
        mixtures = {place: mixture for place, leaf in enumerate(flat) if (mixture := cut.mixture(leaf))}
        labels = {place: (mixture.own, mixture.other, mixture.share) for place, mixture in mixtures.items()}
        return cls((*example, labels), draws, cut.mixes)

    def into(self, cut: Slice) -> Example:
        """The same examples for another slice, which is told the same."""
        x, y, sample_weight, labels = self.tensors
        flat, cut.mixes = tf.nest.flatten(y), self.mixes
        if cut.draws is not None:
            cut.draws.follow(self.draws)
        for place, mixed in labels.items():
            cut.mixtures[id(flat[place])] = flat[place], Mixture(*mixed)
        return x, y, sample_weight


class Intake:
    """Gives each slice of a training batch its examples, the same however the batch was cut."""

    def __init__(self, author: Author, present: Callable[[], Hyperparameters], mixing: Mixing) -> None:
        """``present`` gives the hyperparameters at each trace; raises Refused for an `augment` of another form."""
        self._author, self._present, self.mixing = author, present, mixing
        self._kind = type(author).__name__
        self._takes = _form(author)
        self._own = type(author).augment is not Author.augment

    def take(self, tensors: Any, rows: tf.Tensor, cut: Slice, after: Sequence[tf.Tensor] = ()) -> Example:
        """The examples of a slice that has draws, gathered once the tensors of ``after`` are there.

        Partners come from the whole batch. Where it is cut they are augmented once more, with their own draws, for
        they are nobody else's to hand over.
        """
        if cut.draws is None:
            raise RuntimeError("a slice without draws")
        if isinstance(tensors, Taken):
            return tensors.into(cut)
        draws = first = cut.draws
        own, partners = rows[cut.start : cut.stop], None
        if self.mixing.mixes:
            mixing_draws = first.from_call(first.calls + MIXING)
            partners = mixing_draws.partners()
            if cut.parts > 1:
                places = tf.concat([tf.cast(tf.range(cut.start, cut.stop), tf.int64), partners], 0)
                own, draws = tf.gather(rows, places), first.at(places)
        with tf.control_dependencies(list(after)):
            example = gather_examples(tensors, own)
        with slices.entered(cut if draws is first else replace(cut, draws=draws)):
            example = self._augmented(example, draws)
        first.follow(draws)
        if partners is None:
            return example
        if cut.parts == 1:
            return self._mixed(example, _of_each(lambda leaf: tf.gather(leaf, partners), example), cut, mixing_draws)
        count = cut.stop - cut.start
        halves = (
            _of_each(lambda t: _cut_rows(t, 0, count), example),
            _of_each(lambda t: _cut_rows(t, count), example),
        )
        return self._mixed(*halves, cut, mixing_draws)

    def check_losses(self, cut: Slice) -> None:
        """Raise Refused where labels were mixed and nothing has weighed them by their shares."""
        if not all(mixture.lost for _, mixture in cut.mixtures.values()):
            raise Refused(
                "mixup and cutmix give whole-number targets of two examples at once, which compiled losses weigh; here "
                "something else takes them (a compute_loss() or train_step() of your own); let a train_step() take "
                f"batch.one_hot(classes), or {ONE_HOT}"
            )

    def _augmented(self, example: Example, draws: Draws) -> Example:
        x, y, sample_weight = example
        start = draws.calls
        if self._own:
            given = {"x": x, "y": y, "sample_weight": sample_weight, "hp": self._present(), "draws": draws}
            x, y, sample_weight = self._returned(self._author.augment(*(given[name] for name in self._takes)), example)
        return self.mixing.erased(x, draws.from_call(start)), y, sample_weight

    def _returned(self, found: Any, example: Example) -> Example:
        """What `augment` gave back, in its places; raises Refused where it is something else."""
        x, y, sample_weight = example
        names = self._takes[:-2]
        called = f"{self._kind}.augment({', '.join(self._takes)})"
        if len(names) == 1:
            if isinstance(found, tuple) and not isinstance(x, tuple):
                raise Refused(
                    f"{called} returned {len(found)} values, expected x alone; to return y, take it: {_call(FORMS[1])}"
                )
            return found, y, sample_weight
        if not isinstance(found, tuple) or len(found) != len(names):
            what = f"{len(found)} values" if isinstance(found, tuple) else type(found).__name__
            raise Refused(f"{called} returned {what}, expected ({', '.join(names)})")
        if len(names) == 3 and sample_weight is not None and found[2] is None:
            raise Refused(f"{called} returned no sample_weight for examples that have weights")
        for name, given, part in zip(names, example, found, strict=False):
            if given is not None:
                try:
                    tf.nest.assert_same_structure(given, part)
                except (ValueError, TypeError):
                    raise Refused(
                        f"{called} returned {name} as {_structure(part)}, expected {_structure(given)} as it was given"
                    ) from None
        found = tuple(tf.nest.map_structure(tf.convert_to_tensor, part) if part is not None else None for part in found)
        rows = tf.nest.flatten(x)[0].shape[0]
        for name, part in zip(names, found, strict=True):
            for leaf in [] if part is None else tf.nest.flatten(part):
                if leaf.shape.rank == 0 or (rows is not None and leaf.shape[0] not in (None, rows)):
                    raise Refused(
                        f"{called} returned {name} of shape {tuple(leaf.shape)} for {rows or 'a batch of'} examples, "
                        "expected one row for each of them"
                    )
        return (*found, sample_weight) if len(found) == 2 else found

    def _mixed(self, own: Example, other: Example, cut: Slice, draws: Draws) -> Example:
        mixed = self.mixing.mixed(own, other, draws)
        flat, cut.mixes = tf.nest.flatten(mixed.y), True
        for place, labels in mixed.labels.items():
            cut.mixtures[id(flat[place])] = flat[place], Mixture(*labels, mixed.share)
        return mixed.x, mixed.y, mixed.sample_weight

    # ---- before training

    def seen(self, example: Any, replicas: Replicas) -> Any:
        """An example as training sees it, in shapes and types; raises Refused for one that cannot be augmented so.

        ``example``: a batch of one of the data. A trace that is thrown away, made where there is something to check.
        """
        if len(self._takes) == 3 and self.mixing == Mixing():
            return example
        repeated = tf.nest.map_structure(lambda leaf: tf.repeat(tf.convert_to_tensor(leaf), ROWS, axis=0), example)
        self.mixing.check(tf.nest.map_structure(tf.TensorSpec.from_tensor, repeated))
        specs: list[Any] = []

        def on_each() -> None:
            rows, zero = tf.constant(ROWS), tf.constant(0)
            cut = Slice.whole(rows, "keras")
            cut.draw(zero, zero)
            x, y, weight = self.take(repeated, tf.range(ROWS), cut)
            found = tuple(part for part in (x, y, weight) if part is not None)
            specs.append(tf.nest.map_structure(lambda leaf: tf.TensorSpec([1, *leaf.shape[1:]], leaf.dtype), found))

        tf.function(lambda: replicas.run(on_each), autograph=False).get_concrete_function()
        return specs[0]


def _of_each(change: Callable[[Any], Any], example: Example) -> Example:
    x, y, sample_weight = (None if part is None else tf.nest.map_structure(change, part) for part in example)
    return x, y, sample_weight


def _form(author: Author) -> tuple[str, ...]:
    """The parameters of the author's `augment`, which say what it takes and returns."""
    signature = inspect.signature(author.augment)
    names = tuple(signature.parameters)
    if names in FORMS:
        return names
    try:
        signature.bind(*FORMS[0])
    except TypeError:
        binds = False
    else:
        binds = not {"y", "sample_weight"} & set(names)
    if not binds:
        raise Refused(f"{type(author).__name__}.augment({', '.join(names)}), expected {' or '.join(map(_call, FORMS))}")
    return FORMS[0]


def _call(names: Sequence[str]) -> str:
    return f"augment({', '.join(names)})"


def _structure(part: Any) -> str:
    """What a nested structure looks like, in few words."""
    if isinstance(part, dict):
        return "{" + ", ".join(map(str, part)) + "}"
    if isinstance(part, list | tuple):
        return f"a {type(part).__name__} of {len(part)}"
    return "None" if part is None else "one array"


def _cut_rows(leaf: tf.Tensor, start: Any, stop: Any = None) -> tf.Tensor:
    """Rows one after the other. Kernels for int32 would do it on the host."""
    if leaf.dtype != tf.int32:
        return leaf[start:stop]
    return tf.cast(tf.cast(leaf, tf.int64)[start:stop], tf.int32)
