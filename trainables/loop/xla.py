"""Compilation of updates by XLA: which part of an update, when, and why it may fail.

On one replica XLA compiles the whole update, from the gathered examples of a batch to the applied gradients; on several
replicas, the gradients of each one, which are summed and applied outside. The loop around it, which gathers examples,
stays as it is. XLA compiles for each batch size, so a partial last batch has a program of its own. If something in
front of the model has no kernel (rotations, the shares of mixup), that is computed outside and the rest is compiled.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import tensorflow as tf

from trainables.data.chunks import BucketSplit
from trainables.data.passes import Walk
from trainables.data.residence import gather
from trainables.devices.parameter_server import PARAMETER_SERVER
from trainables.devices.placement import Placement
from trainables.devices.replicas import MEET
from trainables.loop.intake import PreparedExamples
from trainables.loop.steps import CompiledStep
from trainables.loop.update import Graph
from trainables.numbers.draws import CannotCompile, place_on_host, tracing_for_xla
from trainables.recipe.refusals import Refused
from trainables.replicas import random_layers, slices

Asked: TypeAlias = Literal["", "may", "must"]

ON, APART, OFF = "on", "on, but for augmentation", "off"
FAILURES = (tf.errors.OpError, CannotCompile, RuntimeError)
"""Errors that XLA may cause; `Xla.try_next_mode` decides which of them it handles."""

REASON = 160  # maximum number of characters
UNSUPPORTED = "Detected unsupported operations when"
_MEET = "merge_call"


def choose_xla(training: Mapping[str, object], placement: Placement) -> Asked:
    """Return whether XLA must (``"must"``), may (``"may"``) or must not (``""``) compile updates.

    ``training`` is the block of the sweep file. XLA must if ``training.jit_compile`` is True. It may if that is
    ``auto``, the default, and the trial is on GPUs, unless ``deterministic``, ``run_eagerly`` or ``fuse`` is set. In
    all other cases it must not.
    """
    option = training.get("jit_compile", "auto")
    if option is True:
        return "must"
    if option != "auto" or not placement.on_gpu:
        return ""
    needs_same_bits = training.get("deterministic") is True  # XLA does not promise them
    trains_otherwise = training.get("run_eagerly") is True or bool(training.get("fuse"))
    if needs_same_bits or trains_otherwise:
        return ""
    return "may"


def follow_author(
    asked: Asked, jit_compile: bool | None, training: Mapping[str, object], placement: Placement
) -> Asked:
    """Return ``asked``, changed by the ``jit_compile`` that the author has passed to `compile` (None if not passed).

    The author's value replaces ``training.jit_compile: auto``: True gives ``"must"`` and False ``""``. Otherwise
    ``asked``, which `choose_xla` has returned, is unchanged. Raises Refused if the sweep file says the opposite. If
    True would replace ``auto``, raises Refused for ``deterministic``, ``run_eagerly`` or ``fuse``, several processes,
    and parameter servers.
    """
    option = training.get("jit_compile", "auto")
    # the author says nothing, or the same as the sweep file
    if jit_compile is None or option == jit_compile:
        return asked
    says = f"model() compiles its model with jit_compile={jit_compile}"
    if option != "auto":
        raise Refused(
            f"{says}, and the sweep file has training.jit_compile: {option is True}; leave out one of them"
        )
    if not jit_compile:
        return ""
    # what rules out XLA: its name in the message, and whether the trial has it
    excluding = {
        f"training.{name}": training.get(name) for name in ("deterministic", "run_eagerly", "fuse")
    }
    excluding["a trial of several processes"] = placement.replicas.span_processes
    excluding["training.strategy: parameter_server"] = placement.name == PARAMETER_SERVER
    if found := [name for name, has_it in excluding.items() if has_it]:
        raise Refused(
            f"{says}, which {' and '.join(found)} does not go with; leave out one of them"
        )
    return "must"


Update: TypeAlias = Callable[..., Any]
"""Function with the signature of `Graph.update`."""
OneBatch: TypeAlias = Callable[[Any, tf.Tensor, tf.Tensor], Any]
"""Function of (tensors, rows, seed) that trains one batch, so that XLA compiles for its size."""


@dataclass(frozen=True)
class CompileMode:
    """One way of compiling updates."""

    name: str
    of: Callable[[Graph], tuple[Update, OneBatch]]


class Xla:
    """Compiles a program's updates by XLA, in the first of several ways that works."""

    def __init__(self, graph: Graph, asked: Asked) -> None:
        self.wanted, self.reason = asked, ""
        self._graph = graph
        self._untried_modes = iter(_list_modes(graph) if asked else [])
        # index of the kind of chunk, and number of examples
        self._compiled_batches: set[tuple[int, int]] = set()
        self._mode: CompileMode | None = None  # None: XLA compiles nothing (any more)
        self.update: Update = graph.update
        """The graph's own update, or one that XLA compiles."""
        self._train_one_batch: OneBatch | None = None
        if asked:
            self._choose_next()

    @property
    def described(self) -> dict[str, str]:
        """The trial's columns ``xla`` (`ON`, `APART` or `OFF`) and, if off, ``xla_reason``; empty if not asked for."""
        if not self.wanted:
            return {}
        if self._mode is not None:
            return {"xla": self._mode.name}
        return {"xla": OFF, "xla_reason": self.reason}

    def try_next_mode(self, error: Exception) -> bool:
        """Switch to the next way of compiling updates, and return True, if XLA may have caused the error.

        The last way is to train without XLA. The caller must trace training again. Return False, and change nothing, if
        XLA is not used (any more), if memory is exhausted, or for a RuntimeError that is not about `merge_call`; any
        other error counts as XLA's. Raises Refused if XLA must be used and no way is left.
        """
        # A RuntimeError is XLA's only if it names `merge_call`, by which replicas exchange values.
        unrelated = isinstance(error, RuntimeError) and _MEET not in str(error)
        if self._mode is None or unrelated or isinstance(error, tf.errors.ResourceExhaustedError):
            return False
        # Keep why the first way failed, which compiles most.
        self.reason = self.reason or describe_xla_error(error)
        self._choose_next()
        return True

    def list_uncompiled(self, walk: Walk) -> list[tuple[int, int]]:
        """Return the batches of a pass that are not compiled yet, as pairs (index of the kind of chunk, size).

        The size is the number of examples. Empty if XLA does not compile updates.
        """
        if self._mode is None:
            return []
        uncompiled = []
        for batch in _iterate_batch_sizes(walk):
            if batch not in self._compiled_batches:
                uncompiled.append(batch)
        return uncompiled

    def compile(self, kinds: Sequence[Any], specs: Any, lacking: Sequence[tuple[int, int]]) -> None:
        """Compile updates for the batches in ``lacking`` by training on one batch of each size, and remember them.

        This changes variables; the caller must restore them. ``lacking`` is from `list_uncompiled`, ``kinds`` has the
        tensors of each kind of chunk, and ``specs`` the types for which the training was traced. Raises one of
        `FAILURES` if XLA fails; batches compiled before that are remembered. Only to be called if XLA compiles updates.
        """
        train = tf.function(self._train_one_batch, autograph=False)
        # arguments: the examples, the rows of the batch, and the seed
        concrete = train.get_concrete_function(
            specs, tf.TensorSpec([None], tf.int64), tf.TensorSpec([], tf.int32)
        )
        for kind, size in lacking:
            # ``size`` times the first example
            concrete(kinds[kind], tf.zeros([size], tf.int64), tf.constant(0))
            self._compiled_batches.add((kind, size))

    def begin_anew(self) -> None:
        """Forget all compiled batches and create `update` again; to be called before training is traced again."""
        self._compiled_batches.clear()
        self._set_update()

    def _set_update(self) -> None:
        """Set `update` to the update function of the present way, or to `Graph.update` if no way is left.

        Also make the graph forget which seed generators training uses, see `Graph.begin_anew`.
        """
        self._graph.begin_anew()
        if self._mode:
            self.update, self._train_one_batch = self._mode.of(self._graph)
        else:
            self.update = self._graph.update
            self._train_one_batch = None

    def _choose_next(self) -> None:
        """Switch to the next way of compiling updates; if none is left, train without XLA, and set `reason` to why.

        `reason` stays if it is set already. All compiled batches are forgotten. Raises Refused if none is left and XLA
        must be used.
        """
        self._compiled_batches.clear()
        self._mode = next(self._untried_modes, None)
        self._set_update()
        if self._mode is not None:
            return
        reason = self.reason or _find_hindrance(self._graph)
        if self.wanted == "must":
            raise Refused(
                f"jit_compile is true, but updates cannot go through XLA: "
                f"{reason}; with auto, such trials train without it"
            )
        self.reason = reason


