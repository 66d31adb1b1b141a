"""Hooks and Keras callbacks, by which an author watches and steers a trial.

Callbacks are called between epochs, in any loop; those with methods for single batches need `Model.fit`. They see what
they see in Keras: one training, epochs from 0 that end after validation, and a model that they may change. Checkpoints
hold the attributes of callbacks that are plain values.

What hooks and callbacks set on Keras's objects before an epoch applies from that epoch on: the learning rate of the
trial's optimizer, until it is set again; `model.stop_training`; and which layers are trainable. A program whose layers
were changed is not used for other trials. Other attributes of layers are no place for state, for no checkpoint holds
them: hooks that set them are refused, and a trial whose callbacks set them begins anew when it is interrupted.
"""

from __future__ import annotations

import copy
import math
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from sweep.hyperparameters import Hyperparameters, Reads
from sweep.state.recorded_values import Digests
from sweep.state.values import Digester, IdentityDigest, get_attributes
from trainables import keras_private
from trainables.recipe import groups, refusals
from trainables.recipe.author import Author, overrides
from trainables.recipe.rates import get_own_rate, get_rate_variable
from trainables.recipe.refusals import Refused
from trainables.state import attributes
from trainables.state.checkpoint import CheckpointError

Gradients: TypeAlias = "list[tuple[Any, keras.Variable]]"
BatchHook: TypeAlias = Callable[
    [tf.Tensor, Mapping[str, tf.Tensor], Gradients], Mapping[str, Any] | None
]


class InGraphHook:
    """The hook `on_train_batch_end` inside the graph.

    The values that it returns are reported as means over the epoch's examples.
    """

    def __init__(self, hook: BatchHook) -> None:
        self._hook = hook
        self.names: tuple[str, ...] = ()  # of the values that it returns; set by `prepare`

    def prepare(self, losses: Mapping[str, tf.Tensor], variables: Sequence[keras.Variable]) -> None:
        """Find the names of the values that the hook returns, by a separate trace, and store them in `names`.

        ``losses`` has a zero for each loss, and ``variables`` are the trained weights; the hook gets gradients of
        zeros. Must be called in cross-replica context. Raises Refused as a call does, and if the hook returns the name
        of a loss.
        """

        def store_names() -> None:
            pairs = [(tf.zeros(v.shape, v.dtype), v) for v in variables]
            self.names = tuple(self._values(tf.constant(0), losses, pairs))

        # thrown away; only the names are needed
        tf.function(store_names, autograph=False).get_concrete_function()
        self.check_names(losses)

    def check_names(self, reported: Iterable[str]) -> None:
        """Raise Refused if the hook returns a value with a name in ``reported``, which the loop reports itself.

        `prepare` must have been called.
        """
        taken = sorted(set(self.names) & set(reported))
        if taken:
            raise Refused(
                f"on_train_batch_end() returns {', '.join(taken)}, which the loop reports itself; rename it"
            )

    def __call__(
        self,
        number: tf.Tensor,
        losses: Mapping[str, tf.Tensor],
        gradients: Sequence[Any],
        variables: Sequence[keras.Variable],
    ) -> dict[str, tf.Tensor]:
        """Call the hook inside the graph after update ``number`` (from 0); return the values that it reports, by name.

        The hook gets a copy of ``losses``, the batch's mean losses by name. ``gradients`` are those that were applied
        to ``variables``, clipped and for the whole batch. The values are float32 scalars; there are none if the hook
        returns nothing. Raises Refused if one of the values is an array, or if the hook returns anything but a
        dictionary or nothing. A text as a value raises TensorFlow's error.
        """
        return self._values(number, losses, list(zip(gradients, variables, strict=True)))

    def _values(
        self, number: tf.Tensor, losses: Mapping[str, Any], pairs: Gradients
    ) -> dict[str, tf.Tensor]:
        """Call the hook inside the graph and return its values by name, as float32; empty if it returns nothing.

        ``pairs`` are gradients with their weights. Raises Refused for anything but a dictionary of scalars.
        """
        found = self._hook(number, dict(losses), pairs) or {}
        if not isinstance(found, Mapping):
            raise Refused(
                f"on_train_batch_end() returned {type(found).__name__}, expected a dictionary or nothing"
            )
        values = {}
        for name, value in found.items():
            values[str(name)] = tf.cast(value, tf.float32)
        for name, value in values.items():
            if value.shape.rank != 0:
                raise Refused(
                    f"on_train_batch_end() returns {name!r} of shape {value.shape}, expected one number"
                )
        return values


