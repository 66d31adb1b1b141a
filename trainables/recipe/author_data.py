"""Runs of an author's `data`: seeded alike in every process, loaded when needed, and kept between trials."""

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
from sweep.state.recorded_values import Digests
from trainables import keras_private
from trainables.data import chunks, residence, sources, trial_parts
from trainables.data.chunks import ArraySplit, make_examples
from trainables.data.passes import Examples, get_batch_size, get_validation_batch_size
from trainables.data.sources import Extent
from trainables.devices.placement import Placement
from trainables.numbers.seeds import seeding_all_generators
from trainables.recipe import losses, refusals
from trainables.recipe.author import Author, overrides
from trainables.state import attributes, modules
from trainables.state.author_globals import AuthorSurroundings

SHOWN = 8  # digits of a fingerprint shown in a message


class DataParts(NamedTuple):
    """The result of `data`: training data, validation data and test data."""

    train: Any
    validation: Any
    test: Any = None


@dataclass(frozen=True)
class Loaded:
    """The data that one run of `data` has loaded, with everything that decides whether another trial can use it."""

    placement: Placement  # placement on the devices that hold the data
    cut: str  # see `trial_parts.choose_cut`
    seed: int
    reads: Reads
    train: Examples
    validation: Examples | None
    fingerprint: str | None
    settings: settings.Values  # settings of the process that `data` has changed
    folder: Path | None  # working directory that `data` has changed to

    @property
    def is_streamed(self) -> bool:
        """Whether any of the data is a stream."""
        return self.train.streamed or (self.validation is not None and self.validation.streamed)

    def serves(self, hp: Hyperparameters, placement: Placement, cut: str, seed: int) -> bool:
        """Return whether loading the data for another trial would give the same data.

        The arguments are those of the other trial. Placement, cut (see `trial_parts.choose_cut`), seed and the
        hyperparameters that were read must be the same.
        """
        return (self.placement, self.cut, self.seed) == (placement, cut, seed) and hp.matches_reads(
            self.reads
        )


