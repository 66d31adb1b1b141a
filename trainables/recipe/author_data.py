"""An author's `data`: run under the sweep's seed wherever it runs, loaded where it must be, held between trials."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from sweep.contract import Assignment, Fold, OtherData
from sweep.hyperparameters import Hyperparameters, Reads, to_json
from sweep.read_recorder import recorder
from sweep.state import settings, values
from sweep.state.pristine import Traces
from trainables.data import chunks, residence, sources, streams, trial_parts
from trainables.data.chunks import ArraySplit, StreamSplit, split
from trainables.data.passes import Examples
from trainables.data.streams import Extent
from trainables.devices.placement import Placement
from trainables.numbers.seeds import seeded_throughout
from trainables.recipe import features, global_settings, losses, refusals
from trainables.recipe.author import Author
from trainables.state import attributes, modules
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
    train: Examples
    validation: Examples | None
    fingerprint: str | None
    settings: settings.Values  # of this process, that `data` has set
    folder: Path | None  # to which `data` has gone

    def serves(self, hp: Hyperparameters, placement: Placement, cut: str, seed: int) -> bool:
        """Whether loading for this trial would give the same."""
        return (self.placement, self.cut, self.seed) == (placement, cut, seed) and hp.agree(self.reads)


class AuthorData:
    """The data of one trainable's trials. ``own``: the names of its attributes that are not the author's."""

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._loaded: Loaded | None = None
        self._weighted: tuple[int, Fold, ArraySplit] | None = None  # for the present fold
        self._surroundings = Surroundings(own)
        self._first: Mapping[str, object] | None = None  # the author's attributes before `data` has ever run
        self.seen: Traces = {}  # what `data` has left on the author or in modules, for methods to see
        self.key: tuple[Traces, object, object] = (
            {},
            None,
            None,
        )  # with digests of an example and of targets
        self.bare: Mapping[str, object] = {}  # the author's attributes as `data` has left them

    @property
    def loaded(self) -> object:
        """The present data, to tell whether they are still those of the trial before."""
        return self._loaded

    @property
    def reads(self) -> Reads:
        """What was read to load the present data."""
        return self._loaded.reads if self._loaded else {}

    @property
    def fingerprint(self) -> str | None:
        """That of the present data; None where they have none that could be trusted."""
        return self._loaded.fingerprint if self._loaded else None

    @property
    def follows_from(self) -> str | None:
        """What of the trial's parameters the present data follow from; None for streams, which may draw anew."""
        held = self._loaded
        streams = held is None or any(isinstance(part, StreamSplit) for part in (held.train, held.validation))
        return None if held is None or streams else to_json(held.reads)

    @property
    def left(self) -> frozenset[str]:
        """The attributes that `data` has ever left on the author."""
        return self._surroundings.attributes

    def splits(
        self, author: Author, hp: Hyperparameters, placement: Placement, assignment: Assignment
    ) -> tuple[Examples, Examples | None]:
        """The data of a trial, which are those of the last one unless it reads other parameters."""
        cut, held = trial_parts.cut_of(assignment), self._loaded
        fold = assignment.fold if cut == trial_parts.FOLDS else None
        if cut == trial_parts.WHOLE:
            refusals.check_unjudged(hp)
        if held is not None and held.serves(hp, placement, cut, assignment.data_seed):
            settings.write(held.settings)
            if held.folder is not None and held.folder.is_dir():
                os.chdir(held.folder)
        else:
            del held  # two data sets at once may not fit
            held = self._loaded = self._load(author, hp, placement, assignment)
            self._tell(author, held.train, validates=held.validation is not None or cut == trial_parts.FOLDS)
        for data, extent in zip((held.train, held.validation), _extents(hp, placement, assignment), strict=True):
            if isinstance(data, StreamSplit):
                data.count(extent)
        if fold is None:
            return held.train, held.validation
        whole = _arrays(held.train)
        rows = trial_parts.fold_rows(whole.targets, whole.size, fold.number, fold.of, fold.seed)
        if self._weighted is None or self._weighted[:2] != (id(held), fold):
            self._weighted = id(held), fold, self._weighted_for(author, hp, whole, rows[0])
            self._tell(author, self._weighted[2], validates=True)
        return self._weighted[2].part(rows[0]), whole.part(rows[1])

    def _tell(self, author: Author, train: Examples, *, validates: bool) -> None:
        """Let the author's methods, and the keys of programs, know the data."""
        author.first_example, author.some_targets, author.validates = train.example(), train.some_targets(), validates
        targets = author.some_targets
        author.target_traits = losses.Targets.of(targets)
        self.key = self.seen, values.digest(author.first_example), values.digest(targets)

    def _weighted_for(self, author: Author, hp: Hyperparameters, whole: ArraySplit, rows: Any) -> ArraySplit:
        """The data with the class weights of a fold's training examples: those that validate have no say in them."""
        if self._loaded is None:
            raise RuntimeError("nothing is loaded")
        targets = tf.nest.map_structure(lambda leaf: leaf[rows], whole.arrays[1:2])
        with hp.recording(self._loaded.reads):
            weights = author.class_weights(hp, trial_parts.labels_of((None, *targets)))
        if not weights:
            return whole
        return ArraySplit(trial_parts.weighed(whole.arrays, weights), self._loaded.placement.replicas)

    def test(self, author: Author, hp: Hyperparameters, placement: Placement, assignment: Assignment) -> Any:
        """The third part of what `data` returns, for which it runs again; None without such.

        Raises `OtherData` where the first two parts are not those that the trial has.
        """
        watched = self._surroundings.watched(author)
        with attributes.as_left(author, self._own, self.bare), watched, hp.without_live():
            parts = returned(author, hp, assignment.data_seed)
            if parts.test is not None:
                parts = parts._replace(test=sources.test_data(parts.test))
            parts = _with_features(author, hp, placement, parts)
            if parts.test is not None and self.fingerprint is not None:
                again = _cut(author, hp, placement, parts, trial_parts.cut_of(assignment))
                self._check(chunks.fingerprint(*again), self.fingerprint, "that the model was trained and validated on")
        return parts.test

    def inputs(self, author: Author, hp: Hyperparameters, assignment: Assignment) -> Any:
        """The raw inputs of the split that exports are compared on, where a trial has features in their place."""
        with self._surroundings.watched(author):
            train, validation, _ = returned(author, hp, assignment.data_seed)
        whole = trial_parts.cut_of(assignment) != trial_parts.PARTS
        data = train if validation is None else trial_parts.joined(train, validation) if whole else validation
        return tf.nest.map_structure(sources.as_tensor, sources.arrays_of(residence.written(data))[0])

    def check(self, expected: str | None, checkpoint: str) -> None:
        """Raise `OtherData` for a checkpoint of a trial on data with another fingerprint."""
        self._check(self.fingerprint, expected, f"that {checkpoint} was trained on")

    def _check(self, found: str | None, expected: str | None, which: str) -> None:
        """Raise `OtherData` where two fingerprints differ; None is that of data which have none.

        A stream that draws (random maps, unseeded shuffles) is another one whenever it is read, and has none.
        """
        held = self._loaded
        if None in (found, expected) or found == expected or held is None:
            return
        streams = any(isinstance(part, StreamSplit) for part in (held.train, held.validation))
        if streams and chunks.fingerprint(held.train, held.validation) != held.fingerprint:
            return
        raise OtherData(
            f"the data are {str(found)[:SHOWN]} (digest of all examples), expected {str(expected)[:SHOWN]}, {which}; "
            "data() must return the same examples whenever it runs: sort what comes from sets and folders, seed "
            "generators that take their seed from elsewhere; for new data begin a new sweep"
        )

    def _load(self, author: Author, hp: Hyperparameters, placement: Placement, assignment: Assignment) -> Loaded:
        """Run the author's `data`, or map what another worker of the node has got from it."""
        self._loaded = self._weighted = None
        cut, seed = trial_parts.cut_of(assignment), assignment.data_seed
        extents = _extents(hp, placement, assignment)
        if self._first is None:
            self._first = attributes.kept(author, self._own)
        attributes.put(author, self._own, self._first)

        def load() -> tuple[Any, Any]:
            parts = returned(author, hp, seed)._replace(test=None)  # which is not looked at
            return _with_features(author, hp, placement, parts)[:2]

        were, was_in, cached_before = settings.read(), Path.cwd(), modules.cached_results(author)
        with recorder.apart() as read_by_data, self._surroundings.watched(author) as left:

            def left_anywhere() -> set[str]:
                present = settings.read(settings.OF_LIBRARIES)
                return left() | {*settings.changed(were, present)}

            data, reads = residence.shared(assignment.shared, hp, load, left_anywhere)
            with hp.recording(reads):
                train, validation = _cut(author, hp, placement, Parts(*data), cut, extents)
        self.seen = self._surroundings.traces(author)
        is_kept = modules.cached_results(author) > cached_before
        if self.seen or is_kept:  # else what `data` has read shows in the fingerprint of what it returns
            recorder.absorb(read_by_data)
        self.bare = attributes.kept(author, self._own)
        gone = Path.cwd() if Path.cwd() != was_in else None
        left_set = settings.changed(were, settings.read())
        return Loaded(
            placement, cut, seed, reads, train, validation, chunks.fingerprint(train, validation), left_set, gone
        )


