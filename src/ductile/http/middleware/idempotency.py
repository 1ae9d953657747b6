"""`Idempotency-Key`: a repeated request returns the first result instead of acting again."""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import Any, TypeVar

import orjson
from pydantic import TypeAdapter
from starlette.requests import Request

from ductile.errors import UsageError
from ductile.http.middleware.auth import principal_of
from ductile.http.requests import BODY
from ductile.http.responses import services_of
from ductile.store.engines.api import Work
from ductile.store.jobs import idempotency

T = TypeVar("T")
HEADER = "idempotency-key"
MAX_KEY = 255


def run_once(request: Request, work: Work[T], result: type[T], *, dry_run: bool = False) -> Work[T]:
    """Return the transaction, which runs at most once per key and day if the request has a key.

    `result` is the dataclass that `work` returns: a repeated request gets an equal one. With
    `dry_run` the key is only checked.
    """
    keys = request.headers.getlist(HEADER)
    if not keys:
        return work
    key = keys[0]
    if len(keys) > 1 or not 0 < len(key) <= MAX_KEY or not key.isprintable():
        raise UsageError(f"Idempotency-Key must be one text of 1 to {MAX_KEY} characters")
    if dry_run:
        return work
    principal = principal_of(request)
    assert principal is not None
    claim = idempotency.IdempotencyKey(
        principal.id,
        request.method,
        # PostgreSQL does not store NUL in a text; no route is found under such a path anyway.
        request.url.path.replace("\0", "\ufffd"),
        key,
        hashlib.sha256(request.scope.get(BODY, b"")).hexdigest(),
    )
    adapter: TypeAdapter[T] = TypeAdapter(result)
    now = services_of(request).clock.now()
    return idempotency.run_once(claim, work, now, encode=_encode, decode=adapter.validate_json)


def _encode(result: Any) -> str:
    return orjson.dumps(asdict(result)).decode()
