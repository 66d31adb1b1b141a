"""Digests of values, equal if the content is equal, and snapshots, which restore the content in place.

Nothing here imports TensorFlow or Keras; code that has values of their types has imported them.
"""

from __future__ import annotations

import array
import copy
import functools
import gc
import itertools
import pickle
import random
import sys
import types
import weakref
import zlib
from collections import deque
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    MutableSet,
)
from contextlib import suppress
from typing import Any

import numpy as np

from sweep.author_code import is_author_file

LARGEST_BYTES = 256 * 2**20  # larger arrays are compared by identity, which is safe but slower
COPIED_BYTES = 16 * 2**20  # of one value; larger ones can be replaced, but not restored in place
_MAX_DEPTH = 60  # of objects within objects
_MAX_OBJECTS = 20_000  # within one value
_SAMPLED_ELEMENTS = 2**16  # elements sampled from a larger array to detect changes in place
_CODE_TYPES = (type, types.ModuleType, types.BuiltinFunctionType, types.MethodType)
_PLAIN_TYPES = (type(None), bool, int, float, complex, str, bytes)
# standard modules whose objects hold what users put into them
_OPEN_MODULES = (
    "types",
    "collections",
    "argparse",
)
_CACHED_FUNCTION = type(functools.cache(lambda: None))
_CONTAINERS = (Mapping, list, tuple, deque, set, frozenset)
_MUTABLE_CONTAINERS = (MutableMapping, MutableSet, list, deque, bytearray, array.array)
_WRAPPERS = (
    types.FunctionType,
    property,
    staticmethod,
    classmethod,
    functools.partial,
    _CACHED_FUNCTION,
)
_TRAINABLES = ("trainables.keras_trainable", "trainables.recipe.author")


def is_trainable(value: object) -> bool:
    """Return whether an object is an instance of one of sweep's trainable classes, or of a class derived from one.

    These are the classes defined in `_TRAINABLES` and in modules below them. The state of such an object is restored
    separately.
    """
    return any(kind.__module__.startswith(_TRAINABLES) for kind in type(value).__mro__)


def is_instance_of(value: object, library: str, *names: str) -> bool:
    """Return whether a value is an instance of one of the classes ``names`` of a library, given by dotted names.

    Returns False if the library was not imported yet or has no such class, and does not import the library.
    """
    if library not in sys.modules or type(value).__module__ == "builtins":
        return False
    return isinstance(value, tuple(filter(None, (_find_class(library, name) for name in names))))


def _find_class(library: str, name: str) -> type | None:
    """Return a class of an imported library by its dotted name; None if the library has no such class (yet).

    A class is looked up once in a process. Raises KeyError if the library was not imported.
    """
    known = _known_classes.get((library, name))
    if known is not None:
        return known
    found: Any = sys.modules[library]
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        return None
    _known_classes[library, name] = found
    return found


_known_classes: dict[tuple[str, str], type] = {}


def is_variable(value: object) -> bool:
    """Return whether a value is a variable of TensorFlow or Keras."""
    return is_instance_of(value, "tensorflow", "Variable") or is_instance_of(
        value, "keras", "Variable"
    )


def is_layer(value: object) -> bool:
    """Return whether a value is a layer or a model of Keras."""
    return is_instance_of(value, "keras", "Layer")


def is_library_object(value: object) -> bool:
    """Return whether the class of a value is defined by TensorFlow or Keras; a subclass of the author's is not."""
    return type(value).__module__.partition(".")[0] in ("tensorflow", "keras")


_STATEFUL_OF_KERAS = (
    *(
        "callbacks.Callback",
        "initializers.Initializer",
        "optimizers.Optimizer",
        "metrics.Metric",
        "losses.Loss",
    ),
    *(
        "optimizers.schedules.LearningRateSchedule",
        "regularizers.Regularizer",
        "constraints.Constraint",
    ),
)


