"""Words of the Go program that its users' scripts type: taken, but not told of in any help."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from itertools import islice
from typing import Any

import click

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--config": ("--config-dir", "-c"),
    "--data": ("--body", "-b"),
    "--strict": ("--fail-on-warnings",),
}
"""Our name of an option, and theirs."""

COMMANDS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("system", "skills"): ("skills", "export"),
    ("config", "plugin", "list"): ("plugin", "list"),
    ("config", "plugin", "show"): ("config", "show", "plugin:{}"),
    ("config", "plugin", "set"): ("config", "set", "plugin:{}.{}"),
    ("config", "route", "list"): ("config", "show", "route:*"),
    ("config", "webhook", "list"): ("config", "show", "webhook:*"),
}
"""How a command begins there, and here; each {} is the next word."""

JSON = frozenset({"--json", "-json"})


def ours(line: list[str]) -> list[str]:
    """The command line in our words."""
    for theirs, words in COMMANDS.items():
        rest = line[len(theirs) :]
        blanks = "".join(words).count("{}")
        named = iter(rest[:blanks])
        if tuple(line[: len(theirs)]) == theirs and len(rest) >= blanks:
            filled = [word.format(*islice(named, word.count("{}"))) for word in words]
            return [*filled, *rest[blanks:]]
    return line


class Lenient(click.Command):
    """Takes each option by its other names as well, and every long one with a single dash."""

    def make_parser(self, ctx: click.Context) -> Any:
        parser = super().make_parser(ctx)
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (names := _other_names(param)):
                other = copy(param)
                other.opts, other.secondary_opts = names, []
                other.add_to_parser(parser, ctx)
        return parser

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.possibilities:
                told = {name for param in self.get_params(ctx) for name in param.opts}
                error.possibilities[:] = filter(told.__contains__, error.possibilities)
            raise


def _other_names(option: click.Option) -> list[str]:
    names = [*option.opts, *(name for own in option.opts for name in OPTIONS.get(own, ()))]
    single = [name[1:] for name in names if name.startswith("--")]
    return [*names[len(option.opts) :], *single]
