"""The noun `system` and its actions, each imported when it is used: `start` needs no other one."""

from __future__ import annotations

from ductile.cli.command import Noun

system = Noun(
    "system",
    "Run, inspect and maintain the gateway.",
    actions={
        "backup": "commands.system.backup:backup",
        "breaker": "commands.system.gateway:breaker",
        "demo": "commands.system.demo:demo",
        "doctor": "commands.system.doctor:doctor",
        "import": "commands.system.import_go:import_",
        "pause": "commands.system.pauses:pause",
        "plugin-facts": "commands.system.facts:plugin_facts",
        "reload": "commands.system.gateway:reload",
        "restore": "commands.system.backup:restore",
        "resume": "commands.system.pauses:resume",
        "start": "commands.system.gateway:start",
        "status": "commands.system.gateway:status",
        "stop": "commands.system.stop:stop",
        "ui": "commands.system.ui:ui",
        "verify": "commands.system.backup:verify",
        "watch": "commands.system.watch:watch",
    },
)
