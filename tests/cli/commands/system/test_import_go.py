"""`ductile system import`: plugin states, facts and schedules of the Go program's ledger."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from tests.cli.runner import CliRunner
from tests.waiting import until

SQL = (Path(__file__).parents[3] / "compat/ledger.sql").read_text()
SCHEDULED = """\
service: {shutdown_grace: 0s, tick_interval: 1s}
state: {path: ./data/state.db}
plugin_roots: [./plugins]
plugins:
  withings:
    schedules:
      - {every: monthly}
      - {id: once, at: 2026-01-01T00:00:00Z}
      - {id: held, every: 1h}
      - {id: new, every: 1h, command: sync}
"""
ANSWER = 'printf \'{"status":"ok","result":%s}\' "$request"'


@pytest.fixture
def moving(cli: CliRunner) -> CliRunner:
    """A configuration whose ledger is that of the Go program."""
    cli.state.mkdir(mode=0o700)
    other(cli.state / "state.db")
    cli.plugin("withings", ANSWER, commands="poll, sync")
    return cli


def other(path: Path, sql: str = SQL) -> Path:
    with closing(apsw.Connection(str(path))) as db:
        db.pragma("journal_mode", "wal")
        db.execute(sql)
    return path


@pytest.mark.parametrize(
    "line", [("system", "start"), ("plugin", "run", "withings"), ("status",), ("job", "list")]
)
def test_a_go_ledger_is_not_opened_as_our_own(moving: CliRunner, line: tuple[str, ...]) -> None:
    before = (moving.state / "state.db").read_bytes()
    done = moving(*line)
    assert done.code == 1
    assert "Traceback" not in done.err
    assert "ductile system import" in done.err
    assert (moving.state / "state.db").read_bytes() == before


@pytest.mark.parametrize("levels", [101, 255, 1000])
def test_a_state_nested_too_deep_is_not_imported(moving: CliRunner, levels: int) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels
    with closing(apsw.Connection(str(moving.state / "state.db"))) as db:
        db.execute("UPDATE plugin_state SET state = ? WHERE plugin_name = 'withings'", (deep,))
    done = moving("system", "import")
    assert done.code == 0, done.err
    assert "state of withings skipped: not a JSON object" in done.out


def test_import_from_the_configured_path_renames_the_go_ledger(moving: CliRunner) -> None:
    done = moving("system", "import")
    assert done.code == 0, done.err
    assert "imported 1 state, 2 facts, the history of 3 schedules and 1 queued job" in done.out
    assert "state of broken skipped: not a JSON object" in done.out
    seen = moving("plugin", "run", "withings", "--json").json["result"]["result"]
    assert seen["state"]["cursor"] == 41
    (kept,) = moving.state.glob("state.db.replaced-*")
    with closing(apsw.Connection(str(kept), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        assert db.execute("SELECT count(*) FROM plugin_state").fetchall() == [(3,)]
    facts = moving("system", "plugin-facts", "withings", "--json").json["facts"]
    assert [(f["seq"], f["fact_json"]["cursor"], f["created_at"]) for f in facts] == [
        (2, 41, "2026-02-08T06:00:02.000000Z"),
        (1, 40, "2026-02-08T05:00:02.000000Z"),
    ]
    assert moving("system", "verify").code == 0
    assert not list(moving.state.glob(".import-*"))


def test_import_is_refused_while_another_process_has_the_ledger_open(moving: CliRunner) -> None:
    path = moving.state / "state.db"
    with closing(apsw.Connection(str(path))) as reader:
        reader.execute("SELECT count(*) FROM plugin_state").fetchall()
        done = moving("system", "import")
        assert done.code == 1
        assert "Traceback" not in done.err
        assert f"another process has the ledger {path} open" in done.err
        assert not list(moving.state.glob(".import-*"))
    assert moving("system", "import").code == 0


def test_import_dry_run_changes_nothing(moving: CliRunner) -> None:
    before = sorted(path.name for path in moving.state.iterdir())
    done = moving("system", "import", "--dry-run", "--json")
    assert done.json["states"] == ["withings"]
    assert done.json["schedules"] == ["withings/default", "withings/held", "withings/once"]
    assert done.json["moved_to"] is None
    left = {path.name for path in moving.state.iterdir()} - {"state.db-wal", "state.db-shm"}
    assert left == set(before)
    assert moving("status").code == 1


def test_import_from_a_file_keeps_existing_state(cli: CliRunner) -> None:
    cli.plugin("withings", 'echo \'{"status":"ok","result":"x","state_updates":{"mine":1}}\'')
    cli("plugin", "run", "withings")
    source = other(cli.root / "old.db")
    done = cli("system", "import", str(source), "--json").json
    assert (done["states"], done["kept"], done["facts"]) == ([], ["withings"], 0)
    assert source.exists()
    page = cli("system", "plugin-facts", "withings", "--json").json
    assert (page["state"], page["facts"]) == ({"mine": 1}, [])


def test_a_second_import_changes_nothing(cli: CliRunner) -> None:
    source = other(cli.root / "old.db")
    first = cli("system", "import", str(source), "--json").json
    assert (first["facts"], len(first["schedules"]), first["known"]) == (2, 3, [])
    again = cli("system", "import", str(source), "--json").json
    assert (again["kept"], again["facts"]) == (["withings"], 0)
    assert (again["schedules"], again["known"]) == ([], first["schedules"])
    assert "withings/once already has a history here" in cli("system", "import", str(source)).out


def test_state_under_an_invalid_plugin_name_is_not_imported(cli: CliRunner) -> None:
    name = "n" * 256
    source = other(
        cli.root / "old.db",
        f"{SQL}; INSERT INTO plugin_state (plugin_name, state) VALUES ('{name}', '{{\"n\":1}}');"
        f" UPDATE plugin_facts SET plugin_name = '{name}'",
    )
    done = cli("system", "import", str(source), "--json").json
    assert (done["states"], done["facts"]) == (["withings"], 0)
    assert "state skipped: its plugin's name has 256 bytes" in done["notes"]
    assert any(note.startswith("2 facts skipped") for note in done["notes"])


def test_import_is_refused_while_a_gateway_is_running(cli: CliRunner) -> None:
    source = other(cli.root / "old.db")
    with cli.gateway():
        done = cli("system", "import", str(source))
        assert done.code == 1
        assert "stop it before importing" in done.err


@pytest.mark.parametrize(
    ("text", "word"),
    [(None, "there is no file"), (b"no database at all" * 99, "cannot be read as a ledger")],
)
def test_an_unreadable_source_is_reported(cli: CliRunner, text: bytes | None, word: str) -> None:
    path = cli.root / "old.db"
    if text is not None:
        path.write_bytes(text)
    done = cli("system", "import", str(path))
    assert done.code == 1
    assert word in done.err


def test_import_without_a_go_ledger_asks_for_a_path(cli: CliRunner) -> None:
    assert "name its file" in cli("system", "import").err


def test_an_imported_schedule_does_not_fire_again_at_start(moving: CliRunner) -> None:
    now = datetime.now(UTC)
    with closing(apsw.Connection(str(moving.state / "state.db"))) as db:
        db.execute(
            "UPDATE schedule_entries SET last_fired_at = ? WHERE schedule_id = 'default'",
            (now.isoformat(),),
        )
    moving.write("config.yaml", SCHEDULED)
    assert moving("system", "import").code == 0
    with moving.gateway():
        # The schedule without history fires at once, so the scheduler has run.
        until(lambda: len(moving("job", "list", "--json").json["jobs"]) > 1)
        rows = moving("schedule", "list", "--json").json["schedules"]
        jobs = moving("job", "list", "--json").json["jobs"]
    states = {row["schedule"]: row["state"] for row in rows}
    assert states == {"default": "active", "once": "exhausted", "held": "paused", "new": "active"}
    assert {job["command"] for job in jobs if job["job_id"] != "b"} == {"sync"}


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE schedule_entries",
        "DELETE FROM schedule_entries",
        "DROP TABLE schedule_entries; CREATE VIEW schedule_entries AS SELECT 1 AS plugin",
        "ALTER TABLE schedule_entries RENAME COLUMN last_fired_at TO fired",
        "ALTER TABLE schedule_entries DROP COLUMN status",
    ],
)
def test_unreadable_schedules_do_not_prevent_an_import(cli: CliRunner, sql: str) -> None:
    source = other(cli.root / "old.db", f"{SQL}; {sql}")
    done = cli("system", "import", str(source), "--json")
    assert done.code == 0, done.err
    assert (done.json["states"], done.json["facts"]) == (["withings"], 2)
    assert done.json["schedules"] == []


def test_skipped_schedules_are_reported_with_the_reason(cli: CliRunner) -> None:
    sql = "ALTER TABLE schedule_entries RENAME COLUMN last_fired_at TO fired"
    source = other(cli.root / "old.db", f"{SQL}; {sql}")
    result = cli("system", "import", str(source)).out
    assert "schedules skipped: their table has no column last_fired_at" in result


def test_schedules_under_invalid_names_are_not_imported(cli: CliRunner) -> None:
    odd = ("'n' || char(0)", "NULL", "''", f"'{'n' * 256}'", "x'00ff'", "7.5")
    values = ", ".join(f"({name}, 'x', 'poll', 'exhausted', 'now')" for name in odd)
    sql = SQL.replace("plugin TEXT NOT NULL, schedule_id", "plugin, schedule_id").replace(
        "\n  PRIMARY KEY (plugin, schedule_id)\n", "\n  UNIQUE (plugin, schedule_id)\n"
    )
    insert = "INSERT INTO schedule_entries (plugin, schedule_id, command, status, updated_at)"
    source = other(cli.root / "old.db", f"{sql}; {insert} VALUES {values}")
    done = cli("system", "import", str(source), "--json").json
    assert len(done["schedules"]) == 3
    assert any(note.startswith("6 schedules skipped") for note in done["notes"])


def test_facts_without_sequence_numbers_are_imported_in_order(cli: CliRunner) -> None:
    sql = SQL.replace("seq INTEGER, ", "").replace("'f2', 2,", "'f2',").replace("'f1', 1,", "'f1',")
    source = other(cli.root / "old.db", sql)
    cli("system", "import", str(source))
    facts = cli("system", "plugin-facts", "withings", "--json").json["facts"]
    assert [fact["fact_json"]["cursor"] for fact in facts] == [41, 40]


QUEUED = """
INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, dedupe_key, created_at,
                       parent_job_id) VALUES
  ('c', 'withings', 'sync', '{"n": 1}', 'queued', 'cli', NULL, '2026-02-08T07:00:01Z', NULL),
  ('d', 'withings', 'sync', '{"n": 2}', 'running', 'mars', 'k', '2026-02-08T07:00:02Z', NULL),
  ('e', 'withings', 'sync', '{}', 'queued', 'route', NULL, '2026-02-08T07:00:03Z', 'a'),
  ('f', 'withings', 'sync', 'not json', 'queued', 'cli', NULL, '2026-02-08T07:00:04Z', NULL);
"""


def test_queued_jobs_run_after_the_import(cli: CliRunner) -> None:
    cli.plugin("withings", ANSWER, commands="poll, sync")
    source = other(cli.root / "old.db", SQL + QUEUED)
    dry = cli("system", "import", str(source), "--dry-run")
    assert "3 queued jobs" in dry.out
    assert "not imported: 2 unfinished jobs of routes or pipelines" in dry.out
    assert "start the Go program without schedules" in dry.out
    done = cli("system", "import", str(source), "--json").json
    assert (done["jobs"], done["unfinished"]) == (3, 2)
    waiting = {row["job_id"]: row for row in cli("queue", "--json").json["jobs"]}
    assert set(waiting) == {"b", "c", "d"}
    assert waiting["d"]["last_error"] == "it was running when the Go program stopped"
    assert waiting["d"]["submitted_by"] == "cli"
    with cli.gateway():
        for id in ("b", "c", "d"):
            until(lambda id=id: cli("job", "inspect", id, "--json").json["status"] == "succeeded")
    [attempt] = cli("job", "inspect", "c", "--json").json["attempts"]
    assert attempt["result"]["result"]["payload"] == {"n": 1}
