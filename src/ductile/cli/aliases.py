"""Hidden aliases: words of the Go program and earlier words of ours, which scripts still use."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from itertools import islice
from typing import Any

import click

from ductile.core.values.suggest import nearest

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--config": ("--config-dir", "-c"),
    "--data": ("--body", "-b"),
    "--strict": ("--fail-on-warnings",),
    "--allow-violations": ("--accept-breaches",),
}
"""Each option with its hidden aliases."""

COMMANDS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("system", "relays"): ("relay", "list"),
    ("system", "resend"): ("relay", "retry"),
    ("system", "reset"): ("plugin", "reset-breaker"),
    ("system", "selfcheck"): ("system", "verify"),
    ("system", "skills"): ("skills", "export"),
    ("config", "plugin", "list"): ("plugin", "list"),
    ("config", "plugin", "show"): ("config", "show", "plugin:{}"),
    ("config", "plugin", "set"): ("config", "set", "plugin:{}.{}"),
    ("config", "route", "list"): ("config", "show", "route:*"),
    ("config", "webhook", "list"): ("config", "show", "webhook:*"),
}
"""The first words of an alias, and of the command that it replaces; each {} is the next word."""

JSON = frozenset({"--json", "-json"})

HELP_OPTIONS = ("-h", "--help")


def translate(args: list[str]) -> list[str]:
    """Return the arguments with an alias at their start replaced by its command."""
    for alias, words in COMMANDS.items():
        rest = args[len(alias) :]
        blanks = "".join(words).count("{}")
        names = iter(rest[:blanks])
        if tuple(args[: len(alias)]) == alias and len(rest) >= blanks:
            filled = [word.format(*islice(names, word.count("{}"))) for word in words]
            return [*filled, *rest[blanks:]]
    return args


class AliasedCommand(click.Command):
    """A command that accepts the aliases of its options, and long options with a single dash."""

    def get_help_option_names(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        # Not those of the context: the command keeps the names that it is first asked for.
        return list(HELP_OPTIONS)

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (names := _aliases_of(param)):
                alias = copy(param)
                alias.opts, alias.secondary_opts = names, []
                alias.add_to_parser(parser, ctx)
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            # Compared without their dashes, which make all options similar to each other.
            names = (name for param in self.get_params(ctx) for name in param.opts)
            shown = {name.lstrip("-"): name for name in names}
            close = nearest(error.option_name.lstrip("-"), shown)
            meant = [] if close is None else [shown[close]]
            raise click.NoSuchOption(error.option_name, possibilities=meant, ctx=ctx) from None


def _aliases_of(option: click.Option) -> list[str]:
    aliases = [alias for name in option.opts for alias in OPTIONS.get(name, ())]
    single_dash = [name[1:] for name in (*option.opts, *aliases) if name.startswith("--")]
    return [*aliases, *single_dash]