def describe_xla_error(error: Exception) -> str:
    """Return the reason for an XLA error as one line for the user, in words of its own for two known errors.

    For others, it quotes at most 160 characters of the first line of the message that tells something. If there is no
    such line, it is the name of the error's class.
    """
    # Keras wraps what layers raise, and sets the original message in bold letters.
    text = re.sub(r".*?\x1b\[1m(.*?)\x1b\[0m.*", r"\1", str(error), flags=re.DOTALL)
    found = re.search(rf"{UNSUPPORTED} .*?: (\w+) \(", text)
    if found:
        return f"XLA has no kernel for {found[1]}"
    if _MEET in text:
        return MEET  # a phrase about replicas that exchange values
    # TensorFlow puts such lines in front of the message itself.
    skipped = ("Graph execution error", "Detected at node", "<stack traces")
    lines = []
    for line in text.splitlines():
        if line.strip() and not line.strip().startswith(skipped):
            lines.append(line.strip())
    return (lines or [type(error).__name__])[0][:REASON]


def _list_modes(graph: Graph) -> Iterator[CompileMode]:
    """Yield the ways of compiling updates that may work; those that compile more operations come first.

    The name of one that compiles all is `ON`; of one that leaves out the preparation of examples, `APART`.
    """
    if _find_hindrance(graph):
        return
    if graph.replicas.number > 1:
        # XLA cannot compile the sums over replicas, so it compiles what each one computes by itself.
        yield CompileMode(ON, _compile_gradients)
        return
    yield CompileMode(ON, _compile_update)
    # XLA may lack a kernel for what prepares examples, such as a rotation in `augment`. They can be prepared before,
    # but only as a single slice, so a batch must not be cut into micro-batches.
    is_single_slice = graph.whole
    if is_single_slice:
        yield CompileMode(APART, _compile_without_intake)


