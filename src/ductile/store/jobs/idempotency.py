"""`Idempotency-Key`: a repeated request gets the first response again, for a day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.errors import DuctileError
from ductile.store.engines.api import Tx, Work

T = TypeVar("T")
RETENTION = timedelta(hours=24)


class KeyReused(DuctileError):
    """The key was sent before with another body."""

    code = "idempotency_key_reused"
    http_status = 422


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A caller's key; it applies to this caller, method and path only."""

    principal: str
    method: str
    path: str
    key: str
    body_hash: str


def run_once(
    key: IdempotencyKey,
    work: Work[T],
    now: datetime,
    *,
    encode: Callable[[T], str],
    decode: Callable[[str], T],
) -> Work[T]:
    """A transaction that runs `work` if the key is new, and else returns the stored answer."""
    own = {
        "principal": key.principal,
        "method": key.method,
        "path": key.path,
        "idem_key": key.key,
    }

    def transaction(tx: Tx) -> T:
        tx.hold("idempotency", "\x1f".join(own.values()), wait=True)
        found = tx.one("idempotent_answer", since=to_text(now - RETENTION), **own)
        if found is None:
            result = work(tx)
            tx.run(
                "store_idempotent_answer",
                body_hash=key.body_hash,
                answer=encode(result),
                now=to_text(now),
                **own,
            )
            return result
        if found[0] != key.body_hash:
            raise KeyReused("this Idempotency-Key was already used with another request body")
        return decode(found[1])

    return transaction
