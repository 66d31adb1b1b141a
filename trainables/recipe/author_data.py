"""An author's `data`: run under the sweep's seed wherever it runs, loaded where it must be, held between trials."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf

from sweep.contract import Assignment, OtherData
from sweep.hyperparameters import Hyperparameters, Reads
from trainables.data import checks, class_weights, fingerprint, folds, joining, node_cache, text
from trainables.data.chunks import ArraySplit, Split, split
from trainables.devices.placement import Placement
from trainables.numbers.seeds import seeded_throughout
from trainables.recipe import features, refusals
from trainables.recipe.author import Author
from trainables.state import attributes
from trainables.state.pristine import Surroundings

SHOWN = 8  # digits of a fingerprint in a message


class Parts(NamedTuple):
    """What `data` returns."""

    train: Any
    validation: Any
    test: Any = None


@dataclass(frozen=True)
class Loaded:
    """The data of trials that agree on what was read to load them."""

    placement: Placement  # where they lie
    cut: str  # as `data` did, into folds, not at all
    seed: int
    reads: Reads
    train: Split
    validation: Split | None
    fingerprint: str | None

    def serves(self, hp: Hyperparameters, placement: Placement, cut: str, seed: int) -> bool:
        """Whether loading for this trial would give the same."""
        return (self.placement, self.cut, self.seed) == (placement, cut, seed) and hp.agree(self.reads)


class AuthorData:
    """The data of one trainable's trials. ``own``: the names of its attributes that are not the author's."""

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._loaded: Loaded | None = None
        self._surroundings = Surroundings(own)
        self._first: Mapping[str, object] | None = None  # the author's attributes before `data` has ever run
        self.seen: attributes.Traces = {}  # what `data` has left on the author or in modules, for methods to see
        self.bare: Mapping[str, object] = {}  # the author's attributes as `data` has left them

    @property
    def reads(self) -> Reads:
        """What was read to load the present data."""
        return self._loaded.reads if self._loaded else {}

    @property
    def fingerprint(self) -> str | None:
        """That of the present data; None where they have none that could be trusted."""
        return self._loaded.fingerprint if self._loaded else None

    @property
    def left(self) -> frozenset[str]:
        """The attributes that `data` has ever left on the author."""
        return self._surroundings.attributes

    def splits(
        self, author: Author, hp: Hyperparameters, placement: Placement, assignment: Assignment
    ) -> tuple[Split, Split | None]:
        """The data of a trial, which are those of the last one unless it reads other parameters."""
        cut, held = folds.cut_of(assignment), self._loaded
        fold = assignment.fold if cut == folds.FOLDS else None
        if cut == folds.WHOLE:
            refusals.check_unjudged(hp)
        if held is None or not held.serves(hp, placement, cut, assignment.data_seed):
            del held  # two data sets at once may not fit
            held = self._loaded = self._load(author, hp, placement, assignment)
            author.first_example, author.some_targets = held.train.example(), held.train.some_targets()
            author.validates = held.validation is not None
        if fold is None:
            return held.train, held.validation
        if not isinstance(held.train, ArraySplit) or not isinstance(held.validation, ArraySplit):
            raise TypeError("folds are cut from arrays")
        rows = folds.cut(held.train.targets, held.train.size, fold.number, fold.of, fold.seed)
        return held.train.part(rows[0]), held.validation.part(rows[1])

    def test(self, author: Author, hp: Hyperparameters, placement: Placement, assignment: Assignment) -> Any:
        """The third part of what `data` returns, for which it runs again; None without such.

        Raises `OtherData` where the first two parts are not those that the trial has.
        """
        with attributes.as_left(author, self._own, self.bare), self._surroundings.watched(author):
            parts = _with_features(author, hp, placement, returned(author, hp, assignment.data_seed))
            if parts.test is not None and self.fingerprint is not None:
                again = _cut(author, hp, placement, parts, folds.cut_of(assignment))
                check(fingerprint.of(*again), self.fingerprint, "that the model was trained and validated on")
        return parts.test

    def inputs(self, author: Author, hp: Hyperparameters, assignment: Assignment) -> Any:
        """The raw inputs of the split that exports are compared on, where a trial has features in their place."""
        with self._surroundings.watched(author):
            train, validation, _ = returned(author, hp, assignment.data_seed)
        whole = assignment.fold is not None or assignment.training.get("all_data", False)
        data = train if validation is None else joining.joined(train, validation) if whole else validation
        return tf.nest.map_structure(text.as_tensor, checks.arrays_of(node_cache.written(data))[0])

    def check(self, expected: str | None, checkpoint: str) -> None:
        """Raise `OtherData` for a checkpoint of a trial on data with another fingerprint."""
        check(self.fingerprint, expected, f"that {checkpoint} was trained on")

    def _load(self, author: Author, hp: Hyperparameters, placement: Placement, assignment: Assignment) -> Loaded:
        """Run the author's `data`, or map what another worker of the node has got from it."""
        self._loaded = None
        cut, seed = folds.cut_of(assignment), assignment.data_seed
        if self._first is None:
            self._first = attributes.kept(author, self._own)
        attributes.put(author, self._own, self._first)

        def load() -> tuple[Any, Any]:
            parts = returned(author, hp, seed)._replace(test=None)  # which is not looked at
            return _with_features(author, hp, placement, parts)[:2]

        with self._surroundings.watched(author) as left:
            data, reads = node_cache.shared(assignment.shared, hp, load, left)
            with hp.recording(reads):
                train, validation = _cut(author, hp, placement, Parts(*data), cut)
        self.seen = self._surroundings.traces(author)
        self.bare = attributes.kept(author, self._own)
        return Loaded(placement, cut, seed, reads, train, validation, fingerprint.of(train, validation))


