"""All private and undocumented names of TensorFlow that the training uses, each in one place.

Everybody else in `trainables` imports them from here. `docs/private_names.md` lists them, with the test that notices a
change of each. If a module is missing, importing this one raises ImportError. A missing attribute of an object raises
AttributeError at its use, unless the function says what it returns then.
"""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

try:
    from tensorflow.compiler.xla.tsl.protobuf.coordination_config_pb2 import (
        CoordinatedJob as _CoordinatedJob,
    )
    from tensorflow.python import pywrap_tfe as _pywrap_tfe
    from tensorflow.python.distribute import cross_device_ops as _cross_device_ops
    from tensorflow.python.distribute.cluster_resolver import SimpleClusterResolver
    from tensorflow.python.distribute.collective_all_reduce_strategy import (
        CollectiveAllReduceExtended,
    )
    from tensorflow.python.distribute.numpy_dataset import SingleDevice
    from tensorflow.python.distribute.values import DistributedVariable
    from tensorflow.python.eager import context as _context
    from tensorflow.python.framework.config import disable_op_determinism, is_op_determinism_enabled
    from tensorflow.python.framework.kernels import get_registered_kernels_for_op
    from tensorflow.python.framework.ops import gradient_registry as _gradient_registry
    from tensorflow.python.framework.tensor_util import constant_value_as_shape
    from tensorflow.python.lib.io.tf_record import tf_record_random_reader
    from tensorflow.python.ops import (
        gen_random_ops,
        gen_stateless_random_ops,
        gen_stateless_random_ops_v2,
        random_ops_util,
    )
    from tensorflow.python.ops import stateful_random_ops as _stateful_random_ops
    from tensorflow.python.ops.parallel_for import pfor as _pfor
    from tensorflow.python.ops.resource_variable_ops import ResourceVariable
except ImportError as error:
    raise ImportError(
        f"TensorFlow {tf.__version__} lacks a private name that the training needs: {error}; "
        "install a version that `pip install sweep-keras` would choose"
    ) from error

__all__ = [
    "DistributedVariable",
    "ResourceVariable",
    "SimpleClusterResolver",
    "SingleDevice",
    "constant_value_as_shape",
    "disable_op_determinism",
    "gen_random_ops",
    "gen_stateless_random_ops",
    "gen_stateless_random_ops_v2",
    "get_registered_kernels_for_op",
    "is_op_determinism_enabled",
    "random_ops_util",
    "tf_record_random_reader",
]

GRADIENTS: dict[str, object] = _gradient_registry._registry
"""TensorFlow's registry of gradients, in which `tf.custom_gradient` leaves an entry for each trace."""


# The process


def eager_context() -> Any:
    """Return the context of this process, which holds its devices, seed and coordination service."""
    return _context.context()


@contextmanager
def seed_tensorflow(seed: int, *, empty_cache: bool) -> Iterator[Callable[[], bool]]:
    """Seed `tf.random` inside the block as `tf.random.set_seed` does, and restore what was before.

    Empties the cache of kernels only with ``empty_cache``. Yields a function that returns whether any code has drawn
    with the seed or set another one; draws from the global `tf.random.Generator`, which is seeded as well, do not
    count.
    """
    eager = eager_context()
    kept = (eager._seed, getattr(eager, "_rng", None))  # without a seed, there is no `_rng` yet
    generator = _stateful_random_ops.global_generator
    eager._seed = seed
    eager._rng = random.Random(seed)  # TensorFlow takes the seed of each operation from it
    if empty_cache:
        eager.ensure_initialized()  # there is no handle before
        _pywrap_tfe.TFE_ContextClearCaches(eager._context_handle)
    with tf.device("/cpu:0"):
        _stateful_random_ops.global_generator = tf.random.Generator.from_seed(seed)

    def was_used() -> bool:
        return bool(eager._seed != seed or eager._rng.getstate() != random.Random(seed).getstate())

    try:
        yield was_used
    finally:
        eager._seed, eager._rng = kept
        _stateful_random_ops.global_generator = generator


def call_before_start(function: Callable[[], None]) -> None:
    """Make TensorFlow call ``function`` once before it initializes its devices; do nothing if they are initialized.

    Until then, this replaces a method of TensorFlow's context; a second call adds its function before the first one.
    """
    original = _context.Context.ensure_initialized

    def ensure_initialized(self: Any) -> None:
        if not self._initialized:
            # First, because `function` may use TensorFlow, which would call this again.
            _context.Context.ensure_initialized = original
            function()
        original(self)

    if not eager_context()._initialized:
        _context.Context.ensure_initialized = ensure_initialized


def collective_all_reduce(devices: list[str], options: Any) -> Any:
    """Return a reduction that sums over these devices by NCCL or a ring, as ``options`` say.

    TensorFlow's public class takes no list of devices.
    """
    return _cross_device_ops.CollectiveAllReduce(
        devices=devices, group_size=len(devices), options=options
    )


# Processes that train together


class _Extended(CollectiveAllReduceExtended):
    def __init__(self, strategy: Any, names: tuple[str, ...], resolver: Any, options: Any) -> None:
        self._names = names
        super().__init__(strategy, cluster_resolver=resolver, communication_options=options)

    def _initialize_local_devices(
        self, cluster_resolver: Any, worker_device: str
    ) -> tuple[tuple[str, ...], str]:
        """Return the names of all devices of this process, and their kind, such as "GPU".

        TensorFlow's own method takes one CPU device per process.
        """
        kind = self._names[0].partition(":")[0].upper()
        return tuple(f"{worker_device}/device:{name.upper()}" for name in self._names), kind


