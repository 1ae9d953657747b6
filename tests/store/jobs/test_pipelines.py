"""Pipelines in the ledger: contexts, splits, joins, limits and hooks, on both engines."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import orjson
import pytest

from ductile.clock import Ids
from ductile.core.jobs.judge import judge
from ductile.core.pipelines.routes import Route
from ductile.model import Ending, Event, JobStatus, NewJob, Outcome, Settlement, SubmittedBy
from ductile.store.engines.api import Ledger
from ductile.store.jobs import close, enqueue, read, requeue
from ductile.store.jobs.claim import ClaimedJob
from ductile.store.jobs.settle import settle_many
from ductile.store.jobs.spawn import SpawnPoint
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.harness import FINAL, SPLIT, Pipelines, job_filters
from tests.waiting import WAIT_LIMIT

J = {"id": "j", "uses": "j"}


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy):
    def build(*steps: dict[str, object], **more: object) -> Pipelines:
        pipeline = {"name": "p", "on": "go", "steps": list(steps)}
        return Pipelines(ledger, clock, entropy, [pipeline], **more)  # type: ignore[arg-type]

    return build


def test_steps_run_in_order_and_the_instance_ends(make) -> None:
    harness = make({"uses": "a"}, {"uses": "b"})
    instance = harness.start("p", {"x": 1})
    assert harness.run() == ["step_1", "step_2"]
    assert harness.scope(instance) == "ended"


def test_step_without_events_passes_on_its_payload_and_result(make) -> None:
    harness = make({"uses": "a"}, {"uses": "b"})
    harness.start("p", {"x": 1})
    harness.end(harness.take())
    assert harness.payload_of("step_2") == {"x": 1, "result": "a"}


def test_next_step_runs_once_per_event(make) -> None:
    harness = make({"uses": "a"}, {"uses": "b"})
    harness.start("p", {})
    events = [{"type": "e", "payload": {"n": n}} for n in range(3)]
    assert harness.run(a={"status": "ok", "result": "", "events": events}) == [
        "step_1",
        "step_2",
        "step_2",
        "step_2",
    ]


def test_join_runs_once_with_the_results_of_all_branches(make) -> None:
    harness = make(*SPLIT)
    instance = harness.start("p", {})
    harness.end(harness.take())
    for _ in range(3):
        harness.end(harness.take())
    joined = harness.payload_of("after")
    assert [(b["branch"], b["status"], b["result"]) for b in joined["branches"]] == [
        ("0", "succeeded", "b"),
        ("1", "succeeded", "c"),
        ("2", "succeeded", "d"),
    ]
    assert joined["failed"] == 0
    assert harness.run() == ["after"]
    assert harness.scope(instance) == "ended"


def test_failed_branch_fails_the_instance(make) -> None:
    harness = make(*SPLIT)
    instance = harness.start("p", {})
    assert "after" not in harness.run(c=FINAL)
    assert harness.scope(instance) == "failed"


def test_join_always_runs_after_a_failed_branch(make) -> None:
    steps = [dict(step) for step in SPLIT]
    steps[1]["join"] = "always"
    harness = make(*steps)
    harness.start("p", {})
    assert harness.run(c=FINAL)[-1] == "after"


def test_join_gets_the_error_of_a_failed_branch(make) -> None:
    steps = [dict(step) for step in SPLIT]
    steps[1]["join"] = "always"
    harness = make(*steps)
    harness.start("p", {})
    for _ in range(4):
        claimed = harness.take()
        harness.end(claimed, FINAL if claimed.job.plugin == "c" else None)
    branches = harness.payload_of("after")["branches"]
    assert [branch.get("error") for branch in branches] == [None, FINAL["error"], None]


def test_retried_branch_completes_the_split_and_joins_once(make) -> None:
    harness = make(*SPLIT)
    instance = harness.start("p", {})
    harness.run(c=FINAL)
    [failed] = harness.rows("jobs", **job_filters(status="failed"))
    job = harness.ledger.read(lambda tx: read.load_job(tx, failed["id"]))
    assert harness.ledger.write(lambda tx: requeue.retry_job(tx, job, 4, harness.clock.now()))
    assert harness.scope(instance) == "open"
    assert harness.run() == ["fan.1.step_1", "after"]
    assert harness.scope(instance) == "ended"


def test_branch_that_waits_for_its_retry_keeps_the_scope_open(make) -> None:
    harness = make(*SPLIT)
    instance = harness.start("p", {})
    harness.run(c={"status": "error", "error": "again"})
    assert harness.scope(instance) == "open"


def test_branch_that_a_script_set_to_timed_out_counts_as_failed(make) -> None:
    harness = make(*SPLIT)
    instance = harness.start("p", {})
    first = harness.take()
    harness.end(first)
    execute(harness.ledger, "UPDATE job_queue SET status = 'timed_out' WHERE plugin = 'c'")
    assert "after" not in harness.run()
    assert harness.scope(instance) == "failed"


def test_nested_splits_close_from_the_inside_out(make) -> None:
    inner = {"id": "in", "split": [{"uses": "c"}, {"uses": "d"}]}
    harness = make(
        {"id": "out", "split": [{"uses": "b"}, {"steps": [{"uses": "a"}, inner]}]},
        {"id": "after", "uses": "j"},
    )
    instance = harness.start("p", {})
    ran = harness.run()
    assert ran[-1] == "after"
    assert ran.count("after") == 1
    assert harness.scope(instance) == "ended"


def test_branches_that_end_at_once_make_one_join(make) -> None:
    harness = make(*SPLIT)
    harness.start("p", {})
    harness.end(harness.take())
    claims = [harness.take() for _ in range(3)]
    gate = threading.Barrier(3)

    def end(claimed: ClaimedJob) -> None:
        gate.wait()
        harness.end(claimed)

    threads = [threading.Thread(target=end, args=(claimed,)) for claimed in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert harness.run() == ["after"]


def test_context_of_a_step_contains_its_parents(make) -> None:
    harness = make(
        {"id": "one", "uses": "a", "baggage": {"who.name": "payload.name"}},
        {"id": "two", "uses": "b", "baggage": {"who.age": "payload.age"}},
    )
    harness.start("p", {"name": "ann", "age": 7})
    harness.run()
    [last] = [row for row in harness.rows("jobs", **job_filters()) if row["step_path"] == "two"]
    [context] = harness.rows("contexts", job_id=last["id"])
    carried = orjson.loads(str(context["accumulated_json"]))
    assert carried["who"] == {"name": "ann", "age": 7}
    assert carried["ductile"]["route_depth"] == 2
    assert carried["ductile"]["origin"]["submitted_by"] == "api"


def test_context_row_cannot_be_changed(make) -> None:
    harness = make({"uses": "a"})
    harness.start("p", {})
    with pytest.raises(Exception, match="cannot be changed"):
        execute(harness.ledger, "UPDATE event_context SET accumulated_json = '{}'")


def test_duplicate_first_step_skips_the_instance(make) -> None:
    harness = make({"uses": "a"})
    harness.start("p", {}, dedupe_key="k")
    harness.run()
    again = harness.start("p", {}, dedupe_key="k")
    [row] = harness.rows("scope", id=again)
    assert row["status"] == "skipped"
    assert "deduplicated" in str(row["reason"])


def test_loop_ends_at_the_hop_limit(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    routes = (Route("a", "ping", "b"), Route("b", "ping", "a"))
    harness = Pipelines(
        ledger, clock, entropy, [{"name": "p", "on": "x", "steps": [{"uses": "a"}]}], routes
    )
    harness.start("p", {})
    ping = {"status": "ok", "result": "", "events": [{"type": "ping"}]}
    ran = harness.run(a=ping, b=ping)
    assert len(ran) == 21
    [dead] = harness.rows("jobs", **job_filters(status="dead"))
    assert "hop 21" in str(dead["last_error"])


def test_instance_over_the_limit_is_announced_as_failed_once(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    pipelines: list[dict[str, object]] = [
        {"name": "p", "on": "go", "steps": [{"uses": "a"}]},
        {"name": "q", "on": "next", "steps": [{"uses": "b"}]},
    ]
    harness = Pipelines(ledger, clock, entropy, pipelines, max_hops=1)
    harness.start("p", {})
    further = {"status": "ok", "result": "", "events": [{"type": "next"}]}
    harness.run(a=further, b=further)
    [dead] = harness.rows("jobs", **job_filters(status="dead"))
    assert harness.announced(str(dead["scope_id"])) == ["pipeline.failed"]


def test_any_number_of_splits_can_end_in_one_transaction(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    # Each branch is over the limit and ends at once, so that each split ends when it opens.
    count = 200
    splits = [{"split": [{"uses": "b"}], "join": "always"} for _ in range(count)]
    steps = [{"uses": "a"}, *splits, {"uses": "j"}]
    pipeline = {"name": "p", "on": "go", "max_depth": 1, "steps": steps}
    harness = Pipelines(ledger, clock, entropy, [pipeline])
    instance = harness.start("p", {})
    assert harness.run() == ["step_1"]
    dead = harness.rows("jobs", **job_filters(status="dead", limit=2 * count))
    assert len(dead) == count + 1
    assert harness.announced(instance) == ["pipeline.failed"]


def test_reopened_instance_is_announced_at_each_end(make) -> None:
    harness = make(*SPLIT)
    instance = harness.start("p", {})
    harness.run(c=FINAL)
    for bodies in ({"c": FINAL}, {}):
        [failed] = harness.rows("jobs", **job_filters(status="failed"))
        job = harness.ledger.read(lambda tx, id=failed["id"]: read.load_job(tx, id))
        harness.ledger.write(lambda tx, job=job: requeue.retry_job(tx, job, 4, harness.clock.now()))
        harness.run(**bodies)
    assert harness.announced(instance) == ["pipeline.failed", "pipeline.failed", "pipeline.ended"]


def test_redelivered_event_makes_no_second_job(make) -> None:
    harness = make({"uses": "a"})
    now = harness.clock.now()
    event = Event("go", {}, None, "hook", now, "event-1")
    routing = harness.tx_config.router.arrive(event, plugin="b", submitted_by=SubmittedBy.WEBHOOK)
    routed = tuple(i for i in routing.intents if hasattr(i, "identity"))
    for base in (harness.entropy.uuid(), harness.entropy.uuid()):
        harness.ledger.write(
            lambda tx, base=base: close.write_intents(
                tx, routed, SpawnPoint(), harness.tx_config, Ids(base), now
            )
        )
    assert len(harness.rows("jobs", **job_filters(plugin="b"))) == 1


def test_hook_fires_once_per_root_job_and_never_for_hook_jobs(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    pipelines: list[dict[str, object]] = [
        {"name": "p", "on": "go", "steps": [{"uses": "a"}]},
        {"name": "h", "on-hook": "job.completed", "steps": [{"uses": "e"}, {"uses": "d"}]},
    ]
    harness = Pipelines(ledger, clock, entropy, pipelines, notify=frozenset({"a", "e", "d"}))
    harness.start("p", {})
    ran = harness.run()
    assert len(ran) == 3
    hooked = harness.rows("jobs", **job_filters(submitted_by="hook"))
    assert [row["plugin"] for row in hooked] == ["e"]


def test_failed_scopes_name_their_first_failed_job(make) -> None:
    inner = {"id": "in", "split": [{"uses": "b"}, {"uses": "c"}]}
    harness = make({"uses": "a"}, {"id": "out", "split": [{"steps": [inner]}, {"uses": "d"}]}, J)
    instance = harness.start("p", {})
    harness.run(b=FINAL)
    [failed] = harness.rows("jobs", **job_filters(status="failed"))
    reason = f"step {failed['step_path']} ended as failed (job {failed['id']}): no"
    assert failed["step_path"] == "out.0.in.0.step_1"
    assert [row["reason"] for row in harness.rows("scope", id=instance)] == [reason]
    expected = [("out.0.in", "", reason), ("out", "j", reason)]
    for step in ("out.0.in.1.step_1", failed["step_path"]):
        [job] = [row for row in harness.rows("jobs", **job_filters()) if row["step_path"] == step]
        splits = harness.rows("splits_of_job", id=job["id"])
        assert [(row["split"], row["join_step"], row["reason"]) for row in splits] == expected
    assert harness.rows("unfinished_of_instance", id=instance) == []


def test_unfinished_jobs_of_a_run_include_those_of_routes(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    pipelines: list[dict[str, object]] = [{"name": "p", "on": "go", "steps": [{"uses": "a"}]}]
    harness = Pipelines(ledger, clock, entropy, pipelines, routes=(Route("a", "evt", "b"),))
    instance = harness.start("p", {})
    harness.end(harness.take(), {"status": "ok", "result": "", "events": [{"type": "evt"}]})
    assert harness.scope(instance) == "ended"
    [row] = harness.rows("unfinished_of_instance", id=instance)
    [routed] = harness.rows("jobs", **job_filters(plugin="b"))
    assert row["id"] == routed["id"]
    harness.run()
    assert harness.rows("unfinished_of_instance", id=instance) == []


def contexts_by_id(ledger: Ledger) -> dict[str, dict[str, Any]]:
    rows = ledger.read(lambda tx: tx.all("verify_contexts", after="", limit=1000))
    return {row[0]: orjson.loads(row[2]) for row in rows}


def test_hook_starts_root_jobs_without_context_rows(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    steps = [{"uses": "e"}, {"split": [{"uses": "d"}]}, {"uses": "j"}]
    pipelines: list[dict[str, object]] = [
        {"name": "h", "on-hook": "job.completed", "steps": steps},
    ]
    harness = Pipelines(ledger, clock, entropy, pipelines, notify=frozenset("a"))
    new = NewJob("a", "poll", SubmittedBy.API)
    id, now = entropy.uuid(), clock.now()
    ledger.write(lambda tx: enqueue.enqueue_job(tx, new, harness.tx_config, id=id, now=now))
    assert harness.run() == ["a", "step_1", "step_2.0.step_1", "step_3"]
    [hooked] = harness.rows("jobs", **job_filters(submitted_by="hook"))
    assert hooked["parent_job_id"] is None
    jobs = harness.rows("jobs", **job_filters())
    assert {row["event_context_id"] for row in jobs} == {None}
    assert contexts_by_id(ledger) == {}
    assert harness.announced(str(hooked["scope_id"])) == ["pipeline.ended"]


def test_baggage_and_depth_limit_hold_in_a_pipeline_of_a_hook(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    loop = {"id": "loop", "uses": "d", "on_events": {"again": ["loop"]}}
    claim = {"uses": "j", "baggage": {"who": "payload.plugin"}}
    pipelines: list[dict[str, object]] = [
        {"name": "h", "on-hook": "job.completed", "steps": [{"uses": "e"}, claim, {"uses": "c"}]},
        {
            "name": "endless",
            "on-hook": "job.completed",
            "max_depth": 3,
            "steps": [{"uses": "d", "on_events": {"again": ["loop"]}}, loop],
        },
    ]
    harness = Pipelines(ledger, clock, entropy, pipelines, notify=frozenset("a"))
    new = NewJob("a", "poll", SubmittedBy.API)
    id, now = entropy.uuid(), clock.now()
    ledger.write(lambda tx: enqueue.enqueue_job(tx, new, harness.tx_config, id=id, now=now))
    harness.run(d={"status": "ok", "result": "", "events": [{"type": "again"}]})
    steps = {row["id"]: row["step_path"] for row in harness.rows("jobs", **job_filters())}
    contexts = {steps[id]: context for id, context in contexts_by_id(ledger).items()}
    assert contexts.keys() == {"step_2", "step_3"}
    assert contexts["step_3"]["who"] == "a"
    assert [contexts[step]["ductile"]["route_depth"] for step in contexts] == [2, 3]
    [dead] = harness.rows("jobs", **job_filters(status="dead"))
    assert dead["last_error"] == "step 4 of its pipeline exceeds max_depth 3"


def test_join_without_a_parent_fires_no_hook(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    inner = {"id": "in", "split": [{"uses": "d"}]}
    pipelines: list[dict[str, object]] = [
        {
            "name": "p",
            "on": "go",
            "steps": [
                {"id": "first", "split": [{"uses": "a"}, {"uses": "b"}]},
                {"id": "second", "split": [{"uses": "c"}, {"steps": [inner]}]},
                {"uses": "j"},
            ],
        },
        {"name": "h", "on-hook": "job.completed", "steps": [{"uses": "e"}]},
    ]
    harness = Pipelines(ledger, clock, entropy, pipelines, notify=frozenset("abcdj"))
    harness.start("p", {})
    harness.run()
    hooked = harness.rows("jobs", **job_filters(submitted_by="hook"))
    plugins = [harness.event_of(row)["payload"]["plugin"] for row in hooked]
    assert sorted(plugins) == ["a", "b"]


TIMED_OUT = Outcome(Ending.TIMED_OUT, duration=1.0)
HOOKS = ("job.completed", "job.failed", "job.timed_out")


@pytest.mark.parametrize("outcome", [TIMED_OUT, Outcome(Ending.LOST)], ids=["late", "lost"])
@pytest.mark.parametrize("again", [False, True], ids=["waiting", "retried"])
def test_hooks_of_a_cancelled_job_report_a_timeout(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy, outcome: Outcome, again: bool
) -> None:
    pipelines: list[dict[str, object]] = [
        {"name": hook, "on-hook": hook, "steps": [{"uses": "e"}]} for hook in HOOKS
    ]
    harness = Pipelines(ledger, clock, entropy, pipelines, notify=frozenset("a"))
    new = NewJob("a", "poll", SubmittedBy.API)
    id, now = entropy.uuid(), clock.now()
    ledger.write(lambda tx: enqueue.enqueue_job(tx, new, harness.tx_config, id=id, now=now))
    claimed = harness.take()
    last = replace(claimed.job, max_attempts=1) if again else claimed.job
    harness.settle(judge(last, outcome, harness.rules, now, 0.5))
    job = ledger.read(lambda tx: read.load_job(tx, id))
    if again:
        execute(ledger, "DELETE FROM job_queue WHERE plugin = 'e'")
        assert ledger.write(lambda tx: requeue.retry_job(tx, job, 4, now))
        job = ledger.read(lambda tx: read.load_job(tx, id))
    base, why = Ids(entropy.uuid()), "cancelled"
    assert ledger.write(
        lambda tx: close.end_queued(tx, job, JobStatus.DEAD, why, now, harness.tx_config, base)
    )
    fired = {row["pipeline"] for row in harness.rows("jobs", **job_filters(submitted_by="hook"))}
    late = outcome.ending is Ending.TIMED_OUT
    assert fired == set(HOOKS if late else HOOKS[:2])


def test_ending_a_queued_branch_closes_its_scopes(make) -> None:
    harness = make(*SPLIT)
    instance = harness.start("p", {})
    harness.end(harness.take())
    [waiting] = harness.ledger.read(lambda tx: requeue.list_queued(tx, "d", 10))
    base = harness.entropy.uuid()
    harness.ledger.write(
        lambda tx: close.end_queued(
            tx,
            waiting,
            JobStatus.DEAD,
            "cancelled",
            harness.clock.now(),
            harness.tx_config,
            Ids(base),
        )
    )
    harness.run()
    assert harness.scope(instance) == "failed"


def test_retry_after_the_join_does_not_reopen_the_instance(make) -> None:
    steps = [dict(step) for step in SPLIT]
    steps[1]["join"] = "always"
    harness = make(*steps)
    instance = harness.start("p", {})
    harness.run(c=FINAL, j=FINAL)
    assert harness.scope(instance) == "failed"
    [branch] = harness.rows("jobs", **job_filters(status="failed", plugin="c"))
    job = harness.ledger.read(lambda tx: read.load_job(tx, branch["id"]))
    harness.ledger.write(lambda tx: requeue.retry_job(tx, job, 4, harness.clock.now()))
    harness.run()
    assert harness.scope(instance) == "failed"


def test_scope_waits_for_the_next_step_of_a_job_that_just_ended(
    make, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = {"steps": [{"uses": "b"}, {"id": "next", "uses": "d"}]}
    harness = make({"id": "fan", "split": [branch, {"uses": "c"}]}, J)
    instance = harness.start("p", {})
    ended: list[Settlement] = []
    with monkeypatch.context() as patch:
        patch.setattr(harness, "settle", ended.append)
        for _ in range(2):
            harness.end(harness.take())
    assert {settlement.plugin for settlement in ended} == {"b", "c"}
    # `c` first, after which its scope would have nothing left to wait for.
    ended.sort(key=lambda settlement: settlement.plugin, reverse=True)
    settlements = [(settlement, harness.entropy.uuid()) for settlement in ended]
    harness.ledger.write(lambda tx: settle_many(tx, settlements, harness.tx_config))
    assert [step.rpartition(".")[2] for step in harness.run()] == ["next", "j"]
    assert harness.scope(instance) == "ended"
