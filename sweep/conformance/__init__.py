"""The requirements on searchers and schedulers, as test suites to derive from; see docs/extending.md."""
