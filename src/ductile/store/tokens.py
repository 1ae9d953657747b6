"""Tokens of the ledger: known by their hashes, named, scoped, with an end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import to_text
from ductile.errors import NotFound, Refused
from ductile.record import dataclass
from ductile.store.engines.api import Tx


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A token that opens doors, as the doorkeeper compares it."""

    id: str
    name: str
    hash: str
    scopes: tuple[str, ...]
    expires_at: str | None


def create(
    tx: Tx,
    *,
    id: str,
    name: str,
    hash: str,
    scopes: Sequence[str],
    expires_at: datetime | None,
    now: datetime,
) -> dict[str, Any]:
    """Record a token; `Refused` where a token of that name is in use."""
    added = tx.run(
        "insert_token",
        id=id,
        name=name,
        hash=hash,
        scopes=orjson.dumps(list(scopes)).decode(),
        expires_at=None if expires_at is None else to_text(expires_at),
        now=to_text(now),
    )
    if not added:
        raise Refused(f"there is a token {name!r} already; revoke or rotate it")
    return find(tx, id)


def find(tx: Tx, which: str) -> dict[str, Any]:
    """By id or name; `NotFound` where there is none."""
    rows = tx.dicts("find_token", which=which)
    if not rows:
        raise NotFound(f"there is no token {which!r}")
    return _shown(rows[0])


def listing(tx: Tx) -> list[dict[str, Any]]:
    return [_shown(row) for row in tx.dicts("tokens")]


def good(tx: Tx, now: datetime) -> list[StoredToken]:
    rows = tx.all("good_tokens", now=to_text(now))
    return [StoredToken(r[0], r[1], r[2], tuple(orjson.loads(r[3])), r[4]) for r in rows]


def revoke(tx: Tx, which: str, now: datetime) -> dict[str, Any]:
    token = find(tx, which)
    if not tx.run("revoke_token", id=token["id"], now=to_text(now)):
        raise Refused(f"token {token['name']!r} is revoked already")
    return find(tx, token["id"])


def rotatable(tx: Tx, which: str, expires_at: datetime | None, now: datetime) -> dict[str, Any]:
    """The token, if another secret would open something; else `Refused`."""
    token = find(tx, which)
    if token["revoked_at"] is not None:
        raise Refused(f"token {token['name']!r} is revoked; create another")
    if (
        expires_at is None
        and token["expires_at"] is not None
        and token["expires_at"] <= to_text(now)
    ):
        raise Refused(
            f"token {token['name']!r} has expired; give it another end: expires_in, --expires"
        )
    return token


def rotate(
    tx: Tx, which: str, *, hash: str, expires_at: datetime | None, now: datetime
) -> dict[str, Any]:
    """Give it another secret; without `expires_at` its end stays what it was."""
    token = rotatable(tx, which, expires_at, now)
    end = token["expires_at"] if expires_at is None else to_text(expires_at)
    if not tx.run("rotate_token", id=token["id"], hash=hash, expires_at=end, now=to_text(now)):
        raise Refused(f"token {token['name']!r} is revoked; create another")
    return find(tx, token["id"])


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "scopes": orjson.loads(row["scopes"])}
