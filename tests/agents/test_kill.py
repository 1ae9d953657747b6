"""kill -9 while a reminder fires: it fires once."""

from __future__ import annotations

from typing import Any

import apsw
import pytest

from tests.crash.conftest import site, start_gateway  # noqa: F401 - fixtures
from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import Site
from tests.waiting import until

MOST_COMMITS = 40
"""A start has fewer commits before it fires due reminders."""


def execute(setup: Site, sql: str) -> list[tuple[Any, ...]]:
    connection = apsw.Connection(str(setup.state / "state.db"), flags=apsw.SQLITE_OPEN_READWRITE)
    connection.set_busy_timeout(5000)
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


def insert_reminder(setup: Site) -> None:
    """Insert a due reminder while no gateway runs."""
    execute(
        setup,
        "INSERT INTO cron_jobs (agent_id, next_fire_at, payload, is_one_time)"
        " VALUES ('agent-7', '2026-02-08T10:00:00.000000Z', '{}', TRUE)",
    )


def count_stored(setup: Site) -> int:
    return int(execute(setup, "SELECT count(*) FROM cron_jobs")[0][0])


def count_fired(setup: Site) -> int:
    topic = "agent:agent-7:scheduled"
    return int(execute(setup, f"SELECT count(*) FROM notices WHERE topic = '{topic}'")[0][0])


def forget_fired(setup: Site) -> None:
    execute(setup, "DELETE FROM notices WHERE topic = 'agent:agent-7:scheduled'")


def dies_before_firing(life: GatewayProcess, setup: Site) -> bool:
    """Whether the failpoint killed the gateway before anything fired."""
    until(lambda: life.process.poll() is not None or count_fired(setup) > 0)
    life.end()
    return count_fired(setup) == 0


@pytest.mark.parametrize("place", ["commit.before", "commit.after"])
def test_reminder_is_published_and_deleted_or_neither(
    site: Site,  # noqa: F811
    start_gateway: Any,  # noqa: F811
    place: str,
) -> None:
    """The gateway dies at commits of its start, ever nearer to the one that fires."""
    start_gateway().ready().kill()
    insert_reminder(site)
    before, after = 0, MOST_COMMITS
    while after - before > 1:
        number = (before + after) // 2
        if dies_before_firing(start_gateway(f"{place}:{number}"), site):
            assert count_stored(site) == 1
            before = number
        else:
            assert (count_fired(site), count_stored(site)) == (1, 0)
            forget_fired(site)
            insert_reminder(site)
            after = number
    assert before > 0, "no commit came before the one that fires"
    assert not dies_before_firing(start_gateway(), site)
    assert (count_fired(site), count_stored(site)) == (1, 0)
    survivor = start_gateway().ready()
    survivor.client.post("/gateway/cron", {"agent_id": "agent-8", "delay_ms": 1})
    until(lambda: count_stored(site) == 0)
    assert count_fired(site) == 1
