"""Settings of Keras and TensorFlow that an author's code changes process-wide: restored, or refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import tensorflow as tf

from trainables import keras_private
from trainables.devices.precision import PRECISIONS
from trainables.recipe.refusals import Refused


@contextmanager
def trial_settings(dtype: str, *, trains: bool) -> Iterator[None]:
    """Run an author's methods under the dtype policy ``dtype`` inside the block, then restore Keras's settings.

    Inside, floatx is float32, functions do not run eagerly, and `keras.utils.clear_session` resets only the names of
    layers. Keras keeps the policy per thread, so it is set here. If ``trains`` is False, settings that were made before
    are accepted, because the trial may be inspected in a user's own process.
    Raises: Refused: if the author's code has set another policy, floatx or eager functions in the block or, with
    ``trains``, before it (at import). Settings are restored before it is raised after the block, where it takes the
    place of an error of the block.
    """
    before = _Settings()
    if trains:
        # "float32" is Keras's default; the policy of an earlier trial ended with it
        before.check(dtype, "float32")
    keras.config.set_floatx("float32")
    keras.config.set_dtype_policy(dtype)
    tf.config.run_functions_eagerly(False)
    try:
        with keras_private.clearing_names_alone():
            yield
    finally:
        left = _Settings()
        before.put_back()  # before the check, which may raise
        left.check(dtype)


class _Settings:
    """A snapshot of Keras's floatx, dtype policy and eager mode, to check and restore them."""

    def __init__(self) -> None:
        self._floatx = keras.config.floatx()
        self._policy = keras.config.dtype_policy()
        self._eager = tf.config.functions_run_eagerly()

    def put_back(self) -> None:
        keras.config.set_floatx(self._floatx)
        keras.config.set_dtype_policy(self._policy)
        tf.config.run_functions_eagerly(self._eager)

    def check(self, *policies: str) -> None:
        """Raise Refused if functions ran eagerly, floatx was not float32, or the policy was none of ``policies``.

        This is about the settings at the time of the snapshot; the first of ``policies`` is the trial's, for messages.
        """
        if self._eager:
            raise Refused(
                "the author's code has called tf.config.run_functions_eagerly(True), under which no program can be "
                "traced; leave that out, and write `training: {run_eagerly: true}` in the sweep file, or "
                "run it with `--inline --eager`, to see numbers in breakpoints and prints"
            )
        if self._floatx != "float32":
            instead = f"mixed_{self._floatx}"
            raise Refused(
                f"the author's code has set Keras's floatx to {self._floatx} (keras.config.set_floatx), and trials "
                f"have weights in float32; leave that out{_suggest_setting(instead)}"
            )
        if (found := self._policy.name) not in policies:
            raise Refused(
                f"the author's code has set Keras's dtype policy to {found} (keras.config.set_dtype_policy, "
                f"keras.mixed_precision.set_global_policy), and the trial has {policies[0]}; leave that out"
                f"{_suggest_setting(found)}"
            )


def _suggest_setting(name: str) -> str:
    """Return the advice on how to ask for a policy in the sweep file, to be appended to a message.

    If ``name`` is not one of `PRECISIONS`, it says that this is unsupported, and lists those that are.
    """
    if name in PRECISIONS:
        return f", and write `training: {{precision: {name}}}` in the sweep file"
    return (
        f": {name.removeprefix('mixed_')} is unsupported, expected `training: {{precision: ...}}` in the sweep file "
        f"with one of {', '.join(PRECISIONS)}"
    )