class AuthorData:
    """Loads the data of one trainable's trials, and reuses it for the next trial if possible.

    ``own`` has the names of the attributes that do not belong to the author.
    """

    def __init__(self, own: frozenset[str]) -> None:
        self._own = own
        self._loaded: Loaded | None = None
        # of the last fold: the id of `_loaded`, the fold, and all data with the class weights of that fold
        self._weighted_fold: tuple[int, Fold, ArraySplit] | None = None
        self._surroundings = AuthorSurroundings(own)
        # the author's attributes before the first run of `data`
        self._attributes_at_first: Mapping[str, object] | None = None
        self.seen: Digests = {}  # digests of what `data` has left on the author or in modules, where methods can see it
        # `seen`, and digests of an example and of targets: part of the keys of programs
        self.key: tuple[Digests, object, object] = (
            {},
            None,
            None,
        )
        self.bare: Mapping[str, object] = {}  # the author's attributes after `data`

    @property
    def loaded(self) -> object:
        """An object that is the same for all trials that use the same loaded data; None before any data is loaded."""
        return self._loaded

    @property
    def reads(self) -> Reads:
        """The hyperparameters that were read to load the present data; empty before any data is loaded."""
        return self._loaded.reads if self._loaded else {}

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the present data; None if it has no reliable one, and before any data is loaded."""
        if not self._loaded:
            return None
        return self._loaded.fingerprint

    @property
    def follows_from(self) -> str | None:
        """The hyperparameters that the present data depends on, as JSON.

        None for streams, which may draw again in each trial, and before any data is loaded.
        """
        held = self._loaded
        if held is None or held.is_streamed:
            return None
        return to_json(held.reads)

    @property
    def left_attributes(self) -> frozenset[str]:
        """The names of the attributes that any run of `data` so far has set on the author's object."""
        return self._surroundings.attributes

    def load_splits(
        self, author: Author, hp: Hyperparameters, placement: Placement, assignment: Assignment
    ) -> tuple[Examples, Examples | None]:
        """Return training and validation data of a trial, or of its fold; the validation data may be None.

        The previous trial's data is used again, unless devices, seed, cut or hyperparameters that were read to load it
        differ in this trial. Settings that `data` has changed are then set again, as is the working folder, if it still
        exists. For new data or a new fold, sets the author's ``first_example``, ``some_targets``, ``target_traits`` and
        ``validates``, and `key`. The training examples have class weights; those of a fold are computed from its own
        training examples.
        Raises: DataError: if the data cannot be used. Refused: if all data trains and the schedule needs validation.
        NotBegun: if the trial is stopped while the examples of a stream are counted.
        """
        cut = trial_parts.choose_cut(assignment)
        held = self._loaded
        fold = assignment.fold if cut == trial_parts.FOLDS else None
        if cut == trial_parts.WHOLE:  # all data trains
            refusals.check_plateau_validates(hp)
        if held is not None and held.serves(hp, placement, cut, assignment.data_seed):
            settings.apply_settings(held.settings)
            if held.folder is not None and held.folder.is_dir():
                os.chdir(held.folder)
        else:
            del held  # two data sets may not fit into memory
            held = self._loaded = self._load(author, hp, placement, assignment)
            validates = held.validation is not None or cut == trial_parts.FOLDS
            self._publish(author, held.train, validates=validates)
        # count the examples of streams
        for data, extent in zip(
            (held.train, held.validation), _extents(hp, placement, assignment), strict=True
        ):
            if data is not None:
                data.count(extent)
        if fold is None:
            return held.train, held.validation
        whole = _require_arrays(held.train)  # with folds, the training data is all data
        training_rows, validation_rows = trial_parts.fold_rows(
            whole.targets, whole.size, fold.number, fold.of, fold.seed
        )
        if self._weighted_fold is None or self._weighted_fold[:2] != (id(held), fold):
            weighted = self._weighted_for(author, hp, whole, training_rows)
            self._weighted_fold = id(held), fold, weighted
            self._publish(author, weighted, validates=True)
        else:
            weighted = self._weighted_fold[2]
        # Only the training examples are weighted by class.
        return weighted.part(training_rows), whole.part(validation_rows)

    def _publish(self, author: Author, train: Examples, *, validates: bool) -> None:
        """Set the first example, some targets and their traits on the author's object for its methods; update `key`.

        ``validates`` says whether there are validation data.
        """
        author.first_example = train.example()
        author.some_targets = train.some_targets()
        author.validates = validates
        targets = author.some_targets
        author.target_traits = losses.Targets.of(targets)
        self.key = self.seen, values.digest(author.first_example), values.digest(targets)

    def _weighted_for(
        self, author: Author, hp: Hyperparameters, whole: ArraySplit, rows: Any
    ) -> ArraySplit:
        """Return all data with class weights that are computed from a fold's training rows ``rows`` alone.

        It is ``whole`` itself if there are no class weights. Hyperparameters that are read are added to those of the
        loaded data. Raises RuntimeError if no data is loaded.
        """
        if self._loaded is None:
            raise RuntimeError("nothing is loaded")
        targets = tf.nest.map_structure(lambda leaf: leaf[rows], whole.arrays[1:2])
        # another trial must have the same to use this data again
        with hp.recording(self._loaded.reads):
            # None in place of the inputs
            weights = author.class_weights(hp, trial_parts.get_labels((None, *targets)))
        if not weights:
            return whole
        return ArraySplit(
            trial_parts.add_class_weights(whole.arrays, weights), self._loaded.placement.replicas
        )

    def test(
        self, author: Author, hp: Hyperparameters, placement: Placement, assignment: Assignment
    ) -> Any:
        """Run `data` again and return its third part, the test data; None if it returns no third part.

        If the trial caches features, the inputs are features. If there are test data, the fingerprint of the first two
        parts is compared with that of the trial's data, unless that has none or is a stream that draws at random. The
        data that the trial has loaded stays.
        Raises: OtherData: if the fingerprints differ. DataError: if the test data cannot be used, or `data` does not
        return training and validation data.
        """
        watched = self._surroundings.running_data(author)
        # `data` must not see what the other methods have set on the object since.
        with (
            attributes.attributes_replaced(author, self._own, self.bare),
            watched,
            hp.without_live(),
        ):
            parts = run_data(author, hp, assignment.data_seed)
            if parts.test is not None:
                parts = parts._replace(test=sources.check_test_data(parts.test))
            parts = _with_features(author, hp, placement, parts)
            if parts.test is not None and self.fingerprint is not None:
                again = _cut(author, hp, placement, parts, trial_parts.choose_cut(assignment))
                self._compare_fingerprints(
                    chunks.compute_fingerprint(*again),
                    self.fingerprint,
                    "that the model was trained and validated on",
                )
        return parts.test

    def load_raw_inputs(self, author: Author, hp: Hyperparameters, assignment: Assignment) -> Any:
        """Run `data` again and return the raw inputs on which exports are compared, as arrays, with texts converted.

        They are the inputs of the validation data, or of the training data if there is no validation data. With folds,
        or if all data trains, they are those of both together. Needed for a trial that trains on cached features.
        Raises: DataError: if `data` does not return training and validation data, or they are not arrays.
        """
        with self._surroundings.running_data(author):
            train, validation, _ = run_data(author, hp, assignment.data_seed)
        if validation is None:
            data = train
        elif trial_parts.choose_cut(assignment) == trial_parts.PARTS:
            data = validation
        else:
            data = trial_parts.join_data(train, validation)
        return tf.nest.map_structure(
            sources.convert_texts, sources.convert_arrays(residence.map_block_arrays(data))[0]
        )

    def check_fingerprint(self, expected: str | None, checkpoint: str) -> None:
        """Raise OtherData if the present data differs from that of a checkpoint, whose fingerprint is ``expected``.

        Nothing is compared if one of them has no fingerprint (None), or if the data is a stream that draws at random.
        ``checkpoint`` is a name for the message.
        """
        self._compare_fingerprints(self.fingerprint, expected, f"that {checkpoint} was trained on")

    def _compare_fingerprints(self, actual: str | None, expected: str | None, which: str) -> None:
        """Raise OtherData if two fingerprints differ; a fingerprint that is None is not compared.

        ``which`` says in the message what the expected data is. A stream that draws at random (random maps, unseeded
        shuffles) differs at each reading, so its fingerprints are not compared. To find that out, streams whose
        fingerprints differ are read once more. Nothing is compared before any data is loaded.
        """
        held = self._loaded
        if None in (actual, expected) or actual == expected or held is None:
            return
        if held.is_streamed:
            fingerprint_now = chunks.compute_fingerprint(held.train, held.validation)
            if fingerprint_now != held.fingerprint:  # it draws at random
                return
        raise OtherData(
            f"the data are {str(actual)[:SHOWN]} (digest of all examples), expected {str(expected)[:SHOWN]}, {which}; "
            "data() must return the same examples whenever it runs: sort what comes from sets and folders, seed "
            "generators that take their seed from elsewhere; for new data begin a new sweep"
        )

    def _load(
        self, author: Author, hp: Hyperparameters, placement: Placement, assignment: Assignment
    ) -> Loaded:
        """Load the data by the author's `data`, or map the files that another worker of the node has written.

        All attributes of the author's object are first set back to those before the first run of `data`, and the
        present data is let go. Sets `seen` and `bare`. The caller must store the result.
        """
        self._loaded = self._weighted_fold = None
        cut = trial_parts.choose_cut(assignment)
        seed = assignment.data_seed
        extents = _extents(hp, placement, assignment)
        if self._attributes_at_first is None:
            self._attributes_at_first = attributes.get_author_attributes(author, self._own)
        attributes.replace_all(author, self._own, self._attributes_at_first)

        # called by `load_shared`, unless another worker has loaded the same data
        def load() -> tuple[Any, Any]:
            # the test data is not needed here
            parts = run_data(author, hp, seed)._replace(test=None)
            return _with_features(author, hp, placement, parts)[:2]

        settings_before = settings.read_settings()
        folder_before = Path.cwd()
        cached_before = modules.count_cached_results(author)
        with recorder.apart() as read_by_data, self._surroundings.running_data(author) as left:
            # Names that `data` has set on the author, in modules or in libraries. If there are any, the data is not
            # shared with other workers, which would lack them.
            def left_anywhere() -> set[str]:
                present = settings.read_settings(settings.OF_LIBRARIES)
                return left() | {*settings.find_changed_settings(settings_before, present)}

            data, reads = residence.load_shared(
                assignment.shared, hp, load, left_anywhere, read_by_data
            )
            with hp.recording(reads):
                train, validation = _cut(author, hp, placement, DataParts(*data), cut, extents)
        self.seen = self._surroundings.compute_digests(author)
        caches_more = modules.count_cached_results(author) > cached_before
        # What `data` has read, such as a file, may reach the model by an attribute, a module or a cached function. If
        # `data` has left nothing there, the fingerprint of what it returns covers what it has read.
        if self.seen or caches_more:
            recorder.absorb(read_by_data)
        self.bare = attributes.get_author_attributes(author, self._own)
        if Path.cwd() == folder_before:
            new_folder = None
        else:
            new_folder = Path.cwd()
        changed_settings = settings.find_changed_settings(settings_before, settings.read_settings())
        return Loaded(
            placement,
            cut,
            seed,
            reads,
            train,
            validation,
            chunks.compute_fingerprint(train, validation),
            changed_settings,
            new_folder,
        )


