"""The only place that spawns processes: a small process of its own, and the gateway's client to it.

`pool`, `client`, `event_loop`, `exec_errors` and `process_scan` are the gateway's side.
`supervisor`, `slot`, `plugin_process`, `channel`, `started_flags`, `reaper` and `protocol` are what
the runner process loads: they import little, and only from the standard library.
"""
