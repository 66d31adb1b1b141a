"""The live page of `sweep ui`: a server on this machine that shows a results folder while sweeps run.

It reads logs and tables, and writes nothing: what a person does on the page is a command line of sweep, which a process
of its own runs (`acts`, `jobs`). `server` is the only module that serves with aiohttp.
"""
