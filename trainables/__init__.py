"""The training: Keras models under a `tf.distribute` strategy, for `sweep` or for a notebook.

Importing this package imports nothing heavy; TensorFlow comes with `trainables.keras_trainable`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
"""TensorFlow tells of its own workings before anybody could ask it not to; errors are told. Read as it is imported."""
