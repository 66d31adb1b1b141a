"""A sweep as plain rows, for code that compares, lists and prints it, and the outline of its file."""

from sweep.analysis.lineage import LineageStep, lineage_of
from sweep.analysis.outline import BudgetLimits, Outline
from sweep.analysis.sweep_rows import Sweep, Trial, first_failure, make_sweep, read_sweep

__all__ = [
    "BudgetLimits",
    "LineageStep",
    "Outline",
    "Sweep",
    "Trial",
    "first_failure",
    "lineage_of",
    "make_sweep",
    "read_sweep",
]
