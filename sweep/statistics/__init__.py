"""What scores can tell and what is luck: pure functions of arrays, which know nothing of sweeps."""
