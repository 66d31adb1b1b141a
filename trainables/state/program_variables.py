"""The state of a program: every variable that its graphs use, wherever the author created it.

That is more than `model.variables`: a `tf.Variable` in a layer, a `keras.Variable` in a loss, a second optimizer. A
checkpoint holds all of it by path, and `reset_changed_state` restores the values from before the trial.
"""

from __future__ import annotations

import weakref
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf

from sweep.contract import Incompatible
from trainables import keras_private, tensorflow_private
from trainables.devices.replicas import Replicas
from trainables.numbers import draws
from trainables.state import origins
from trainables.state.origins import CreatedVariables

Arrays: TypeAlias = "dict[str, tuple[np.ndarray[Any, Any], ...]]"
"""Values by path, one for each replica."""

_TABLES = ("LookupTableInsertV2", "LookupTableRemoveV2", "LookupTableImportV2")
_READING = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape")


class UnmanagedState(Incompatible):
    """Raised if a graph uses state that can neither be reset nor saved."""


@dataclass(frozen=True)
class StateVariable:
    """One variable of a program: its components, one for each replica of this process, and their initial values."""

    raw: Any  # as the strategy created it
    components: tuple[Any, ...]
    initial: tuple[np.ndarray[Any, Any], ...]


class State:
    """All variables of a program by path, collected when the program is built and before it trains."""

    def __init__(
        self,
        tracked: Iterable[keras.Variable | tf.Variable],
        graphs: Sequence[Any],
        replicas: Replicas,
        record: CreatedVariables,
        others: Iterable[tf.Variable] = (),
    ) -> None:
        """Collect the ``tracked`` variables, each once, and others that the ``graphs`` use, except ``others``.

        Their present values become the initial ones, to which `reset` goes back. Before that, variables that only the
        graphs use are reset if an earlier trial has changed them; tracked ones are not. ``record`` has the variables
        that the author's methods have created for this program; of a variable on several replicas, a graph knows only
        one component, and the record knows the rest.
        Raises: UnmanagedState: if a graph writes to a lookup table, or draws random numbers that do not follow the
        trial's seed. NotInScope: if a variable that only the graphs use lacks components on replicas.
        origins.StaleVariable: if an earlier trial has created such a variable.
        """
        _refuse_operations(graphs)
        self.owner: weakref.ref[object] | None = None  # the trainable whose trials use this state
        self._variables: dict[str, StateVariable] = {}
        self._by_identity: dict[int, StateVariable] = {}
        self._replicas = replicas
        # A variable has a component on each replica, and a component a handle, by which graphs refer to it. These are
        # the ids of the handles of all variables that are left out or collected already.
        known_handles: set[int] = set()
        for other in others:
            known_handles |= self._list_handle_ids(other)
        for variable in tracked:
            raw = unwrap_variable(variable)
            if id(raw) not in self._by_identity:
                self._add(_get_path(variable), raw)
                known_handles |= self._list_handle_ids(raw)
        # A graph knows only one replica's component of a variable; the record knows to which variable it belongs.
        created_by_handle: dict[int, Any] = {}
        for raw in record.created:
            for handle in self._list_handle_ids(raw):
                created_by_handle[handle] = raw
        # by path: the variables that the graphs use, but that are not tracked
        untracked: dict[str, Any] = {}
        for component in _list_captured_variables(graphs):
            if id(component.handle) in known_handles:
                continue
            raw = created_by_handle.get(id(component.handle), component)
            untracked[_make_unique(_get_path(raw), untracked)] = raw
            known_handles |= self._list_handle_ids(raw)
        # before `_add`, which takes present values as initial ones
        reset_shared_variables(untracked.values())
        for path, raw in untracked.items():
            self._add(path, raw)
        # A variable that was made outside of the strategy's scope has a single component.
        local = len(replicas.devices)  # number of replicas in this process
        outside = [path for path, raw in untracked.items() if len(self._components(raw)) < local]
        if outside:
            raise NotInScope(
                f"made outside of the strategy's scope: {', '.join(outside)}, used by {replicas.number} "
                "replicas. Make it inside model(), optimizer(), loss() or metrics()"
            )
        origins.refuse_stale(untracked, record)

    def will_train(self) -> None:
        """Record that the variables are about to change, so that `reset_changed_state` resets them."""
        if self not in _trained:
            _trained.append(self)

    def reset(self, only: Container[int] | None = None) -> None:
        """Set variables to their initial values.

        With ``only``, just those variables are set whose TensorFlow variable has an id, as of `id`, that is in it.
        """
        for held in self._variables.values():
            if only is not None and id(held.raw) not in only:
                continue
            for component, value in zip(held.components, held.initial, strict=True):
                component.assign(value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __getitem__(self, path: str) -> StateVariable:
        return self._variables[path]

    def was_drawn(self, raw: Any) -> bool:
        """Return whether a variable is in this state and, on any replica, its initial values are not all equal."""
        held = self._by_identity.get(id(raw))
        return held is not None and any(not origins.has_one_value(value) for value in held.initial)

    def find_written(self, graph: Any) -> dict[str, StateVariable]:
        """Return the variables of this state that a traced graph writes or may write, by path."""
        handles = find_written_variables(graph)
        written = {}
        for path, held in self._variables.items():
            if any(id(part.handle) in handles for part in held.components):
                written[path] = held
        return written

    def read(self, raw: Any) -> tuple[np.ndarray[Any, Any], ...] | None:
        """Return copies of one variable's values, one array per replica; None if it is not in this state."""
        held = self._by_identity.get(id(raw))
        if held is None:
            return None
        return tuple(part.numpy() for part in held.components)

    def set_values(self, raw: Any, values: Sequence[np.ndarray[Any, Any]]) -> None:
        """Assign values to one variable of this state: the n-th value to its component on the n-th replica.

        Raises: KeyError: if the variable is not in this state. ValueError: if there are not as many values as
        components.
        """
        for component, value in zip(self._by_identity[id(raw)].components, values, strict=True):
            component.assign(value)

    def copy_from(self, raw: Any, other: Any) -> None:
        """Assign the values of ``other``, a variable outside this state, to the variable ``raw``, replica by replica.

        If ``other`` has only one component, all replicas get its value.
        """
        others = self._components(other)
        for i, component in enumerate(self._components(raw)):
            component.assign(others[i % len(others)])  # one component serves all replicas

    def copy_all(self) -> Arrays:
        """Return a copy of all values by path, each a tuple with one array per replica."""
        arrays: Arrays = {}
        for path, held in self._variables.items():
            arrays[path] = tuple(part.numpy() for part in held.components)
        return arrays

    def assign(self, arrays: Mapping[str, Sequence[np.ndarray[Any, Any]]]) -> None:
        """Assign values to all variables by path, and record that they have changed, as `will_train` does.

        ``arrays`` has by path one array for each replica. If their number is another than that of the replicas, all
        replicas get the first one's value.
        Raises: ValueError: if paths or shapes differ; nothing is assigned then. The message names up to four paths.
        """
        missing = set(self._variables) - set(arrays)
        unknown = set(arrays) - set(self._variables)
        if missing or unknown:
            named = [f"no {path}" for path in sorted(missing)] + [
                f"unknown {path}" for path in sorted(unknown)
            ]
            raise ValueError(f"another model's variables: {', '.join(named[:4])}")
        for path, held in self._variables.items():
            for value in arrays[path]:
                if value.shape != tuple(held.components[0].shape):
                    raise ValueError(
                        f"{path} has shape {value.shape}, expected {tuple(held.components[0].shape)}"
                    )
        self.will_train()
        for path, held in self._variables.items():
            values = arrays[path]
            for i, component in enumerate(held.components):
                component.assign(values[i] if len(values) == len(held.components) else values[0])

    def _add(self, path: str, raw: Any) -> None:
        """Add a variable under its path, or one with a number if that is taken; its present values are initial ones."""
        components = self._components(raw)
        held = StateVariable(raw, components, tuple(_snapshot(part) for part in components))
        self._variables[_make_unique(path, self._variables)] = held
        self._by_identity[id(raw)] = held

    def _list_handle_ids(self, raw: Any) -> set[int]:
        """Return the ids, as of `id`, of the handles of a variable's components."""
        return {id(part.handle) for part in self._components(raw)}

    def _components(self, raw: Any) -> tuple[Any, ...]:
        """Return the components of a variable, one for each replica of this process."""
        return tuple(self._replicas.of_each(raw))


_trained: list[State] = []  # states in this process that trials may have changed


def find_written_variables(graph: Any, first: int = 0) -> set[int]:
    """Return the ids, as of `id`, of the handles of variables that a graph writes, from its operation ``first`` on.

    An operation that may write a variable counts as writing it. If the graph belongs to a function, the handles are
    those of the outermost graph.
    """
    written = {}  # handles by their ids
    for op in graph.get_operations()[first:]:
        if op.type in _READING:
            continue
        for i, tensor in enumerate(op.inputs):
            if tensor.dtype == tf.resource and i not in _find_read_only_inputs(op):
                written[id(tensor)] = tensor
    handles = list(written.values())
    # From the graph out to the outermost one: the body of a loop, for example, has other handles than its function.
    while hasattr(graph, "captures"):
        outer = {}  # outside handles by the ids of those inside
        for external, internal in graph.captures:
            outer[id(internal)] = external
        handles = [outer.get(id(handle), handle) for handle in handles]
        graph = graph.outer_graph
    return {id(handle) for handle in handles}


def reset_changed_state(owner: object) -> None:
    """Reset the variables that trials have changed, even if they failed, to their initial values; once.

    These are trials of ``owner``, of deleted trainables, and those without an owner.
    """
    for state in list(_trained):
        if state.owner is None or state.owner() in (owner, None):
            _trained.remove(state)
            state.reset()


def reset_shared_variables(variables: Iterable[Any]) -> None:
    """Reset those of ``variables`` that any earlier trial of this process has changed."""
    wanted = {id(raw) for raw in variables}
    for state in _trained:
        state.reset(wanted)


class SavedVariables:
    """Copies of variables' values at one point of a graph or of eager code, to restore them later.

    Create and use it across replicas.
    """

    def __init__(self, replicas: Replicas, variables: Iterable[Any]) -> None:
        """Copy the present values of ``variables``; in a graph, those that it does not write later cost nothing."""
        self._replicas = replicas
        self._variables = list(
            {id(unwrap_variable(v)): unwrap_variable(v) for v in variables}.values()
        )
        self._graph = tf.compat.v1.get_default_graph()

        def copy_values() -> list[tf.Tensor]:
            return [tf.identity(v) for v in self._variables]

        self._values = replicas.run(copy_values)
        # in a graph, the index of the first operation that may write the variables afterwards
        self._first_operation = len(self._graph.get_operations())

    def restore(self, unless: Any = False) -> None:
        """Restore all values bit for bit, except if ``unless``, a boolean or a scalar tensor, is true.

        In a graph, this adds operations only for variables that the graph has written, or may have written, meanwhile.
        """
        eager = tf.executing_eagerly()
        if eager:  # no graph tells what was written, so all are restored
            handles = set()
        else:
            handles = find_written_variables(self._graph, self._first_operation)
        for variable, value in zip(self._variables, self._values, strict=True):
            parts = self._replicas.of_each(variable)
            if eager or any(id(part.handle) in handles for part in parts):
                # on each replica: keeps the present value v if `keep` is true
                self._replicas.update_copies(
                    variable, lambda v, old, keep: v.assign(tf.where(keep, v, old)), value, unless
                )


def list_optimizer_variables(optimizer: Any) -> list[Any]:
    """Return all variables of an optimizer, also those that an author's own optimizer holds as attributes.

    First those that Keras lists, then each `tf.Variable` that the optimizer tracks, so that some may appear twice.
    """
    held = tf.train.TrackableView(optimizer).descendants()
    return [*optimizer.variables, *(v for v in held if isinstance(v, tf.Variable))]


def _find_read_only_inputs(op: Any) -> tuple[int, ...]:
    """Return the indices of the inputs that the functions of a call, branch or loop operation only read."""
    try:
        return tuple(op.get_attr("_read_only_resource_inputs"))
    except ValueError:
        return ()


def _make_unique(path: str, used: Mapping[str, Any]) -> str:
    """Return ``path`` or, if ``used`` has it already, the first free one of ``path#2``, ``path#3`` and so on."""
    number = 1
    name = path
    while name in used:
        number += 1
        name = f"{path}#{number}"
    return name


def _get_path(variable: Any) -> str:
    """Return the path of a Keras variable, or the name of a TensorFlow variable without the output number after ":"."""
    if isinstance(variable, keras.Variable):
        return str(variable.path)
    return str(variable.name).partition(":")[0]


def _snapshot(component: Any) -> np.ndarray[Any, Any]:
    """Return a copy of the value of a variable's component; if all elements are equal, as a read-only view of one."""
    value: np.ndarray[Any, Any] = component.numpy()
    if value.size and origins.has_one_value(value):
        return np.broadcast_to(value.flat[0], value.shape)
    return value


def list_optimizer_state(optimizer: Any, model: keras.Model, replicas: Replicas) -> list[Any]:
    """Return the TensorFlow variables of an optimizer, except those that are variables of the model.

    A variable on several replicas is listed by its components, one for each replica of this process.
    """
    weights = {id(variable) for variable in model.variables}
    its_own = []
    for variable in optimizer.variables:
        if id(variable) not in weights:
            its_own.append(variable)
    return [part for variable in its_own for part in replicas.of_each(unwrap_variable(variable))]


def find_captured_handles(graphs: Sequence[Any]) -> set[int]:
    """Return the ids, as of `id`, of the handles of all variables that ``graphs`` use."""
    handles = set()
    for variable in _list_captured_variables(graphs):
        handles.add(id(variable.handle))
    return handles


def _list_captured_variables(graphs: Sequence[Any]) -> list[Any]:
    """Return the variables whose handles the graphs have captured, in the order of capture, each once.

    Of a variable on several replicas, it is the component that a graph knows.
    """
    captured_variables = {}
    for graph in graphs:
        known = {}
        for variable in graph.variables:
            known[id(variable.handle)] = variable
        for captured in tensorflow_private.captures_of(graph):
            if captured.dtype == tf.resource and id(captured) in known:
                captured_variables[id(captured)] = known[id(captured)]
    return list(captured_variables.values())


def _refuse_operations(graphs: Sequence[Any]) -> None:
    """Raise UnmanagedState if a graph writes to a lookup table, or draws numbers that do not follow the seed.

    Functions that the graphs call count as well.
    """
    for graph in graphs:
        for kind, name in draws.list_operations(graph):
            if kind in _TABLES:
                raise UnmanagedState(
                    f"{name} writes to a lookup table while training, which can be neither reset nor saved; "
                    "use a variable, or fill the table before model() returns"
                )
            if kind in draws.RANDOM:
                raise UnmanagedState(
                    f"{name} ({kind}) draws random numbers that do not follow the trial's seed; use keras.random, "
                    "tf.random.stateless_* or the draws of augment()"
                )


def unwrap_variable(variable: Any) -> Any:
    """Return the TensorFlow variable within a Keras variable; a TensorFlow variable as it is."""
    if isinstance(variable, keras.Variable):
        return variable.value
    return variable


class NotInScope(Incompatible):
    """Raised if a model, optimizer or metric was created outside the strategy's scope."""


def check_scope(model: keras.Model, replicas: Replicas) -> None:
    """Raise NotInScope if a model, or a variable of its optimizer or metrics, belongs to another strategy or to none.

    The message names the first five. If only metrics are concerned, it names all of them.
    """
    strays = []
    if model.distribute_strategy is not replicas.strategy:
        strays.append(f"model {model.name!r}")
    for variable in model.weights:
        if not replicas.contain(variable):
            strays.append(f"weight {variable.path!r}")
    optimizer = getattr(model, "optimizer", None)  # missing before `compile`
    if optimizer is not None:
        if keras_private.strategy_of(optimizer) is not replicas.strategy:
            strays.append(f"optimizer {optimizer.name!r}")
        strays += [f"optimizer {v.path!r}" for v in optimizer.variables if not replicas.contain(v)]
    outside = [
        v.path.rpartition("/")[0] or v.path
        for v in model.metrics_variables
        if not replicas.contain(v)
    ]
    metrics = [f"metric {name!r}" for name in dict.fromkeys(outside)]
    if metrics and not strays:
        raise NotInScope(
            f"made outside of metrics(): {', '.join(metrics)}. Make it inside metrics(), which each new model calls, "
            "and not once for all, as at the top of a module, in the class's body or in data()"
        )
    strays += metrics
    if strays:
        shown = ", ".join(strays[:5])
        if len(strays) > 5:
            shown += f" and {len(strays) - 5} more"
        raise NotInScope(
            f"made outside of the strategy's scope: {shown}. Build them inside model(), optimizer(), loss() "
            "and metrics(), which run inside it, anew at each call; of a layer that data() has fitted, keep its "
            "numbers and vocabularies and make it of these in model(), or apply it to the examples in data() "
            "(docs/data.md)"
        )
