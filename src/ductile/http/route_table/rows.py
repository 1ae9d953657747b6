"""What the rows of the route table are written with."""

from __future__ import annotations

from functools import partial

from ductile.http.endpoint import Endpoint

get, post, delete = (partial(Endpoint, method) for method in ("GET", "POST", "DELETE"))
KEY = ("Idempotency-Key",)


def action(model: str) -> dict[int, str]:
    """Return the responses of an action: accepted, or with `dry_run` planned."""
    return {202: model, 200: model}
