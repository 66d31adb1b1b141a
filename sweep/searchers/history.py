"""The ledger by the names that searchers of earlier releases import."""

from __future__ import annotations

from sweep.store.ledger import Ledger as History
from sweep.store.ledger import TrialState as Record

__all__ = ["History", "Record"]
