"""What code of the author's keeps outside of a trial, as a fresh process would have it: values, imports, settings.

`values` compares and restores what objects hold, `homes` says where names are, `pristine` restores names, `settings`
restores what Python, Keras and TensorFlow hold for a whole process, and `imports` lets modules draw from a seed.
"""
