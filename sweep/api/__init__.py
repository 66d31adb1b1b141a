"""The Python interface: `LoadedSweep` and ``sweep.load`` here, ``sweep.run`` and its like in `sweep.api.running`.

The only package that uses pandas.
"""

from sweep.api.loaded_sweep import LoadedSweep
from sweep.api.loading import load

__all__ = ["LoadedSweep", "load"]
