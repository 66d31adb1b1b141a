"""Checks of a machine: whether it can train, with advice if it cannot.

`host_checks` and `gpu_checks` make `findings` of the answers that TensorFlow and Ray (`probes`) and NVIDIA's driver
(`nvidia`) have given. `programs` runs the programs that are asked, which may fail, abort or hang.
"""
