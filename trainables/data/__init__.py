"""Data sets that an author's `data` returns, prepared as chunks on the devices."""
