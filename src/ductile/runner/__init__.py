"""The only place that spawns: a small process of its own, and the gateway's way to it.

`pool` and `sweep` are the gateway's side. `runner`, `slot`, `reaper` and `wire` are what
the runner process loads; they import the standard library alone, and little of that.
"""
