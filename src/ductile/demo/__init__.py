"""The demo's files: a configuration and three example plugins, copied by `system demo`."""