def get_generator_state(value: object) -> Any:
    """Return a copy of the state of a random number generator; None for other values.

    Generators of Python, NumPy, TensorFlow and Keras are known. `random.SystemRandom`, which has no state, gives None.
    """
    match value:
        case random.SystemRandom():  # before its base class: it draws from the machine and has no state
            return None
        case random.Random():
            return value.getstate()
        case np.random.Generator():
            return copy.deepcopy(value.bit_generator.state)
        case np.random.RandomState():
            return value.get_state()
    if is_instance_of(value, "tensorflow", "random.Generator") or is_instance_of(
        value, "keras", "random.SeedGenerator"
    ):
        return np.asarray(value.state)  # type: ignore[attr-defined]  # one of these two
    return None


def restore_generator(value: Any, state: Any) -> None:
    """Restore a random number generator in place to a state that `get_generator_state` returned for it."""
    match value:
        case random.Random():
            value.setstate(state)
        case np.random.Generator():
            value.bit_generator.state = state
        case np.random.RandomState():
            value.set_state(state)
        case _:
            value.state.assign(state)


def digest(value: Any) -> object:
    """Return a digest of a value, equal for values with equal content in this process.

    A value that cannot be compared by content has a digest that is equal only for the same object. That is so for
    functions, modules, classes and layers, and for what cannot be pickled or exceeds the limits on depth and number of
    objects. It is also so for arrays above `LARGEST_BYTES`, of which a sample of the elements is compared as well.
    """
    return Digester().digest(value)


class IdentityDigest:
    """A digest of an object by identity: equal only to itself.

    The object is kept alive if its type allows no weak reference; otherwise the digest equals nothing once it is
    deleted.
    """

    def __init__(self, value: object) -> None:
        self._identity = id(value)
        self._get_object: Callable[[], object]
        try:
            self._get_object = weakref.ref(value)
        except TypeError:
            self._get_object = lambda: value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, IdentityDigest) or other._identity != self._identity:
            return False
        return self._get_object() is not None and self._get_object() is other._get_object()

    def __hash__(self) -> int:
        return self._identity


