"""The names under which this package is known: the import is sweep, which on the package index is another project's."""

DISTRIBUTION = "sweep-keras"
VERSION = "0.1.0"