def run_data(author: Author, hp: Hyperparameters, seed: int) -> DataParts:
    """Run the author's `data` under ``seed`` and return its parts; random generators are restored afterwards.

    The part for test data is None if there is none. All calls of `data` go through this function, so that it returns
    the same data in every process. While `data` runs, `keras.utils.clear_session` resets only the names of layers, and
    `hp.live` returns plain numbers.
    Raises: DataError: if it does not return training and validation data.
    """
    with (
        seeding_all_generators(seed),
        # otherwise a call of `clear_session` in `data` would discard what the trial has set up already
        keras_private.clearing_names_alone(),
        # the data are loaded once, so they cannot follow a number that changes during the trial
        hp.without_live(),
    ):
        returned: Any = author.data(hp)
    return DataParts(*sources.split_returned(returned))


def _require_arrays(data: Examples) -> ArraySplit:
    """Return ``data``, which must be arrays; raise TypeError for any other kind, which has no folds."""
    if not isinstance(data, ArraySplit):
        raise TypeError("folds are cut from arrays")
    return data


def _with_features(
    author: Author, hp: Hyperparameters, placement: Placement, parts: DataParts
) -> DataParts:
    """Return the parts with inputs replaced by their features, if the trial caches features; otherwise as they are.

    They are also as they are if `features` returns None. Raises what `features.make_front_model` and
    `features.replace_inputs` raise.
    """
    if not overrides(author, "features"):
        return parts
    from trainables.recipe import features

    if not features.are_cached(author, hp):
        return parts
    front = features.make_front_model(author, hp)
    if front is None:
        return parts
    return DataParts(
        *(features.replace_inputs(front, part, placement.devices[0]) for part in parts)
    )


