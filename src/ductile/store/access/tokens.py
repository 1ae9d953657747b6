"""API tokens that are stored in the ledger by their hash, with a name, scopes and an expiry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.errors import NotFound, Refused
from ductile.store.engines.api import Tx


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A valid token, for authentication."""

    id: str
    name: str
    hash: str
    scopes: tuple[str, ...]
    expires_at: str | None


def create_token(
    tx: Tx,
    *,
    id: str,
    name: str,
    hash: str,
    scopes: Sequence[str],
    expires_at: datetime | None,
    now: datetime,
) -> dict[str, Any]:
    """Store a token; `Refused` if a token of that name is in use."""
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
        raise Refused(f"there is already a token {name!r}; revoke or rotate it")
    return find_token(tx, id)


def find_token(tx: Tx, which: str) -> dict[str, Any]:
    """The token with this id or name; `NotFound` if there is none."""
    rows = tx.dicts("find_token", which=which)
    if not rows:
        raise NotFound(f"there is no token {which!r}")
    return _parse_token(rows[0])


def list_tokens(tx: Tx) -> list[dict[str, Any]]:
    return [_parse_token(row) for row in tx.dicts("tokens")]


def list_valid(tx: Tx, now: datetime) -> list[StoredToken]:
    """The tokens that are neither revoked nor expired."""
    rows = tx.all("valid_tokens", now=to_text(now))
    return [StoredToken(r[0], r[1], r[2], tuple(orjson.loads(r[3])), r[4]) for r in rows]


def revoke_token(tx: Tx, which: str, now: datetime) -> dict[str, Any]:
    token = find_token(tx, which)
    if not tx.run("revoke_token", id=token["id"], now=to_text(now)):
        raise Refused(f"token {token['name']!r} is already revoked")
    return find_token(tx, token["id"])


def check_rotatable(
    tx: Tx, which: str, expires_at: datetime | None, now: datetime
) -> dict[str, Any]:
    """The token, if it is valid with a new secret and this expiry; else `Refused`."""
    token = find_token(tx, which)
    if token["revoked_at"] is not None:
        raise Refused(f"token {token['name']!r} is revoked; create a new one")
    if (
        expires_at is None
        and token["expires_at"] is not None
        and token["expires_at"] <= to_text(now)
    ):
        raise Refused(
            f"token {token['name']!r} has expired; set a new expiry: expires_in, --expires"
        )
    return token


def rotate_token(
    tx: Tx, which: str, *, hash: str, expires_at: datetime | None, now: datetime
) -> dict[str, Any]:
    """Replace the secret; without `expires_at` the expiry stays as it was."""
    token = check_rotatable(tx, which, expires_at, now)
    end = token["expires_at"] if expires_at is None else to_text(expires_at)
    if not tx.run("rotate_token", id=token["id"], hash=hash, expires_at=end, now=to_text(now)):
        raise Refused(f"token {token['name']!r} is revoked; create a new one")
    return find_token(tx, token["id"])


def _parse_token(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "scopes": orjson.loads(row["scopes"])}
