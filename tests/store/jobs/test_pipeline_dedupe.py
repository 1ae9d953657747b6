"""What a dedupe key makes needless in pipelines, and what it does not, on both engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from ductile.store.engines.api import Ledger
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.test_pipelines import FINAL, House, _filters

HOUR = 3600.0
THERE = {"path": "payload.x", "op": "exists"}
AFTER = {"id": "after", "uses": "j"}

Make = Callable[..., House]


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    """A house with these pipelines: name to steps, each started by the event of its name."""

    def build_house(**pipelines: list[dict[str, object]]) -> House:
        said = [{"name": name, "on": name, "steps": steps} for name, steps in pipelines.items()]
        return House(ledger, clock, entropy, said)  # type: ignore[arg-type]

    return build_house


def drops(house: House) -> list[tuple[object, object]]:
    """The plugins of the jobs that were dropped, each with whose job there was."""
    found = house.rows("jobs", **_filters())
    return sorted(
        (row["plugin"], drop["dedupe_key"])
        for row in found
        for drop in house.rows("dedupe_drops_of", id=row["id"])
    )


def test_an_instance_all_of_whose_first_jobs_are_needless_is_skipped_and_has_no_join(
    make: Make,
) -> None:
    house = make(p=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "b"}]}, AFTER])
    house.start("p", {}, dedupe_key="k")
    assert house.run() == ["fan.0.step_1", "fan.1.step_1", "after"]
    again = house.start("p", {}, dedupe_key="k")
    assert house.run() == []
    [scope] = house.rows("scope", id=again)
    [first] = house.rows("jobs", **_filters(plugin="a"))
    assert scope["status"] == "skipped"
    assert scope["reason"] == f"deduplicated: job {first['id']} replaces it"
    assert house.announced(again) == ["pipeline.skipped"]
    assert drops(house) == [("a", "k"), ("b", "k")]


def test_an_event_that_is_emitted_again_sets_nothing_going_again(make: Make) -> None:
    house = make(
        poll=[{"uses": "e"}],
        data=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "b"}]}, AFTER],
    )
    emitted = {"status": "ok", "result": 1, "events": [{"type": "data", "dedupe_key": "k"}]}
    ran: Counter[str] = Counter()
    for _ in range(3):
        house.start("poll", {})
        ran.update(house.run(e=emitted))
    assert ran == {"step_1": 3, "fan.0.step_1": 1, "fan.1.step_1": 1, "after": 1}


def test_where_some_first_jobs_are_needless_the_others_run_and_are_joined(make: Make) -> None:
    house = make(p=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "b"}]}, AFTER])
    house.start("p", {}, dedupe_key="k")
    house.run(b=FINAL)
    again = house.start("p", {}, dedupe_key="k")
    house.end(house.take())
    joined = house.payload_of("after")
    assert [entry["branch"] for entry in joined["branches"]] == ["1"]
    assert house.run() == ["after"]
    assert house.scope(again) == "ended"
    assert drops(house) == [("a", "k")]


def test_a_split_inside_whose_first_jobs_are_all_needless_is_left_out_with_its_join(
    make: Make,
) -> None:
    inner = {"steps": [{"id": "in", "split": [{"uses": "a"}, {"uses": "b"}]}, {"uses": "c"}]}
    house = make(p=[{"id": "out", "split": [inner, {"uses": "d"}]}, AFTER])
    house.start("p", {}, dedupe_key="k")
    house.run(d=FINAL)
    again = house.start("p", {}, dedupe_key="k")
    assert house.run() == ["out.1.step_1", "after"]
    assert house.scope(again) == "ended"


def test_branches_of_one_target_run_all_though_they_have_one_key(make: Make) -> None:
    house = make(p=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "a"}]}, AFTER])
    instance = house.start("p", {}, dedupe_key="k", dedupe_ttl=HOUR)
    assert house.run() == ["fan.0.step_1", "fan.1.step_1", "after"]
    assert house.scope(instance) == "ended"


def test_branches_that_each_begin_with_an_if_run_all_though_they_have_one_key(make: Make) -> None:
    guarded = [{"uses": "a", "if": THERE}, {"uses": "b", "if": THERE}]
    house = make(p=[{"id": "fan", "split": guarded}, AFTER])
    house.start("p", {"x": 1}, dedupe_key="k", dedupe_ttl=HOUR)
    ran = house.run()
    assert {"fan.0.step_1", "fan.1.step_1", "after"} <= set(ran)
    again = house.start("p", {"x": 1}, dedupe_key="k", dedupe_ttl=HOUR)
    assert (house.run(), house.scope(again)) == ([], "skipped")


def test_an_instance_that_has_not_ended_makes_another_needless_where_a_ttl_is_given(
    make: Make,
) -> None:
    house = make(p=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "a"}]}, AFTER])
    first = house.start("p", {}, dedupe_key="k", dedupe_ttl=HOUR)
    again = house.start("p", {}, dedupe_key="k", dedupe_ttl=HOUR)
    assert (house.scope(first), house.scope(again)) == ("open", "skipped")


def test_pipelines_that_begin_with_an_if_do_not_make_each_other_needless(make: Make) -> None:
    house = make(created=[{"uses": "a", "if": THERE}], updated=[{"uses": "d", "if": THERE}])
    house.start("created", {"x": 1}, dedupe_key="k")
    assert house.run() == ["step_1__switch", "step_1"]
    house.start("updated", {"x": 1}, dedupe_key="k")
    assert house.run() == ["step_1__switch", "step_1"]
    again = house.start("updated", {"x": 1}, dedupe_key="k")
    assert (house.run(), house.scope(again)) == ([], "skipped")


def test_pipelines_that_begin_with_a_relay_do_not_make_each_other_needless(make: Make) -> None:
    relay = {"relay": {"to": "elsewhere", "event": "x"}}
    house = make(p=[relay], q=[relay])
    house.start("p", {}, dedupe_key="k")
    now = "'2026-02-08T10:00:00.000000Z'"
    execute(house.ledger, f"UPDATE job_queue SET status = 'succeeded', completed_at = {now}")
    other, same = (house.start(name, {}, dedupe_key="k") for name in "qp")
    assert (house.scope(other), house.scope(same)) == ("open", "skipped")
