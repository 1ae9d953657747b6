"""`Idempotency-Key`: the same request again gets the same answer, for a day."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from ductile.clock import to_text
from ductile.errors import DuctileError
from ductile.record import dataclass
from ductile.store.engines.api import Tx, Work

T = TypeVar("T")
KEPT = timedelta(hours=24)


class KeyReused(DuctileError):
    """The key came with another body before."""

    code = "idempotency_key_reused"
    http_status = 422


@dataclass(frozen=True, slots=True)
class Key:
    """A caller's key, as far as it counts: for this caller, method and path."""

    principal: str
    method: str
    path: str
    key: str
    body_hash: str


def once(
    key: Key,
    work: Work[T],
    now: datetime,
    *,
    encode: Callable[[T], str],
    decode: Callable[[str], T],
) -> Work[T]:
    """`work` where the key is new, else what it answered then; both in one transaction."""
    own = {
        "principal": key.principal,
        "method": key.method,
        "path": key.path,
        "idem_key": key.key,
    }

    def transaction(tx: Tx) -> T:
        tx.hold("idempotency", "\x1f".join(own.values()), wait=True)
        found = tx.one("idempotent_answer", since=to_text(now - KEPT), **own)
        if found is None:
            result = work(tx)
            tx.run(
                "keep_idempotent_answer",
                body_hash=key.body_hash,
                answer=encode(result),
                now=to_text(now),
                **own,
            )
            return result
        if found[0] != key.body_hash:
            raise KeyReused("this Idempotency-Key was sent with another body before")
        return decode(found[1])

    return transaction
