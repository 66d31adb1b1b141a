"""Settings of all tests: TensorFlow is quiet, and has eight logical CPU devices to mirror over."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
os.environ.setdefault("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=")  # tests keep nothing for others


@pytest.fixture(autouse=True)
def modules_end_with_their_test() -> Iterator[None]:
    """Forget the modules that a test has written into its folder: another test may have one of that name."""
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if "pytest-of-" in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