HOOKS = ("on_train_begin", "on_epoch_begin", "on_epoch_end")


class AuthorHooks:
    """The author's hooks between epochs.

    Hooks may keep variables, and plain values in ``memory``; checkpoints hold both. A hook that changes another
    attribute of the trainable, or one of a layer, is refused, because the change would be lost on resume or stay for
    the next trial.
    """

    def __init__(
        self,
        author: Author,
        networks: Sequence[Any],
        hp: Hyperparameters,
        reads: Reads,
        own: frozenset[str],
    ) -> None:
        """Find the hooks that the author has overridden; none is called yet.

        ``networks`` are the model, first, and all other networks of the trial. When a hook is called, it gets ``hp``,
        and the hyperparameters that it reads are added to ``reads``. ``own`` names the attributes that this package
        sets on the trainable, which are not checked for changes. The object is false if no hook is overridden.
        """
        self._author = author
        self._networks = networks
        self._model = networks[0]
        self._hp = hp
        self._reads = reads
        self._own = own
        self._names = [name for name in HOOKS if overrides(author, name)]

    def __bool__(self) -> bool:
        return bool(self._names)

    def train_begin(self) -> None:
        """Call the author's `on_train_begin`, if any.

        Raises Refused if it changes an attribute of the trainable or a layer.
        """
        with self._recording_reads("on_train_begin"):
            self._author.on_train_begin(self._model, self._hp)

    def epoch_begin(self, epoch: int) -> None:
        """Call the author's `on_epoch_begin`, if any, for an epoch (from 1).

        Raises Refused if it changes an attribute of the trainable or a layer.
        """
        with self._recording_reads("on_epoch_begin"):
            self._author.on_epoch_begin(epoch, self._model, self._hp)

    def epoch_end(self, epoch: int, metrics: dict[str, float]) -> dict[str, float]:
        """Call `on_epoch_end` for an epoch (from 1); return the metrics, with the values that the hook has added.

        All are floats. The hook gets a copy of ``metrics``; if it is not overridden, ``metrics`` itself is returned.
        Raises Refused if the hook changes or removes a metric, adds anything but numbers, or changes an attribute of
        the trainable or a layer.
        """
        if "on_epoch_end" not in self._names:
            return metrics
        logs = dict(metrics)
        with self._recording_reads("on_epoch_end"):
            self._author.on_epoch_end(epoch, logs, self._model, self._hp)
        for name, value in metrics.items():
            # NaN is not equal to itself
            if name not in logs or (logs[name] is not value and logs[name] != value):
                raise Refused(
                    f"on_epoch_end() has changed {name!r} in the logs, expected new names alone"
                )
        return {name: _check_logged_number(name, value) for name, value in logs.items()}

    @contextmanager
    def _recording_reads(self, hook: str) -> Iterator[None]:
        """Record the hyperparameters that are read inside the block; do nothing if ``hook`` is not overridden.

        ``hook`` is the name of the method that the block calls. Raises Refused at the end of the block if an attribute
        of the trainable or a layer was changed in it; the change stays.
        """
        if hook not in self._names:
            yield
            return
        before = self._digest_attributes()
        with self._hp.recording(self._reads):
            yield
        # the first one is named
        for changed in attributes.find_changed_names(before, self._digest_attributes()):
            name = changed.rpartition(".")[2]  # without "self." or the layer
            raise Refused(
                f"{hook}() has changed {changed}, which a resumed trial would not have; keep it in "
                f"self.memory[{name!r}] (a plain value) or in a variable"
            )

    def _digest_attributes(self) -> Digests:
        """Return digests of the attributes that hooks must not change, by full name, such as "self.NAME"."""
        of_author = attributes.digest_attributes(self._author, self._own)
        return {
            **{f"self.{name}": digest for name, digest in of_author.items()},
            **attributes.digest_layer_attributes(self._networks),
        }


