"""Tests of how TensorFlow works on this machine."""
