"""The training: Keras models under a `tf.distribute` strategy, for `sweep` or for a notebook.

Importing this package imports nothing heavy; TensorFlow comes with `trainables.keras_trainable`.
"""
