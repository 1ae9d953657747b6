"""The state of a plugin before an attempt, from the present one and the job log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ductile.core.values.redact import REDACTED
from ductile.operations.compare.recorded import StateBefore, StateHistory, StateUpdate

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


UPDATES = (StateUpdate(at(10), {"n": 1}), StateUpdate(at(20), {"n": 2, "token": REDACTED}))


def test_state_before_an_attempt_is_that_of_the_updates_before_it() -> None:
    history = StateHistory({"n": 2, "token": "t", "old": 0}, UPDATES, at(20))
    assert history.before(at(30)) == ({"n": 2, "token": "t", "old": 0}, ())
    # `token` is absent: whether it had a value before its first update is unknown.
    state, notes = history.before(at(15))
    assert state == {"n": 1, "old": 0}
    assert "no value of the state from before the attempt: token" in notes[0]


def test_plugin_without_state_had_none_before() -> None:
    assert StateHistory({}, (), None).before(None) == StateBefore({}, ())


def test_removed_secret_is_the_present_one() -> None:
    later = (*UPDATES, StateUpdate(at(40), {"token": REDACTED}))
    state, [note] = StateHistory({"n": 2, "token": "new"}, later, at(40)).before(at(30))
    assert state == {"n": 2, "token": "new"}
    assert "secret values of the state are not in the log: token" in note


def test_change_by_something_else_than_a_job_is_reported() -> None:
    history = StateHistory({"n": 7}, UPDATES[:1], at(50))
    assert history.before(at(60)) == ({"n": 7}, ())
    state, [note] = history.before(at(30))
    assert state == {"n": 1}
    assert "changed later by something else" in note


def test_mirrored_fact_is_the_whole_state_from_then_on() -> None:
    mirrored = (
        StateUpdate(at(10), {"a": 1}, replaces=True),
        StateUpdate(at(20), {"b": 2}, replaces=True),
    )
    history = StateHistory({"b": 2}, mirrored, at(20))
    assert history.before(at(15)) == ({"a": 1}, ())
    assert history.before(at(5))[1] != ()


def test_updates_that_were_not_read_are_reported() -> None:
    history = StateHistory({"n": 2}, UPDATES, at(20), known_since=at(8))
    assert history.before(at(15)).notes == StateHistory({"n": 2}, UPDATES, at(20)).before(at(15))[1]
    assert "only updates since" in history.before(at(5)).notes[-1]
