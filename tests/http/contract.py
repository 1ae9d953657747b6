"""Compares responses with the route table: every HTTP test passes its responses through here."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ductile.http.endpoint import Endpoint
from ductile.http.middleware.router import PathRouter
from ductile.http.models.responses.fields import AgentsErrorModel, ErrorModel
from ductile.http.openapi.document import refusal_statuses
from ductile.http.openapi.schema import response_models
from ductile.http.responses import AGENT_ROUTES
from ductile.http.route_table import ENDPOINTS

EVERYWHERE = {408, 431, 500}
"""Refusals that a connection or a bug causes, whatever the route."""
checked: set[tuple[str, str, int]] = set()
"""Method, path and status of the documented responses that were compared."""


@cache
def _router() -> PathRouter:
    return PathRouter((e.method, e.path, e) for e in ENDPOINTS)  # type: ignore[misc]


def find_endpoint(method: str, target: str) -> Endpoint | None:
    raw = target.partition("?")[0]
    scope = {"method": method, "path": unquote(raw), "raw_path": raw.encode()}
    try:
        found: Any = _router()._find(scope)
    except HTTPException:
        return None
    assert isinstance(found, Endpoint)
    return found


def check_response(
    method: str, target: str, status: int, headers: Mapping[str, str], raw: bytes
) -> None:
    """Fail unless the route table documents this response with all its keys."""
    endpoint = find_endpoint(method, target)
    if endpoint is None or method == "HEAD":
        return
    documented = endpoint.responses.get(status)
    if documented is None:
        assert status in {*refusal_statuses(endpoint), *EVERYWHERE}, (method, target, status, raw)
        if raw:
            agents = endpoint.path.startswith(AGENT_ROUTES)
            (AgentsErrorModel if agents else ErrorModel).model_validate_json(raw)
        return
    models = [response_models()[name] for name in documented.split(" | ")]
    media_type = getattr(models[0], "media_type", "application/json")
    given = {name.lower(): value for name, value in headers.items()}["content-type"]
    assert given.partition(";")[0] == media_type, (method, target, given)
    if media_type == "application/json":
        _validate(models, raw)
    checked.add((endpoint.method, endpoint.path, status))


def _validate(models: list[type[BaseModel]], raw: bytes) -> None:
    for model in models[:-1]:
        try:
            model.model_validate_json(raw, strict=True)
        except ValueError:
            continue
        return
    models[-1].model_validate_json(raw, strict=True)
