"""Values of options that more than one command takes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ductile.core.jobs.state_machine import status_named
from ductile.core.values.suggest import did_you_mean
from ductile.errors import UsageError
from ductile.model import JobStatus, SubmittedBy

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from ductile.cli.client import Door


class Known(click.ParamType[str]):
    """The name of something that the configuration has, which a shell can complete."""

    name = "text"

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def shell_complete(
        self,
        ctx: click.Context,
        param: click.Parameter,  # noqa: ARG002 - the kind says it all
        incomplete: str,
    ) -> list[CompletionItem[Any]]:
        from ductile.cli.completion import suggestions

        return suggestions(self._kind, ctx, incomplete)


class Status(click.Choice[str]):
    """The state of a job, by its name or by one that the Go program had for it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(status_named(value), param, ctx)


def check_plugin(door: Door, name: str | None) -> None:
    """Refuse a plugin of which nobody has ever heard: no root has it, nor does the log."""
    if name is None:
        return
    known = [row["name"] for row in door.get("/plugins")["plugins"]]
    if name not in known and not door.get("/job-logs", plugin=name, limit=1)["logs"]:
        raise UsageError(f"unknown plugin {name!r}{did_you_mean(name, known)}", plugin=name)


PLUGIN = Known("plugin")
PIPELINE = Known("pipeline")
SCHEDULE = Known("schedule")
SETTING = Known("setting")
STATUS = Status([status.value for status in JobStatus])
PRODUCER = click.Choice([producer.value for producer in SubmittedBy])
DELIVERY_STATUS = click.Choice(["pending", "delivered", "failed", "dead"])


class Whole(click.IntRange):
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


def limited(most: int = 50) -> Option:
    """`--limit`, of a page that has so many rows without it."""
    limit = Whole(1, 1000)
    return click.option(
        "--limit", type=limit, default=most, show_default=True, help="Maximum number of rows."
    )


def seconds(text: str) -> float:
    """`90s`, `5m`, `1h30m`."""
    from ductile.config.models.units import DURATION, parse_duration

    try:
        return parse_duration(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not {DURATION}") from None


PATIENCE: Option = click.option(
    "--timeout",
    type=seconds,
    default="5m",
    show_default=True,
    metavar="D",
    help="Maximum time to wait.",
)
DEDUPE_TTL: Option = click.option(
    "--dedupe-ttl", metavar="D", help="How long a succeeded job's key counts. Default: dedupe_ttl."
)


def since(text: str) -> str:
    """A moment, or a duration before now, in the ledger's form."""
    from datetime import timedelta

    from ductile.clock import SystemClock, from_text, to_text
    from ductile.config.models.units import parse_duration

    try:
        return to_text(SystemClock().now() - timedelta(seconds=parse_duration(text)))
    except ValueError:
        pass
    try:
        return to_text(from_text(text))
    except (ValueError, OverflowError):
        wanted = "a duration (1h) nor a time (ISO 8601)"
        raise click.BadParameter(f"{text!r} is neither {wanted}") from None


def payload(text: str | None, what: str = "the payload") -> Any:
    """The JSON that is given, in a file (`@path`), or on stdin (`-`); None without one."""
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
