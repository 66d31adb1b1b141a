"""Corrections by which several replicas and micro-batches train the same model as one replica."""
