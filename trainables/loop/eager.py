"""Training op by op, so that breakpoints and prints in an author's methods see numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import tensorflow as tf

from trainables.devices.placement import Placement
from trainables.recipe.refusals import Refused


def check(training: Mapping[str, object], placement: Placement, micro_batches: int) -> None:
    """Raise Refused for ``training.run_eagerly`` where a batch is computed in parts, or by XLA."""
    if training.get("run_eagerly") is not True:
        return
    parts = int(placement.replicas.number) * micro_batches
    if parts > 1:
        raise Refused(
            f"training.run_eagerly is true, and a batch is computed in {parts} parts (replicas, micro_batches); debug "
            "on one device, in one part"
        )
    if training.get("jit_compile") is True:
        raise Refused("training.run_eagerly and training.jit_compile are true, expected one of them")


@contextmanager
def run(training: Mapping[str, object]) -> Iterator[None]:
    """Run what is compiled inside the block op by op, where ``training.run_eagerly`` asks for it."""
    before = tf.config.functions_run_eagerly()
    tf.config.run_functions_eagerly(before or training.get("run_eagerly") is True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(before)
