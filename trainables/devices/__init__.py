"""The devices of a trial: strategy, precision, and measurements."""
