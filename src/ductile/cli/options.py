"""Options, and types of option values, that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile.core.jobs.commands import HANDLE, POLL
from ductile.core.jobs.state_machine import status_named
from ductile.core.values.suggest import did_you_mean
from ductile.errors import NotFound, UsageError
from ductile.model import JobStatus, SubmittedBy

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ductile.cli.client import GatewayApi

DEFAULT_COMMANDS = (POLL, HANDLE)
MIN_ID_LENGTH = 6
"""Characters that a shortened job id must have."""
MAX_MATCHES = 5
"""Jobs that the error for an ambiguous id lists."""


class ConfigName(click.ParamType[str]):
    """The name of an entity in the configuration, completed by the shell."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - the kind is enough
        incomplete: str,
    ) -> list[CompletionItem[Any]]:
        from ductile.cli.completion import suggestions

        return suggestions(self._kind, ctx, incomplete)


class JobStatusParam(click.Choice[str]):
    """The state of a job, by its name or by its name in the Go program."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(status_named(value), param, ctx)


def check_plugin(api: GatewayApi, name: str | None) -> None:
    """Raise `UsageError` for a plugin that is neither known to the gateway nor in its log."""
    if name is None:
        return
    known = [row["name"] for row in api.get("/plugins")["plugins"]]
    if name not in known and not api.get("/job-logs", plugin=name, limit=1)["logs"]:
        raise unknown_plugin(name, known)


def check_pipeline(api: GatewayApi, name: str | None) -> None:
    """Raise `UsageError` for a pipeline that is not configured."""
    known = [] if name is None else [row["name"] for row in api.get("/pipelines")["pipelines"]]
    if name is not None and name not in known:
        raise UsageError(f"unknown pipeline {name!r}{did_you_mean(name, known)}", pipeline=name)


def unknown_plugin(name: str, known: Iterable[str]) -> UsageError:
    """Return the error for a plugin that is not loaded; a bundled one gets the lines to add."""
    from ductile.config import bundled

    hint = did_you_mean(name, known)
    if bundled.has_plugin(name):
        hint = f'; to load the bundled plugin, add "{bundled.ROOT}" to plugin_roots and '
        hint += f"`{name}: {{}}` under plugins"
    return UsageError(f"unknown plugin {name!r}{hint}", plugin=name)


def choose_command(plugin: str, known: Collection[str], wanted: str | None) -> str:
    """Return the command that `--command` names or, without it, the plugin's default command."""
    listed = ", ".join(sorted(known))
    if wanted is not None:
        if wanted not in known:
            raise UsageError(f"plugin {plugin} has no command {wanted!r}; it has: {listed}")
        return wanted
    default = next((command for command in DEFAULT_COMMANDS if command in known), None)
    if default is not None:
        return default
    if len(commands := list(known)) != 1:
        raise UsageError(f"plugin {plugin} has several commands; choose with --command: {listed}")
    return commands[0]


def resolve_job_id(api: GatewayApi, typed_id: str) -> str:
    """Return the whole id of a job, of which the start or the end may have been typed.

    An id that matches no job is returned as it is: the route that is called next reports it.
    """
    typed_id = typed_id.removeprefix("…")
    if not typed_id:
        raise UsageError("the id of the job is empty; list the jobs: ductile job list")
    known = _find_job_ids(api, begins=typed_id) or _find_job_ids(api, ends=typed_id)
    if typed_id in known or not known:
        return typed_id
    if len(typed_id) < MIN_ID_LENGTH:
        needed = f"a shortened id needs at least {MIN_ID_LENGTH} characters"
        raise NotFound(f"there is no job {typed_id}; {needed}")
    if len(known) > 1:
        first = known[:MAX_MATCHES]
        listed = ", ".join([*first, "..."] if len(known) > MAX_MATCHES else first)
        advice = "; type the end of the id" if known[0].startswith(typed_id) else ""
        raise UsageError(f"the id {typed_id} matches several jobs: {listed}{advice}", jobs=first)
    return str(known[0])


def _find_job_ids(api: GatewayApi, **part: str) -> list[str]:
    if not all(part.values()):
        return []
    return list(api.get("/job-ids", **part, limit=MAX_MATCHES + 1)["job_ids"])


