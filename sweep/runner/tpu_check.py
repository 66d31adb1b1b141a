"""Finds out, before the first epoch of a sweep on TPUs, whether TensorFlow can use them here."""

from __future__ import annotations

from collections.abc import Iterator

from sweep.doctor import probes
from sweep.doctor.programs import run_command
from sweep.errors import Problem

PROBE_S = 300.0


def find_problems() -> Iterator[Problem]:
    """Yield a problem if TensorFlow cannot use TPUs on this machine, or does not answer within `PROBE_S` seconds.

    TensorFlow is asked in a process of its own, which is waited for.
    """
    found = probes.probe_tpu(run_command, PROBE_S)  # reasons why it cannot, in words
    if isinstance(found, probes.ProbeFailure):
        what = f"tpu, and TensorFlow does not say whether it has TPUs: {found.reason}"
        yield Problem("training.strategy", what, "python -m sweep doctor looks at the machine")
    elif found:
        package = "tensorflow-tpu, on a machine that has some"
        hint = f"install a TensorFlow that was built for TPUs ({package}), or write auto"
        yield Problem("training.strategy", f"tpu, but {' and '.join(found)}", hint)
