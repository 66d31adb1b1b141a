"""Verdicts and races of configurations by their scores, as pure functions of numbers that know nothing of sweeps."""
