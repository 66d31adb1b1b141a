"""The training: Keras models under a `tf.distribute` strategy, for `sweep` or for a notebook.

Importing this package imports nothing heavy; TensorFlow comes with `trainables.keras_trainable`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
"""As `sweep` sets it, for those who import this package alone."""
