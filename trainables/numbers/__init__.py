"""Values inside a graph that can change without a new graph: live hyperparameters and random draws."""
