"""The only place that spawns processes: a small process of its own, and the gateway's client to it.

`pool`, `client`, `connection`, `event_loop`, `exec_errors` and `process_scan` are the gateway's
side. `supervisor`, `slot`, `plugin_process`, `channel`, `started_flags`, `reaper`, `isolation` and
`protocol` are what the runner process loads: they import little, only from the standard library,
and `_signal` and `_socket` instead of the modules that add enumerations to them.
"""
