"""What the times of an entry are worth under another rule, or after an absence."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import permutations

import pytest

from ductile.core.schedules.decide import (
    After,
    Anchors,
    At,
    CatchUp,
    Cron,
    Every,
    Monthly,
    due,
    next_due,
)
from ductile.core.schedules.history import rule_text, seen, withdrawn
from tests.core.schedules.test_decide import BERLIN, HOUR, NOON, SEEN, entry

WEEK = timedelta(days=7)
RULES = [Every(3600), Monthly(), Cron("0 3 * * *"), At(NOON), After(30)]
LATER = NOON + 10 * HOUR


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_under_the_same_rule_nothing_changes(rule: Every | Monthly | Cron | At | After) -> None:
    schedule = entry(rule)
    assert seen(schedule, SEEN, rule_text(schedule), NOON, LATER) == replace(
        SEEN, exhausted=rule == After(30)
    )


@pytest.mark.parametrize(
    ("before", "rule"),
    [pair for pair in permutations(RULES, 2) if set(pair) != {Every(3600), Monthly()}],
    ids=str,
)
def test_schedule_of_another_kind_restarts_and_stays_paused(
    before: Every | Monthly | Cron | At | After, rule: Every | Monthly | Cron | At | After
) -> None:
    found = seen(entry(rule), replace(SEEN, paused=True), rule_text(entry(before)), NOON, LATER)
    assert found == Anchors(first_seen=LATER, boot=NOON, paused=True)


@pytest.mark.parametrize("text", ["?", "{}", "[]", "null", '["Never()","UTC"]', '{"withdrawn":1}'])
def test_rule_with_an_unknown_text_is_a_different_rule(text: str) -> None:
    found = seen(entry(Every(60)), SEEN, text, NOON, LATER)
    assert found == Anchors(first_seen=LATER, boot=NOON)
    assert withdrawn(text) == text


def test_a_past_that_was_taken_over_belongs_to_whatever_rule() -> None:
    assert seen(entry(Every(3600)), SEEN, "", NOON, LATER) == SEEN
    assert withdrawn("") == ""


def test_withdrawing_a_rule_twice_changes_nothing() -> None:
    text = withdrawn(rule_text(entry(Cron("0 3 * * *"))))
    assert text == '{"withdrawn":["Cron(expr=\'0 3 * * *\')","UTC"]}'
    assert withdrawn(text) == text


class TestEvery:
    ALL = entry(Every(3600), catch_up=CatchUp.RUN_ALL)

    def test_its_zone_is_none_of_its_rule(self) -> None:
        elsewhere = rule_text(replace(self.ALL, zone=BERLIN))
        found = seen(self.ALL, SEEN, elsewhere, LATER, LATER)
        assert len(due(self.ALL, found, LATER).fires) == 10

    @pytest.mark.parametrize(
        "text",
        [rule_text(entry(Every(86_400))), withdrawn(rule_text(ALL)), rule_text(entry(Monthly()))],
    )
    def test_catch_up_covers_only_downtime(self, text: str) -> None:
        found = seen(self.ALL, SEEN, text, NOON, LATER)
        decision = due(self.ALL, found, LATER)
        assert [run.slot for run in decision.fires] == [LATER]
        assert decision.passed == ()

    def test_before_its_time_it_waits_for_it(self) -> None:
        text = rule_text(entry(Every(86_400)))
        found = seen(entry(Every(7 * 86_400)), SEEN, text, NOON, LATER)
        assert next_due(entry(Every(7 * 86_400)), found, LATER) == NOON + WEEK


class TestCron:
    NIGHTLY = entry(Cron("0 3 * * *"))

    @pytest.mark.parametrize(
        "text",
        [
            rule_text(entry(Cron("0 2 * * *"))),
            rule_text(replace(NIGHTLY, zone=BERLIN)),
            withdrawn(rule_text(NIGHTLY)),
        ],
    )
    def test_its_first_slot_is_the_first_from_now_on(self, text: str) -> None:
        now = NOON + 10 * 24 * HOUR
        found = seen(self.NIGHTLY, SEEN, text, NOON, now)
        assert due(self.NIGHTLY, found, now).passed == ()
        assert next_due(self.NIGHTLY, found, now) == now + 15 * HOUR
        assert found.last_fired_at == SEEN.last_fired_at


class TestOneShots:
    SPENT = replace(SEEN, exhausted=True)

    @pytest.mark.parametrize("moment", [NOON, NOON.astimezone(BERLIN), NOON - HOUR])
    def test_at_has_fired(self, moment: datetime) -> None:
        found = seen(entry(At(moment)), self.SPENT, rule_text(entry(At(NOON))), LATER, LATER)
        assert found.exhausted

    def test_at_that_was_moved_on_has_not(self) -> None:
        moved = entry(At(NOON + HOUR))
        found = seen(moved, self.SPENT, rule_text(entry(At(NOON))), LATER, LATER)
        assert not found.exhausted

    @pytest.mark.parametrize("text", [rule_text(entry(After(30))), rule_text(entry(After(60)))])
    def test_after_has_fired_in_this_start_or_has_not(self, text: str) -> None:
        after = entry(After(30))
        for rule in (text, withdrawn(text)):
            assert seen(after, self.SPENT, rule, NOON, LATER).exhausted
            assert not seen(after, self.SPENT, rule, NOON + HOUR, LATER).exhausted
