"""Migrations: applied at start, backed up first, and refused if unknown."""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import apsw
import psycopg
import pytest

from ductile.errors import LedgerError
from ductile.store import boots
from ductile.store.engines import migrate as migrations
from ductile.store.engines.api import Ledger
from ductile.store.engines.migrate import Migration, load_migrations, migrate
from ductile.store.engines.pg.schema import PostgresSchema
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.engines.queries import load_queries
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.engines.sqlite_connection import connect
from ductile.store.engines.sqlite_schema import SqliteSchema
from tests.conftest import FakeClock
from tests.postgres import Server
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT

KNOWN = [migration.number for migration in load_migrations("sqlite")]
Open = Callable[[], Ledger]


def query(ledger: Ledger, sql: str) -> list[tuple[object, ...]]:
    if isinstance(ledger, PostgresLedger):
        with psycopg.connect(ledger.url) as connection:
            return connection.execute(sql).fetchall()
    assert isinstance(ledger, SqliteLedger)
    return at(ledger.path, sql)


def at(path: Path, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute(sql).fetchall()
    connection.close()
    return list(found)


def test_migration_numbers_are_consecutive_and_shared_by_the_engines() -> None:
    assert list(range(1, len(KNOWN) + 1)) == KNOWN
    assert [m.number for m in load_migrations("postgres")] == KNOWN
    assert [m.checksum for m in load_migrations("postgres")] == [
        m.checksum for m in load_migrations("sqlite")
    ]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_migrations_contain_no_unreplaced_fragment(engine: str) -> None:
    for migration in load_migrations(engine):
        # A migration may concern the server's tables only.
        assert migration.statements or engine == "sqlite"
        for statement in migration.statements:
            assert not re.search(r"@\w+@", statement)
            assert "-- engine" not in statement


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_queries_contain_no_unreplaced_fragment(engine: str) -> None:
    for name, sql in load_queries(engine).items():
        assert sql, name
        assert not re.search(r"@\w+@", sql), name


CATALOGUE = {"broken_indexes", "old_transactions"}
"""Queries about the PostgreSQL server, which SQLite does not have."""
BATCHED = {"settle_job_rows"}
"""Queries for many rows, where SQLite runs the query for one of them as often."""


def test_engines_have_the_same_queries() -> None:
    assert load_queries("sqlite").keys() == (load_queries("postgres").keys() - CATALOGUE - BATCHED)


def test_new_ledger_has_every_migration(ledger: Ledger) -> None:
    rows = query(ledger, "SELECT number FROM schema_migrations ORDER BY number")
    assert [row[0] for row in rows] == KNOWN


def numbered(sql: str) -> str:
    """Replace `%(name)s` by `$1`, as PREPARE requires."""
    places: dict[str, int] = {}

    def place(match: re.Match[str]) -> str:
        return f"${places.setdefault(match[1], len(places) + 1)}"

    return re.sub(r"%\((\w+)\)s", place, sql).replace("%%", "%")


def test_every_query_can_be_prepared(ledger: Ledger) -> None:
    """Each statement is prepared against the schema, without values."""
    wrong = []
    for name, sql in load_queries(ledger.engine).items():
        if isinstance(ledger, SqliteLedger):
            connection = apsw.Connection(str(ledger.path))
            names = set(re.findall(r"(?<!:):([a-z_]+)", sql))
            try:
                connection.execute(f"EXPLAIN {sql}", dict.fromkeys(names)).fetchall()
            except apsw.SQLError as error:
                wrong.append(f"{name}: {error}")
            connection.close()
        else:
            assert isinstance(ledger, PostgresLedger)
            text = numbered(sql)
            with psycopg.connect(ledger.url, autocommit=True) as connection:
                try:
                    connection.execute(f"PREPARE probe AS {text}".encode())
                except psycopg.Error as error:
                    wrong.append(f"{name}: {error}")
    assert wrong == []


def test_reopened_ledger_keeps_its_rows(open_ledger: Open) -> None:
    first = open_ledger()
    execute(first, "INSERT INTO plugin_state (plugin_name, state) VALUES ('echo', '{\"n\": 1}')")
    first.close()
    again = open_ledger()
    assert again.read(lambda tx: tx.one("state_of", plugin="echo")) == ('{"n": 1}',)


def test_ledger_of_a_newer_version_is_refused(open_ledger: Open) -> None:
    ledger = open_ledger()
    execute(ledger, "INSERT INTO schema_migrations VALUES (9999, 'future', 'x')")
    ledger.close()
    with pytest.raises(LedgerError, match=r"9999.*newer version"):
        open_ledger()


def test_ledger_with_a_different_migration_is_refused(open_ledger: Open) -> None:
    ledger = open_ledger()
    execute(ledger, "UPDATE schema_migrations SET checksum = 'other' WHERE number = 1")
    ledger.close()
    with pytest.raises(LedgerError, match=r"0001.*differs"):
        open_ledger()


def test_refused_ledger_is_not_changed(open_ledger: Open) -> None:
    ledger = open_ledger()
    execute(ledger, "DELETE FROM schema_migrations WHERE number > 1")
    execute(ledger, "INSERT INTO schema_migrations VALUES (9999, 'future', 'x')")
    ledger.close()
    with pytest.raises(LedgerError):
        open_ledger()
    rows = query(ledger, "SELECT number FROM schema_migrations ORDER BY number")
    assert [row[0] for row in rows] == [1, 9999]


def test_two_nodes_that_start_at_once_migrate_once(tmp_path: Path, postgres) -> None:
    url = postgres.database(empty=True)
    barrier, errors = threading.Barrier(4), list[BaseException]()

    def start() -> None:
        ledger = PostgresLedger(url)
        barrier.wait(WAIT_LIMIT)
        try:
            ledger.start()
        except BaseException as error:  # noqa: BLE001 - checked below
            errors.append(error)
        ledger.close()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert errors == []
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT number FROM schema_migrations ORDER BY number")
        assert [row[0] for row in rows.fetchall()] == KNOWN


def test_failed_migration_on_postgres_rolls_back_all_pending_ones(postgres) -> None:
    url = postgres.database(empty=True)
    good = Migration(9001, "good", "x", ("CREATE TABLE made (a INTEGER)",))
    broken = Migration(9002, "broken", "x", ("INSERT INTO nowhere VALUES (1)",))
    with psycopg.connect(url) as connection:
        schema = PostgresSchema(connection)
        assert schema.applied() == {}
        with pytest.raises(psycopg.errors.UndefinedTable):
            schema.apply([good, broken])
        assert schema.applied() == {}
        assert connection.execute("SELECT to_regclass('made')").fetchone() == (None,)


# SQLite, which backs itself up


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger of the first version with a job."""
    path = tmp_path / "state.db"
    connection = connect(path)
    schema = SqliteSchema(connection, path)
    assert schema.applied() == {}
    schema.apply(load_migrations("sqlite")[:1])
    connection.execute(
        "INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at)"
        " VALUES ('old-1', 'echo', 'poll', '{}', 'queued', 'cli', '2026-01-01T00:00:00.000000Z')"
    )
    connection.close()
    return path


def opened(path: Path) -> SqliteLedger:
    ledger = SqliteLedger(path)
    ledger.start()
    return ledger


def test_new_ledger_is_not_backed_up(tmp_path: Path) -> None:
    opened(tmp_path / "state.db").close()
    assert [p.name for p in tmp_path.iterdir() if "before" in p.name] == []


def test_old_ledger_is_migrated_with_its_jobs(old: Path) -> None:
    opened(old).close()
    assert at(old, "SELECT id, status FROM job_queue") == [("old-1", "queued")]
    assert [n for (n,) in at(old, "SELECT number FROM schema_migrations ORDER BY 1")] == KNOWN


def test_old_ledger_is_backed_up_before_the_migration(old: Path) -> None:
    opened(old).close()
    copy = old.with_name("state.db.before-0002")
    assert at(copy, "SELECT id FROM job_queue") == [("old-1",)]
    assert at(copy, "SELECT number FROM schema_migrations") == [(1,)]
    assert at(copy, "PRAGMA integrity_check") == [("ok",)]


def test_backup_is_readable_by_its_owner_only(old: Path) -> None:
    opened(old).close()
    copy = old.with_name("state.db.before-0002")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600


def test_backup_does_not_follow_a_planted_link(old: Path) -> None:
    victim = old.with_name("victim")
    victim.write_text("kept")
    copy = old.with_name("state.db.before-0002")
    copy.symlink_to(victim)
    opened(old).close()
    assert victim.read_text() == "kept"
    assert at(copy, "SELECT id FROM job_queue") == [("old-1",)]


def test_ledger_in_a_linked_directory_is_backed_up(old: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.symlink_to(old.parent)
    opened(linked / old.name).close()
    assert at(old.with_name("state.db.before-0002"), "SELECT id FROM job_queue") == [("old-1",)]


def test_several_migrations_make_one_backup(old: Path) -> None:
    opened(old).close()
    assert [p.name for p in old.parent.glob("*.before-*")] == ["state.db.before-0002"]


def test_current_ledger_is_not_backed_up(old: Path) -> None:
    opened(old).close()
    copy = old.with_name("state.db.before-0002")
    copy.unlink()
    opened(old).close()
    assert not copy.exists()


def test_failed_migration_changes_nothing(old: Path) -> None:
    connection = connect(old)
    schema = SqliteSchema(connection, old)
    broken = Migration(
        2, "broken", "x", ("CREATE TABLE half (a)", "INSERT INTO nowhere VALUES (1)")
    )
    with pytest.raises(apsw.SQLError):
        schema.apply([broken])
    connection.close()
    assert at(old, "SELECT number FROM schema_migrations") == [(1,)]
    assert at(old, "SELECT name FROM sqlite_schema WHERE name = 'half'") == []


def test_failed_migration_on_sqlite_rolls_back_all_pending_ones(old: Path) -> None:
    connection = connect(old)
    good = Migration(2, "good", "x", ("CREATE TABLE made (a)",))
    broken = Migration(3, "broken", "x", ("INSERT INTO nowhere VALUES (1)",))
    with pytest.raises(apsw.SQLError):
        SqliteSchema(connection, old).apply([good, broken])
    connection.close()
    assert at(old, "SELECT number FROM schema_migrations") == [(1,)]
    assert at(old, "SELECT name FROM sqlite_schema WHERE name = 'made'") == []


def test_new_ledger_is_created_in_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = connect(path)
    commits = 0

    def committing() -> bool:
        nonlocal commits
        commits += 1
        return False

    connection.set_commit_hook(committing)
    migrate(SqliteSchema(connection, path))
    connection.close()
    assert commits == 1


def test_interrupted_creation_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connect(path).close()
    opened(path).close()
    assert [n for (n,) in at(path, "SELECT number FROM schema_migrations ORDER BY 1")] == KNOWN
    assert list(tmp_path.glob("*.before-*")) == []


def test_migrate_returns_the_applied_migrations(old: Path) -> None:
    connection = connect(old)
    schema = SqliteSchema(connection, old)
    assert [m.number for m in migrate(schema)] == KNOWN[1:]
    assert migrate(schema) == []
    connection.close()


def test_facts_keep_their_ids_and_become_final(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    connection = connect(path)
    schema = SqliteSchema(connection, path)
    schema.apply([m for m in load_migrations("sqlite") if m.number < 10])
    for id in (3, 7):
        connection.execute(
            "INSERT INTO plugin_facts (id, seq, plugin_name, fact_type, fact_json, created_at)"
            " VALUES (?, ?, 'scale', 'weight', '{}', '2026-02-08')",
            (id, id),
        )
    migrate(schema)
    found = connection.execute("SELECT id, seq, fact_json FROM plugin_facts ORDER BY id").fetchall()
    assert found == [(3, 3, "{}"), (7, 7, "{}")]
    assert connection.execute(
        "SELECT seq FROM sqlite_sequence WHERE name = 'plugin_facts'"
    ).fetchall() == [(7,)]
    with pytest.raises(apsw.ConstraintError):
        connection.execute("DELETE FROM plugin_facts")
    connection.close()


def test_every_migration_file_has_a_valid_name() -> None:
    names = [f.name for f in files("ductile.store").joinpath("migrations").iterdir()]
    assert [
        n for n in names if not re.fullmatch(r"\d{4}_(contract_)?[a-z]+\.sql|__pycache__", n)
    ] == []


REMOVES = re.compile(
    r"\b(DROP|RENAME|ALTER COLUMN|SET NOT NULL)\b|ADD COLUMN(?!.*DEFAULT).*NOT NULL", re.IGNORECASE
)


INDEX = re.compile(r"^CREATE INDEX (\w+) ON", re.MULTILINE)


def test_migration_that_removes_something_is_named_contract() -> None:
    """Running nodes of the version before cannot live with it, so that it must wait for them.

    An index may go: without it they are slower. A unique one decides what they may write.
    """
    indexes: set[str] = set()
    for migration in load_migrations("postgres"):
        removing = [
            one
            for one in migration.statements
            if REMOVES.search(one) and one.removeprefix("DROP INDEX ") not in indexes
        ]
        if migration.number >= 25 and not migration.is_contract:
            assert removing == [], migration.name
        indexes |= {name for one in migration.statements for name in INDEX.findall(one)}


CONTRACT = Migration(9998, "contract_x", "x", ("DROP INDEX notices_requests",))
LATER = Migration(9999, "later", "y", ("CREATE TABLE later (id INTEGER)",))


@pytest.fixture
def postgres_ledger(ledger: Ledger) -> PostgresLedger:
    if not isinstance(ledger, PostgresLedger):
        pytest.skip("about PostgreSQL")
    return ledger


@pytest.fixture
def pending(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> list[Migration]:
    """Migrations that this version ships besides its own."""
    postgres.database()  # The template of all databases is made without them.
    pending = [CONTRACT]
    known = load_migrations("postgres")
    monkeypatch.setattr(migrations, "load_migrations", lambda _engine: [*known, *pending])
    return pending


def begin_older_boot(ledger: Ledger) -> None:
    """A node that lives, and whose version does not know the migration."""
    ledger.claim_boot("older")
    now = FakeClock().now()
    ledger.write(lambda tx: boots.begin_boot(tx, id="older", pid=1, version="0.0.9", now=now))


def is_applied(ledger: Ledger, migration: Migration) -> bool:
    rows = query(ledger, "SELECT number FROM schema_migrations")
    return (migration.number,) in rows


def test_contract_waits_until_no_older_node_lives(
    postgres_ledger: PostgresLedger, open_ledger: Open, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("pending")
    begin_older_boot(postgres_ledger)
    newer = open_ledger()
    assert newer.waiting_migration == (
        "migration 9998 (contract_x) waits until no node of an older version runs: "
        "older (0.0.9, schema unknown)"
    )
    newer.migrate()
    assert not is_applied(newer, CONTRACT)
    postgres_ledger.close()
    newer.migrate()
    assert newer.waiting_migration is None
    assert is_applied(newer, CONTRACT)


def test_version_that_needs_more_than_a_waiting_contract_does_not_start(
    postgres_ledger: PostgresLedger, open_ledger: Open, request: pytest.FixtureRequest
) -> None:
    begin_older_boot(postgres_ledger)
    request.getfixturevalue("pending").append(LATER)
    with pytest.raises(LedgerError, match=r"waits until no node .*; stop them or upgrade"):
        open_ledger()
    assert not is_applied(postgres_ledger, LATER)


@pytest.mark.usefixtures("pending")
def test_new_ledger_has_every_contract(postgres: Server) -> None:
    ledger = PostgresLedger(postgres.database(empty=True))
    ledger.start()
    try:
        assert is_applied(ledger, CONTRACT)
    finally:
        ledger.close()
