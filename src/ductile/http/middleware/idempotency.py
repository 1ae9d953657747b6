"""`Idempotency-Key` on requests that enqueue (SPEC §4)."""

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
from ductile.http.responses import gateway_of
from ductile.store.engines.api import Work
from ductile.store.jobs import idempotency

T = TypeVar("T")
HEADER = "idempotency-key"
LONGEST_KEY = 255


def once(request: Request, work: Work[T], answer: type[T], *, dry: bool = False) -> Work[T]:
    """`work`; where the request has a key, at most once a day for that key.

    `answer` is the dataclass that `work` gives back: the same request again gets an equal one.
    What is `dry` changes nothing, and its key is only looked at.
    """
    keys = request.headers.getlist(HEADER)
    if not keys:
        return work
    key = keys[0]
    if len(keys) > 1 or not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
        raise UsageError(f"Idempotency-Key must be one text of 1 to {LONGEST_KEY} characters")
    if dry:
        return work
    principal = principal_of(request)
    assert principal is not None
    claim = idempotency.IdempotencyKey(
        principal.id,
        request.method,
        # No text of PostgreSQL's holds a NUL; nothing is found under such a path anyway.
        request.url.path.replace("\0", "\ufffd"),
        key,
        hashlib.sha256(request.scope.get(BODY, b"")).hexdigest(),
    )
    reader: TypeAdapter[T] = TypeAdapter(answer)
    return idempotency.run_once(
        claim, work, gateway_of(request).clock.now(), encode=_encoded, decode=reader.validate_json
    )


def _encoded(answer: Any) -> str:
    return orjson.dumps(asdict(answer)).decode()