def _find_hindrance(graph: Graph) -> str:
    """Return why XLA cannot compile updates, in words; empty if no reason is known in advance.

    The reasons are several processes, a GPU that XLA does not know, and several replicas with another step than
    `CompiledStep`.
    """
    if graph.replicas.span_processes:
        return "the trial has several processes"
    from trainables.devices import gpu_support

    unknown_gpu = gpu_support.find_unknown_gpu()
    if unknown_gpu:
        return unknown_gpu
    has_own_step = not isinstance(graph.step, CompiledStep)
    if graph.replicas.number > 1 and has_own_step:
        return "there are several replicas, and a train_step() of one's own"
    return ""


def _iterate_batch_sizes(walk: Walk) -> Iterator[tuple[int, int]]:
    """Yield each kind of batch in a pass once, as a pair (index of the kind of chunk, number of examples).

    A kind of chunk is a bucket, or a shape of an author's own batches; other data has one kind.
    """
    data, size = walk.data, walk.batch_size
    if data.cut_by_author:  # the author's data comes in batches
        for index, kind in enumerate(data.list_chunk_kinds()):
            yield index, len(kind.order)
        return
    parts = data.parts if isinstance(data, BucketSplit) else [data]
    for index, part in enumerate(parts):
        if part.size >= size:
            yield index, size
        last = part.size % size  # examples in the last batch, if it is a smaller one
        if last:
            yield index, last


def _get_rows(tensors: Any, rows: tf.Tensor) -> Any:
    """Return the examples at ``rows`` of each tensor in a structure."""
    return tf.nest.map_structure(lambda leaf: gather(leaf, rows), tensors)


def _list_all_rows(batch: Any) -> tf.Tensor:
    """Return the row numbers of all examples of a batch, as the graph's methods take them."""
    return tf.range(tf.shape(tf.nest.flatten(batch)[0])[0])


def _jit(graph: Graph, function: Callable[..., Any]) -> Any:
    """Return ``function`` compiled by XLA; states of seed generators are passed in, as XLA cannot read host memory.

    The result takes the arguments of ``function``. Calling it raises CannotCompile if an argument or a captured tensor
    is of texts or of TensorFlow's type ``variant``, and passes on errors of XLA.
    """
    generators = random_layers.list_generators(graph.step.networks)

    # ``seeds`` has the states of the generators, in their order.
    def traced(seeds: list[Any], *given: Any) -> Any:
        states = {}
        for generator, state in zip(generators, seeds, strict=True):
            states[id(generator)] = state
        with tracing_for_xla(), random_layers.providing_states(states):
            return function(*given)

    compiled = tf.function(traced, autograph=False, jit_compile=True)

    def call(*given: Any) -> Any:
        with place_on_host():
            seeds = [tf.identity(generator.state.value) for generator in generators]
        inputs = compiled.get_concrete_function(seeds, *given).inputs  # with captured tensors
        if any(tensor.dtype in (tf.string, tf.variant) for tensor in inputs):
            raise CannotCompile("XLA takes no texts")  # XLA would end the process
        return compiled(seeds, *given)

    return call


