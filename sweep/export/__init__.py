"""Sweeps in the formats of other tools, each derived from the log."""