def returned(author: Author, hp: Hyperparameters, seed: int) -> Parts:
    """What the author's `data` returns under this seed, the same wherever it runs; leaves all generators as they were.

    Every call of `data` is this one. Raises DataError for what is not training and validation data.
    """
    with seeded_throughout(seed), global_settings.clearing_names_alone(), hp.without_live():
        data: Any = author.data(hp)
    return Parts(*sources.parts_of(data))


def _arrays(data: Examples) -> ArraySplit:
    if not isinstance(data, ArraySplit):
        raise TypeError("folds are cut from arrays")
    return data


def _with_features(author: Author, hp: Hyperparameters, placement: Placement, parts: Parts) -> Parts:
    """The parts with the features of their inputs in place of these, where they are kept."""
    front = features.in_front(author, hp) if features.are_cached(author, hp) else None
    return parts if front is None else Parts(*(features.of(front, part, placement.devices[0]) for part in parts))


def _extents(hp: Hyperparameters, placement: Placement, assignment: Assignment) -> tuple[Extent, Extent]:
    """How much of a stream of training and of validation data a trial reads."""
    number = int(placement.replicas.number)
    training, validation = (streams.extent(hp, assignment, number, training=which) for which in (True, False))
    return training, validation


def _cut(
    author: Author,
    hp: Hyperparameters,
    placement: Placement,
    parts: Parts,
    cut: str,
    extents: tuple[Extent, Extent] = (streams.ALL, streams.ALL),
) -> tuple[Examples, Examples | None]:
    """The training and the validation data; both are all there are where folds are cut from them."""
    data, held_out, replicas = parts.train, parts.validation, placement.replicas
    if cut == trial_parts.FOLDS:  # each weighs the classes of its own
        return split(trial_parts.uncut(data, held_out), replicas, "training data"), None
    if cut == trial_parts.WHOLE:  # one set, of which nothing is held out
        data, held_out = trial_parts.joined(data, held_out), None
    weights = author.class_weights(hp, trial_parts.labels_of(data))
    train = split(trial_parts.weighed(data, weights), replicas, "training data", extent=extents[0])
    if held_out is None:
        return train, None
    return train, split(held_out, replicas, "validation data", extent=extents[1])


