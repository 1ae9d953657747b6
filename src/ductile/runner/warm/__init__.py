"""Warm starts of Python plugins: jobs are forked from an interpreter that has imported modules.

A zygote is a second runner, started with the plugin's own Python. It imports the declared modules
and forks warm slots, and a warm slot forks one process per job. `program`, `zygote`, `preload` and
`job` are what it loads: the standard library only, for Python 3.9 and later. `zygote_pool` and
`slots` are the gateway's side.
"""
