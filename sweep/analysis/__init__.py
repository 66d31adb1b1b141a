"""A sweep as plain rows, for code that compares, lists and prints it, and the outline of its file."""

from sweep.analysis.lineage import Step, lineage_of
from sweep.analysis.outline import Limits, Outline
from sweep.analysis.sweep_rows import Sweep, Trial, first_failure, of_tables, read

__all__ = ["Limits", "Outline", "Step", "Sweep", "Trial", "first_failure", "lineage_of", "of_tables", "read"]
