"""What sweep asks of searchers and schedulers, as suites of tests to derive from; see docs/extending.md."""
