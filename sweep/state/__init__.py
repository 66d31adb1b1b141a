"""Restores state that the author's code keeps between trials, as in a fresh process: values, imports, settings.

`values` compares and restores the content of objects, `namespaces` finds the names in modules and classes,
`recorded_values` restores the values of names, `settings` restores the settings of Python, Keras and TensorFlow for the
whole process, and `imports` imports modules under a seed.
"""
