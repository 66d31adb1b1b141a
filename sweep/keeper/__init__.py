"""The keeper: a process that runs the commands of a folder one after another, and keeps a local Ray warm in between.

`run`, `resume`, `confirm` and `retrain` with ``--keep-warm`` start it, or use the one that is running. `client` is the
side of the command that a person has typed: it passes its arguments, streams and signals on to the keeper, which runs
the command and returns its exit code (`sweep.keeper_process`). `place` and `messages` contain what both sides need.
"""
