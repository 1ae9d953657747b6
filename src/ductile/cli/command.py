"""What every command shares: its options, and the call that carries them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.aliases import AliasedCommand
from ductile.core.values.suggest import did_you_mean

if TYPE_CHECKING:
    from ductile.cli.client import Door, Json
    from ductile.cli.target import Target
    from ductile.config import Loaded
    from ductile.engine.config.compiled import CompiledConfig

Body = Callable[..., int | None]
"""A command: takes the `CommandContext` first; returns an exit code, or None for 0."""


def config_option() -> click.Option:
    return click.Option(
        ["--config"],
        type=click.Path(path_type=Path),
        metavar="PATH",
        help="Path to config.yaml or its directory. Default: $DUCTILE_CONFIG_DIR, "
        "~/.config/ductile or /etc/ductile.",
    )


def verbose_option() -> click.Option:
    return click.Option(["-v", "--verbose"], is_flag=True, help="Print details to stderr.")


def remote_options() -> list[click.Option]:
    return [
        click.Option(
            ["--api-url"],
            metavar="URL",
            envvar="DUCTILE_API_URL",
            help="Use the gateway at this URL instead of the local one.",
        ),
        click.Option(
            ["--api-key"],
            metavar="TOKEN",
            envvar="DUCTILE_API_KEY",
            help="API token; prefer $DUCTILE_API_KEY.",
        ),
    ]


def _json_option() -> click.Option:
    return click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, including errors.")


def _dry_run_option() -> click.Option:
    return click.Option(
        ["--dry-run"], is_flag=True, help="Show what would change, without changing it."
    )


@dataclass
class CommandContext:
    """One invocation of a command."""

    config: Path | None
    verbose: bool
    as_json: bool
    dry_run: bool
    api_url: str | None = None
    api_key: str | None = None

    @cached_property
    def site(self) -> Target:
        from ductile.cli.target import Target

        if self.api_url is None:
            return Target(self.config, note=self.note)
        from ductile.cli.remote import Remote

        return Target(self.config, note=self.note, remote=Remote(self.api_url, self.api_key))

    def note(self, text: str) -> None:
        """Something that only `-v` wants to know; on stderr."""
        if self.verbose:
            output.aside(text)

    @contextmanager
    def place(self) -> Iterator[Door]:
        """Where a command that writes does so; with `--dry-run`, where it only asks."""
        if self.dry_run:
            with self.site.reading() as door:
                yield door
        else:
            with self.site.working(verbose=self.verbose) as door:
                yield door

    def act(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """One POST that changes something or, with `--dry-run`, says what it would change."""
        with self.place() as door:
            return self.send(door, path, body)

    def send(self, door: Door, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """The same, through a door that is open already."""
        return door.post(path, {**(body or {}), **({"dry_run": True} if self.dry_run else {})})

    def show(self, document: Any, render: Callable[[Any], None]) -> None:
        """The answer: as JSON for a program, rendered for people."""
        if self.as_json:
            output.document(document)
        else:
            render(document)


def blueprint_of(loaded: Loaded) -> CompiledConfig:
    """What a configuration comes to, for one who only looks."""
    from ductile.engine.config.compiled import build

    return build(loaded, boot_marker="", environ=os.environ)


class Action(AliasedCommand):
    """A command that reads or writes, with the options that such a command must have."""

    def __init__(self, *args: Any, writes: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.writes = writes
        if writes:
            self.params.append(_dry_run_option())
        self.params += [_json_option(), config_option(), verbose_option(), *remote_options()]

    def invoke(self, ctx: click.Context) -> Any:
        own, root = ctx.params, ctx.find_root().params
        config, verbose = own.pop("config"), own.pop("verbose")
        own["call"] = CommandContext(
            config=config or root.get("config"),
            verbose=verbose or bool(root.get("verbose")),
            as_json=own.pop("as_json"),
            dry_run=own.pop("dry_run", False),
            api_url=own.pop("api_url"),
            api_key=own.pop("api_key"),
        )
        return super().invoke(ctx)


def read(name: str) -> Callable[[Body], Action]:
    """Make a command that changes nothing: it has `--json`."""
    return click.command(name, cls=Action, writes=False)


def write(name: str) -> Callable[[Body], Action]:
    """Make a command that changes something: it has `--dry-run` as well."""
    return click.command(name, cls=Action, writes=True)


HINTS = {
    "stop": "; stop a gateway with Ctrl-C, or send SIGTERM to the process id in ductile.lock in "
    "its state directory"
}
"""Hints for words that users expect to be commands."""


class Helpful(AliasedCommand, click.Group):
    """A group that answers a command it does not know with the nearest that it does."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            hint = HINTS.get(name) or did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"unknown command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)


class Noun(Helpful):
    """A noun, whose actions are added by `read` and `write`.

    With `default`, the noun alone means that action.
    """

    def __init__(self, name: str, help: str, *, default: str | None = None) -> None:
        super().__init__(name, help=help, no_args_is_help=default is None)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        bare = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if self._default is not None and bare:
            args = [self._default, *args]
        elif args and bare:
            place = f"{ctx.command_path} ACTION {args[0]}"
            raise click.UsageError(f"options follow the action: {place}", ctx)
        return super().parse_args(ctx, args)

    def read(self, name: str) -> Callable[[Body], Action]:
        return self._adding(read(name))

    def write(self, name: str) -> Callable[[Body], Action]:
        return self._adding(write(name))

    def _adding(self, make: Callable[[Body], Action]) -> Callable[[Body], Action]:
        def decorate(body: Body) -> Action:
            action = make(body)
            self.add_command(action)
            return action

        return decorate
