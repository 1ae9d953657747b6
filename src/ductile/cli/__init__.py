"""The command line: `ductile NOUN ACTION`. Commands parse, call and render; nothing else.

main        the nouns and short forms, loaded lazily    command   options of every command
target      the configuration and its gateway           client    HTTP to a running gateway
in_process  the same API without a running gateway      errors    exit codes, error output
output      tables, JSON and text                       display   output of several commands
options     option types and values                     aliases   hidden words for old scripts
commands/   one module per noun; `system` has several

Nothing expensive is imported before a command runs. A new command is a function decorated with
`@noun.read(...)` or `@noun.write(...)`; a new noun is a module and a line in `main.NOUNS`.
"""

from __future__ import annotations

from ductile.cli.main import main

__all__ = ["main"]
