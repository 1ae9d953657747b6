"""The tree of commands: nouns and short forms by name, each loaded when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

import ductile
from ductile.cli import failure
from ductile.cli.action import Helpful, config_option, verbose_option

Home = tuple[str, str]
"""Where a command lives (`module:attribute`), and its line in the help."""

NOUNS: Mapping[str, Home] = {
    "system": ("system:system", "The gateway: start it, see how it is."),
    "config": ("config:config", "The configuration: write, check, show, seal it."),
    "plugin": ("plugin:plugin", "Plugins: what there is, run one."),
    "pipeline": ("pipeline:pipeline", "Pipelines: draw, run, rehearse one."),
    "schedule": ("schedule:schedule", "Schedules: what comes next, what fired, why not."),
    "job": ("follow:job", "Jobs: what ran, how it ended, what it said."),
    "queue": ("queue:queue", "The queue: what waits and what runs."),
    "token": ("token:token", "Tokens: who may call the API, and what they may do."),
    "events": ("events:events", "Events: everything that happens, as it happens."),
    "api": ("api:api", "Call any route of the running gateway."),
}

SHORT: Mapping[str, Home] = {
    "start": ("system:start", "system start"),
    "status": ("system:status", "system status"),
    "run": ("plugin:run", "plugin run"),
    "plugins": ("plugin:listing", "plugin list"),
    "logs": ("follow:plugin_logs", "job logs --plugin"),
    "reload": ("system:reload", "system reload"),
    "reset": ("system:reset", "system reset"),
}
"""002 §11.6 and 000 §9.6; `queue` is the noun, which alone means `queue list`."""


class Root(Helpful):
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

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, homes in (("Nouns", NOUNS), ("Short forms", SHORT)):
            with formatter.section(title):
                formatter.write_dl([(name, line) for name, (_, line) in homes.items()])


@click.group(cls=Root, params=[config_option(), verbose_option()])
@click.version_option(ductile.__version__, prog_name="ductile", message="%(prog)s %(version)s")
def root(**_: object) -> None:
    """An automation gateway: scripts in any language, run on schedules and events.

    Every command has --help and -v; those that read have --json, those that write --dry-run.
    """


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line; the exit code.

    0 done, 1 refused or failed, 2 wrong usage, 78 wrong configuration, 130 interrupted. With
    `--json` an error is `{"error", "code", ...}` on stdout, where a program reads the answer;
    for people it is text on stderr.
    """
    line = list(sys.argv[1:] if args is None else args)
    colour = False if os.environ.get("NO_COLOR") else None
    with failure.reported(as_json="--json" in line) as ended:
        ended.code = root.main(line, standalone_mode=False, color=colour) or 0
    return ended.code
