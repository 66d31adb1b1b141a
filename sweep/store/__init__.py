"""What a sweep has written: its log, the states of its trials, tables, and the results folder that has them all.

`log` appends events and reads them, `ledger` folds them into the states of trials, `tables` makes Parquet tables of
them with the columns of `columns`, and `reading` keeps the tables fresh and reads them. `folder` is the results folder
with its lock, `sweep_info` its file sweep.json, `remote` its copy in an object store, and `repair` mends a damaged one.
`disk` has the writes that leave a file complete or absent.
"""
