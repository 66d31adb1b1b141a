"""Everything that knows Ray: the cluster and its start, the worker that Ray Tune runs, and Tune's three adapters."""
