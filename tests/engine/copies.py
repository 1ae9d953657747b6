"""Copies of a site's ledger, and what is in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from ductile.clock import SystemClock
from ductile.operations import backup
from ductile.operations.backup import back_up
from ductile.operations.restore import Restored, restore
from ductile.store.engines.api import Ledger
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite import SqliteLedger
from tests.engine.site import Running, Site
from tests.postgres import Server

CLOCK = SystemClock()


def on_postgres(site: Site, postgres: Server) -> str:
    url = postgres.database(empty=True)
    site.settings["state"] = {"url": url, "dir": str(site.state)}
    return url


def copied(house: Running, target: Path, **more: Any) -> backup.CompletedBackup:
    gateway = house.gateway
    return back_up(gateway.ledger, target, state_dir=gateway.state_dir, clock=CLOCK, **more)


def put_back(site: Site, path: Path, **more: Any) -> Restored:
    return restore(site.load().settings, path, now=CLOCK.now(), **more)


def looked_at(site: Site) -> Ledger:
    state = site.load().settings.state
    return open_ledger(path=state.path, url=state.url, read_only=True)


def jobs_in(ledger: Ledger) -> dict[str, str]:
    rows = ledger.read(
        lambda tx: tx.dicts(
            "jobs",
            status=None,
            plugin=None,
            command=None,
            submitted_by=None,
            before=None,
            limit=100_000,
        )
    )
    return {row["id"]: row["status"] for row in rows}


def jobs_at(path: Path) -> dict[str, str]:
    ledger = SqliteLedger(path, read_only=True)
    try:
        return jobs_in(ledger)
    finally:
        ledger.close()


def jobs_of(site: Site) -> dict[str, str]:
    ledger = looked_at(site)
    try:
        return jobs_in(ledger)
    finally:
        ledger.close()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(20, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)


def changed(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()
