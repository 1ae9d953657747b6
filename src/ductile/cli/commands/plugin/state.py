"""`ductile plugin state`: read and correct what a plugin keeps between jobs."""

from __future__ import annotations

import json
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import PLUGIN
from ductile.errors import NotFound, UsageError

state = Noun("state", "Show and correct the state that a plugin keeps.")

NAME = click.argument("name", metavar="NAME", type=PLUGIN)
KEY = click.argument("key", metavar="KEY")


@state.read("get")
@NAME
@click.argument("key", metavar="[KEY]", required=False)
def get(context: CommandContext, name: str, key: str | None) -> None:
    """Show a plugin's state, or one key of it.

    Values whose key names a secret are redacted.
    """
    with context.target.open_reader() as api:
        found = api.get(path_to("system", "plugin-facts", name), limit=1)["state"]
    if key is not None:
        if key not in found:
            known = ", ".join(sorted(found)) or "none"
            raise NotFound(f"the state of plugin {name} has no key {key!r}; it has: {known}")
        found = found[key]
    context.show(found, lambda value: output.print_text(output.format_value(value)))


@state.write("set")
@NAME
@KEY
@click.argument("value", metavar="JSON")
def set_key(context: CommandContext, name: str, key: str, value: str) -> None:
    """Set one key of a plugin's state.

    JSON is a value such as 5, true or '"text"'. Refused while a job of the plugin runs; pause it
    first with `ductile plugin pause NAME`. The change is in the audit log, without the value.
    """
    try:
        parsed = json.loads(value)
    except ValueError:
        raise UsageError(f"{value!r} is not valid JSON; text needs quotes: '\"text\"'") from None
    _change(context, name, {"key": key, "value": parsed})


@state.write("unset")
@NAME
@KEY
def unset(context: CommandContext, name: str, key: str) -> None:
    """Remove one key of a plugin's state.

    Refused while a job of the plugin runs. The change is in the audit log.
    """
    _change(context, name, {"key": key, "remove": True})


def _change(context: CommandContext, name: str, body: dict[str, Any]) -> None:
    context.show(context.post(path_to("plugins", name, "state"), body), _show_change)


def _show_change(done: Json) -> None:
    verb = "removed" if done["removed"] else "changed" if done["existed"] else "added"
    would = "would be " if done.get("dry_run") else ""
    output.print_line(f"state of {done['plugin']}: {done['key']} {would}{verb}")