class RanksStrategy(tf.distribute.MultiWorkerMirroredStrategy):
    """Mirrors over the devices of several processes; ``names`` are those of this process."""

    def __init__(self, names: tuple[str, ...], resolver: Any, options: Any) -> None:
        # Skip the __init__ of the base class, which would make its own Extended.
        tf.distribute.Strategy.__init__(self, _Extended(self, names, resolver, options))


def share_ports() -> None:
    """Let TensorFlow's servers listen on ports that this process holds already, by an environment variable."""
    os.environ["TF_GRPC_REUSE_PORT"] = "1"


def serve_heartbeats(count: int, *, register_s: float, heartbeat_s: float) -> None:
    """Let this process and the others of a trial, ``count`` in all, notice when one of them is gone.

    Each of them calls this before TensorFlow starts; the process of rank 0 keeps the list. All must join within
    ``register_s`` seconds. One that is silent for ``heartbeat_s`` seconds counts as gone.
    """
    eager_context().configure_coordination_service(
        service_type="standalone",
        service_leader="/job:worker/replica:0/task:0",
        cluster_register_timeout_in_ms=int(register_s * 1000),
        heartbeat_timeout_in_ms=int(heartbeat_s * 1000),
        shutdown_barrier_timeout_in_ms=0,
        coordinated_jobs=[_CoordinatedJob(name="worker", num_tasks=count)],
    )


def report_error_to_cluster(code: int, message: str) -> None:
    """Tell the other processes that this one has failed; ``code`` is one of TensorFlow's error codes."""
    eager_context().report_error_to_cluster(code, message)


def abort_collective_ops(code: int, message: str) -> None:
    """Abort all sums that this process takes part in; ``code`` is one of TensorFlow's error codes."""
    eager_context().abort_collective_ops(code, message)


# Random numbers


def draw_words(shape: Any, **arguments: Any) -> Any:
    """Draw full-range integers by the stateless kernel that TensorFlow's module has at present.

    It may be the one with which `draws.install_draws` has replaced TensorFlow's own. ``arguments`` are the kernel's
    ``key``, ``counter``, ``dtype`` and ``alg``.
    """
    return gen_stateless_random_ops_v2.stateless_random_uniform_full_int_v2(shape, **arguments)


# Datasets


def dataset_inputs(dataset: Any) -> Sequence[Any]:
    """Return the datasets that a `tf.data.Dataset` is directly made from; empty for a source."""
    inputs: Sequence[Any] = dataset._inputs()
    return inputs


def order_of(dataset: Any) -> str | None:
    """Return "true" or "false", whether a dataset keeps the order of its elements; "default" if its options decide.

    Returns None if its operation has no such setting.
    """
    order: str | None = getattr(dataset, "_deterministic", None)
    return order


def map_function(dataset: Any) -> Any:
    """Return the traced function of a dataset's `map`; None if it has none."""
    return getattr(getattr(dataset, "_map_func", None), "function", None)


# Graphs


def graph_function(graph: Any, name: str) -> Any:
    """Return a function of a graph by its name; None if the graph has none of this name."""
    return graph._get_function(name)


def captures_of(graph: Any) -> Any:
    """Return the tensors from outside that a graph of a function uses, such as the handles of variables."""
    return graph.external_captures


def type_spec(value: Any) -> Any:
    """Return the type of a composite tensor."""
    return value._type_spec


# Vectorization of several trials


def replace_converter(kind: str, convert: Callable[..., Any]) -> None:
    """Replace, for the process, TensorFlow's batched form of operations of type ``kind``.

    The new one is ``convert(kind, converter, call)``. ``converter`` is the one before, or None if there was none.
    ``call`` is the object that TensorFlow passes to converters, with the inputs and outputs of the operation.
    """
    # `RegisterPFor` refuses a type that has one
    before = _pfor._pfor_converter_registry.pop(kind, None)
    if isinstance(before, tuple):  # the converter and its arguments
        converter = before[0]
    else:
        converter = before
    _pfor.RegisterPFor(kind)(functools.partial(convert, kind, converter))


def wrap_tensor(tensor: Any, stacked: bool) -> Any:
    """Wrap a tensor in the type that converters take and return; ``stacked``: it has one entry for each trial."""
    return _pfor.wrap(tensor, stacked)


def stack_tensor(tensor: Any, trials: Any) -> Any:
    """Return a tensor repeated ``trials`` times along a new first axis."""
    return _pfor._stack(tensor, trials).t


def create_operation(kind: str, inputs: list[Any], dtypes: list[Any], attributes: Any) -> Any:
    """Add an operation of type ``kind`` to the present graph and return it; ``dtypes`` are those of its outputs."""
    return _pfor._create_op(kind, inputs, dtypes, attributes)


def while_loop_of(call: Any) -> tuple[Any, Any, Any]:
    """Return condition and body of the loop that a converter is called for, and a function that returns output shapes.

    ``call`` is that of the converter, see `replace_converter`.
    """
    loop = _pfor.WhileV2(call)
    return loop._cond_func, loop._body_func, loop._output_shapes


def convert_function(function: Any, call: Any, trials: Any, inputs: list[Any]) -> Any:
    """Call a function of a graph for all trials at once, and return its outputs.

    ``trials`` is the number of trials, and ``call`` that of the converter, see `replace_converter`. ``inputs`` and
    outputs are wrapped, see `wrap_tensor`.
    """
    count = tf.constant(trials)
    operations = function.graph.get_operations()
    # False: no loop for operations without a batched form. The range: all trials take part, not a part of them (False).
    each = _pfor.PFor(
        call.pfor.loop_var, count, operations, False, tf.range(count), False, call.pfor.pfor_config
    )
    return _pfor._convert_function_call(function, each, inputs)
