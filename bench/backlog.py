"""A queue seen from outside the gateway: filled before it starts, watched while it works."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Protocol

import apsw

from bench.gateway import Place
from bench.programs import PAYLOAD
from ductile.clock import SystemClock, SystemEntropy
from ductile.model import NewJob, SubmittedBy
from ductile.store.engines.api import Tx
from ductile.store.engines.open import open_ledger
from ductile.store.jobs.enqueue import enqueue_job
from ductile.store.tx_config import TxConfig

LOOK_EVERY = 0.005
PATIENCE = 120.0
UNDONE = """
SELECT EXISTS (SELECT 1 FROM job_queue
               WHERE status = 'queued' AND next_retry_at IS NULL AND set_aside = 0)
    OR EXISTS (SELECT 1 FROM job_queue WHERE status = 'running')
"""


class Reader(Protocol):
    def rows(self, sql: str) -> list[tuple[Any, ...]]: ...

    def close(self) -> None: ...


class SqliteReader:
    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        self._connection.set_busy_timeout(5000)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql).fetchall()

    def close(self) -> None:
        self._connection.close()


class PostgresReader:
    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql.encode()).fetchall()

    def close(self) -> None:
        self._connection.close()


def reader(place: Place) -> Reader:
    return PostgresReader(place.url) if place.url else SqliteReader(place.ledger)


def fill(place: Place, plugin: str, jobs: int) -> None:
    """Queue jobs as a producer does, with no gateway there to run them."""
    place.state_dir.mkdir(mode=0o700, exist_ok=True)
    ledger = open_ledger(path=None if place.url else place.ledger, url=place.url)
    clock, entropy, tx_config = SystemClock(), SystemEntropy(), TxConfig(dedupe_ttl=86_400.0)
    new = NewJob(plugin, "poll", SubmittedBy.API, payload=PAYLOAD)

    def work(tx: Tx) -> None:
        for _ in range(jobs):
            enqueue_job(tx, new, tx_config, id=entropy.uuid(), now=clock.now())

    try:
        ledger.write(work)
    finally:
        ledger.close()


def succeeded(ledger: Reader) -> int:
    count: int = ledger.rows("SELECT count(*) FROM job_queue WHERE status = 'succeeded'")[0][0]
    return count


def until_done(ledger: Reader, jobs: int) -> float:
    """The time of day at which the last job was seen to have ended. All must have succeeded."""
    give_up = time.monotonic() + PATIENCE
    while ledger.rows(UNDONE)[0][0]:
        if time.monotonic() > give_up:
            raise TimeoutError("the queue was not empty in time")
        time.sleep(LOOK_EVERY)
    ended = time.time()
    states = dict(ledger.rows("SELECT status, count(*) FROM job_queue GROUP BY status"))
    if states != {"succeeded": jobs}:
        raise RuntimeError(f"wanted {jobs} jobs to succeed: {states}")
    return ended
