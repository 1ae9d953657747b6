"""Job ids on the command line: whole, or a unique prefix or suffix."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import apsw
import pytest

from ductile.clock import SystemClock, to_text
from tests.cli.pipelines import add_pipelines
from tests.cli.runner import CliRunner

WHEN = to_text(SystemClock().now())
ALIKE = tuple(f"0fa1e070-fb4{n}-7000-8000-00000000000{n}" for n in range(7))
COMMANDS = ("inspect", "why", "logs", "retry", "cancel", "replay")


@pytest.fixture(params=["with a gateway", "without one"])
def place(request: pytest.FixtureRequest, cli: CliRunner) -> AbstractContextManager[Any]:
    return cli.gateway() if request.param == "with a gateway" else nullcontext()


def insert_jobs(cli: CliRunner, *ids: str, status: str = "failed") -> None:
    """Insert jobs into the ledger."""
    cli("run", "hello")
    connection = apsw.Connection(str(cli.state / "state.db"))
    connection.set_busy_timeout(5000)
    for id in ids:
        connection.execute(
            "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at) "
            "VALUES (?, 'bad', 'poll', ?, 'cli', ?)",
            (id, status, WHEN),
        )
        connection.execute(
            "INSERT INTO job_log (id, plugin, command, status, attempt, submitted_by, created_at,"
            " completed_at) VALUES (? || '-1', 'bad', 'poll', ?, 1, 'cli', ?, ?)",
            (id, status, WHEN, WHEN),
        )
    connection.close()


def test_a_unique_prefix_identifies_the_job(
    cli: CliRunner, place: AbstractContextManager[Any]
) -> None:
    insert_jobs(cli, *ALIKE)
    whole = ALIKE[3]
    short = whole[:13]
    with place:
        found = cli("job", "inspect", short, "--json").json
        assert (found["job_id"], len(found["attempts"])) == (whole, 1)
        assert cli("job", "why", short).out.startswith(f"job {whole} is failed\n")
        assert cli("job", "logs", short, "--json").json["logs"][0]["id"] == f"{whole}-1"
        dry = cli("job", "retry", short, "--dry-run", "--json")
        assert dry.json["job_id"] == whole
        assert cli("job", "retry", short, "--json").json["job_id"] == whole


@pytest.mark.parametrize("typed", ["000000000003", "8000-000000000003", "…000000000003"])
def test_a_unique_suffix_identifies_the_job(
    cli: CliRunner, place: AbstractContextManager[Any], typed: str
) -> None:
    insert_jobs(cli, *ALIKE)
    with place:
        assert cli("job", "inspect", typed, "--json").json["job_id"] == ALIKE[3]
        assert cli("job", "retry", typed, "--json").json["job_id"] == ALIKE[3]


def test_a_suffix_may_be_ambiguous_or_too_short(cli: CliRunner) -> None:
    insert_jobs(cli, "0fa1e070-aaaa-7000-8000-000000000003", ALIKE[3])
    several = cli("job", "inspect", "000000000003")
    assert (several.code, "matches several jobs" in several.err) == (2, True)
    assert "at least 6 characters" in cli("job", "inspect", "00003").err


def test_job_that_is_only_in_the_log_is_found_by_its_start_and_end(cli: CliRunner) -> None:
    insert_jobs(cli, ALIKE[0])
    connection = apsw.Connection(str(cli.state / "state.db"))
    connection.execute("DELETE FROM job_queue WHERE id = ?", (ALIKE[0],))
    connection.close()
    assert cli("job", "inspect", "0fa1e070", "--json").json["job_id"] == ALIKE[0]
    assert cli("job", "inspect", ALIKE[0][-12:], "--json").json["job_id"] == ALIKE[0]
    missing = cli("job", "retry", "0fa1e070")
    assert f"there is no job {ALIKE[0]} in the queue" in missing.err


def test_an_ambiguous_prefix_lists_the_first_matches(cli: CliRunner) -> None:
    insert_jobs(cli, *ALIKE)
    for command in COMMANDS:
        refused = cli("job", command, "0fa1e070")
        assert (refused.code, refused.out) == (2, "")
        assert refused.err == (
            f"error: the id 0fa1e070 matches several jobs: {', '.join(ALIKE[:5])}, ...; "
            "type the end of the id\n"
        )
        assert cli("job", command, "0fa1e070", "--json").json["jobs"] == list(ALIKE[:5])


def test_an_unknown_id_is_not_found(cli: CliRunner) -> None:
    insert_jobs(cli, "0fa1e099-0000-7000-8000-000000000001")
    for command in COMMANDS:
        for typed in ("0fa1e070", "0fa1", "123", ALIKE[0]):
            refused = cli("job", command, typed)
            assert (refused.code, refused.out) == (1, ""), (command, typed)
            assert refused.err.startswith(f"error: there is no job {typed}")
            assert "retention" not in refused.err


def test_a_plugin_name_in_place_of_an_id_gives_a_hint(
    cli: CliRunner, place: AbstractContextManager[Any]
) -> None:
    cli("run", "hello")
    with place:
        refused = cli("job", "logs", "hello")
        assert cli("job", "logs", "--plugin", "hello").code == 0
        assert "--plugin" not in cli("job", "logs", "nosuch").err
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "error: there is no job hello; "
        "for the attempts of a plugin, run: ductile job logs --plugin hello\n"
    )


def test_a_plugin_name_that_is_a_short_prefix_gives_the_hint(cli: CliRunner) -> None:
    insert_jobs(cli, "bad-1")
    assert cli("job", "logs", "bad").err.endswith("ductile job logs --plugin bad\n")


def test_a_prefix_below_six_characters_is_refused(cli: CliRunner) -> None:
    insert_jobs(cli, ALIKE[0])
    refused = cli("job", "inspect", ALIKE[0][:5])
    assert refused.err.startswith(
        "error: there is no job 0fa1e; a shortened id needs at least 6 characters\n"
    )
    assert cli("job", "inspect", ALIKE[0][:6]).code == 0


def test_a_whole_id_wins_over_a_longer_match(cli: CliRunner) -> None:
    insert_jobs(cli, "import", "import-2026")
    assert cli("job", "inspect", "import", "--json").json["job_id"] == "import"


def test_a_short_whole_id_is_found(cli: CliRunner) -> None:
    insert_jobs(cli, "j1")
    assert cli("job", "inspect", "j1", "--json").json["job_id"] == "j1"


def test_the_list_begins_at_a_time(cli: CliRunner, place: AbstractContextManager[Any]) -> None:
    insert_jobs(cli, *ALIKE[:2])
    connection = apsw.Connection(str(cli.state / "state.db"))
    old = "2020-01-01T00:00:00.000000Z"
    connection.execute("UPDATE job_queue SET created_at = ? WHERE id = ?", (old, ALIKE[0]))
    connection.close()
    with place:
        for since, ids in (("1h", [ALIKE[1]]), ("2020-01-01T00:00:00Z", list(reversed(ALIKE[:2])))):
            rows = cli("job", "list", "--plugin", "bad", "--since", since, "--json").json["jobs"]
            assert [row["job_id"] for row in rows] == ids
        assert cli("job", "list", "--since", "soon").code == 2


def test_dry_run_accepts_a_shortened_job_id(cli: CliRunner) -> None:
    add_pipelines(cli)
    with cli.gateway():
        root = cli("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json["job_id"]
    line = ("pipeline", "dry-run", "first", "--job")
    assert cli(*line, root[:30], "--json").json["status"] == "succeeded"
    assert "there is no job 0fa1e070" in cli(*line, "0fa1e070").err


@pytest.mark.parametrize("command", COMMANDS)
def test_empty_id_is_refused_with_the_command_that_lists_jobs(cli: CliRunner, command: str) -> None:
    refused = cli("job", command, "")
    assert refused.code == 2
    assert "ductile job list" in refused.err
