"""API tokens that are stored in the ledger by their hash, with a name, scopes and an expiry.

A lease is a token with a record of what it starts and, if it has a budget, with an end by use.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from shlex import quote
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.errors import DuctileError, NotFound, Refused
from ductile.store.engines.api import Tx


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A valid token, for authentication."""

    id: str
    name: str
    hash: str
    scopes: tuple[str, ...]
    expires_at: str | None
    is_lease: bool


class Spending(StrEnum):
    """What a budget counts."""

    RUNS = "runs"
    """Jobs and pipeline runs that the token starts."""
    RETRIES = "retries"
    """Jobs, deliveries and relayed events that the token queues again."""


class BudgetSpent(DuctileError):
    code = "budget_spent"
    http_status = 403


@dataclass(frozen=True, slots=True)
class Budget:
    """How often a token may start and retry; None is no limit."""

    runs: int | None = None
    retries: int | None = None


def create_token(
    tx: Tx,
    *,
    id: str,
    name: str,
    hash: str,
    scopes: Sequence[str],
    expires_at: datetime | None,
    now: datetime,
    lease: bool = False,
    budget: Budget | None = None,
) -> dict[str, Any]:
    """Store a token; `Refused` if a token of that name is in use. A budget makes it a lease."""
    limits = budget or Budget()
    added = tx.run(
        "insert_token",
        id=id,
        name=name,
        hash=hash,
        scopes=orjson.dumps(list(scopes)).decode(),
        expires_at=None if expires_at is None else to_text(expires_at),
        now=to_text(now),
        lease=int(lease or budget is not None),
        runs=limits.runs,
        retries=limits.retries,
    )
    if not added:
        raise Refused(
            f"there is already a token {name!r}; revoke or rotate it",
            run=f"ductile token rotate {quote(name)}",
        )
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
    valid = []
    for id, name, hash, scopes, end, lease, previous, until in rows:
        ends = {hash: end}
        if previous is not None:
            ends[previous] = until if end is None else min(until, end)
        granted = tuple(orjson.loads(scopes))
        valid += [StoredToken(id, name, h, granted, e, bool(lease)) for h, e in ends.items()]
    return valid


def check_revocable(tx: Tx, which: str) -> dict[str, Any]:
    """The token, unless it is revoked already: `Refused`."""
    token = find_token(tx, which)
    if token["revoked_at"] is not None:
        raise Refused(f"token {token['name']!r} was already revoked at {token['revoked_at']}")
    return token


def revoke_token(tx: Tx, which: str, now: datetime) -> dict[str, Any]:
    token = check_revocable(tx, which)
    tx.run("revoke_token", id=token["id"], now=to_text(now))
    return find_token(tx, token["id"])


def check_rotatable(
    tx: Tx, which: str, expires_at: datetime | None, now: datetime, *, overlap: bool = False
) -> dict[str, Any]:
    """The token, if it is valid with a new secret and this expiry; else `Refused`.

    With `overlap`, an earlier secret that is still valid is a refusal: it would end early.
    """
    token = find_token(tx, which)
    if token["revoked_at"] is not None:
        raise Refused(
            f"token {token['name']!r} was revoked at {token['revoked_at']}, and a new secret would "
            f"not make it valid; create a new one: {_another(token, suffix='')}"
        )
    if (
        expires_at is None
        and token["expires_at"] is not None
        and token["expires_at"] <= to_text(now)
    ):
        raise Refused(
            f"token {token['name']!r} has expired; set a new expiry (expires_in): "
            f"ductile token rotate {quote(token['name'])} --expires 30d"
        )
    if overlap and (until := token["previous_until"]) and until > to_text(now):
        raise Refused(
            f"the secret that the last rotation of token {token['name']!r} replaced is valid until "
            f"{until}, and another overlap would end it now; wait for that, or leave this token as "
            f"it is and create another: {_another(token)}"
        )
    return token


def rotate_token(
    tx: Tx,
    which: str,
    *,
    hash: str,
    expires_at: datetime | None,
    now: datetime,
    old_until: datetime | None = None,
) -> dict[str, Any]:
    """Replace the secret; without `expires_at` the expiry stays as it was.

    The old secret is valid until `old_until`, or void at once. A new expiry is for the new secret:
    the old one ends no later than it would have without a rotation.
    """
    token = check_rotatable(tx, which, expires_at, now, overlap=old_until is not None)
    old_end = token["expires_at"]
    end = old_end if expires_at is None else to_text(expires_at)
    previous_until = None if old_until is None else to_text(old_until)
    if previous_until is not None and old_end is not None:
        previous_until = min(previous_until, old_end)
    rotated = tx.run(
        "rotate_token",
        id=token["id"],
        hash=hash,
        expires_at=end,
        previous_until=previous_until,
        now=to_text(now),
    )
    if not rotated:
        raise Refused(
            f"token {token['name']!r} was revoked or rotated meanwhile; run: ductile token list"
        )
    return find_token(tx, token["id"])


def spend(tx: Tx, id: str, what: Spending, count: int, now: datetime) -> None:
    """Take from the budget of a token; raises `BudgetSpent`, so that nothing is written."""
    query = "spend_runs" if what is Spending.RUNS else "spend_retries"
    if not count or tx.run(query, id=id, count=count, now=to_text(now)):
        return
    token = find_token(tx, id)
    left = token["budget"][what]["left"] if token["budget"] else 0
    raise BudgetSpent(
        f"token {token['name']!r} has {left or 0} of its {what} left, and this needs {count}; "
        f"an operator can create another lease: {_next_lease(token, what)}",
        left=left or 0,
        needed=count,
    )


def _next_lease(token: dict[str, Any], what: Spending) -> str:
    return f"{_another(token, '--for ')} --expires 2h --budget {what}=20"


def _another(token: dict[str, Any], option: str = "", suffix: str = "-2") -> str:
    name, scopes = quote(f"{token['name']}{suffix}"), quote(",".join(token["scopes"]))
    return f"ductile token create {option}{name} --scopes {scopes}"


def _parse_token(row: dict[str, Any]) -> dict[str, Any]:
    budget = {
        what.value: {"limit": row.pop(f"{what}_budget"), "left": row.pop(f"{what}_left")}
        for what in Spending
    }
    is_limited = any(each["limit"] is not None for each in budget.values())
    return {
        **row,
        "scopes": orjson.loads(row["scopes"]),
        "lease": bool(row["lease"]),
        "budget": budget if is_limited else None,
    }
