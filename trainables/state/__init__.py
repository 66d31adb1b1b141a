"""The variables of a program: collected, reset, passed on and saved."""
