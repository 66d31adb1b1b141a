"""The JSON documents that the commands print with ``--json``: their types, their schemas, and those of mistakes.

`shapes` has a class for the document of each command, `schemas` makes JSON Schemas of these classes, and `mistakes`
describes an error. Whatever shows a sweep to a program uses these classes; what people read is drawn from the same
facts in `sweep.render`.
"""