def _compile_update(graph: Graph) -> tuple[Update, OneBatch]:
    """Return an update that XLA compiles as a whole, for one replica, and a function that compiles it for a batch."""
    # ``rest`` is the learning rate, the seed and the number of the update.
    function = _jit(graph, lambda batch, *rest: graph.update(batch, _list_all_rows(batch), *rest))

    def update(
        tensors: Any, rows: tf.Tensor, rate: tf.Tensor, seed: tf.Tensor, number: tf.Tensor
    ) -> Any:
        # Gathered outside of XLA, so that what it compiles depends on the size of the batch alone, not on the chunk.
        batch = graph.replicas.run(_get_rows, tensors, rows)
        with _placing_on_device(graph):
            return function(batch, rate, seed, number)

    return update, _call_with_batch(update)


def _compile_without_intake(graph: Graph) -> tuple[Update, OneBatch]:
    """Return an update that XLA compiles without the augmentation and mixing of examples, for one replica.

    Also return a function that compiles it for a batch.
    """
    # Of the present trace, what is no tensor: the draws, and whether examples are mixed.
    of_trace: list[Any] = []

    def take(tensors: Any, rows: tf.Tensor, seed: tf.Tensor, number: tf.Tensor) -> Any:
        (cut,) = slices.cut_for_replica(tf.shape(rows)[0], 1)
        draws = cut.draw(seed, number)
        taken = PreparedExamples.of(graph.intake.take(tensors, rows, cut), cut, draws)
        # `function` is traced right after this, and then reads them.
        of_trace[:] = [taken.draws, taken.mixes]
        return taken.tensors

    # ``given`` are the prepared tensors; ``rest`` is the learning rate, the seed and the number of the update.
    function = _jit(
        graph,
        lambda given, *rest: graph.update(
            PreparedExamples(given, *of_trace), _list_all_rows(given[0]), *rest
        ),
    )

    def update(
        tensors: Any, rows: tf.Tensor, rate: tf.Tensor, seed: tf.Tensor, number: tf.Tensor
    ) -> Any:
        taken = graph.replicas.run(take, tensors, rows, seed, number)
        with _placing_on_device(graph):
            return function(taken, rate, seed, number)

    return update, _call_with_batch(update)


def _compile_gradients(graph: Graph) -> tuple[Update, OneBatch]:
    """Return an update in which XLA compiles each replica's gradients, and a function that compiles it for a batch.

    It is for several replicas, and for a step with a single turn.
    """
    # ``rest`` is the seed and the number of the update. The second pass is that of sharpness-aware minimization.
    first_pass = _jit(
        graph, lambda batch, *rest: graph.forward(batch, _list_all_rows(batch), *rest, again=False)
    )
    second_pass = _jit(
        graph, lambda batch, *rest: graph.forward(batch, _list_all_rows(batch), *rest, again=True)
    )

    def forward(
        tensors: Any,
        rows: tf.Tensor,
        seed: tf.Tensor,
        number: tf.Tensor,
        *,
        place: int = 0,
        again: bool = False,
    ) -> Any:
        # ``place``, the number of the turn, is always 0 here.
        compiled = second_pass if again else first_pass
        return compiled(_get_rows(tensors, rows), seed, number)

    def compile_for_batch(tensors: Any, rows: tf.Tensor, seed: tf.Tensor) -> None:
        def on_each(tensors: Any, rows: tf.Tensor, seed: tf.Tensor) -> None:
            for again in (False, True) if graph.recipe.sharpness else (False,):
                # the seed stands in for the number of the update
                forward(tensors, rows, seed, seed, again=again)

        graph.replicas.run(on_each, tensors, rows, seed)

    return functools.partial(graph.update, forward=forward), compile_for_batch


def _placing_on_device(graph: Graph) -> Any:
    """Return a context that places operations on the only replica's device."""
    return tf.device(graph.replicas.devices[0])


def _call_with_batch(update: Update) -> OneBatch:
    """Return a function of (tensors, rows, seed) that calls ``update`` with a learning rate of 0.

    The seed is also the number of the update.
    """
    return lambda tensors, rows, seed: update(tensors, rows, tf.constant(0.0), seed, seed)