def copy_memory(memory: Any) -> dict[str, Any]:
    """Return a shallow copy of the author's ``memory`` for a checkpoint.

    Raises Refused if it is not a dictionary with texts as keys, or a value is not plain: an int, a float, a text, a
    bool, None, or a list of them, all of exactly these types. Numbers of NumPy are refused.
    """
    if not isinstance(memory, dict):
        raise Refused(f"self.memory is {type(memory).__name__}, expected a dictionary")
    for name, value in memory.items():
        if not isinstance(name, str) or not _is_plain_value(value):
            raise Refused(
                f"self.memory[{name!r}] is {type(value).__name__}, expected a number, a text, true, false, None, or a "
                "list of them; arrays belong in variables"
            )
    return dict(memory)


def _is_plain_value(value: object) -> bool:
    """Return whether a value is an int, a float, a text, a bool, None, or a list of such values or of such lists.

    Numbers of classes derived from these, such as NumPy's, do not count.
    """
    if isinstance(value, list):
        return all(map(_is_plain_value, value))
    return value is None or type(value) in (bool, int, float, str)


def _check_logged_number(name: str, value: Any, by: str = "on_epoch_end()") -> float:
    """Return ``value``, an entry of the logs, as a float.

    Whatever `float` accepts except texts counts as a number, such as a bool or an array of one element. Raises Refused
    for anything else; the message says that ``by`` has added ``name``.
    """
    try:
        if isinstance(value, str | bytes):
            raise TypeError("a text")  # `float` would accept "0.5"
        return float(value)
    except (TypeError, ValueError) as error:
        raise Refused(
            f"{by} adds {name!r} = {value!r:.60} to the logs, expected a number"
        ) from error


# Keras's own that neither ask for the number of epochs nor change the model as the training ends; an EarlyStopping that
# restores the best weights is refused
OF_ANY_LENGTH = frozenset(
    {
        keras.callbacks.CSVLogger,
        keras.callbacks.EarlyStopping,
        keras.callbacks.History,
        keras.callbacks.ModelCheckpoint,
        keras.callbacks.ProgbarLogger,
        keras.callbacks.ReduceLROnPlateau,
        keras.callbacks.RemoteMonitor,
        keras.callbacks.TerminateOnNaN,
    }
)

COMPARISONS = {
    f"keras.ops.{comparison.__name__}": comparison
    for comparison in (keras.ops.less, keras.ops.greater)
}
"""Functions by which Keras's callbacks compare values of a monitored metric, by their names in checkpoints."""


