"""From what an author's `data` returns to chunks on a device."""
