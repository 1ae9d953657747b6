"""The command line: NOUN ACTION, thin modules that parse, call and render.

    root      the tree, loaded lazily          action   the options that every command shares
    site      config, gateway, ledger          client   a running gateway, over its socket
    workshop  the same answers without one     failure  errors to exit codes and JSON
    output    tables, JSON, colours            follow   logs, and what is announced
    edit      config get and set               author   plugin new, test, validate

The nouns have a module each; `system` has its actions in several, gathered by `operations`.

Nothing heavy is imported until a command runs. A new command is a function under
`@noun.read(...)` or `@noun.write(...)`; a new noun is a module and a line in `root`.
"""

from __future__ import annotations

from ductile.cli.main import main

__all__ = ["main"]
