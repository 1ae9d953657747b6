"""Counts of finished attempts by hour, from a part of the log; on both engines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ductile.clock import to_text
from ductile.operations.reports.analytics import HourlyOutcomes
from ductile.store import outcomes
from ductile.store.engines.api import Ledger, Tx
from tests.store.conftest import execute
from tests.store.jobs.test_attempts import logged

NOON = datetime(2026, 2, 8, 12, tzinfo=UTC)


def log_at(ledger: Ledger, *moments: datetime, status: str = "succeeded") -> None:
    logged(
        ledger,
        *(
            {"id": f"{to_text(moment)}{status}-1", "completed_at": to_text(moment)}
            | {"status": status}
            for moment in moments
        ),
    )


def find_first(ledger: Ledger, since: datetime) -> int:
    return ledger.read(lambda tx: outcomes.find_first_since(tx, since))


def counts(found: dict[str, object]) -> dict[str, dict[str, dict[str, int]]]:
    """Return the hours with attempts."""
    hours = found["hours"]
    assert isinstance(hours, list)
    return {hour["start"][11:13]: hour["plugins"] for hour in hours if hour["plugins"]}


@pytest.mark.parametrize("deleted", ["seq < 20", "seq % 7 <> 0", "seq BETWEEN 30 AND 60", "1 = 2"])
def test_search_finds_the_first_attempt_of_a_window(ledger: Ledger, deleted: str) -> None:
    log_at(ledger, *(NOON + timedelta(hours=n) for n in range(100)))
    execute(ledger, f"DELETE FROM job_log WHERE {deleted}")
    for hour in (-9, 0, 1, 25, 45, 77, 99):
        since = NOON + timedelta(hours=hour)
        found = ledger.read(
            lambda tx, since=since: next_of(tx, outcomes.find_first_since(tx, since))
        )
        assert found == ledger.read(lambda tx, hour=hour: next_of(tx, hour + 1))


def next_of(tx: Tx, seq: int) -> int | None:
    """Return the first row that is left; row N + 1 ended N hours after noon."""
    return next((row[0] for row in tx.all("log_row_from", seq=seq)), None)


def test_search_in_an_empty_log(ledger: Ledger) -> None:
    assert find_first(ledger, NOON) == 0
    assert HourlyOutcomes(ledger).summarize(NOON)["hours"][-1]["plugins"] == {}


def test_search_allows_for_attempts_that_were_committed_late(ledger: Ledger) -> None:
    log_at(ledger, NOON - timedelta(hours=1), NOON, NOON - timedelta(minutes=1))
    log_at(ledger, NOON + timedelta(minutes=1), NOON + timedelta(minutes=2))
    assert find_first(ledger, NOON) <= 2


def test_attempts_of_the_last_24_hours(ledger: Ledger) -> None:
    now = NOON + timedelta(minutes=30)
    log_at(ledger, NOON - timedelta(hours=23, seconds=1))
    log_at(ledger, NOON - timedelta(hours=23), NOON - timedelta(minutes=5), NOON)
    log_at(ledger, NOON - timedelta(minutes=5), now, status="failed")
    found = HourlyOutcomes(ledger).summarize(now)
    assert len(found["hours"]) == 24
    assert found["since"] == found["hours"][0]["start"] == "2026-02-07T13:00:00.000000Z"
    assert counts(found) == {
        "13": {"echo": {"succeeded": 1}},
        "11": {"echo": {"failed": 1, "succeeded": 1}},
        "12": {"echo": {"failed": 1, "succeeded": 1}},
    }


def test_later_summary_adds_new_attempts_and_forgets_old_hours(ledger: Ledger) -> None:
    hourly, later = HourlyOutcomes(ledger), NOON + timedelta(hours=2, minutes=30)
    log_at(ledger, NOON - timedelta(hours=23), NOON - timedelta(seconds=30))
    assert sorted(counts(hourly.summarize(NOON))) == ["11", "13"]
    # Committed nine minutes after its end.
    log_at(ledger, NOON - timedelta(minutes=9), later)
    expected = {"11": {"echo": {"succeeded": 2}}, "14": {"echo": {"succeeded": 1}}}
    assert counts(hourly.summarize(later)) == expected
    assert counts(hourly.summarize(later)) == expected
    assert counts(hourly.summarize(later + timedelta(days=2))) == {}


def test_kept_attempts_are_not_read_again(ledger: Ledger) -> None:
    hourly, later = HourlyOutcomes(ledger), NOON + timedelta(minutes=30)
    log_at(ledger, NOON)
    assert counts(hourly.summarize(later)) == {"12": {"echo": {"succeeded": 1}}}
    execute(ledger, "DELETE FROM job_log")
    assert counts(hourly.summarize(later)) == {"12": {"echo": {"succeeded": 1}}}
