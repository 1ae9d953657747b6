"""The configuration reference in Markdown, generated from the JSON Schema.

`python -m ductile.config.reference` prints it; `make docs` writes it to the documentation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ductile.config.schema import Schema, json_schema

TITLES = {
    "service": "ServiceSettings",
    "state": "StateSettings",
    "plugins.<name>": "PluginSettings",
    "plugins.<name>.retry": "RetrySettings",
    "plugins.<name>.circuit_breaker": "BreakerSettings",
    "plugins.<name>.concurrency": "ConcurrencySettings",
    "plugins.<name>.rate": "RateSettings",
    "plugins.<name>.runtime": "RuntimeSettings",
    "plugins.<name>.sandbox": "SandboxSettings",
    "plugins.<name>.schedules[]": "ScheduleSettings",
    "routes[]": "RouteSettings",
    "pipelines[]": "PipelineSettings",
    "pipelines[].debounce": "DebounceSettings",
    "pipelines[].concurrency": "RunLimitSettings",
    "pipelines[].schedules[]": "PipelineScheduleSettings",
    "pipelines[].steps[]": "StepSettings",
    "pipelines[].steps[].relay": "RelaySettings",
    "pipelines[].steps[].wait": "WaitSettings",
    "pipelines[].steps[].wait.approval": "ApprovalSettings",
    "api": "ApiSettings",
    "api.auth": "AuthSettings",
    "api.auth.tokens[]": "ApiTokenSettings",
    "webhooks": "WebhooksSettings",
    "webhooks.endpoints[]": "EndpointSettings",
    "tokens[]": "TokenSettings",
    "instances[]": "InstanceSettings",
    "remote_ingress": "RemoteIngressSettings",
    "remote_ingress.peers[]": "PeerSettings",
    "remote_ingress.peers[].baggage": "PeerBaggageSettings",
    "gateway": "GatewaySettings",
    "alerts[]": "AlertSettings",
    "alerts[].over": "ThresholdSettings",
    "dead_man": "DeadManSettings",
}
"""The path of each section in the files, in the order of the page."""
_PATTERNS = {"(ms|s|m|h|d|w)": "duration", "[KMGTkmgt]": "size", "\\d\\d?:\\d\\d": "time of day"}
_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "`true`, `false`",
    "object": "mapping",
    "array": "list",
}
_INTRODUCTION = """\
# Configuration reference

For operators: every key, its type and its default. The page is generated from the models that the
gateway reads the files with; `ductile config schema` prints the same as JSON Schema for an editor.

A duration is `500ms`, `30s`, `5m`, `2h`, `30d`, `1w` or a combination (`1h30m`); a size is `64KB`
or `1MB` (K is 1024). `${NAME}` and `${NAME:-default}` in a value are replaced by environment
variables; a default may contain references, and `$${` writes a literal `${`. Relative paths are
relative to the directory of `config.yaml`. A reload puts changed values in force, except for the
few keys whose description states that a change needs a restart.

An `.env` file has lines of the form `NAME=value`, optionally after `export`, and `#` comments. A
quoted value ends at the closing quote; only a comment may follow. An unquoted value ends before a
space and `#`. A `#` without a space before it is part of the value.
"""


def markdown() -> str:
    """The whole page."""
    schema = json_schema("config")
    parts = [_INTRODUCTION, _render_section("config.yaml", "", schema)]
    parts += [_render_section(at, name, schema["$defs"][name]) for at, name in TITLES.items()]
    return "\n".join(parts)


def _render_section(at: str, name: str, schema: Schema) -> str:
    lines = [f"## `{at}`", ""]
    if name and schema.get("description"):
        lines += [_escape_cell(schema["description"]), ""]
    required = schema.get("required", ())
    lines += ["| key | type | default | description |", "| --- | --- | --- | --- |"]
    for key, value in schema["properties"].items():
        default = "**required**" if key in required else _default(value)
        cells = (f"`{key}`", _types(value), default, _escape_cell(value.get("description", "")))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _types(value: Schema) -> str:
    kinds = dict.fromkeys(_list_types(value))
    return " or ".join(kinds) or "any value"


def _list_types(value: Schema) -> Iterator[str]:
    if "anyOf" in value:
        for choice in value["anyOf"]:
            yield from _list_types(choice)
    elif "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        at = next((at for at, known in TITLES.items() if known == name), None)
        if at is not None:
            yield f"[`{at}`](#{_anchor(at)})"
    elif "enum" in value:
        yield ", ".join(f"`{word}`" for word in value["enum"])
    elif "const" in value:
        yield f"`{value['const']}`"
    elif value.get("type") == "array":
        yield f"list of {_types(value.get('items', {}))}"
    elif value.get("type") == "object":
        inner = value.get("additionalProperties")
        yield f"mapping to {_types(inner)}" if isinstance(inner, dict) else "mapping"
    elif "pattern" in value:
        pattern = value["pattern"]
        yield next((name for mark, name in _PATTERNS.items() if mark in pattern), "text")
    else:
        given = value.get("type", "null")
        for kind in given if isinstance(given, list) else [given]:
            if kind != "null":
                yield _WORDS[kind]


def _anchor(at: str) -> str:
    return "".join(c for c in at.lower() if c.isalnum() or c in "_-")


def _default(value: Schema) -> str:
    default: Any = value.get("default")
    if default is None or default in ([], {}):
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _escape_cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    import sys

    sys.stdout.write(markdown())
