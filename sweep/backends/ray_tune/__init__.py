"""The only package that uses Ray: the cluster and its start, the worker that Ray Tune runs, and adapters for Tune."""
