"""Everything that knows Ray: the cluster, the worker that Ray Tune runs, and Tune's three adapters."""
