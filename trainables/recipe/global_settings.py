"""What an author's code sets in Keras and TensorFlow for the whole process: honoured, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.utils import naming
from tensorflow.python.eager import context


@contextmanager
def clearing_names_alone() -> Iterator[None]:
    """Let Keras's `clear_session` start the names of layers anew inside the block, and leave all else as it is.

    It would drop the strategy's scope, the trial's dtype policy and generators, and the kernels of earlier trials. An
    author may have imported it by name, so that what is replaced is what it looks up whenever it is called.
    """
    graphs: Any = tf.compat.v1
    eager: Any = context.context()
    trackers = global_state.GLOBAL_STATE_TRACKER, global_state.GLOBAL_SETTINGS_TRACKER
    reset, had = graphs.reset_default_graph, vars(eager).get("clear_kernel_cache")

    def put_back() -> None:
        if global_state.GLOBAL_STATE_TRACKER is not trackers[0]:
            global_state.GLOBAL_STATE_TRACKER, global_state.GLOBAL_SETTINGS_TRACKER = trackers
            naming.reset_uids()

    def leave() -> None:
        pass

    graphs.reset_default_graph, eager.clear_kernel_cache = put_back, leave
    try:
        yield
    finally:
        graphs.reset_default_graph = reset
        if had is None:
            del eager.clear_kernel_cache
        else:
            eager.clear_kernel_cache = had


@contextmanager
def of_a_trial(dtype: str) -> Iterator[None]:
    """Run an author's methods under this dtype policy; Keras keeps it per thread, so it is set here and put back."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        with clearing_names_alone():
            yield
    finally:
        keras.config.set_dtype_policy(before)
