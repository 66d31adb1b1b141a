"""Eight logical CPU devices, set before TensorFlow's first operation, and a small trainable."""

from __future__ import annotations

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 8
)
