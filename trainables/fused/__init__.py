"""Several trials of one structure as one program."""
