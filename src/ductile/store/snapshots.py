"""Every configuration that ran, redacted; jobs name those they were created and started under."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.model import Json
from ductile.store.engines.api import Tx


def record_snapshot(
    tx: Tx, *, id: str, config_hash: str, config: Json, fingerprints: Json, now: datetime
) -> str:
    """The id of the snapshot with this hash, which is inserted if there is none."""
    row = tx.one(
        "adopt_snapshot",
        id=id,
        config_hash=config_hash,
        config=orjson.dumps(config).decode(),
        secret_fingerprints=orjson.dumps(fingerprints).decode(),
        now=to_text(now),
    )
    assert row is not None
    found: str = row[0]
    return found


@dataclass(frozen=True, slots=True)
class Snapshot:
    id: str
    config: dict[str, Any]
    """Redacted."""
    fingerprints: list[dict[str, str]]
    """Of each secret: its place, and its keyed hash."""
    config_hash: str


def list_snapshots(tx: Tx, limit: int) -> list[dict[str, Any]]:
    """The configurations in the order in which they were last put in force, newest first."""
    return tx.dicts("snapshot_history", limit=limit)


def find_snapshot(tx: Tx, id: str) -> Snapshot | None:
    row = tx.one("snapshot", id=id)
    if row is None:
        return None
    return Snapshot(row[0], orjson.loads(row[1]), orjson.loads(row[2]), row[3])
