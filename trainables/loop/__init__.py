"""The compiled loop: an update, an epoch, a program, a trial."""