class Callbacks:
    """The author's Keras callbacks for one trial.

    As in `Model.fit`, a `History` comes after them, unless they have one or there are none, and is the model's
    attribute ``history``. Creating it raises Refused if a callback cannot be used in any loop. ``fit`` is True if
    `Model.fit` trains; otherwise the message also names those that need it.
    """

    def __init__(self, callbacks: Sequence[keras.callbacks.Callback], *, fit: bool = False) -> None:
        self._callbacks = list(callbacks)
        refusals.check_callbacks(self._callbacks, fit=fit)
        self._adds_history = bool(self._callbacks) and not any(map(_is_history, self._callbacks))
        if self._adds_history:
            self._callbacks.append(keras.callbacks.History())
        # attributes that the author's `callbacks` has set on the trainable
        self._kept_by_author: dict[str, Any] = {}
        self._saved_separately = _SeparatelySavedObjects()
        self._networks: Sequence[Any] = ()
        self._layer_digests: Digests = {}  # of the networks, as the present phase began
        # the attributes of each callback, copied at the start of the trial and of the present phase
        self._at_trial_start: list[dict[str, Any]] = []
        self._at_phase_start: list[dict[str, Any]] = []

    @classmethod
    def of(cls, author: Author, hp: Hyperparameters, *, fit: bool = False) -> Callbacks:
        """Call the author's `callbacks` for a trial that begins, and return the list that it returns as `Callbacks`.

        Attributes that `callbacks` sets on the author's object are remembered for `watch`. ``fit`` is True if
        `Model.fit` trains, which also calls methods for single batches. Raises Refused if a callback cannot be used in
        any loop. One that only needs `Model.fit` for its methods for single batches is not refused here; see
        `want_batches`.
        """
        attributes_before = dict(vars(author))
        made = cls(author.callbacks(hp), fit=fit)
        made._kept_by_author = {
            k: v for k, v in vars(author).items() if attributes_before.get(k) is not v
        }
        return made

    def __iter__(self) -> Iterator[keras.callbacks.Callback]:
        return iter(self._callbacks)

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    @property
    def want_batches(self) -> bool:
        """Whether any callback has methods for single updates that must be called, as only `Model.fit` does."""
        return any(
            refusals.list_callback_methods(callback, refusals.OF_BATCHES) for callback in self
        )

    @property
    def may_depend_on_trial_length(self) -> bool:
        """Whether there are callbacks beside those in `OF_ANY_LENGTH`, which may ask for the number of epochs."""
        return any(type(callback) not in OF_ANY_LENGTH for callback in self)

    def watch(
        self,
        author: Author,
        networks: Sequence[keras.Model],
        own: frozenset[str],
        *,
        epochs: int | None,
        updates: int,
    ) -> None:
        """Pass the model and the parameters ``epochs`` and ``steps`` (``updates``, in an epoch) to the callbacks.

        Also remembers the attributes that callbacks and layers have now, for `state`. To be called as each phase of a
        trial begins. ``networks`` are the model, first, and all other networks of the trial. ``own`` names the
        attributes that this package sets on the trainable. ``epochs`` is None if only minutes limit the trial. The
        attributes that the author's `callbacks` has set on the trainable are set again, because they were removed while
        the model was made. What `set_model` sets does not count as changed by the trial, since a resumed trial calls it
        as well.
        """
        vars(author).update(self._kept_by_author)
        for callback in self:
            callback.set_params({"verbose": 0, "epochs": epochs, "steps": updates})
            callback.set_model(networks[0])
        if self._callbacks:
            parts = [*self, *_list_parts(networks)]
            self._saved_separately = _SeparatelySavedObjects(frozenset(map(id, parts)), author, own)
            self._networks = networks
            self._layer_digests = attributes.digest_layer_attributes(networks)
            self._at_phase_start = self._copy_all_attributes()
            self._at_trial_start = self._at_trial_start or self._at_phase_start

    def _set_history(self) -> None:
        """Set the model's ``history`` to that of the trial, the last one in the list; do nothing without callbacks.

        `Model.fit`, called for each epoch, replaces it.
        """
        for callback in filter(_is_history, self):
            callback.model.history = callback

    def train_begin(self) -> None:
        """Call each callback's `on_train_begin`; to be called once per trial, not after a checkpoint is restored."""
        self._set_history()
        for callback in self:
            callback.on_train_begin()

    def epoch_begin(self, epoch: int) -> None:
        """Call each callback's `on_epoch_begin` for an epoch (from 1; callbacks get it from 0), without logs."""
        self._set_history()
        for callback in self:
            callback.on_epoch_begin(epoch - 1)

    def epoch_end(
        self,
        epoch: int,
        metrics: Mapping[str, float],
        *,
        saving: Callable[[], AbstractContextManager[None]],
    ) -> dict[str, float]:
        """Call each callback's `on_epoch_end` for an epoch (from 1; callbacks get it from 0), after validation.

        As in `Model.fit`, all callbacks get the same dictionary, a copy of ``metrics``, and may change it; the changed
        dictionary, with all values as floats, is returned. A `ModelCheckpoint` is called inside the context
        ``saving()``, in which the model has the values with which it is saved. Raises Refused if the dictionary has a
        value that is not a number.
        """
        logs: dict[str, Any] = dict(metrics)
        self._set_history()
        for callback in self:
            saves = isinstance(callback, keras.callbacks.ModelCheckpoint)
            with saving() if saves else nullcontext():
                callback.on_epoch_end(epoch - 1, logs)
            by = f"{type(callback).__name__}.on_epoch_end()"
            for name, value in logs.items():
                logs[name] = _check_logged_number(name, value, by=by)
        return logs

    def train_end(self, metrics: Mapping[str, float]) -> None:
        """Call each callback's `on_train_end` with a copy of ``metrics``, those of the last epoch."""
        for callback in self:
            callback.on_train_end(dict(metrics))

    def state(self) -> list[dict[str, Any]] | None:
        """Return for each callback, in order, a dictionary of the attributes that have changed, for a checkpoint.

        Attributes that Keras sets are left out. Without callbacks, the list is empty. To be called after `watch`. An
        attribute has changed if it differs from that when the trial began, or from that when the present phase began.
        Returns None if a checkpoint cannot hold a change: of a value that is not plain, wherever it was made
        (`_AttributeDigester` says what is compared), an attribute that was deleted, or one of a layer.
        """
        if attributes.digest_layer_attributes(self._networks) != self._layer_digests:
            return None
        found = []
        for now, at_trial_start, at_phase_start in zip(
            self._copy_all_attributes(), self._at_trial_start, self._at_phase_start, strict=True
        ):
            if not at_trial_start.keys() <= now.keys():
                return None
            changed = {}
            for name, value in now.items():
                changed_in_trial = _differs(value, at_trial_start, name)
                if changed_in_trial or _differs_if_plain(value, at_phase_start, name):
                    changed[name] = value
            if not all(map(_may_be_kept, changed.values())):
                return None
            found.append(changed)
        return found

    def _copy_all_attributes(self) -> list[dict[str, Any]]:
        """Return for each callback, in order, the result of `_copy_attributes`."""
        return [_copy_attributes(callback, self._saved_separately) for callback in self]

    def restore(self, state: object) -> None:
        """Set the attributes in ``state``, which `state` has returned for callbacks made in the same way.

        Attributes that are not in it stay as they are. Lists and dictionaries get their new content in place, because
        several callbacks may share them.
        Raises CheckpointError if ``state`` is None or belongs to another number of callbacks. A ``state`` of an earlier
        version may lack the last one, the `History` that is added here.
        """
        # None stands for attributes that could not be saved.
        if not isinstance(state, list):
            raise CheckpointError("Keras callbacks keep state that no checkpoint holds")
        expected = {len(self._callbacks), len(self._callbacks) - self._adds_history}
        if len(state) not in expected:
            raise CheckpointError(
                f"it is of {len(state)} Keras callbacks, and there are others now"
            )
        for callback, changed in zip(self, state, strict=False):
            for name, value in changed.items():
                _set_attribute(callback, name, value)


