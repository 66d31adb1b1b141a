"""Eight logical CPU devices, TensorFlow started with them, so that no trial of fewer binds the process to its own."""

from __future__ import annotations

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8
)
tf.config.list_logical_devices("CPU")