def _extents(
    hp: Hyperparameters, placement: Placement, assignment: Assignment
) -> tuple[Extent, Extent]:
    """Return how many examples a trial reads of streams of training data and of validation data, in this order.

    Without ``steps_per_epoch`` or ``validation_steps``, it reads all of them.
    """
    replicas = int(placement.replicas.number)
    training = validation = Extent(stop_file=assignment.stop_file)
    # An `Extent` has the number of examples in all epochs, and in one.
    if "steps_per_epoch" in hp:
        steps = hp.integer("steps_per_epoch", standard=True)
        count = steps * get_batch_size(hp, replicas)
        training = Extent(count * assignment.epochs, count, assignment.stop_file)
    if "validation_steps" in hp:
        steps = hp.integer("validation_steps", standard=True)
        count = steps * get_validation_batch_size(hp, get_batch_size(hp, replicas))
        # each evaluation begins with the first example
        validation = Extent(count, count, assignment.stop_file)
    return training, validation


def _cut(
    author: Author,
    hp: Hyperparameters,
    placement: Placement,
    parts: DataParts,
    cut: str,
    extents: tuple[Extent, Extent] = (sources.ALL, sources.ALL),
) -> tuple[Examples, Examples | None]:
    """Return training and validation data, made of the parts of `data`; for folds, all data and None.

    ``cut`` is as in `trial_parts.choose_cut`, and ``extents`` as in `_extents`. Each `BlockArray` is written to disk
    first, because folds and class weights need arrays. Class weights are applied to the training data, except for
    folds. The validation data is None if there is none or all data trains.
    """
    # data from `load_shared` has been written already
    data = residence.map_block_arrays(parts.train)
    held_out = residence.map_block_arrays(parts.validation)
    replicas = placement.replicas
    if cut == trial_parts.FOLDS:  # each fold weights its own classes
        return make_examples(
            trial_parts.concatenate_parts(data, held_out), replicas, "training data"
        ), None
    if cut == trial_parts.WHOLE:  # all data trains, nothing is held out
        data = trial_parts.join_data(data, held_out)
        held_out = None
    weights = author.class_weights(hp, trial_parts.get_labels(data))
    train = make_examples(
        trial_parts.add_class_weights(data, weights), replicas, "training data", extent=extents[0]
    )
    if held_out is None:
        return train, None
    return train, make_examples(held_out, replicas, "validation data", extent=extents[1])


