"""Every configuration that ran, redacted; jobs name those they were created and started under."""

from __future__ import annotations

from datetime import datetime

import orjson

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
