"""What is used from Python: sweeps that are loaded, and sweeps that are run from a script or a notebook."""