def _is_history(callback: keras.callbacks.Callback) -> bool:
    """Return whether a callback is a `History` of Keras's, or of a class derived from it."""
    return isinstance(callback, keras.callbacks.History)


def _list_parts(networks: Sequence[keras.Model]) -> list[object]:
    """Return networks with their layers, variables, optimizers and metrics, whose values are in each checkpoint.

    Of each Keras variable, the TensorFlow variable within it is in the list as well. Optimizers are those among the
    networks' attributes.
    """
    parts: list[object] = []
    for network in networks:
        parts += [*keras_private.flatten_layers(network), *network.variables]
        if isinstance(network, keras.Model):
            parts += network.metrics
        for value in vars(network).values():  # a model with a step of its own may have several
            if isinstance(value, keras.optimizers.Optimizer):
                parts += [value, *value.variables]
    of_tensorflow = [part.value for part in parts if isinstance(part, keras.Variable)]
    return [*parts, *of_tensorflow]


@dataclass(frozen=True)
class _SeparatelySavedObjects:
    """Objects that callbacks may refer to and whose state checkpoints save apart from the callbacks' attributes."""

    ids: frozenset[int] = frozenset()
    """The `id` of each callback, and of each part of the trial's networks."""
    author: Author | None = None
    own: frozenset[str] = frozenset()
    """Names of the attributes of ``author`` that this package sets. Checkpoints have them, or a session sets them
    again; changes of all other attributes would be lost."""


