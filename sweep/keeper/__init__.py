"""The keeper: a process that runs one command after another in a folder, and keeps a local Ray warm in between.

`run`, `resume`, `confirm` and `retrain` with ``--keep-warm`` start it, or use the one that is there. `client` is the
command that a person has typed. It passes its arguments, streams and signals on to the keeper, which runs the command
and returns its exit code (`sweep.keeper_process`). `place` and `messages` have what both need.
"""
