"""What the rows of the route table are written with."""

from __future__ import annotations

from functools import partial
from typing import Any

from ductile.http.endpoint import Endpoint

post, delete = (partial(Endpoint, method) for method in ("POST", "DELETE"))
KEY = ("Idempotency-Key",)
Returns = str | dict[int, str]


def get(
    path: str,
    scope: str | None,
    handler: str,
    returns: Returns,
    query: str | None = None,
    **more: Any,
) -> Endpoint:
    return Endpoint("GET", path, scope, handler, returns, query, **more)


def change(
    path: str,
    scope: str | None,
    handler: str,
    returns: Returns,
    audit: str,
    body: str = "ActionBody",
    **more: Any,
) -> Endpoint:
    """A POST that is recorded in the audit log."""
    return Endpoint("POST", path, scope, handler, returns, body=body, audit=audit, **more)


def action(model: str) -> dict[int, str]:
    """Return the responses of an action: accepted, or with `dry_run` planned."""
    return {202: model, 200: model}