def returned(author: Author, hp: Hyperparameters, seed: int) -> Parts:
    """What the author's `data` returns under this seed, the same wherever it runs; leaves all generators as they were.

    Every call of `data` is this one. Raises DataError for what is not training and validation data.
    """
    with seeded_throughout(seed):
        data: Any = author.data(hp)
    return Parts(*checks.parts(data))


def check(found: str | None, expected: str | None, which: str) -> None:
    """Raise `OtherData` where two fingerprints differ; None is that of data which have none."""
    if None not in (found, expected) and found != expected:
        raise OtherData(
            f"the data are {str(found)[:SHOWN]} (digest of all examples), expected {str(expected)[:SHOWN]}, {which}; "
            "data() must return the same examples whenever it runs: sort what comes from sets and folders, seed "
            "generators that take their seed from elsewhere; for new data begin a new sweep"
        )


def _with_features(author: Author, hp: Hyperparameters, placement: Placement, parts: Parts) -> Parts:
    """The parts with the features of their inputs in place of these, where they are kept."""
    front = features.in_front(author, hp) if features.are_cached(author, hp) else None
    return parts if front is None else Parts(*(features.of(front, part, placement.devices[0]) for part in parts))


def _cut(
    author: Author, hp: Hyperparameters, placement: Placement, parts: Parts, cut: str
) -> tuple[Split, Split | None]:
    """The training and the validation data; both are all there are where folds are cut from them."""
    data, held_out, strategy = parts.train, parts.validation, placement.strategy
    if cut == folds.FOLDS:
        data, held_out = folds.whole(data, held_out), None
    elif cut == folds.WHOLE:  # one set, of which nothing is held out
        data, held_out = joining.joined(data, held_out), None
    weights = author.class_weights(hp, class_weights.labels_of(data))
    train = split(class_weights.apply(data, weights), strategy, "training data")
    if cut == folds.FOLDS:
        return train, split(data, strategy, "validation data") if weights else train
    return train, None if held_out is None else split(held_out, strategy, "validation data")
