"""Schedules that go on where the Go program left them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.engine.config.compiled import build
from ductile.operations import schedule_report
from ductile.operations.go_import import Imported, import_memory
from tests.conftest import FakeClock
from tests.engine.scheduling.harness import DAY, HOUR, SchedulerHarness
from tests.engine.site import OK, Site
from tests.operations.ledger_copies import open_read_only

SQL = (Path(__file__).parents[1] / "compat/ledger.sql").read_text()
NOW = FakeClock().now()
"""2026-02-08, at ten."""

Row = tuple[str, str, str | None, str | None]
Move = Callable[..., SchedulerHarness]


def another(path: Path, *rows: Row) -> Path:
    """A ledger of the Go program whose schedules of `echo` are these: id, status, last fire and
    last success.
    """
    with closing(apsw.Connection(str(path))) as db:
        db.execute(SQL)
        db.execute("DELETE FROM schedule_entries")
        for id, status, fired, success in rows:
            db.execute(
                "INSERT INTO schedule_entries (plugin, schedule_id, command, status,"
                " last_fired_at, last_success_at, updated_at)"
                " VALUES ('echo', ?, 'poll', ?, ?, ?, '2026-02-08T06:00:00Z')",
                (id, status, fired, success),
            )
    return path


def imported(site: Site, source: Path, now: datetime = NOW) -> Imported:
    return import_memory(site.load().settings, source, now=now)


@pytest.fixture
def move(site: Site) -> Iterator[Move]:
    """Import these rows, then start with these schedules."""
    made: list[SchedulerHarness] = []

    def move(*entries: dict[str, Any], rows: tuple[Row, ...]) -> SchedulerHarness:
        site.plugin("echo", OK, schedules=list(entries))
        imported(site, another(site.folder / "old.db", *rows))
        made.append(SchedulerHarness(site))
        return made[-1]

    yield move
    for work in made:
        work.ledger.close()


def test_an_at_that_has_fired_there_does_not_fire_here(move: Move) -> None:
    work = move(
        {"at": "2026-01-01T00:00:00Z"},
        rows=(("default", "exhausted", "2026-01-01T00:00:31.5Z", None),),
    )
    work.run(DAY)
    assert work.slots() == []


def test_at_of_which_only_its_end_is_known_does_not_fire_either(move: Move) -> None:
    work = move({"at": "2026-01-01T00:00:00Z"}, rows=(("default", "exhausted", None, None),))
    work.run(DAY)
    assert work.slots() == []


def test_an_at_that_was_put_off_since_fires_then(move: Move) -> None:
    work = move(
        {"at": "2026-02-08T12:00:00Z"},
        rows=(("default", "exhausted", "2026-01-01T00:00:31Z", None),),
    )
    work.run(DAY)
    assert work.fires() == ["2026-02-08T12:00:00.000000Z"]


def test_an_at_that_has_not_fired_there_fires_here(move: Move) -> None:
    work = move({"at": "2026-01-01T00:00:00Z"}, rows=(("default", "active", None, None),))
    work.run(DAY)
    assert len(work.fires()) == 1


def test_every_continues_from_its_last_fire(move: Move) -> None:
    work = move({"every": "6h"}, rows=(("default", "active", "2026-02-08T06:00:00Z", None),))
    work.run(HOUR)
    assert work.fires() == []
    work.run(3 * HOUR)
    assert work.fires() == ["2026-02-08T12:00:00.000000Z"]


def test_every_continues_from_a_later_success(move: Move) -> None:
    rows = (("default", "active", "2026-02-08T06:00:00Z", "2026-02-08 07:30:00"),)
    work = move({"every": "6h"}, rows=rows)
    work.run(5 * HOUR)
    assert work.fires() == ["2026-02-08T13:30:00.000000Z"]


def test_a_monthly_one_waits_for_its_month(move: Move) -> None:
    rows = (("default", "active", "2026-01-31T09:00:00Z", None),)
    work = move({"every": "monthly"}, rows=rows)
    work.run(60 * DAY)
    assert work.fires() == ["2026-02-28T09:00:00.000000Z", "2026-03-31T09:00:00.000000Z"]


def test_a_cron_slot_that_has_fired_there_does_not_fire_here(move: Move) -> None:
    rows = (("default", "active", "2026-02-08T09:00:12Z", None),)
    work = move({"cron": "0 9 * * *"}, rows=rows)
    work.run(DAY)
    assert work.fires() == ["2026-02-09T09:00:00.000000Z"]


def test_an_after_is_for_every_start(move: Move) -> None:
    rows = (("default", "exhausted", "2026-02-08T09:00:00Z", None),)
    work = move({"after": "30s"}, rows=rows)
    work.run(HOUR)
    assert len(work.fires()) == 1


def test_paused_schedule_stays_paused_after_the_import(move: Move) -> None:
    work = move({"every": "1h"}, rows=(("default", "paused_manual", None, None),))
    work.run(DAY)
    assert work.fires() == []
    assert set(work.reasons()) == {"paused"}


def test_moment_that_cannot_be_read_or_is_to_come_holds_nothing_up(move: Move) -> None:
    rows = (("a", "active", "yesterday", None), ("b", "active", "9999-12-31T23:59:59Z", None))
    work = move({"id": "a", "every": "1h"}, {"id": "b", "every": "1h"}, rows=rows)
    # Their polls are due at the same time and run one after another.
    work.run(2 * HOUR + 60)
    assert len(work.fires(id="a")) == 3
    assert len(work.fires(id="b")) == 2


def test_the_past_is_that_of_the_rule_that_is_met_first(move: Move) -> None:
    """From then on it is an entry like others, and what a rewritten rule means for those it
    means for this one.
    """
    rows = (("default", "active", "2026-02-08T06:00:00Z", None),)
    work = move({"every": "6h"}, rows=rows)
    [row] = work.ledger.read(lambda tx: tx.dicts("entries"))
    assert row["rule"]
    assert row["last_fired_at"] == "2026-02-08T06:00:00.000000Z"


def test_plugin_that_is_enabled_later_continues_as_well(move: Move, site: Site) -> None:
    site.plugin("echo", OK, enabled=False)
    work = move(
        {"id": "once", "at": "2026-01-01T00:00:00Z"},
        {"id": "daily", "every": "24h", "catch_up": "run_all"},
        rows=(
            ("once", "exhausted", "2026-01-01T00:00:31Z", None),
            ("daily", "active", "2026-02-08T09:00:00Z", None),
        ),
    )
    work.run(HOUR)
    site.plugin("echo", OK, enabled=True)
    work.reload()
    work.run(DAY - 3 * HOUR)
    assert (work.fires(id="once"), work.fires(id="daily")) == ([], [])
    work.run(2 * HOUR)
    assert (work.fires(id="once"), len(work.fires(id="daily"))) == ([], 1)


def test_before_the_first_start_the_list_shows_what_was_taken_over(site: Site) -> None:
    site.plugin(
        "echo", OK, schedules=[{"every": "6h"}, {"id": "once", "at": "2026-01-01T00:00:00Z"}]
    )
    imported(
        site,
        another(
            site.folder / "old.db",
            ("default", "active", "2026-02-08T06:00:00Z", None),
            ("once", "exhausted", "2026-01-01T00:00:31Z", None),
        ),
    )
    compiled = build(site.load(), boot_marker="m:b", environ=site.environ)
    ledger = open_read_only(site)
    often, once = schedule_report.listing(compiled, {}, ledger, NOW)
    ledger.close()
    assert often["next_run"] == "2026-02-08T12:00:00.000000Z"
    assert (once["state"], once["next_run"]) == ("exhausted", None)


def test_entry_that_this_gateway_knows_is_not_changed(site: Site) -> None:
    site.plugin("echo", OK, schedules=[{"every": "6h"}])
    work = SchedulerHarness(site)
    work.run(0)
    work.ledger.close()
    source = another(
        site.folder / "old.db",
        ("default", "exhausted", "2026-02-08T06:00:00Z", None),
        ("other", "exhausted", None, None),
    )
    done = imported(site, source)
    assert (done.schedules, done.known) == (["echo/other"], ["echo/default"])
    again = SchedulerHarness(site)
    again.entropy.count = 1000
    again.run(7 * HOUR)
    assert again.fires() == ["2026-02-08T10:00:00.000000Z", "2026-02-08T16:00:00.000000Z"]
    again.ledger.close()
