"""What scores can tell and what is luck: pure functions of numbers, which know nothing of sweeps."""
