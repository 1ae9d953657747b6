"""What every command shares: its options, its context, and the groups that contain it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.aliases import HELP_OPTIONS, AliasedCommand
from ductile.cli.errors import add_repair
from ductile.core.values.suggest import did_you_mean
from ductile.errors import ConfigError, DuctileError, NotFound, NotRunning

if TYPE_CHECKING:
    from ductile.cli.client import GatewayApi, GatewayClient, Json
    from ductile.cli.target import CommandTarget
    from ductile.config import Loaded
    from ductile.engine.config.compiled import CompiledConfig

Body = Callable[..., int | None]
"""The function of a command: takes a `CommandContext` and returns an exit code, or None for 0."""


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
    def target(self) -> CommandTarget:
        from ductile.cli.client import RemoteClient
        from ductile.cli.target import CommandTarget

        remote = None if self.api_url is None else RemoteClient(self.api_url, self.api_key)
        return CommandTarget(self.config, note=self.note, remote=remote)

    def repeat_options(self, line: str) -> str:
        """A command line for the same configuration or gateway as this one."""
        given = {"--config": self.config, "--api-url": self.api_url}
        options = "".join(f" {name} {quote(str(v))}" for name, v in given.items() if v)
        parts = line.split(" && ")
        return " && ".join(part + options * part.startswith("ductile ") for part in parts)

    @contextmanager
    def reading_gateway(self, api: GatewayApi) -> Iterator[None]:
        """Report a difference after the block, and also if it does not find what the files have."""
        try:
            yield
        except DuctileError as error:
            if error.code == NotFound.code:
                self.warn_of_difference(api)
            raise
        self.warn_of_difference(api)

    def warn_of_difference(self, api: GatewayApi) -> None:
        """Report on stderr that the files are not what the running gateway has loaded."""
        if self._differ(api):
            run = self.repeat_options("ductile system reload --dry-run")
            output.print_stderr(
                f"showing the running gateway; the files differ, see: {run}", fg="yellow"
            )

    def warn_of_unloaded_files(self) -> None:
        """As `warn_of_difference`, for a command that shows what is in the files."""
        try:
            client = self.target.client()
        except DuctileError:
            return
        if client is not None and self._differ(client):
            run = self.repeat_options("ductile system reload --dry-run")
            output.print_stderr(
                f"showing the files; the running gateway has not loaded them, see: {run}",
                fg="yellow",
            )

    def _differ(self, api: GatewayApi) -> bool:
        if not api.running or self.api_url is not None:
            return False
        try:
            loaded = self.target.loaded.config_hash
            return bool(api.get("/config/view")["config_hash"] != loaded)
        except DuctileError:
            # Files that do not load are not in force either; `config check` reports them.
            return False

    def require_gateway(self, otherwise: str) -> GatewayClient:
        """A client of the running gateway; `NotRunning` with this message if there is none.

        `{state_dir}` in the message stands for the place where none is running.
        """
        client = self.target.client()
        if client is None:
            if "{state_dir}" in otherwise:
                otherwise = otherwise.replace("{state_dir}", str(self.target.state_dir))
            raise NotRunning(otherwise)
        return client

    def note(self, text: str) -> None:
        """Print details to stderr, with `-v` only."""
        if self.verbose:
            output.print_stderr(text)

    def note_value(self, label: str, value: Any) -> None:
        """As `note`, with a JSON value that may take several lines."""
        if self.verbose:
            import json

            document = json.dumps(value, indent=2, ensure_ascii=False)
            output.print_text(f"{output.escape(label)} {document}", err=True)

    @contextmanager
    def open_api(self) -> Iterator[GatewayApi]:
        """Yield the API for a command that writes; a read-only one with `--dry-run`."""
        if self.dry_run:
            with self.target.open_reader() as api:
                yield api
        else:
            with self.target.open_runner(verbose=self.verbose) as api:
                yield api

    def get(self, path: str, **query: object) -> Json:
        """Make one GET request; without a running gateway, the ledger's file is read."""
        with self.target.open_reader() as api:
            return api.get(path, **query)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """Make one POST request; with `--dry-run`, the gateway reports what it would change."""
        with self.open_api() as api:
            return self.post_to(api, path, body)

    def post_to(self, api: GatewayApi, path: str, body: Mapping[str, Any] | None = None) -> Json:
        """Make the same request over an API that is open."""
        return api.post(path, {**(body or {}), **({"dry_run": True} if self.dry_run else {})})

    def show(self, document: Any, render: Callable[[Any], None]) -> None:
        """Print the result: as JSON with `--json`, else with `render`."""
        if self.as_json:
            output.print_json(document)
        else:
            render(document)


