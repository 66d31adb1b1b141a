"""Sweeps from Python: run them in a script or a notebook, and look at what they found."""
