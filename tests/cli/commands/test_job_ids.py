"""A job's id as people type it: whole, or as much of it as no other begins with."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import apsw
import pytest

from ductile.clock import SystemClock, to_text
from tests.cli.flows import furnish
from tests.cli.running import House

WHEN = to_text(SystemClock().now())
ALIKE = tuple(f"0fa1e070-fb4{n}-7000-8000-00000000000{n}" for n in range(7))
COMMANDS = ("inspect", "why", "logs", "retry", "cancel", "replay")


@pytest.fixture(params=["with a gateway", "without one"])
def place(request: pytest.FixtureRequest, house: House) -> AbstractContextManager[Any]:
    return house.gateway() if request.param == "with a gateway" else nullcontext()


def queue(house: House, *ids: str, status: str = "failed") -> None:
    """Jobs as a script would write them."""
    house("run", "hello")
    connection = apsw.Connection(str(house.state / "state.db"))
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


def test_a_unique_beginning_is_taken_for_the_job(
    house: House, place: AbstractContextManager[Any]
) -> None:
    queue(house, *ALIKE)
    whole = ALIKE[3]
    short = whole[:13]
    with place:
        found = house("job", "inspect", short, "--json").json
        assert (found["job_id"], len(found["attempts"])) == (whole, 1)
        assert house("job", "why", short).out.startswith(f"job {whole} is failed\n")
        assert house("job", "logs", short, "--json").json["logs"][0]["id"] == f"{whole}-1"
        dry = house("job", "retry", short, "--dry-run", "--json")
        assert dry.json["job_id"] == whole
        assert house("job", "retry", short, "--json").json["job_id"] == whole


def test_what_only_the_log_has_is_found_by_its_beginning_too(house: House) -> None:
    queue(house, ALIKE[0])
    connection = apsw.Connection(str(house.state / "state.db"))
    connection.execute("DELETE FROM job_queue WHERE id = ?", (ALIKE[0],))
    connection.close()
    assert house("job", "inspect", "0fa1e070", "--json").json["job_id"] == ALIKE[0]
    gone = house("job", "retry", "0fa1e070")
    assert f"there is no job {ALIKE[0]} in the queue" in gone.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_beginning_of_several_is_refused_with_the_first_of_them(
    house: House, command: str
) -> None:
    queue(house, *ALIKE)
    refused = house("job", command, "0fa1e070")
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == (
        f"error: the id 0fa1e070 matches several jobs: {', '.join(ALIKE[:5])}, ...\n"
    )
    assert house("job", command, "0fa1e070", "--json").json["jobs"] == list(ALIKE[:5])


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("typed", ["0fa1e070", "0fa1", "123", ALIKE[0]])
def test_an_unknown_one_is_no_job(house: House, command: str, typed: str) -> None:
    queue(house, "0fa1e099-0000-7000-8000-000000000001")
    refused = house("job", command, typed)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"error: there is no job {typed}")
    assert "retention" not in refused.err


def test_whoever_names_a_plugin_for_an_id_is_told_how_to_ask_for_its_attempts(
    house: House, place: AbstractContextManager[Any]
) -> None:
    house("run", "hello")
    with place:
        refused = house("job", "logs", "hello")
        assert house("job", "logs", "--plugin", "hello").code == 0
        assert "--plugin" not in house("job", "logs", "nosuch").err
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "error: there is no job hello; "
        "for the attempts of a plugin, run: ductile job logs --plugin hello\n"
    )


def test_a_plugin_whose_name_begins_an_id_is_told_so_too(house: House) -> None:
    queue(house, "bad-1")
    assert house("job", "logs", "bad").err.endswith("ductile job logs --plugin bad\n")


def test_a_beginning_too_short_is_not_searched_for(house: House) -> None:
    queue(house, ALIKE[0])
    refused = house("job", "inspect", ALIKE[0][:5])
    assert refused.err == (
        "error: there is no job 0fa1e; a shortened id needs at least 6 characters\n"
    )
    assert house("job", "inspect", ALIKE[0][:6]).code == 0


def test_a_whole_id_is_that_job_though_another_begins_with_it(house: House) -> None:
    queue(house, "import", "import-2026")
    assert house("job", "inspect", "import", "--json").json["job_id"] == "import"


def test_a_short_id_of_a_script_is_found_whole(house: House) -> None:
    queue(house, "j1")
    assert house("job", "inspect", "j1", "--json").json["job_id"] == "j1"


def test_the_job_of_a_rehearsal_may_be_shortened_too(house: House) -> None:
    furnish(house)
    with house.gateway():
        root = house("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json["job_id"]
    line = ("pipeline", "dry-run", "first", "--job")
    assert house(*line, root[:30], "--json").json["status"] == "succeeded"
    assert "there is no job 0fa1e070" in house(*line, "0fa1e070").err
