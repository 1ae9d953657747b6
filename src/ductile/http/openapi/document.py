"""The OpenAPI 3.1 documents, from the route table and the plugins' manifests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError

import ductile
from ductile.http.endpoint import Endpoint
from ductile.http.middleware.idempotency import MAX_KEY
from ductile.http.models.bodies import TriggerBody
from ductile.http.models.fields import RequestModel
from ductile.http.models.responses.fields import AgentsErrorModel, ErrorModel
from ductile.http.openapi.schema import (
    Schema,
    component_schemas,
    describe,
    property_schemas,
    reference,
    response_models,
)
from ductile.http.requests import request_model
from ductile.http.responses import AGENT_ROUTES
from ductile.plugins.registry import Plugin

_PARAMETER = re.compile(r"\{(\w+)\}")
_ROUTE = re.compile(r"^`[A-Z]+ /[^`]*`: ?")
TRIGGER = "/plugin/{plugin}/{command}"
DESCRIPTION = """\
The API of a Ductile gateway. A route with an `x-scope` requires a bearer token with that scope;
`rw` implies `ro`, and `*` is every scope. Errors are `{error, code}`, under `/gateway/`
`{status, reason}`. Times are UTC. Ids sort by time.
"""
TAGS = {
    "plugin": ("plugins", "Plugins and their commands."),
    "plugins": ("plugins", ""),
    "job": ("jobs", "Queued, running and finished jobs."),
    "jobs": ("jobs", ""),
    "job-ids": ("jobs", ""),
    "job-logs": ("jobs", ""),
    "queue": ("jobs", ""),
    "analytics": ("jobs", ""),
    "pipeline": ("pipelines", "Pipelines and their runs."),
    "pipelines": ("pipelines", ""),
    "pipeline-instance": ("pipelines", ""),
    "scheduler": ("schedules", "Schedules and their occurrences."),
    "events": ("events", "The event stream."),
    "notices": ("events", ""),
    "gateway": ("agents", "Heartbeats, decision logs, reminders, webhooks and their deliveries."),
    "relay": ("relays", "Events that are relayed to other gateways."),
    "relays": ("relays", ""),
    "token": ("tokens", "API tokens."),
    "tokens": ("tokens", ""),
}
OTHER_TAG = ("system", "The gateway itself.")
PATH_PARAMETERS = {
    "plugin": "A plugin's name.",
    "command": "A command's name.",
    "job_id": "A job's id.",
    "name": "A pipeline's name.",
    "instance_id": "The id of a pipeline run.",
    "run_id": "The id of a pipeline run.",
    "approval_id": "An approval's id, the beginning of it, or the id of its job.",
    "schedule": "The id of a schedule.",
    "which": "A token's id or name.",
    "relay_id": "The id of a relayed event.",
    "reminder_id": "A reminder's id.",
    "delivery_id": "A delivery's id.",
    "webhook_id": "A webhook's id.",
}
PAGING = ("limit", "before", "after")
"""Query parameters that follow the filters of a list."""
HEADERS: dict[str, tuple[str, Schema]] = {
    "Idempotency-Key": (
        "Within a day the same key returns the same result; with another body 422.",
        {"type": "string", "minLength": 1, "maxLength": MAX_KEY},
    ),
    "Last-Event-ID": (
        "The id of the last event that was received; the stream resumes after it.",
        {"type": "string", "pattern": "^[0-9]{1,18}(-[0-9]{1,18})?$"},
    ),
}
REFUSALS = {
    400: "Malformed; the error names what is wrong.",
    401: "No valid token.",
    403: "The token lacks the scope, or the request is from a page of another origin.",
    404: "Not found.",
    409: "Not possible in the current state.",
    413: "The body is too large.",
    421: "The gateway does not serve the requested host; see `allowed_hosts`.",
    422: "Not acceptable: an idempotency key with another body, or a missing field.",
    429: "The caller has too many open requests, or too many failed logins.",
    503: "Temporarily unavailable: the ledger is busy, or a limit is reached.",
    507: "The disk is full; nothing was written.",
}


def describe_routes(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the document of every route of the table."""
    models: dict[str, type[BaseModel]] = {}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, models)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    described = [*TAGS.values(), OTHER_TAG]
    tags = [{"name": name, "description": text} for name, text in described if text]
    return _document("Ductile", DESCRIPTION, paths, models) | {"tags": tags}


