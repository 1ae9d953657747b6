"""OpenAPI 3.1, from the table of routes and the plugins' manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import ductile
from ductile.http.endpoint import Endpoint
from ductile.http.openapi.bodies import ANY_OTHER, BODIES, REQUIRED, TRIGGER
from ductile.http.openapi.components import COMPONENTS
from ductile.http.openapi.notation import Schema, fields, kind
from ductile.http.openapi.parameters import HEADERS, IDEMPOTENCY_KEY, parameter
from ductile.http.openapi.results import OBJECT, REFUSALS, RESULTS, TEXTS, refusals
from ductile.http.responses import AGENTS
from ductile.plugins.registry import Plugin

_PART = re.compile(r"\{(\w+)\}")
_OWN_NAME = re.compile(r"^`[A-Z]+ /[^`]*`( `[^`]*`)?[:;]? ?")
DESCRIPTION = """\
The API of a Ductile gateway. Every route but those marked so wants a bearer token whose scopes
allow what `x-scope` says; `rw` implies `ro`, and `*` is all. Errors are `{error, code}`, under
`/gateway/` `{status, reason}`. Times are UTC, ids sort by time.
"""
TAGS = {
    "plugin": ("plugins", "What can be run, and running it."),
    "plugins": ("plugins", ""),
    "job": ("jobs", "What ran, runs and waits."),
    "jobs": ("jobs", ""),
    "job-ids": ("jobs", ""),
    "job-logs": ("jobs", ""),
    "queue": ("jobs", ""),
    "analytics": ("jobs", ""),
    "pipeline": ("pipelines", "Several steps as one."),
    "pipelines": ("pipelines", ""),
    "pipeline-instance": ("pipelines", ""),
    "scheduler": ("schedules", "What fires by itself."),
    "events": ("events", "Everything that happens, as it happens."),
    "notices": ("events", ""),
    "gateway": ("agents", "Heartbeats, decision logs, reminders, webhooks and their deliveries."),
    "relay": ("relays", "Events on their way to other gateways."),
    "relays": ("relays", ""),
    "token": ("tokens", "Who may call."),
    "tokens": ("tokens", ""),
}
OTHERS = ("system", "The gateway itself.")


def of_table(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    named = [*TAGS.values(), OTHERS]
    tags = [{"name": name, "description": text} for name, text in named if text]
    return _document("Ductile", DESCRIPTION, paths) | {"tags": tags}


def of_plugin(plugin: Plugin) -> dict[str, Any]:
    paths = {}
    for command in plugin.manifest.commands:
        schema = fields(TRIGGER)
        if command.input_schema is not None:
            schema["properties"]["payload"] = command.input_schema
        path = f"/plugin/{plugin.name}/{command.name}"
        template = ("POST", "/plugin/{plugin}/{command}")
        paths[path] = {
            "post": {
                "operationId": f"{plugin.name}_{command.name}",
                "summary": command.description or f"Run {command.name} of {plugin.name}.",
                "x-scope": f"plugin:{'ro' if command.type.value == 'read' else 'rw'}",
                "security": [{"bearer": []}],
                "parameters": [IDEMPOTENCY_KEY],
                "requestBody": _body(schema, required=False),
                "responses": _responses(*template, secured=True),
            }
        }
    return _document(plugin.name, plugin.manifest.description, paths, plugin.manifest.version)


def _document(
    title: str, description: str, paths: dict[str, Any], version: str = ductile.__version__
) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "description": description, "version": version},
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": COMPONENTS,
        },
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    method, path, wanted = endpoint.method, endpoint.path, endpoint.token_scope
    summary, _, more = described(endpoint.handler).partition("\n")
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "tags": [TAGS.get(path.split("/")[1], OTHERS)[0]],
        "summary": summary,
        "parameters": [
            *(parameter(path, name, "path") for name in _PART.findall(path)),
            *(parameter(path, name, "query") for name in endpoint.query),
            *HEADERS.get((method, path), ()),
        ],
        "responses": _responses(method, path, secured=wanted is not None),
    }
    if more:
        operation["description"] = more
    if wanted is not None:
        operation |= {"security": [{"bearer": []}], "x-scope": wanted}
    if method == "POST":
        operation["requestBody"] = _body(BODIES.get(path, ANY_OTHER), required=path in REQUIRED)
    return operation


def described(handler: Any) -> str:
    """What a handler's docstring says: a sentence, and maybe more on the lines that follow."""
    paragraphs = [" ".join(part.split()) for part in (handler.__doc__ or "").split("\n\n")]
    first = _OWN_NAME.sub("", paragraphs[0]) or paragraphs[0]
    return "\n".join([first[:1].upper() + first[1:], *paragraphs[1:]]).rstrip()


def _body(schema: Schema, *, required: bool) -> dict[str, Any]:
    return {"required": required, "content": {"application/json": {"schema": schema}}}


def _responses(method: str, path: str, *, secured: bool) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for status, (text, schema) in RESULTS.get((method, path), {200: ("Done.", OBJECT)}).items():
        content = {"application/json": {"schema": schema}}
        answers[str(status)] = {"description": text, "content": content}
    if (method, path) in TEXTS:
        media, text = TEXTS[method, path]
        answers = {"200": {"description": text, "content": {media: {"schema": kind("text")}}}}
    error = kind("AgentsError" if path.startswith(AGENTS) else "Error")
    for status in refusals(method, path, secured=secured):
        content = {"application/json": {"schema": error}}
        answers.setdefault(str(status), {"description": REFUSALS[status], "content": content})
    return answers
