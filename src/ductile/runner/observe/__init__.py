"""What a plugin touches in one run, observed without privileges.

A second runner (`program`), whose slot starts the plugin under a seccomp filter that reports system
calls to it and lets them continue (`listener`). `observer_pool` is the caller's side. This is for
proposals: a process can change a path between the report and the call, so nothing is enforced here.
"""