def compile_config(loaded: Loaded) -> CompiledConfig:
    """Compile a configuration, for reading only."""
    from ductile.engine.config.compiled import build

    return build(loaded, boot_marker="", environ=os.environ)


Has = Callable[["CompiledConfig", str], bool]
"""Whether a configuration has something of this name."""


def has_pipeline(compiled: CompiledConfig, name: str) -> bool:
    return name in compiled.tx_config.router.pipelines


def has_plugin(compiled: CompiledConfig, name: str) -> bool:
    return name in compiled.registry.plugins


def has_schedule(compiled: CompiledConfig, name: str) -> bool:
    from ductile.operations.schedule_report import find

    try:
        return bool(find(compiled, name))
    except NotFound:
        return False


@contextmanager
def explain_unloaded(
    context: CommandContext, name: str, noun: str = "pipeline", has: Has = has_pipeline
) -> Iterator[None]:
    """Raise what helps where the gateway does not find what the files have."""

    try:
        yield
    except DuctileError as error:
        is_missing = error.code == NotFound.code or f"unknown {noun} {name!r}" in error.message
        if not is_missing or not _is_in_files(context, name, has):
            raise
        run = context.repeat_options("ductile system reload")
        raise NotFound(
            f"{noun} {name} is in the files, and the running gateway has not loaded it; run: {run}"
        ) from None


def _is_in_files(context: CommandContext, name: str, has: Has) -> bool:
    if context.api_url is not None:
        return False
    try:
        return context.target.client() is not None and has(
            compile_config(context.target.loaded), name
        )
    except ConfigError:
        return False


class Action(AliasedCommand):
    """A command with the options of every command, and `--dry-run` if it writes."""

    def __init__(self, *args: Any, writes: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.writes = writes
        if writes:
            self.params.append(_dry_run_option())
        self.params += [_json_option(), config_option(), verbose_option(), *remote_options()]

    def invoke(self, ctx: click.Context) -> Any:
        params, root_params = ctx.params, ctx.find_root().params
        config, verbose = params.pop("config"), params.pop("verbose")
        params["context"] = CommandContext(
            config=config or root_params.get("config"),
            verbose=verbose or bool(root_params.get("verbose")),
            as_json=params.pop("as_json"),
            dry_run=params.pop("dry_run", False),
            api_url=params.pop("api_url"),
            api_key=params.pop("api_key"),
        )
        try:
            return super().invoke(ctx)
        except DuctileError as error:
            add_repair(error, params["context"])
            raise


def read(name: str) -> Callable[[Body], Action]:
    """Make a command that changes nothing."""
    return click.command(name, cls=Action, writes=False)


def write(name: str) -> Callable[[Body], Action]:
    """Make a command that changes something: it has `--dry-run`."""
    return click.command(name, cls=Action, writes=True)


class SuggestingGroup(AliasedCommand, click.Group):
    """A group that suggests the nearest command for an unknown one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            raise click.UsageError(f"unknown command {name!r}{self.hint(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def hint(self, ctx: click.Context, name: str) -> str:
        """The command that is probably meant, for the end of the message; or nothing."""
        return did_you_mean(name, self.list_commands(ctx))


class Noun(SuggestingGroup):
    """A group of actions. `read` and `write` decorate a function and add it.

    Without an action, `default` is run. Actions that are in another module are made there by the
    functions `read` and `write`, and added with `add_command` where the noun is defined; or
    `actions` names their modules (`module:attribute`), which are imported when they are used.
    """

    def __init__(
        self,
        name: str,
        help: str,
        *,
        default: str | None = None,
        actions: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(name, help=help, no_args_is_help=default is None)
        self._default, self._actions = default, actions

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._actions})

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in self._actions and name not in self.commands:
            module, _, attribute = self._actions[name].partition(":")
            self.add_command(getattr(import_module(f"ductile.cli.{module}"), attribute))
        return super().get_command(ctx, name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:], HELP_OPTIONS[0]]
        no_action = not args or (args[0].startswith("-") and args[0] not in HELP_OPTIONS)
        if self._default is not None and no_action:
            args = [self._default, *args]
        elif args and no_action:
            place = f"{ctx.command_path} ACTION {args[0]}"
            raise click.UsageError(f"options follow the action: {place}", ctx)
        return super().parse_args(ctx, args)

    def read(self, name: str) -> Callable[[Body], Action]:
        return self._and_add(read(name))

    def write(self, name: str) -> Callable[[Body], Action]:
        return self._and_add(write(name))

    def _and_add(self, make_action: Callable[[Body], Action]) -> Callable[[Body], Action]:
        def decorate(body: Body) -> Action:
            action = make_action(body)
            self.add_command(action)
            return action

        return decorate