class Digester:
    """Digests one value; parts that are too large or nested too deeply are compared by identity.

    Containers are copied in one step of the interpreter before they are read, because other threads may change them.
    ``nbytes`` counts the bytes of arrays, texts, pickles and, with 8 bytes each, of numbers.
    """

    largest_bytes = LARGEST_BYTES

    def __init__(self) -> None:
        self._ids_around: list[
            int
        ] = []  # ids of the objects around the present one, from the outside in
        self._objects_left = _MAX_OBJECTS  # how many may still be read
        self.nbytes = 0

    def digest(self, value: Any, owner: object = None) -> object:
        """Return the digest of a value, and count it in ``nbytes``.

        Beyond the limits of depth and number of objects, and for a value within itself, the digest only identifies an
        object: ``owner``, or else the value itself. Give ``owner`` if the value was created only to be digested.
        """
        self._objects_left -= 1
        identity = value if owner is None else owner
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            if isinstance(value, str | bytes):
                self.nbytes += len(value)
            else:
                self.nbytes += 8
            # floats by their text, since NaN differs from itself, and 0.0 equals -0.0
            return type(value).__name__, repr(value) if isinstance(value, float) else value
        if id(value) in self._ids_around:  # the value is within itself
            return IdentityDigest(identity)
        if len(self._ids_around) > _MAX_DEPTH or self._objects_left < 0:
            return self._digest_without_content(identity)
        self._ids_around.append(id(value))
        try:
            return self._digest_parts(value, identity)
        finally:
            self._ids_around.pop()

    def _digest_without_content(self, value: object) -> object:
        """Return the digest of a value whose content is not read, because it exceeds a limit of `digest`."""
        return IdentityDigest(value)

    def _digest_parts(self, value: Any, identity: object) -> object:
        """Return the digest of a value that is not plain, by its kind.

        ``identity`` is the object by which a container is compared if it is too large and cannot be pickled.
        """
        state = get_generator_state(value)
        if state is not None:
            return type(value).__name__, zlib.crc32(pickle.dumps(state))
        # what these hold is recorded elsewhere: a trainable's state, and the names in modules and classes
        if is_trainable(value) or value is sys.modules or isinstance(value, _CODE_TYPES):
            return IdentityDigest(value)
        if (
            is_instance_of(value, "tensorflow", "Tensor")
            or is_variable(value)
            or isinstance(value, np.ndarray | np.generic)
        ):
            return self._digest_array(value)
        if is_layer(value):
            return (
                IdentityDigest(value),
                tuple(map(self._digest_array, value.variables)),
                _digest_vocabularies(value),
            )
        if isinstance(value, _CONTAINERS):
            return self._digest_container(value, identity)
        return self._digest_object(value)

    def _digest_container(self, value: Any, identity: object) -> object:
        """Return the digest of a mapping, set, list or the like: of its parts or, if they are too many, of all at once.

        All parts at once are pickled; of a set, the hash is taken. ``identity`` is the object by which a value is
        compared if it has too many parts and cannot be pickled.
        """
        if isinstance(value, Mapping):
            items = list(value.items())
            # too many for one digest each, so all are pickled at once
            if len(items) * 2 > self._objects_left:
                return "mapping", len(items), self._digest_pickle(dict(items), identity)
            return "mapping", tuple((self.digest(key), self.digest(part)) for key, part in items)
        if isinstance(value, set | frozenset):
            members = frozenset(value)
            if len(members) > self._objects_left:
                return "set", len(members), hash(members)
            return "set", frozenset(self.digest(part) for part in members)
        parts = list(value)
        if len(parts) > self._objects_left:
            return type(value).__name__, len(parts), self._digest_pickle(parts, identity)
        return type(value).__name__, tuple(map(self.digest, parts))

    def _digest_object(self, value: Any) -> object:
        """Return the digest of an object that is no array, layer or container.

        Functions and other wrappers are digested by identity and by what they refer to, Python's generators by identity
        and local variables, and objects with content of the user by their attributes (`holds_user_content`). Others are
        digested by identity if their class belongs to TensorFlow or Keras, and otherwise by their pickle.
        """
        if isinstance(value, _WRAPPERS):
            parts = tuple(map(self.digest, _get_parts(value)))
            # the dictionary of attributes is made only for this, so ``value`` stands for it
            return (
                IdentityDigest(value),
                *parts,
                self.digest(_get_function_attributes(value), value),
            )
        if isinstance(value, types.GeneratorType):
            return IdentityDigest(value), self._digest_progress(value)
        if isinstance(value, itertools.count):
            return "count", repr(value)  # restored as a copy
        if holds_user_content(value):
            return type(value).__qualname__, self.digest(get_attributes(value), value)
        if is_library_object(value):
            return IdentityDigest(value)
        return self._digest_pickle(value, value)

    def _digest_progress(self, generator: types.GeneratorType[Any, Any, Any]) -> object:
        """Return a digest of how far a generator function has run and of its local variables; None if it has ended."""
        frame = generator.gi_frame
        if frame is None:  # it has ended
            return None
        # ``f_lasti`` is the last instruction that it ran
        return frame.f_lasti, self.digest(dict(frame.f_locals), generator)

    def _digest_array(self, value: Any) -> object:
        """Return the digest of an array, tensor or variable: of its type, shape and content.

        One of more than `largest_bytes` is compared by identity and a sample of its content, which is only the first
        row if it is not contiguous. An array of objects is compared by identity and by its pickle.
        """
        content = np.asarray(value)
        self.nbytes += content.nbytes
        if content.dtype.hasobject:
            return IdentityDigest(value), self._digest_pickle(content, value)
        if content.nbytes > self.largest_bytes:
            if content.flags.c_contiguous:
                sample = content.reshape(-1)[:: max(content.size // _SAMPLED_ELEMENTS, 1)]
            else:  # `reshape` would copy it
                sample = content[:1]
            return IdentityDigest(value), zlib.crc32(np.ascontiguousarray(sample).tobytes())
        return (
            str(content.dtype),
            content.shape,
            zlib.crc32(np.ascontiguousarray(content).reshape(-1).view(np.uint8).data),
        )

    def _digest_pickle(self, value: object, identity: object) -> object:
        """Return a digest of the pickled value, and count its bytes in ``nbytes``.

        If it cannot be pickled, return a digest of the identity of ``identity``.
        """
        try:
            content = pickle.dumps(value)
        except Exception:  # any error of the object's own code: it cannot be compared by value
            return IdentityDigest(identity)
        self.nbytes += len(content)
        return type(value).__qualname__, zlib.crc32(content)


def holds_user_content(value: object) -> bool:
    """Return whether the attributes of an object are its content, which is digested and restored.

    They are not for objects of TensorFlow, sweep and most of Python's own modules, nor for dataframes and loggers,
    which change when they are only read. Of Keras, they are for callbacks, optimizers, metrics, losses and the like.
    The result is False for an object that can have no attributes.
    """
    kind = type(value)
    top = kind.__module__.partition(".")[0]  # the package in which its class is defined
    if is_instance_of(value, "keras", *_STATEFUL_OF_KERAS):
        return True
    if top in ("tensorflow", "keras", "pandas", "sweep"):
        return False
    may_be_content = top not in sys.stdlib_module_names or top in _OPEN_MODULES
    return may_be_content and (hasattr(value, "__dict__") or bool(_list_slots(kind)))


def get_attributes(value: Any) -> dict[str, object]:
    """Return the attributes that an object has itself, by name, without those of its class.

    Those in ``__slots__`` are included if the author's code defines its class, and if they have a value.
    """
    slots = {}
    for name in _list_slots(type(value)):
        if hasattr(value, name):
            slots[name] = getattr(value, name)
    return {**slots, **getattr(value, "__dict__", {})}


def _list_slots(kind: type) -> list[str]:
    """Return the names in the ``__slots__`` of a class and its bases; [] unless the author's code defines the class."""
    # a module without a file, such as a notebook, counts as code from a string, which is not the author's
    if not is_author_file(
        getattr(sys.modules.get(kind.__module__), "__file__", None) or "<string>"
    ):
        return []
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            names.append(_mangle(name, base))
    return [name for name in names if name not in ("__dict__", "__weakref__")]


def _mangle(name: str, owner: type) -> str:
    """Return the name of an attribute that the body of class ``owner`` calls ``name``: ``_Owner__n`` for ``__n``."""
    if name.startswith("__") and not name.endswith("__"):
        return f"_{owner.__name__.lstrip('_')}{name}"
    return name


def _get_parts(value: Any) -> list[object]:
    """Return the objects to which a function or a wrapper refers.

    Of a function, they are its defaults and the content of its closure, and none if it is not the author's. Of other
    wrappers, they are the wrapped functions, the arguments of a partial, and the attributes, keys and results of a
    cached function. None may be among those of a property.
    """
    match value:
        case property():
            return [value.fget, value.fset]
        case staticmethod() | classmethod():
            return [value.__func__]
        case functools.partial():
            return [value.func, value.args, value.keywords]
        case types.FunctionType():
            if not is_author_file(value.__code__.co_filename):
                return []
            defaults = value.__defaults__, value.__kwdefaults__
            cells = []
            for cell in value.__closure__ or ():
                cells.append(_get_cell_content(cell))
            return [part for part in (*defaults, *cells) if part is not None]
    held = gc.get_referents(value)  # of a cache: the function, its attributes, keys and results
    parts = []
    for part in held:
        if not isinstance(part, type) and part is not vars(value):
            parts.append(part)
    return parts


def list_cached_results(cache: Any) -> list[object]:
    """Return the results that a function with `functools.cache` or `lru_cache` has cached.

    For `lru_cache` with a limit, the keys are among them. ``cache`` is the decorated function.
    """
    # No public function returns the results, but the garbage collector knows what the function refers to.
    parts = []
    for part in gc.get_referents(cache):
        if part is not vars(cache):
            parts.append(part)
    tables = [part for part in parts if isinstance(part, dict)]
    if cache.cache_parameters()["maxsize"] is None:  # the first table has the results by their keys
        return [*tables[0].values()]
    # with a limit, there are keys and results, and parts of the cache itself
    results = []
    for part in parts:
        if not isinstance(part, type | types.FunctionType):
            results.append(part)
    return [result for result in results if not _is_of_lru_cache(result)]


def _is_of_lru_cache(part: object) -> bool:
    """Return whether an object is an internal part of `lru_cache`: a link of its list, or the table of links."""
    if isinstance(part, dict):
        return all(type(link).__module__ == "functools" for link in part.values())
    return type(part).__module__ == "functools"


def _get_function_attributes(value: Any) -> dict[str, object] | None:
    """Return the attributes that were set on a function of the author's, by name; None for any other value.

    ``__wrapped__`` is left out.
    """
    if not isinstance(value, types.FunctionType) or not is_author_file(value.__code__.co_filename):
        return None
    attributes = {}
    for name, one in vars(value).items():
        if name != "__wrapped__":
            attributes[name] = one
    return attributes


def _get_cell_content(cell: types.CellType) -> object:
    """Return the content of a closure's cell; None if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:  # it has no value yet
        return None


def _digest_vocabularies(layer: Any) -> tuple[int, ...]:
    """Return digests of the vocabularies of a layer and all layers in it, whose tables are not variables.

    A layer without a vocabulary has a digest, too.
    """
    digests = []
    queue = [layer]
    seen = set[int]()
    while queue:
        part = queue.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        layers_in_attributes = [value for value in vars(part).values() if is_layer(value)]
        queue += [*getattr(part, "layers", ()), *layers_in_attributes]
        try:
            if hasattr(part, "get_vocabulary"):
                vocabulary = part.get_vocabulary()
            else:
                vocabulary = ()
        except Exception:  # not adapted yet
            vocabulary = ()
        digests.append(zlib.crc32(repr(vocabulary).encode()))
    return tuple(digests)


class Snapshot:
    """A copy of the content of a value and of all objects within it, to restore them in place.

    Restoring keeps the identity of each object. Arrays are copied up to ``COPIED_BYTES`` in total, and the number of
    objects is limited; ``too_large`` is True if there were more. The results of `functools.cache` can only be cleared,
    so ``has_cache`` is True if there are any. ``variables`` are the ids of the TensorFlow and Keras variables that
    count as content; if it is None, all do.
    """

    def __init__(self, value: object, *, variables: Container[int] | None = None) -> None:
        self._variables = variables
        self.too_large = False
        self.has_cache = False
        self._nbytes = 0  # bytes of the arrays so far
        # by id; holding the objects keeps their ids from being used again
        self._seen: dict[int, object] = {}
        self._restorers: list[Callable[[], None]] = []
        queue = [value]  # objects to be recorded
        while queue:
            one = queue.pop()
            if id(one) in self._seen or type(one) in _PLAIN_TYPES:
                continue
            if len(self._seen) >= _MAX_OBJECTS:
                self.too_large = True
                break
            self._seen[id(one)] = one
            for part in self._record(one):
                if type(part) not in _PLAIN_TYPES:
                    queue.append(part)

    def restore(self) -> None:
        """Restore the content that the objects had when the snapshot was taken; they stay the same objects.

        Objects that the snapshot did not copy keep their present content: those beyond its limits (``too_large``), and
        those of other types, such as iterators and files. A cache with new results is cleared. It may be called several
        times.
        """
        for restorer in self._restorers:
            restorer()

    def list_objects(self) -> Iterator[object]:
        """Yield the value itself and the objects that were within it when the snapshot was taken.

        Plain objects such as numbers and texts are left out. If `too_large` is True, the objects beyond the snapshot's
        limit may be missing.
        """
        yield from self._seen.values()

    def _record(self, value: Any) -> Iterable[object]:
        """Store how to restore one object, and return the objects within it, which are not recorded by this.

        Nothing is stored for objects whose content is unknown or recorded elsewhere, such as trainables, classes and
        modules' namespaces, nor for variables that are not among `variables` and for arrays that cannot be written. Of
        a layer, its variables are returned.
        """
        if is_trainable(value) or _is_namespace(value):
            return ()
        state = get_generator_state(value)
        if state is not None:
            self._restorers.append(lambda: restore_generator(value, state))
            return ()
        if is_variable(value):
            is_content = self._variables is None or id(value) in self._variables
            if is_content:
                self._record_array(value, np.asarray(value), value.assign)
            return ()
        if is_layer(value):
            return list(value.variables)
        if isinstance(value, np.ndarray):
            if value.flags.writeable:
                self._record_array(value, value, functools.partial(_put_array, value))
            objects_in_it = value.ravel().tolist() if value.dtype.hasobject else []
            return objects_in_it
        return self._record_object(value)

    def _record_object(self, value: Any) -> Iterable[object]:
        """Store how to restore an object other than arrays, variables and layers, and return the objects within it."""
        if isinstance(value, tuple | frozenset):
            return value
        if isinstance(value, _WRAPPERS):
            return self._record_wrapper(value)
        if isinstance(value, _MUTABLE_CONTAINERS):
            return self._record_container(value)
        if isinstance(value, _CODE_TYPES) or not holds_user_content(value):
            return ()
        attributes = get_attributes(value)
        self._restorers.append(lambda: _put_attributes(value, attributes))
        return list(attributes.values())

    def _record_array(
        self, value: object, content: np.ndarray[Any, Any], put: Callable[[Any], object]
    ) -> None:
        """Store a copy of ``content``, the array of ``value``, for restoring it if it has changed.

        ``put`` then gets the copy. If this array and those before have more than `COPIED_BYTES`, nothing is stored, and
        `too_large` is set.
        """
        self._nbytes += content.nbytes
        if self._nbytes > COPIED_BYTES:
            self.too_large = True
            return
        copied = content.copy()

        def restore() -> None:
            if not _is_same_array(np.asarray(value), copied):
                put(copied)

        self._restorers.append(restore)

    def _record_wrapper(self, value: Any) -> list[object]:
        """Store how to restore a function or a cached function; return the objects within it.

        For another wrapper, such as a property or a partial, nothing is stored. Sets `has_cache` for a cached function.
        """
        if isinstance(value, types.FunctionType):
            return self._record_function(value)
        held = _get_parts(value)
        if isinstance(value, _CACHED_FUNCTION):
            self.has_cache = True
            self._restorers.append(lambda: _empty_cache(value, held))
        return held

    def _record_function(self, function: types.FunctionType) -> list[object]:
        """Store how to restore defaults, closure and attributes of the author's function; return the objects within it.

        Nothing is stored or returned for functions of others.
        """
        if not is_author_file(function.__code__.co_filename):
            return []
        defaults = function.__defaults__
        cells = function.__closure__ or ()
        attributes = dict(vars(function))
        contents = [_get_cell_content(cell) for cell in cells]

        def restore() -> None:
            function.__defaults__ = defaults
            for cell, content in zip(cells, contents, strict=True):
                if _get_cell_content(cell) is not content:
                    cell.cell_contents = content
            _put_mapping(vars(function), attributes)

        self._restorers.append(restore)
        # defaults of keyword-only arguments are a dictionary, which is recorded in its turn
        return [*(defaults or ()), function.__kwdefaults__, *contents, *attributes.values()]

    def _record_container(self, value: Any) -> list[object]:
        """Store how to restore the parts of a mutable container in place; return them, of a mapping keys and values."""
        if isinstance(value, MutableMapping):
            items = dict(value.items())
            self._restorers.append(lambda: _put_mapping(value, items))
            return [*items, *items.values()]
        parts = list(value)
        self._restorers.append(lambda: _put_parts(value, parts))
        return parts


def _is_namespace(value: object) -> bool:
    """Return whether a dictionary is a module's namespace or `sys.modules`; `recorded_values` handles these by name."""
    return value is sys.modules or (
        isinstance(value, dict) and "__name__" in value and "__builtins__" in value
    )


def _are_same_objects(present: Iterable[object], parts: Iterable[object]) -> bool:
    """Return whether two iterables have identical objects in the same order."""
    one = list(present)
    other = list(parts)
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _is_same_array(present: np.ndarray[Any, Any], copied: np.ndarray[Any, Any]) -> bool:
    """Return whether two arrays have the same shape, type and bits; for arrays of objects, identical objects."""
    if present.shape != copied.shape or present.dtype != copied.dtype:
        return False
    if present.dtype.hasobject:  # arrays in it have no equality that is true or false
        return _are_same_objects(present.ravel().tolist(), copied.ravel().tolist())
    return present.tobytes() == copied.tobytes()  # 0.0 equals -0.0, and NaN does not equal itself


def _put_array(value: np.ndarray[Any, Any], copied: np.ndarray[Any, Any]) -> None:
    """Set the elements of an array to those of ``copied``, and its shape too if only the shape has changed.

    An array with another number of elements stays as it is: views of it may still use its memory.
    """
    if value.shape != copied.shape and value.size == copied.size:
        with suppress(ValueError):  # its memory belongs to another array
            value.resize(copied.shape, refcheck=False)
    if value.shape == copied.shape:
        value[...] = copied


def _put_mapping(value: MutableMapping[Any, Any], items: dict[Any, Any]) -> None:
    """Make a mapping have exactly ``items``, in their order; entries that are the same are not written again."""
    for name in [name for name in value if name not in items]:
        del value[name]
    for name, one in items.items():
        if name not in value or value[name] is not one:
            value[name] = one
    if not _are_same_objects(value, items):  # in another order
        value.clear()
        value.update(items)


def _put_parts(value: Any, parts: list[Any]) -> None:
    """Make a set, list, deque, bytearray or `array.array` have exactly ``parts``, if it does not have them already.

    It has them if the objects are identical; their order does not matter for a set.
    """
    present = list(value)
    if isinstance(value, MutableSet):
        if {*map(id, present)} != {*map(id, parts)}:
            value.clear()
            for part in parts:
                value.add(part)
    elif not _are_same_objects(present, parts):
        if isinstance(value, deque):
            value.clear()
            value.extend(parts)
        elif isinstance(value, array.array):  # only another array can be assigned to its slices
            value[:] = type(value)(value.typecode, parts)
        else:
            value[:] = parts


def _put_attributes(value: Any, attributes: dict[str, object]) -> None:
    """Make an object have exactly ``attributes``, which `get_attributes` returned; all others are deleted.

    Methods of the class that react to changes of attributes are not called.
    """
    own = getattr(value, "__dict__", None)
    slots = _list_slots(type(value))
    for name in slots:
        # by `object`, because the class itself may forbid changes, as a frozen dataclass does
        if name in attributes:
            object.__setattr__(value, name, attributes[name])
        elif hasattr(value, name):
            object.__delattr__(value, name)
    if own is not None:
        _put_mapping(own, {name: one for name, one in attributes.items() if name not in slots})


def _empty_cache(function: Any, parts: list[object]) -> None:
    """Clear a function's cache if it has other entries than ``parts``, the objects that it referred to before.

    A fresh process would compute new results under its own trial's seed.
    """
    if {*map(id, _get_parts(function))} != {*map(id, parts)}:
        function.cache_clear()
