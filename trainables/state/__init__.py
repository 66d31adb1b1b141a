"""All variables of a program: found, reset, handed on, written down."""
