"""A trial's Keras model out of its checkpoint."""
