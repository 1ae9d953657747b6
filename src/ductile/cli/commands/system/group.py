"""The noun `system` and its actions."""

from __future__ import annotations

from ductile.cli.command import Noun
from ductile.cli.commands.system.backup import backup, restore, verify
from ductile.cli.commands.system.demo import demo
from ductile.cli.commands.system.doctor import doctor
from ductile.cli.commands.system.facts import plugin_facts
from ductile.cli.commands.system.gateway import breaker, reload, start, status
from ductile.cli.commands.system.import_go import import_
from ductile.cli.commands.system.pauses import pause, resume
from ductile.cli.commands.system.stop import stop
from ductile.cli.commands.system.ui import ui
from ductile.cli.commands.system.watch import watch

system = Noun("system", "Run, inspect and maintain the gateway.")
for action in (
    backup,
    breaker,
    demo,
    doctor,
    import_,
    pause,
    plugin_facts,
    reload,
    restore,
    resume,
    start,
    status,
    stop,
    ui,
    verify,
    watch,
):
    system.add_command(action)