def _copy_attributes(
    callback: keras.callbacks.Callback, saved_separately: _SeparatelySavedObjects
) -> dict[str, Any]:
    """Return copies of a callback's attributes by name, without those that Keras sets.

    Lists and dictionaries of plain values are copied with all that they contain. NumPy numbers become Python numbers,
    and the functions in `COMPARISONS` become their names there, so that attributes can be compared and saved. All other
    values become a `_Fingerprint`.
    """
    copies: dict[str, Any] = {}
    for name, value in get_attributes(callback).items():
        if name in keras_private.CALLBACK_ATTRIBUTES:
            continue
        plain = _convert_to_plain(value)
        if _may_be_kept(plain):
            copies[name] = copy.deepcopy(plain)
        else:
            content = _AttributeDigester(saved_separately).digest(value)
            copies[name] = _Fingerprint(IdentityDigest(value), content)
    return copies


def _set_attribute(callback: keras.callbacks.Callback, name: str, saved: Any) -> None:
    """Set an attribute of a callback to a value that `Callbacks.state` has returned.

    If it is a list or a dictionary now and in ``saved``, its content is replaced in place. The name of a function in
    `COMPARISONS` becomes the function.
    """
    present = get_attributes(callback).get(name)
    if isinstance(saved, list) and type(present) is list:
        present[:] = saved
    elif isinstance(saved, dict) and type(present) is dict:
        present.clear()
        present.update(saved)
    else:
        value = COMPARISONS.get(saved, saved) if isinstance(saved, str) else saved
        # not by a `__setattr__` of the class, which may do more
        object.__setattr__(callback, name, value)


class _Fingerprint(NamedTuple):
    """Identity and content of a value that no checkpoint can hold, by which a change of the value is noticed."""

    identity: IdentityDigest
    content: object


class _AttributeDigester(Digester):  # an `object()` is a digest that equals no other
    """Digests attributes of callbacks, so that a change is noticed if a resumed trial would lack it.

    An object whose content cannot be digested completely counts as changed: its digest equals no other. The base class
    compares such objects by identity. This class does so only for functions and modules of libraries, for objects that
    cannot be pickled, such as open files and locks, and for those in a `_SeparatelySavedObjects`.
    """

    largest_bytes = sys.maxsize

    def __init__(self, saved_separately: _SeparatelySavedObjects) -> None:
        super().__init__()
        self._saved_separately = saved_separately

    def _digest_parts(self, value: Any, identity: object) -> object:
        """Return a digest of a value by the parts that a resumed trial would lack; of others, by its identity alone."""
        saved = self._saved_separately
        if id(value) in saved.ids:
            return IdentityDigest(value)
        if value is saved.author:
            own = attributes.digest_attributes(saved.author, saved.own)
            return IdentityDigest(value), tuple(own.items())
        if isinstance(value, types.BuiltinMethodType | types.MethodType):
            return value.__name__, self.digest(value.__self__)
        if isinstance(value, keras.callbacks.Callback):
            # a callback inside another one, without what Keras sets on it
            of_callback = get_attributes(value)
            for name in keras_private.CALLBACK_ATTRIBUTES:
                of_callback.pop(name, None)
            return IdentityDigest(value), self.digest(of_callback, value)
        if isinstance(value, keras.Layer):
            # such as a metric of the callback's own: no checkpoint has these variables
            variables = [one for one in value.variables if id(one) not in saved.ids]
            return IdentityDigest(value), tuple(map(self._digest_array, variables))
        return super()._digest_parts(value, identity)

    def _digest_object(self, value: Any) -> object:
        """Return a digest of an object by its attributes; one that equals no other for what TensorFlow changes."""
        if isinstance(value, _MUTABLE_TENSORFLOW_TYPES):
            return object()
        return super()._digest_object(value)

    def _digest_array(self, value: Any) -> object:
        """Return a digest of an array's content; one that equals no other if the content cannot be read."""
        try:
            return super()._digest_array(value)
        except Exception:  # TensorFlow's errors have no common class: a symbolic tensor, a variable without a value
            return object()

    def _digest_without_content(self, value: object) -> object:
        """Return a digest that equals no other, for a value whose content is not read because it is too large."""
        return object()


