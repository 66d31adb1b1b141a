"""The devices that a trial was given: strategy, precision, what they report."""
