"""All entries of the zoo, by the name of their class."""

from __future__ import annotations

import zoo_layers
import zoo_losses
import zoo_mixing
import zoo_models
import zoo_sources
import zoo_steps
import zoo_training
import zoo_transfer
from zoo import ENTRIES

__all__ = [
    "ENTRIES",
    "zoo_layers",
    "zoo_losses",
    "zoo_mixing",
    "zoo_models",
    "zoo_sources",
    "zoo_steps",
    "zoo_training",
    "zoo_transfer",
]
