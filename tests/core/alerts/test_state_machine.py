"""The state machine of an alert."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.alerts.state_machine import (
    FLAP_WINDOW,
    MAX_FLIPS,
    TRANSITIONS,
    Alert,
    AlertPolicy,
    AlertState,
    News,
    Observed,
    Signal,
    next_look,
    step,
)

T0 = datetime(2026, 3, 1, tzinfo=UTC)
OK = Observed()


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def failing(since: float = 0, count: int = 1) -> Observed:
    return Observed(at(since), count)


def run(
    policy: AlertPolicy, *observations: tuple[float, Observed], silenced: bool = False
) -> tuple[Alert, list[News]]:
    alert, news = Alert(), []
    for moment, seen in observations:
        done = step(alert, seen, policy, at(moment), silenced=silenced)
        alert = done.alert
        if done.news is not None:
            news.append(done.news)
    return alert, news


def test_table_contains_every_allowed_transition() -> None:
    assert set(TRANSITIONS) == {
        (AlertState.OK, Signal.FAILING),
        (AlertState.PENDING, Signal.RECOVERED),
        (AlertState.PENDING, Signal.DUE),
        (AlertState.FIRING, Signal.RECOVERED),
    }


def test_failure_fires_at_once_and_recovery_is_reported_once() -> None:
    alert, news = run(AlertPolicy(), (0, failing()), (5, failing()), (9, OK), (10, OK))
    assert news == [News.FIRING, News.RESOLVED]
    assert (alert.state, alert.since, alert.number) == (AlertState.OK, T0, 2)


def test_after_counts_failures_in_a_row() -> None:
    policy = AlertPolicy(after=3)
    _, news = run(policy, (0, failing(count=1)), (1, failing(count=2)), (2, OK), (3, failing(3)))
    assert news == []
    _, news = run(policy, (0, failing(count=2)), (1, failing(count=3)))
    assert news == [News.FIRING]


def test_after_does_not_apply_to_a_lasting_condition() -> None:
    _, news = run(AlertPolicy(after=3), (0, Observed(T0, 1, is_counted=False)))
    assert news == [News.FIRING]


def test_for_ignores_a_problem_that_ends_earlier() -> None:
    policy = AlertPolicy(lasts=60)
    assert run(policy, (0, failing()), (59, failing()), (59.5, OK))[1] == []
    assert run(policy, (0, failing()), (59, failing()), (60, failing()))[1] == [News.FIRING]


def test_wait_collects_and_reports_even_what_has_ended_meanwhile() -> None:
    policy = AlertPolicy(wait=30)
    first, news = run(policy, (0, failing()), (29, failing(count=500)))
    assert (first.state, news) == (AlertState.PENDING, [])
    assert next_look(first, failing(count=500), policy, at(29)) == at(30)
    assert run(policy, (0, failing()), (5, OK), (30, OK), (31, OK))[1] == [
        News.FIRING,
        News.RESOLVED,
    ]


def test_reminders_follow_the_last_message() -> None:
    policy = AlertPolicy(repeat=100)
    looks = [(moment, failing()) for moment in (0, 99, 100, 150, 201, 301)]
    assert run(policy, *looks)[1] == [News.FIRING, *[News.REMINDER] * 3]


def test_flapping_is_one_message_and_its_end_is_reported_after_a_calm_hour() -> None:
    flips = [(float(i * 60), failing(i * 60) if i % 2 == 0 else OK) for i in range(12)]
    alert, news = run(AlertPolicy(), *flips)
    assert news == [News.FIRING, News.RESOLVED, News.FIRING, News.RESOLVED, News.FLAPPING]
    calm = 11 * 60 + FLAP_WINDOW.total_seconds()
    assert next_look(alert, OK, AlertPolicy(), at(11 * 60)) == at(calm)
    early = step(alert, OK, AlertPolicy(), at(calm - 1))
    assert early.news is None
    assert step(early.alert, OK, AlertPolicy(), at(calm)).news is News.RESOLVED


def test_silence_hides_messages_and_reports_what_still_fires_afterwards() -> None:
    alert, news = run(AlertPolicy(), (0, failing()), (10, failing()), silenced=True)
    assert (alert.state, news) == (AlertState.FIRING, [])
    assert step(alert, failing(), AlertPolicy(), at(20)).news is News.FIRING
    assert step(alert, OK, AlertPolicy(), at(20)).news is None


def test_clock_that_was_set_back_does_not_delay_an_alert() -> None:
    policy = AlertPolicy(wait=30)
    alert = step(Alert(), failing(1000), policy, at(1000)).alert
    alert = step(alert, failing(), policy, at(0)).alert
    assert step(alert, failing(), policy, at(30)).news is News.FIRING


durations = st.sampled_from([0.0, 1.0, 30.0, 300.0])
policies = st.builds(
    AlertPolicy,
    after=st.integers(1, 4),
    lasts=durations,
    wait=durations,
    repeat=st.sampled_from([0.0, 60.0, 3600.0]),
)
histories = st.lists(
    st.tuples(st.floats(0.1, 900), st.integers(0, 4), st.booleans()), min_size=1, max_size=80
)


@given(policies, histories)
@settings(max_examples=200, deadline=None)
def test_any_history_has_ordered_messages_with_unique_numbers(
    policy: AlertPolicy, history: list[tuple[float, int, bool]]
) -> None:
    """Every message has its own number; `resolved` only follows a report of a failure; nothing
    fires before `for` and `wait`; reminders keep their distance; an hour has few messages."""
    alert, moment, numbers = Alert(), 0.0, [0]
    sent: list[tuple[float, News]] = []
    since: float | None = None
    for gap, count, silenced in history:
        moment += gap
        since = None if not count else moment if since is None else since
        seen = OK if since is None else failing(since, count)
        done = step(alert, seen, policy, at(moment), silenced=silenced)
        assert done.alert.state is not AlertState.FIRING or done.alert.armed_at is not None
        if done.news is not None:
            assert not silenced
            assert done.alert.number == numbers[-1] + 1 or done.alert.number > numbers[-1]
            numbers.append(done.alert.number)
            sent.append((moment, done.news))
        if done.news is News.FIRING and done.alert.since is not None:
            begun = (done.alert.since - T0).total_seconds()
            assert moment - begun >= max(policy.lasts, policy.wait) - 1e-3
        alert = done.alert
    for (before, first), (after, second) in pairwise(sent):
        assert second is not News.RESOLVED or first is not News.RESOLVED
        assert second is not News.FIRING or first is News.RESOLVED
        if second is News.REMINDER:
            assert after - before >= policy.repeat - 1e-3
    changes = [moment for moment, news in sent if news is not News.REMINDER]
    for moment in changes:
        within = [one for one in changes if 0 <= one - moment < FLAP_WINDOW.total_seconds()]
        assert len(within) <= MAX_FLIPS + 2


@given(policies, histories)
@settings(max_examples=100, deadline=None)
def test_lasting_failure_is_reported_and_its_end_too(
    policy: AlertPolicy, history: list[tuple[float, int, bool]]
) -> None:
    """Whatever happened before: a failure that lasts is reported, and so is its end."""
    alert, moment = Alert(), 0.0
    for gap, count, silenced in history:
        moment += gap
        seen = failing(moment, count) if count else OK
        alert = step(alert, seen, policy, at(moment), silenced=silenced).alert
    begun = moment
    for _ in range(60):
        moment += 120
        alert = step(alert, failing(begun, 9), policy, at(moment)).alert
    assert alert.state is AlertState.FIRING
    assert alert.is_reported
    for _ in range(60):
        moment += 120
        alert = step(alert, OK, policy, at(moment)).alert
    assert alert.state is AlertState.OK
    assert not alert.is_reported


@pytest.mark.parametrize("state", list(AlertState))
def test_next_look_is_never_in_the_past_after_a_step(state: AlertState) -> None:
    policy = AlertPolicy(after=1, lasts=10, wait=20, repeat=30)
    alert = replace(Alert(), state=state, since=T0, armed_at=None, is_reported=True)
    for seen in (OK, failing()):
        for moment in range(0, 100, 7):
            after = step(alert, seen, policy, at(moment)).alert
            look = next_look(after, seen, policy, at(moment))
            assert look is None or look > at(moment)