# objects of TensorFlow that change and whose content cannot be digested
_MUTABLE_TENSORFLOW_TYPES = (
    tf.Module,
    tf.data.Iterator,
    tf.lookup.experimental.DenseHashTable,
    tf.lookup.experimental.MutableHashTable,
    tf.train.Checkpoint,
    tf.train.ExponentialMovingAverage,
)


def _convert_to_plain(value: Any) -> Any:
    """Return a scalar of NumPy as a number and one of `COMPARISONS` as its name; any other value as it is."""
    if isinstance(value, np.generic):
        return value.item()
    for name, comparison in COMPARISONS.items():
        if value is comparison:
            return name
    return value


def _differs(value: Any, copies: Mapping[str, Any], name: str) -> bool:
    """Return whether ``copies``, returned by `_copy_attributes`, lacks ``name`` or has another type or value for it."""
    if name not in copies:
        return True
    return type(value) is not type(copies[name]) or bool(value != copies[name])


def _differs_if_plain(value: Any, copies: Mapping[str, Any], name: str) -> bool:
    """Return the result of `_differs` for a plain value, and False for a `_Fingerprint`.

    A `_Fingerprint` stands for a value that is not plain, which no checkpoint can hold.
    """
    return not isinstance(value, _Fingerprint) and _differs(value, copies, name)


def _may_be_kept(value: object) -> bool:
    """Return whether a value is None, a bool, an int, a float or a text, or a list or dictionary of such values.

    Checkpoints can hold such values. Keys of dictionaries must be texts.
    """
    if type(value) is list:  # a class derived from it would be resumed as a list
        return all(map(_may_be_kept, value))
    if type(value) is dict:
        return all(isinstance(name, str) and _may_be_kept(part) for name, part in value.items())
    return value is None or type(value) in (bool, int, float, str)


@dataclass(frozen=True)
class HookSettings:
    """The learning rates and trainable layers at one moment, which hooks and callbacks may change."""

    # of each optimizer, first the trial's; None if it is a schedule
    rates: tuple[float | None, ...]
    layers: tuple[bool, ...]  # whether each layer is trainable
    weights: tuple[bool, ...]  # whether each weight is trainable

    @classmethod
    def of(cls, program: Any) -> HookSettings:
        """Return the present settings of a program's optimizers and layers."""
        layers = [
            layer for network in program.networks for layer in keras_private.flatten_layers(network)
        ]
        weights = [variable for network in program.networks for variable in network.variables]
        return cls(
            tuple(map(get_own_rate, program.optimizers)),
            tuple(bool(layer.trainable) for layer in layers),
            tuple(bool(variable.trainable) for variable in weights),
        )


def refuse_created_variables(program: Any, hook: str) -> None:
    """Raise Refused if the method ``hook`` has created variables of objects in attributes of the trainable.

    Checkpoints would lack these variables, and the next trial with the same program would inherit them, so the program
    becomes `spent`.
    """
    known = {id(variable) for variable in program.hook_variables}
    created = [variable for variable in program.list_hook_variables() if id(variable) not in known]
    if created:
        program.spent = True
        raise Refused(
            f"{hook}() has created the variable {created[0].name!r} of a network or metric that the trainable keeps; "
            "call it once in model(), so that its variables are in checkpoints"
        )