PLUGIN = ConfigName("plugin")
PIPELINE = ConfigName("pipeline")
SCHEDULE = ConfigName("schedule")
SETTING = ConfigName("setting")
STATUS = JobStatusParam([status.value for status in JobStatus])
PRODUCER = click.Choice([producer.value for producer in SubmittedBy])
DELIVERY_STATUS = click.Choice(["pending", "delivered", "failed", "dead"])


class AliasedChoice(click.Choice[str]):
    """One of some words; another word that users type for one of them suggests it."""

    def __init__(self, choices: Sequence[str], aliases: Mapping[str, str]) -> None:
        super().__init__(choices)
        self._aliases = aliases

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            meant = self._aliases.get(str(value).casefold())
            hint = f"; did you mean {meant!r}?" if meant else did_you_mean(value, self.choices)
            listed = ", ".join(self.choices)
            self.fail(f"{value!r} is not one of: {listed}{hint}", param, ctx)


class WholeNumber(click.IntRange):
    """A whole number, within bounds."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return int(super().convert(value, param, ctx))
        except click.BadParameter:
            most = "" if self.max is None else f" to {self.max:.0f}"
            self.fail(f"{value!r} is not a whole number from {self.min}{most}", param, ctx)


Option = Callable[[Any], Any]
"""Adds an option to a command."""


def limit_option(default: int = 50) -> Option:
    """Return the option `--limit`."""
    limit = WholeNumber(1, 1000)
    return click.option(
        "--limit", type=limit, default=default, show_default=True, help="Maximum number of rows."
    )


def parse_seconds(text: str) -> float:
    """Parse a duration such as `90s`, `5m` or `1h30m` to seconds."""
    from ductile.config.models.units import DURATION, parse_duration

    try:
        return parse_duration(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not {DURATION}") from None


TIMEOUT: Option = click.option(
    "--timeout",
    type=parse_seconds,
    default="5m",
    show_default=True,
    metavar="D",
    help="Maximum time to wait.",
)
PRIORITY: Option = click.option(
    "--priority", metavar="D", help="Start as if enqueued this much earlier: 10m."
)

DETACHED: Option = click.option(
    "--async", "detached", is_flag=True, help="Do not wait for the end."
)

DEDUPE_TTL: Option = click.option(
    "--dedupe-ttl", metavar="D", help="How long a succeeded job's key counts. Default: dedupe_ttl."
)


def parse_since(text: str) -> str:
    """Parse a time, or a duration before now, to a time in the ledger's format."""
    from datetime import timedelta

    from ductile.clock import SystemClock, to_text
    from ductile.config.models.units import parse_duration

    try:
        return to_text(SystemClock().now() - timedelta(seconds=parse_duration(text)))
    except ValueError:
        pass
    try:
        return _read_time(text)
    except (ValueError, OverflowError):
        wanted = "a duration (1h) nor a time (ISO 8601)"
        raise click.BadParameter(f"{text!r} is neither {wanted}") from None


def parse_time(text: str) -> str:
    """Parse a time to one in the ledger's format."""
    try:
        return _read_time(text)
    except (ValueError, OverflowError):
        raise click.BadParameter(f"{text!r} is not a time (ISO 8601)") from None


def _read_time(text: str) -> str:
    """Without a zone it is local time, as the commands print it."""
    from datetime import datetime

    from ductile.clock import from_text, to_text

    moment = datetime.fromisoformat(text.strip())
    return to_text(moment.astimezone() if moment.tzinfo is None else from_text(text))


def read_json(text: str | None, what: str = "the payload") -> Any:
    """Parse JSON that is given as text, in a file (`@path`) or on stdin (`-`)."""
    if text is None:
        return None
    import orjson

    from ductile.core.jobs.limits import DEEPEST, too_deep

    if text == "-":
        raw = sys.stdin.buffer.read()
    elif text.startswith("@"):
        raw = Path(text[1:]).read_bytes()
    else:
        raw = text.encode("utf-8", "surrogateescape")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{what} is not valid JSON: {error}") from None
    if too_deep(value, raw):
        raise UsageError(f"{what} is nested more than {DEEPEST} levels deep")
    return value
