"""The life of a claimed job, from its claim to its settlement.

`attempt` has the states and their transitions. `dispatcher` is the loop: it claims jobs, has
`workers` run them, and commits their settlements. `prefetch` decides how many jobs are claimed
before a worker is idle; `started_log` records for a crash which attempts have not started.
"""