def fitted_copies(kept: Mapping[str, object]) -> dict[str, object]:
    """Return by name what of an author's attributes holds layers or a `FeatureSpace`, with a copy of each.

    Call it inside of the strategy's scope, while the variables of a program are made. What cannot be saved by Keras
    stays as it is, and is refused as a part of the model.
    """
    found = {name: _with_copies(value, f"fitted_{name}") for name, value in kept.items()}
    return {name: value for name, value in found.items() if value is not kept[name]}


def _with_copies(value: Any, name: str) -> Any:
    if isinstance(value, keras.Layer | keras.utils.FeatureSpace):
        return _copy_of_layer(value, name)
    if type(value) not in (dict, list, tuple):
        return value
    parts = dict(value.items() if isinstance(value, dict) else enumerate(value))
    new = {key: _with_copies(part, f"{name}_{key}") for key, part in parts.items()}
    if all(new[key] is part for key, part in parts.items()):
        return value
    return new if isinstance(value, dict) else type(value)(new.values())


def _copy_of_layer(value: Any, name: str) -> Any:
    """Save and load it, as Keras does with what `adapt` has found."""
    own = {type(value).__name__: type(value)}
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), _named(value, name):
            warnings.simplefilter("ignore")  # lookup layers have no weights to be built
            path = Path(folder) / "fitted.keras"
            keras.saving.save_model(value, path)
            return keras.saving.load_model(path, custom_objects=own, safe_mode=False)  # it is the author's own code
    except Exception:  # whatever a layer's own code raises
        return value


@contextmanager
def _named(value: Any, name: str) -> Iterator[None]:
    """Let it have this name: its own depends on how many layers the process has made, and checkpoints go by names."""
    before, value.name = value.name, name
    try:
        yield
    finally:
        value.name = before
