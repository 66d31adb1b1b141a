"""Operations of a traced graph that a GPU cannot compute, derived on any machine from the installed wheel's kernels.

TensorFlow silently places an operation without a GPU kernel on the CPU and copies its data back and forth. It does the
same if the kernel takes its data from the host's memory, as most kernels for int32 do, which are meant for shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from trainables import tensorflow_private
from trainables.numbers.draws import HOST

SMALL = 4096
"""Largest number of elements of shapes, of the sizes of all weights, of seeds: on the host, they cost nothing."""
WHILES = ("While", "StatelessWhile")
FUNCTIONS = ("If", "StatelessIf", *WHILES, "PartitionedCall", "StatefulPartitionedCall")
"""Types of the operations that call functions of the graph."""


def find_host_operations(graph: Any) -> list[str]:
    """Return the operations of a graph and its functions that move data to the host, as sorted texts without repeats.

    An example is "GatherV2 of uint8: no kernel". Only operations with data are listed: tensors of more than `SMALL`
    elements, or of an unknown number. Functions that XLA compiles are left out.
    """
    return sorted(set(_find_host_operations(graph, set())))


def find_host_waits(graph: Any) -> list[str]:
    """Return where operations of a graph and its functions need a value of the device on the host, as sorted texts.

    An example is "LogicalAnd of bool: whether a while goes on": the operation that computes the value on the device,
    and what the host needs it for. The host must wait there for the device, and the device then waits for the host.
    Constants are not listed, repeats are removed, and tensors of any size count. Functions that XLA compiles are not
    left out.
    """
    return sorted(set(_find_host_waits(graph, set())))


def _find_host_waits(graph: Any, seen: set[str]) -> Iterator[str]:
    """Yield what `find_host_waits` returns, unsorted and with repeats.

    ``seen`` has the names of functions that have been searched, and gets those that are searched now.
    """
    for op in graph.get_operations():
        for name in called_functions(op):
            if name not in seen:
                seen.add(name)
                function = tensorflow_private.graph_function(graph, name)
                yield from _find_host_waits(function.graph, seen)
        # the host decides after each step whether there is another
        if op.type in WHILES:
            condition_name = op.node_def.attr["cond"].func.name
            condition = tensorflow_private.graph_function(graph, condition_name)
            for tensor in condition.graph.outputs:
                while tensor.op.type == "Identity":  # TensorFlow removes these before it runs
                    tensor = tensor.op.inputs[0]
                if not _is_on_host(tensor):
                    yield f"{tensor.op.type} of {tensor.dtype.name}: whether a while goes on"
        inputs, _ = _name_arguments(op)
        for name, tensor in inputs:
            if (
                tensor.op.type != "Const"
                and _is_needed_on_host(op, name, tensor)
                and not _is_on_host(tensor)
            ):
                yield f"{tensor.op.type} of {tensor.dtype.name}: {name} of {op.type}"


def _is_needed_on_host(op: Any, name: str, tensor: Any) -> bool:
    """Return whether ``tensor``, the argument ``name`` of an operation, must be in the host's memory for it."""
    if op.type in ("If", "StatelessIf") and name == "cond":
        return True  # the host chooses the branch
    if op.type in FUNCTIONS:
        return bool(tensor.dtype == tf.int32)  # a function's int32 arguments are always on the host
    if tensor.dtype in (tf.resource, tf.variant):  # handles, which are no data of the device
        return False
    kernel = _find_gpu_kernel(op)
    return kernel is None or name in kernel.host_memory_arg


def _is_on_host(tensor: Any) -> bool:
    """Return whether the operation that computes a tensor leaves it in the host's memory."""
    op = tensor.op
    if op.type in ("Placeholder", *FUNCTIONS):  # arguments and results of functions
        return tensor.dtype in (tf.int32, tf.string)
    kernel = _find_gpu_kernel(op)
    if kernel is None:
        return True
    # a kernel names those of its inputs and outputs that are in the host's memory
    _, outputs = _name_arguments(op)
    return any(tensor is other and name in kernel.host_memory_arg for name, other in outputs)


