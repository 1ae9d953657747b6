"""The program `ductile`: its nouns and short forms, each imported when it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

import ductile
from ductile.cli import aliases, errors, go_words, output
from ductile.cli.command import SuggestingGroup, config_option, verbose_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Entry = tuple[str, str]
"""Where a command is defined (`module:attribute`), and its line in the help."""

NOUNS: Mapping[str, Entry] = {
    "system": ("commands.system.group:system", "Run, inspect and maintain the gateway."),
    "config": (
        "commands.config.group:config",
        "Create, check, plan, edit and seal the configuration.",
    ),
    "plugin": ("commands.plugin.group:plugin", "Create, test, list and run plugins."),
    "pipeline": (
        "commands.pipeline.group:pipeline",
        "Show and run pipelines; manage their runs.",
    ),
    "approval": (
        "commands.pipeline.approval:approval",
        "List, approve and reject what pipelines wait for.",
    ),
    "schedule": ("commands.schedule:schedule", "List, explain, pause and resume schedules."),
    "alert": ("commands.alert:alert", "List, show, test and silence alerts."),
    "job": ("commands.job.group:job", "List, inspect, retry, acknowledge, cancel and replay jobs."),
    "queue": ("commands.queue:queue", "List queued and running jobs."),
    "relay": ("commands.relay:relay", "Send events to other gateways; list and retry them."),
    "webhook": ("commands.webhook:webhook", "Manage agent webhooks and their deliveries."),
    "agent": ("commands.agent:agent", "List agents and manage their reminders."),
    "node": ("commands.node:node", "List, drain and resume the nodes that share a ledger."),
    "token": ("commands.token:token", "Create, list, rotate and revoke API tokens."),
    "audit": ("commands.system.audit:audit", "List actions of operators and failed logins."),
    "events": ("commands.events:events", "Follow the gateway's events."),
    "api": ("commands.api:api", "Call any API route of the running gateway."),
    "mcp": ("commands.mcp:mcp", "Serve the Model Context Protocol to an agent over stdio."),
    "skills": ("commands.skills:skills", "Describe this gateway's skills to agents."),
    "completion": ("completion:completion", "Print a shell completion script."),
}

SHORT: Mapping[str, Entry] = {
    "start": ("commands.system.gateway:start", "system start"),
    "status": ("commands.system.gateway:status", "system status"),
    "run": ("commands.plugin.group:run", "plugin run"),
    "plugins": ("commands.plugin.group:listing", "plugin list"),
    "logs": ("commands.job.logs:plugin_logs", "job logs --plugin"),
    "reload": ("commands.system.gateway:reload", "system reload"),
    "ui": ("commands.system.ui:ui", "system ui"),
    "reset": ("commands.plugin.group:reset_breaker", "plugin reset-breaker"),
}
"""Short forms; `queue` is one too: as a noun, it runs `queue list`."""

SENECHAL = "senechal-gw"
SENECHAL_COMMANDS = ("start", "run", "status", "reload", "reset", "plugins", "logs", "queue")
"""The name of the first version, and the commands that it shows in its help."""

OPTION_WORDS = {"help": "--help", "version": "--version"}
"""Options that users type as commands: `ductile help job list`."""


class RootGroup(SuggestingGroup):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["version"] and not aliases.JSON.isdisjoint(args):
            output.print_json({"name": "ductile", "version": ductile.__version__})
            ctx.exit()
        if args and args[0] in OPTION_WORDS:
            args = [*args[1:], OPTION_WORDS[args[0]]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, aliases.translate(go_words.translate_go(args)))

    def hint(self, ctx: click.Context, name: str) -> str:
        """Also the commands of nouns: `doctor` is `system doctor`."""
        nouns = ((noun, self.get_command(ctx, noun)) for noun in NOUNS)
        found = [
            f"'{noun} {name}'"
            for noun, group in nouns
            if isinstance(group, click.Group) and name in group.list_commands(ctx)
        ]
        return f"; did you mean {' or '.join(found)}?" if found else super().hint(ctx, name)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*NOUNS, *SHORT]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        entry = NOUNS.get(name) or SHORT.get(name)
        if entry is None:
            return None
        module, _, attribute = entry[0].partition(":")
        command = getattr(import_module(f"ductile.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.info_name == SENECHAL:
            with formatter.section("Commands"):
                formatter.write_dl([(name, self._help_line(name)) for name in SENECHAL_COMMANDS])
            return
        for title, entries in (("Nouns", NOUNS), ("Short forms", SHORT)):
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in entries.items()])

    def _help_line(self, name: str) -> str:
        command = self.get_command(click.Context(self), name)
        return (command.help or "").split("\n")[0] if command else ""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """Complete from the tables alone, so that a Tab imports no command."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        entries = {**NOUNS, **SHORT}
        names = SENECHAL_COMMANDS if ctx.info_name == SENECHAL else entries
        return [
            CompletionItem(name, help=entries[name][1])
            for name in names
            if name.startswith(incomplete)
        ]


@click.group(
    cls=RootGroup,
    params=[config_option(), verbose_option()],
)
@click.version_option(ductile.__version__, prog_name="ductile", message="%(prog)s %(version)s")
def root(**_: object) -> None:
    """Run scripts in any language on schedules and events.

    Every command has --help, --json and -v; a command that changes something has --dry-run.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code.

    0 success, 1 refused or failed, 2 wrong usage, 78 invalid configuration, 130 interrupted. With
    `--json` an error is `{"error", "code", ...}` on stdout, where programs read the result;
    without it, text on stderr.
    """
    # Pydantic would search every installed package for plugins of its own, at each start.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    words = list(sys.argv[1:] if args is None else args)
    colour = False if os.environ.get("NO_COLOR") else None
    as_json = not aliases.JSON.isdisjoint(words) or go_words.wants_json(words)
    with errors.report_errors(as_json=as_json) as status:
        status.code = root.main(words, standalone_mode=False, color=colour) or 0
    return status.code
