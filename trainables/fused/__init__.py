"""Training of several trials of one structure as one program."""
