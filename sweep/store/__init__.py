"""The files of a sweep: its log, the tables derived from it, and the results folder that has them all.

`log` appends events and reads them, `ledger` computes the states of trials from them, `tables` makes Parquet tables
with the columns of `columns`, and `reading` updates and reads the tables. `folder` is the results folder with its lock,
`sweep_info` its file sweep.json, `remote` its copy in an object store, and `repair` repairs a damaged log. `disk` has
functions that write a file completely or not at all.
"""
