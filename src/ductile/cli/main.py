"""The tree of commands: nouns and short forms by name, each loaded when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

import ductile
from ductile.cli import aliases, errors
from ductile.cli.command import Helpful, config_option, verbose_option

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Home = tuple[str, str]
"""Where a command lives (`module:attribute`), and its line in the help."""

NOUNS: Mapping[str, Home] = {
    "system": ("commands.system.group:system", "Run, inspect and maintain the gateway."),
    "config": ("commands.config_edit:config", "Create, check, edit and seal the configuration."),
    "plugin": ("commands.plugin_dev:plugin", "Create, test, list and run plugins."),
    "pipeline": ("commands.pipeline:pipeline", "Show, run and dry-run pipelines."),
    "schedule": ("commands.schedule:schedule", "List, explain, pause and resume schedules."),
    "job": ("commands.job_logs:job", "List, inspect, retry, cancel and replay jobs."),
    "queue": ("commands.queue:queue", "List queued and running jobs."),
    "relay": ("commands.relay:relay", "List and retry events sent to other gateways."),
    "webhook": ("commands.webhook:webhook", "Manage agent webhooks and their deliveries."),
    "agent": ("commands.agent:agent", "List agents and manage their reminders."),
    "token": ("commands.token:token", "Create, list, rotate and revoke API tokens."),
    "events": ("commands.events:events", "Follow the gateway's events."),
    "api": ("commands.api:api", "Call any API route of the running gateway."),
    "skills": ("commands.skills:skills", "Describe this gateway's skills to agents."),
    "completion": ("completion:completion", "Print a shell completion script."),
}

SHORT: Mapping[str, Home] = {
    "start": ("commands.system.gateway:start", "system start"),
    "status": ("commands.system.gateway:status", "system status"),
    "run": ("commands.plugin:run", "plugin run"),
    "plugins": ("commands.plugin:listing", "plugin list"),
    "logs": ("commands.job_logs:plugin_logs", "job logs --plugin"),
    "reload": ("commands.system.gateway:reload", "system reload"),
    "reset": ("commands.plugin:reset_breaker", "plugin reset-breaker"),
}
"""002 §11.6 and 000 §9.6; `queue` is the noun, which alone means `queue list`."""

SENECHAL = "senechal-gw"
SENECHAL_COMMANDS = ("start", "run", "status", "reload", "reset", "plugins", "logs", "queue")
"""000 §9.6, which is what the command tells of when it is called by that name."""


ASKED = {"help": "--help", "version": "--version"}
"""Options that people type as commands: `ductile help job list`."""


class Root(Helpful):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] in ASKED:
            args = [*args[1:], ASKED[args[0]]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        return super().resolve_command(ctx, aliases.translate(args))

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [*NOUNS, *SHORT]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:  # noqa: ARG002
        home = NOUNS.get(name) or SHORT.get(name)
        if home is None:
            return None
        module, _, attribute = home[0].partition(":")
        found = getattr(import_module(f"ductile.cli.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if ctx.info_name == SENECHAL:
            with formatter.section("Commands"):
                formatter.write_dl([(name, self._about(name)) for name in SENECHAL_COMMANDS])
            return
        for title, homes in (("Nouns", NOUNS), ("Short forms", SHORT)):
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in homes.items()])

    def _about(self, name: str) -> str:
        command = self.get_command(click.Context(self), name)
        return (command.help or "").split("\n")[0] if command else ""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[Any]]:
        """From the table alone: a Tab loads no command."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        homes = {**NOUNS, **SHORT}
        names = SENECHAL_COMMANDS if ctx.info_name == SENECHAL else homes
        return [
            CompletionItem(name, help=homes[name][1])
            for name in names
            if name.startswith(incomplete)
        ]


@click.group(
    cls=Root,
    params=[config_option(), verbose_option()],
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(ductile.__version__, prog_name="ductile", message="%(prog)s %(version)s")
def root(**_: object) -> None:
    """Run scripts in any language on schedules and events.

    Every command has --help, --json and -v; a command that changes something has --dry-run.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code.

    0 done, 1 refused or failed, 2 wrong usage, 78 wrong configuration, 130 interrupted. With
    `--json` an error is `{"error", "code", ...}` on stdout, where a program reads the answer;
    for people it is text on stderr.
    """
    line = list(sys.argv[1:] if args is None else args)
    colour = False if os.environ.get("NO_COLOR") else None
    with errors.reported(as_json=not aliases.JSON.isdisjoint(line)) as ended:
        ended.code = root.main(line, standalone_mode=False, color=colour) or 0
    return ended.code
