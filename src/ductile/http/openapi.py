"""OpenAPI 3.1, from the table of routes and the plugins' manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Protocol

import ductile
from ductile.plugins.registry import Plugin

_PART = re.compile(r"\{(\w+)\}")
ERROR = {"$ref": "#/components/schemas/Error"}
PAYLOAD = {
    "type": "object",
    "properties": {
        "payload": {},
        "dedupe_key": {"type": "string"},
        "dedupe_ttl": {"type": ["string", "number"]},
    },
}


class Described(Protocol):
    """A row of the table."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def scope(self) -> str | None: ...
    @property
    def handler(self) -> Any: ...
    @property
    def query(self) -> tuple[str, ...]: ...


def of_table(endpoints: Iterable[Described]) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint)
    return _document("Ductile", "The API of a Ductile gateway.", paths)


def of_plugin(plugin: Plugin) -> dict[str, Any]:
    paths = {}
    for command in plugin.manifest.commands:
        schema = dict(PAYLOAD)
        if command.input_schema is not None:
            schema["properties"] = {**PAYLOAD["properties"], "payload": command.input_schema}  # type: ignore[dict-item]
        paths[f"/plugin/{plugin.name}/{command.name}"] = {
            "post": {
                "operationId": f"{plugin.name}_{command.name}",
                "summary": command.description or f"Run {command.name} of {plugin.name}.",
                "x-scope": f"plugin:{'ro' if command.type.value == 'read' else 'rw'}",
                "security": [{"bearer": []}],
                "requestBody": _body(schema),
                "responses": _responses("202", secured=True),
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
            "schemas": {
                "Error": {
                    "type": "object",
                    "required": ["error", "code"],
                    "properties": {"error": {"type": "string"}, "code": {"type": "string"}},
                }
            },
        },
    }


def _operation(endpoint: Described) -> dict[str, Any]:
    text = " ".join((endpoint.handler.__doc__ or "").split("\n\n")[0].split())
    secured = endpoint.scope is not None
    named = re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").strip("_")
    operation: dict[str, Any] = {
        "operationId": named,
        "summary": text or f"{endpoint.method} {endpoint.path}",
        "parameters": [
            *(_parameter(name, "path") for name in _PART.findall(endpoint.path)),
            *(_parameter(name, "query") for name in endpoint.query),
        ],
        "responses": _responses("default" if endpoint.method == "POST" else "200", secured=secured),
    }
    if secured:
        operation |= {"security": [{"bearer": []}], "x-scope": endpoint.scope}
    if endpoint.method == "POST":
        operation["requestBody"] = _body(
            PAYLOAD if endpoint.path.startswith(("/plugin/", "/pipeline/")) else {"type": "object"}
        )
    return operation


def _parameter(name: str, place: str) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": False, "content": {"application/json": {"schema": schema}}}


def _responses(good: str, *, secured: bool) -> dict[str, Any]:
    answers: dict[str, Any] = {good: {"description": "Done, or taken in."}}
    refusals = {"400": "Malformed.", "404": "Not there."}
    if secured:
        refusals |= {"401": "No good token.", "403": "Not with this token."}
    for status, text in sorted(refusals.items()):
        content = {"application/json": {"schema": ERROR}}
        answers[status] = {"description": text, "content": content}
    return answers
