"""Output that is omitted for its size is announced, with the command that shows it."""

from __future__ import annotations

import apsw

from ductile.clock import SystemClock, to_text
from tests.cli.runner import CliRunner

WHEN = to_text(SystemClock().now())
LOG = (
    "INSERT INTO job_log (id, plugin, command, status, attempt, submitted_by, created_at,"
    " completed_at, last_error, result) VALUES (?, 'bad', 'poll', 'failed', ?, 'cli', ?, ?, ?, ?)"
)
JOB = (
    "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at, parent_job_id)"
    " VALUES (?, 'bad', 'poll', 'failed', 'cli', ?, ?)"
)
FACT = (
    "INSERT INTO plugin_facts (seq, plugin_name, fact_type, fact_json, created_at)"
    " VALUES (?, 'hello', 't', '{}', ?)"
)


def insert(cli: CliRunner, *rows: tuple[str, tuple[object, ...]]) -> None:
    """Insert rows into the ledger."""
    cli("run", "hello")
    connection = apsw.Connection(str(cli.state / "state.db"))
    connection.set_busy_timeout(5000)
    for sql, values in rows:
        connection.execute(sql, values)
    connection.close()


def test_omitted_attempts_are_counted(cli: CliRunner) -> None:
    large = f'"{"x" * 3_000_000}"'
    logs = [(LOG, (f"j-{n}", n, WHEN, WHEN, f"try {n}", large)) for n in (1, 2, 3)]
    insert(cli, (JOB, ("j", WHEN, None)), *logs)
    shown = cli("job", "inspect", "j")
    assert "earlier attempts not shown: 2; run: ductile job logs j\n" in shown.err
    assert "attempt 3" in shown.out
    assert "attempt 2" not in shown.out
    assert "try 2" in cli("job", "logs", "j").out


def test_omitted_parts_of_a_graph_are_named(cli: CliRunner) -> None:
    logs = [(LOG, (f"c-{n}", n, WHEN, WHEN, "x" * 500_000, None)) for n in range(1, 10)]
    insert(cli, (JOB, ("j", WHEN, None)), (JOB, ("c", WHEN, "j")), *logs)
    assert "not shown: attempts; run: ductile job inspect c\n" in cli("job", "inspect", "j").out
    assert "not shown" not in cli("job", "inspect", "c").out


def test_facts_are_paged(cli: CliRunner) -> None:
    insert(cli, *((FACT, (seq, WHEN)) for seq in (1, 2, 3)))
    first = cli("system", "plugin-facts", "hello", "--limit", "2")
    assert first.err == "more rows: --before 2\n"
    page = cli("system", "plugin-facts", "hello", "--before", "2", "--json").json
    assert ([fact["seq"] for fact in page["facts"]], page["cursor"]) == ([1], None)
