"""Verdicts and races of configurations by their scores, as pure functions of numbers.

Nothing here depends on sweeps.
"""
