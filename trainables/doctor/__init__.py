"""What TensorFlow makes of this machine."""
