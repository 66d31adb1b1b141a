"""Numbers inside of a graph that change without a new graph: live hyperparameters, random draws."""