def copy_fitted_layers(attributes: Mapping[str, object]) -> dict[str, object]:
    """Return the author's attributes that contain layers or `FeatureSpace` objects, by name, with copies of these.

    Dictionaries, lists and tuples are searched, and copied if they contain such objects; ``attributes`` is not changed.
    What Keras cannot save is not copied; it is refused later as a part of the model. Attributes in which nothing is
    copied are left out. Call it inside the strategy's scope, where the variables of a program are created.
    """
    fitted = {}
    for name, value in attributes.items():
        copied = _with_copies(value, f"fitted_{name}")
        if copied is not value:
            fitted[name] = copied
    return fitted


def _with_copies(value: Any, name: str) -> Any:
    """Return ``value`` with the layers in it replaced by copies named after ``name``; itself if nothing is copied.

    `FeatureSpace` objects are copied as layers are. Dictionaries, lists and tuples are searched at any depth; other
    containers, and classes derived from these, are kept as they are. So is a layer that Keras cannot save or load.
    """
    if isinstance(value, keras.Layer | keras.utils.FeatureSpace):
        return _copy_of_layer(value, name)
    if type(value) not in (dict, list, tuple):
        return value
    # by key or index
    parts = dict(value.items() if isinstance(value, dict) else enumerate(value))
    copies = {}
    for key, part in parts.items():
        copies[key] = _with_copies(part, f"{name}_{key}")
    # there is nothing to copy: keep the container itself
    if all(copies[key] is part for key, part in parts.items()):
        return value
    if isinstance(value, dict):
        return copies
    return type(value)(copies.values())


def _copy_of_layer(value: Any, name: str) -> Any:
    """Return a copy of a layer under another ``name``, made by saving and loading.

    The copy keeps what `adapt` has computed. Returns the layer itself if it cannot be saved or loaded. Warnings are
    suppressed.
    """
    own_class = {type(value).__name__: type(value)}
    try:
        with (
            tempfile.TemporaryDirectory() as folder,
            warnings.catch_warnings(),
            _rename_layer(value, name),
        ):
            warnings.simplefilter("ignore")  # lookup layers have no weights to build
            path = Path(folder) / "fitted.keras"
            keras.saving.save_model(value, path)
            # it is the author's own code
            return keras.saving.load_model(path, custom_objects=own_class, safe_mode=False)
    except Exception:  # a layer's own code may raise anything
        return value


@contextmanager
def _rename_layer(value: Any, name: str) -> Iterator[None]:
    """Give a layer the name ``name`` inside the block.

    Its default name depends on the number of layers that the process has made, and checkpoints are read by name.
    """
    before, value.name = value.name, name
    try:
        yield
    finally:
        value.name = before
