"""Settings of all tests: TensorFlow is quiet, and has eight logical CPU devices to mirror over."""

from __future__ import annotations

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
