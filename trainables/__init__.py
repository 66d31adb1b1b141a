"""Training of Keras models under a `tf.distribute` strategy, for `sweep` or for a notebook.

Importing this package imports nothing heavy. `trainables.keras_trainable` imports TensorFlow.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
"""The same value that `sweep` sets, for code that imports this package alone."""