def find_set_rate(program: Any, before: HookSettings) -> float | None:
    """Return the learning rate that a hook or callback has set on the trial's optimizer since ``before``, or None.

    A rate that equals the one before is not noticed. Nothing is changed. Raises Refused if the rate of
    `model.optimizer` was set although the model has its own `compile`, or all parts of a grouped optimizer keep their
    rates. Among `program.rated`, whose rates the loop sets, raises Refused for an optimizer that has got a schedule,
    and for a rate that was set on any but `model.optimizer`. Changes on all other optimizers are ignored.
    """
    found = None
    for optimizer, was in zip(program.optimizers, before.rates, strict=True):
        present_rate = get_own_rate(optimizer)
        if present_rate == was:
            continue
        if optimizer is program.model.optimizer:
            # whose rates the loop does not set
            whose = ""
            if refusals.list_overridden_methods(program.model, "compile"):
                whose = "the model's own compile() brings its optimizers"
            elif not groups.follows_the_rate(optimizer):
                whose = "its parts bring rates or schedules"
            if whose:
                raise Refused(
                    f"model.optimizer.learning_rate was set, and {whose}, whose rates the loop leaves as they are"
                )
        if optimizer not in program.rated:
            continue
        if present_rate is None:  # it is a schedule now
            raise Refused(
                "a learning-rate schedule was set on the optimizer of a built program; give it to optimizer()"
            )
        if optimizer is not program.model.optimizer:
            raise Refused(
                f"the learning rate of {optimizer.name!r} was set, which follows the trial's by Update(rate=...); set "
                "that of model.optimizer, or call scale_rate()"
            )
        found = present_rate
    return found


def show_rate(program: Any, rate: float) -> None:
    """Set the learning rate of the model's optimizer to ``rate``, the first of the next epoch, for callbacks to read.

    Does nothing if the loop does not set that optimizer's rate, if it has a schedule, or if ``rate`` is NaN.
    """
    optimizer = getattr(program.model, "optimizer", None)
    if optimizer not in program.rated or math.isnan(rate):
        return
    variable = get_rate_variable(optimizer)
    if variable is not None:
        variable.assign(rate)


def have_layers_changed(program: Any, before: HookSettings) -> bool:
    """Return whether layers of the program's networks were frozen or unfrozen since ``before``.

    Nothing is changed. Raises Refused if ``trainable`` was set on single weights alone, or if a weight was made
    trainable for which no optimizer has moments.
    """
    now = HookSettings.of(program)
    if (now.layers, now.weights) == (before.layers, before.weights):
        return False
    if now.layers == before.layers:  # although weights have changed
        raise Refused(
            "`trainable` of single weights was set; set it on their layer, which checkpoints remember"
        )
    # Unfreezing is possible only for weights that were trainable when their optimizer was built.
    known = {
        id(v)
        for optimizer in program.optimizers
        for v in keras_private.optimizer_variables(optimizer)
    }
    weights = [variable for network in program.networks for variable in network.variables]
    for variable, trainable, was in zip(weights, now.weights, before.weights, strict=True):
        if trainable and not was and id(variable) not in known:
            raise Refused(
                f"{variable.path} was made trainable, for which the optimizer has no moments; let phases(hp) of the "
                "trainable say what is frozen when (docs/optimizers.md)"
            )
    return True


def affects_next_trial(program: Any, before: HookSettings) -> bool:
    """Return whether trainable layers or weights have changed since ``before``, or a schedule has replaced a rate.

    The program's next trial would inherit such a change, so the program must not be used again.
    """
    now = HookSettings.of(program)
    if (now.layers, now.weights) != (before.layers, before.weights):
        return True
    return any(
        rate is None and was is not None for rate, was in zip(now.rates, before.rates, strict=True)
    )


def set_trainable_layers(program: Any, layers: Sequence[bool]) -> None:
    """Set ``trainable`` of all layers of the program's networks to ``layers``, in the order of `HookSettings.layers`.

    Raises ValueError if there are not as many layers, after those that both have were set. Outer layers are set first,
    because setting them also sets the layers inside them.
    """
    present_layers = [
        layer for network in program.networks for layer in keras_private.flatten_layers(network)
    ]
    for layer, trainable in zip(present_layers, layers, strict=True):
        layer.trainable = trainable