def describe_plugin(plugin: Plugin, endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the document of a plugin's commands, with the schemas of its manifest."""
    trigger = next(e for e in endpoints if (e.method, e.path) == ("POST", TRIGGER))
    models: dict[str, type[BaseModel]] = {}
    paths = {}
    for command in plugin.manifest.commands:
        properties = property_schemas(TriggerBody)
        if command.input_schema is not None:
            properties["payload"] = command.input_schema
        body = {"type": "object", "properties": properties, "additionalProperties": False}
        paths[f"/plugin/{plugin.name}/{command.name}"] = {
            "post": {
                "operationId": f"{plugin.name}_{command.name}",
                "summary": command.description or f"Run {command.name} of {plugin.name}.",
                "x-scope": f"plugin:{'ro' if command.type.value == 'read' else 'rw'}",
                "security": [{"bearer": []}],
                "parameters": _header_parameters(trigger),
                "requestBody": _json_content(body) | {"required": False},
                "responses": _responses(trigger, models),
            }
        }
    manifest = plugin.manifest
    return _document(plugin.name, manifest.description, paths, models, manifest.version)


def _document(
    title: str,
    description: str,
    paths: dict[str, Any],
    models: dict[str, type[BaseModel]],
    version: str = ductile.__version__,
) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "description": description, "version": version},
        "paths": paths,
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": component_schemas(models.values()),
        },
    }


def _operation(endpoint: Endpoint, models: dict[str, type[BaseModel]]) -> dict[str, Any]:
    """Return the operation of a route, and add the models that it refers to."""
    method, path = endpoint.method, endpoint.path
    summary, _, more = summarize(endpoint.handler).partition("\n")
    operation: dict[str, Any] = {
        "operationId": re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_"),
        "tags": [TAGS.get(path.split("/")[1], OTHER_TAG)[0]],
        "summary": summary,
        "parameters": [
            *_path_parameters(path),
            *_query_parameters(endpoint),
            *_header_parameters(endpoint),
        ],
        "responses": _responses(endpoint, models),
    }
    if more:
        operation["description"] = more
    if endpoint.token_scope is not None:
        operation |= {"security": [{"bearer": []}], "x-scope": endpoint.token_scope}
    if endpoint.body is not None:
        body = request_model(endpoint.body)
        content = _json_content(_refer(body, models))
        operation["requestBody"] = content | {"required": not _accepts_nothing(body)}
    elif endpoint.raw_body is not None:
        model = response_models().get(endpoint.raw_body)
        schema = {} if model is None else _refer(model, models)
        operation["requestBody"] = _json_content(schema) | {"required": model is not None}
    return operation


def summarize(handler: Any) -> str:
    """Return a handler's docstring without the route: one sentence, then perhaps more lines."""
    paragraphs = [" ".join(part.split()) for part in (handler.__doc__ or "").split("\n\n")]
    return "\n".join([_ROUTE.sub("", paragraphs[0]), *paragraphs[1:]]).rstrip()


def _path_parameters(path: str) -> list[dict[str, Any]]:
    return [
        _parameter(name, "path", PATH_PARAMETERS[name], {"type": "string"})
        for name in _PARAMETER.findall(path)
    ]


def _query_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    schemas = property_schemas(request_model(endpoint.query))
    return [
        _parameter(name, "query", schemas[name].pop("description", ""), schemas[name])
        for name in sorted(schemas, key=lambda name: name in PAGING)
    ]


def _header_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [_parameter(name, "header", *HEADERS[name]) for name in endpoint.headers]


def _parameter(name: str, place: str, text: str, schema: Schema) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": text,
        "schema": schema,
    }


def _accepts_nothing(model: type[RequestModel]) -> bool:
    """Return whether a request may leave out the body."""
    try:
        model.model_validate({})
    except ValidationError:
        return False
    return True


def _responses(endpoint: Endpoint, models: dict[str, type[BaseModel]]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    for status, names in endpoint.responses.items():
        found = [response_models()[name] for name in names.split(" | ")]
        schemas = [_refer(model, models) for model in found]
        media_type = getattr(found[0], "media_type", "application/json")
        responses[str(status)] = {
            "description": " ".join(describe(model) for model in found),
            **_content(schemas[0] if len(schemas) == 1 else {"anyOf": schemas}, media_type),
        }
    error = AgentsErrorModel if endpoint.path.startswith(AGENT_ROUTES) else ErrorModel
    for status in refusal_statuses(endpoint):
        content = _json_content(_refer(error, models))
        responses.setdefault(str(status), {"description": REFUSALS[status], **content})
    return responses


def _refer(model: type[BaseModel], models: dict[str, type[BaseModel]]) -> Schema:
    models[model.__name__] = model
    return reference(model)


def _json_content(schema: Schema) -> dict[str, Any]:
    return _content(schema, "application/json")


def _content(schema: Schema, media_type: str) -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema}}}


def refusal_statuses(endpoint: Endpoint) -> list[int]:
    """Return the statuses by which a route may refuse a request."""
    found = {400, 403, 421, 503}
    authenticates = endpoint.path.startswith(("/gateway/webhooks/", "/ui/session"))
    if endpoint.token_scope is not None or authenticates:
        found |= {401, 429}
    if "{" in endpoint.path or endpoint.path.startswith("/scheduler/"):
        found.add(404)
    if endpoint.method != "GET":
        found |= {404, 409, 413, 422, 507}
    if endpoint.path in ("/config/diff", "/config/watch"):
        found.add(404)
    if endpoint.path in ("/system/reload", "/config/plan", "/pipelines/{name}/compare"):
        found.add(409)
    return sorted(found)
