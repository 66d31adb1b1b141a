"""Test suites that every searcher and scheduler must pass; docs/extending.md describes how to derive from them."""