def _find_host_operations(graph: Any, seen: set[str]) -> Iterator[str]:
    """Yield what `find_host_operations` returns, unsorted and with repeats.

    ``seen`` has the names of functions that have been searched, and gets those that are searched now.
    """
    for op in graph.get_operations():
        for name in called_functions(op):
            if name not in seen:
                seen.add(name)
                function = tensorflow_private.graph_function(graph, name)
                # XLA generates its own kernels
                if not function.cached_definition.attr["_XlaMustCompile"].b:
                    yield from _find_host_operations(function.graph, seen)
        tensors = [*op.inputs, *op.outputs]
        if not any(map(_is_data, tensors)):
            continue
        if op.type == "Placeholder":  # an argument
            if op.outputs[0].dtype in (tf.int32, tf.string) and op.outputs[0].consumers():
                yield f"{op.type} of {op.outputs[0].dtype.name}: in the host's memory"
            continue
        kernel = _find_gpu_kernel(op)
        types = "/".join(dict.fromkeys(t.dtype.name for t in tensors if _is_data(t)))
        if kernel is None:
            yield f"{op.type} of {types}: no kernel"
        elif any(
            _is_data(t) and name in kernel.host_memory_arg for name, t in _list_named_tensors(op)
        ):
            yield f"{op.type} of {types}: in the host's memory"


def _is_data(tensor: Any) -> bool:
    """Return whether a tensor is data, which takes time to move: it has over `SMALL` elements, or an unknown number."""
    # Handles, and lists of axes whose length is not known while tracing, although it is small.
    if tensor.dtype in (tf.resource, tf.variant) or tensor.op.type == "BroadcastGradientArgs":
        return False
    elements = tensor.shape.num_elements()
    return elements is None or elements > SMALL


def called_functions(op: Any) -> Iterator[str]:
    """Yield the names of the functions that an operation calls, such as the branches of a condition.

    A name may come several times.
    """
    for name in op.node_def.attr:
        value = op.node_def.attr[name]
        for function in [value.func, *value.list.func]:
            if function.name:
                yield function.name


def _list_named_tensors(op: Any) -> list[tuple[str, Any]]:
    """Return the inputs and then the outputs of an operation as pairs of argument name and tensor."""
    inputs, outputs = _name_arguments(op)
    return inputs + outputs


def _name_arguments(op: Any) -> tuple[list[tuple[str, Any]], list[tuple[str, Any]]]:
    """Return the inputs and the outputs of an operation, each as pairs of argument name and tensor, in their order.

    The names are those of the operation's definition. An argument that is a list of tensors gives several pairs.
    """

    def pair(arguments: Any, tensors: Iterator[Any]) -> Iterator[tuple[str, Any]]:
        for argument in arguments:
            # An argument is one tensor, a number of tensors of one type, or one tensor for each of a list of types.
            if argument.number_attr:
                count = op.get_attr(argument.number_attr)
            else:
                count = 1
            if argument.type_list_attr:
                count = len(op.get_attr(argument.type_list_attr))
            # The iterator `tensors` goes on where the argument before has stopped, and is longer than `count`. The
            # range must come first: `zip` would otherwise take one more tensor, and lose it.
            for _, tensor in zip(range(count), tensors, strict=False):
                yield argument.name, tensor

    inputs = list(pair(op.op_def.input_arg, iter(op.inputs)))
    outputs = list(pair(op.op_def.output_arg, iter(op.outputs)))
    return inputs, outputs


def _find_gpu_kernel(op: Any) -> Any:
    """Return the kernel with which a GPU would run an operation; None if there is none, or it is placed on the host.

    An operation is placed on the host if one of the scopes in its name begins with `HOST`. Only kernels of the
    installed TensorFlow count, and whether there is a GPU does not matter.
    """
    if any(part.startswith(HOST) for part in op.name.split("/")):
        return None
    return next((kernel for kernel in _list_kernels(op.type) if _kernel_accepts(kernel, op)), None)


def _kernel_accepts(kernel: Any, op: Any) -> bool:
    """Return whether a kernel is for the types of an operation's arguments."""
    for constraint in kernel.constraint:
        value = op.node_def.attr[constraint.name]
        types = {value.type, *value.list.type} - {0}  # one type, or a list; an unset one is 0
        if not types <= set(constraint.allowed_values.list.type):
            return False
    return True


@functools.cache
def _list_kernels(kind: str) -> list[Any]:
    """Return the kernels of a type of operation that GPUs can run, those made for GPUs before those for any device."""
    kernels = []
    for kernel in tensorflow_private.get_registered_kernels_for_op(kind).kernel:
        # A kernel with a label is used only by operations that ask for it.
        if kernel.device_type in ("GPU", "DEFAULT") and not kernel.label:
            kernels.append(kernel)
    # those for GPUs before those for any device
    return sorted(kernels, key=lambda kernel: kernel.device_type != "GPU")
