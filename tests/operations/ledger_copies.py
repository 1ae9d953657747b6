"""Backups of an installation's ledger, and reading them."""

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
from ductile.store.jobs.read import JobFilter, list_jobs
from tests.engine.site import Running, Site
from tests.postgres import Server

CLOCK = SystemClock()


def on_postgres(site: Site, postgres: Server) -> str:
    url = postgres.database(empty=True)
    site.settings["state"] = {"url": url, "dir": str(site.state)}
    return url


def make_backup(running: Running, target: Path, **more: Any) -> backup.CompletedBackup:
    gateway = running.gateway
    return back_up(gateway.ledger, target, state_dir=gateway.state_dir, clock=CLOCK, **more)


def restore_copy(site: Site, path: Path, **more: Any) -> Restored:
    return restore(site.load().settings, path, now=CLOCK.now(), **more)


def open_read_only(site: Site) -> Ledger:
    state = site.load().settings.state
    return open_ledger(path=state.path, url=state.url, read_only=True)


def read_jobs(ledger: Ledger) -> dict[str, str]:
    rows = ledger.read(lambda tx: list_jobs(tx, JobFilter(), limit=100_000))
    return {row["id"]: row["status"] for row in rows}


def read_jobs_of_file(path: Path) -> dict[str, str]:
    ledger = SqliteLedger(path, read_only=True)
    try:
        return read_jobs(ledger)
    finally:
        ledger.close()


def read_jobs_of_site(site: Site) -> dict[str, str]:
    ledger = open_read_only(site)
    try:
        return read_jobs(ledger)
    finally:
        ledger.close()


def damage_file(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(20, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)


def execute_sql(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()
