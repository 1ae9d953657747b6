"""Pipelines through the ledger: contexts, splits, joins, limits, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from ductile.clock import Ids
from ductile.core.jobs.judge import Rules, judge, prepare_failed, switch
from ductile.core.jobs.prepare import Entered
from ductile.core.jobs.retry import RetryPolicy
from ductile.core.pipelines.compile import Compiled, compile_pipelines
from ductile.core.pipelines.graph import NodeKind
from ductile.core.pipelines.router import build
from ductile.core.pipelines.routes import Route
from ductile.core.pipelines.step_io import Switched, entered_payload, judge_switch, prepare_step
from ductile.core.values.json_values import Failure
from ductile.core.values.redact import Redactor
from ductile.model import Ending, Event, JobStatus, NewJob, Outcome, Settlement, SubmittedBy
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, Ledger
from ductile.store.jobs import close, enqueue, read, requeue
from ductile.store.jobs.claim import ClaimedJob, ClaimPolicy, claim
from ductile.store.jobs.settle import settle
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.tx_config import TxConfig
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT

PLUGINS = {name: frozenset({"poll", "handle"}) for name in "abcdej"}
SPLIT = [
    {"uses": "a"},
    {"id": "fan", "split": [{"uses": "b"}, {"uses": "c"}, {"uses": "d"}]},
    {"id": "after", "uses": "j"},
]


class House:
    """The rooms, called by hand, over one set of pipelines."""

    def __init__(
        self,
        ledger: Ledger,
        clock: FakeClock,
        entropy: CountingEntropy,
        pipelines: list[dict[str, object]],
        routes: tuple[Route, ...] = (),
        notify: frozenset[str] = frozenset(),
        max_hops: int = 20,
    ) -> None:
        self.ledger, self.clock, self.entropy = ledger, clock, entropy
        self.routes, self.notify, self.max_hops = routes, notify, max_hops
        self.began: dict[str, Rules] = {}
        self.reload(pipelines)

    def reload(self, pipelines: list[dict[str, object]]) -> None:
        """Other pipelines from now on; what was taken before keeps to those it was taken under."""
        compiled = compile_pipelines(pipelines, PLUGINS)
        assert isinstance(compiled, Compiled), compiled
        router = build(self.routes, compiled, self.max_hops)
        self.tx_config = TxConfig(86_400.0, router=router, notify=self.notify)
        self.rules = Rules(RetryPolicy(), Redactor(), router)

    def start(
        self,
        name: str,
        payload: object,
        dedupe_key: str | None = None,
        dedupe_ttl: float | None = None,
    ) -> str:
        now = self.clock.now()
        event = Event("go", payload, dedupe_key, "api", now, self.entropy.uuid())
        intent = self.tx_config.router.start(
            name, event, submitted_by=SubmittedBy.API, dedupe_ttl=dedupe_ttl
        )
        assert intent is not None
        base = self.entropy.uuid()
        spawned = self.ledger.write(
            lambda tx: close.write_intents(
                tx, (intent,), SpawnPoint(), self.tx_config, Ids(base), now
            )
        )
        return spawned.scope_ids[0]

    def take(self) -> ClaimedJob | None:
        now = self.clock.now()
        claimed = self.ledger.write(lambda tx: claim(tx, ClaimPolicy(owner="boot"), now))
        if not claimed:
            return None
        self.began[claimed[0].job.id] = self.rules
        return claimed[0]

    def end(self, claimed: ClaimedJob, body: Mapping[str, object] | None = None) -> None:
        job, now = claimed.job, self.clock.now()
        rules = self.began.pop(job.id)
        router = rules.router
        assert router is not None
        own = (job.pipeline, job.step_path, job.plugin, job.command)
        lost = router.lost(*own) if job.pipeline else None
        if lost is not None:
            self.settle(prepare_failed(job, lost, rules, now))
            return
        node = router.node(job.pipeline, job.step_path) if job.pipeline else None
        context = orjson.loads(claimed.context)
        payload = entered_payload(job.command, job.payload)
        if node is not None and node.kind is NodeKind.SWITCH:
            judged = judge_switch(node, payload, context, {})
            accumulated = judged.accumulated if isinstance(judged, Switched) else None
            entered = Entered(payload, accumulated, context)
            verdict = switch(job, judged, entered, rules, now, self.entropy.uuid())
        else:
            accumulated = None
            if node is not None:
                step = prepare_step(node, payload, context, {})
                assert not isinstance(step, Failure)
                accumulated = step.accumulated
            answer = orjson.dumps(body or {"status": "ok", "result": job.plugin})
            code = 0 if (body or {}).get("status", "ok") == "ok" else 1
            outcome = Outcome(Ending.EXITED, exit_code=code, stdout=answer)
            entered = Entered(payload, accumulated, context)
            verdict = judge(job, outcome, rules, now, 0.5, None, entered, self.entropy.uuid())
        self.settle(verdict)

    def settle(self, settlement: Settlement) -> None:
        base = self.entropy.uuid()
        self.ledger.write(lambda tx: settle(tx, settlement, self.tx_config, base))

    def run(self, **bodies: Mapping[str, object]) -> list[str]:
        """Work until nothing is ready; the steps in the order in which they ran."""
        ran = []
        while (claimed := self.take()) is not None:
            ran.append(claimed.job.step_path or claimed.job.plugin)
            self.end(claimed, bodies.get(claimed.job.plugin))
        return ran

    def rows(self, query: str, **values: object) -> list[dict[str, object]]:
        return self.ledger.read(lambda tx: tx.dicts(query, **values))

    def scope(self, id: str) -> str:
        return str(self.rows("scope", id=id)[0]["status"])

    def announced(self, instance: str) -> list[str]:
        """What was said of an instance, in order."""
        stored = self.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
        return [n.type for n in stored if n.topic == "pipelines" and n.job_id == instance]

    def payload_of(self, step: str) -> object:
        [row] = [row for row in self.rows("pending_jobs", limit=100) if row["step_path"] == step]
        return self.event_of(row)["payload"]

    def event_of(self, row: Mapping[str, object]) -> dict[str, Any]:
        """The event that entered a job."""
        [whole] = self.rows("job", id=row["id"])
        return dict(orjson.loads(str(whole["payload"])))


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy):
    def build_house(*steps: dict[str, object], **more: object) -> House:
        pipeline = {"name": "p", "on": "go", "steps": list(steps)}
        return House(ledger, clock, entropy, [pipeline], **more)  # type: ignore[arg-type]

    return build_house


FINAL = {"status": "error", "error": "no", "retry": False}


def test_steps_run_one_after_the_other_and_the_instance_ends(make) -> None:
    house = make({"uses": "a"}, {"uses": "b"})
    instance = house.start("p", {"x": 1})
    assert house.run() == ["step_1", "step_2"]
    assert house.scope(instance) == "ended"


def test_a_step_that_emits_nothing_passes_on_what_entered_it_and_its_result(make) -> None:
    house = make({"uses": "a"}, {"uses": "b"})
    house.start("p", {"x": 1})
    house.end(house.take())
    assert house.payload_of("step_2") == {"x": 1, "result": "a"}


def test_the_next_step_runs_once_for_each_event(make) -> None:
    house = make({"uses": "a"}, {"uses": "b"})
    house.start("p", {})
    events = [{"type": "e", "payload": {"n": n}} for n in range(3)]
    assert house.run(a={"status": "ok", "result": "", "events": events}) == [
        "step_1",
        "step_2",
        "step_2",
        "step_2",
    ]


def test_the_step_after_a_split_runs_once_with_what_each_branch_returned(make) -> None:
    house = make(*SPLIT)
    instance = house.start("p", {})
    house.end(house.take())
    for _ in range(3):
        assert house.take is not None
        house.end(house.take())
    joined = house.payload_of("after")
    assert [(b["branch"], b["status"], b["result"]) for b in joined["branches"]] == [
        ("0", "succeeded", "b"),
        ("1", "succeeded", "c"),
        ("2", "succeeded", "d"),
    ]
    assert joined["failed"] == 0
    assert house.run() == ["after"]
    assert house.scope(instance) == "ended"


def test_a_failed_branch_stops_the_chain_and_fails_the_instance(make) -> None:
    house = make(*SPLIT)
    instance = house.start("p", {})
    assert "after" not in house.run(c=FINAL)
    assert house.scope(instance) == "failed"


def test_join_always_goes_on_in_spite_of_a_failed_branch(make) -> None:
    steps = [dict(step) for step in SPLIT]
    steps[1]["join"] = "always"
    house = make(*steps)
    house.start("p", {})
    assert house.run(c=FINAL)[-1] == "after"


def test_a_join_is_told_by_what_error_a_branch_has_failed(make) -> None:
    steps = [dict(step) for step in SPLIT]
    steps[1]["join"] = "always"
    house = make(*steps)
    house.start("p", {})
    for _ in range(4):
        claimed = house.take()
        house.end(claimed, FINAL if claimed.job.plugin == "c" else None)
    branches = house.payload_of("after")["branches"]
    assert [branch.get("error") for branch in branches] == [None, FINAL["error"], None]


def test_retrying_the_failed_branch_completes_the_split_and_joins_once(make) -> None:
    house = make(*SPLIT)
    instance = house.start("p", {})
    house.run(c=FINAL)
    [failed] = house.rows("jobs", **_filters(status="failed"))
    job = house.ledger.read(lambda tx: read.load_job(tx, failed["id"]))
    assert house.ledger.write(lambda tx: requeue.retry_job(tx, job, 4, house.clock.now()))
    assert house.scope(instance) == "open"
    assert house.run() == ["fan.1.step_1", "after"]
    assert house.scope(instance) == "ended"


def test_a_branch_that_waits_for_its_retry_has_not_ended(make) -> None:
    house = make(*SPLIT)
    instance = house.start("p", {})
    house.run(c={"status": "error", "error": "again"})
    assert house.scope(instance) == "open"


def test_a_branch_that_a_script_left_timed_out_neither_holds_the_split_nor_ended_well(make) -> None:
    house = make(*SPLIT)
    instance = house.start("p", {})
    first = house.take()
    house.end(first)
    execute(house.ledger, "UPDATE job_queue SET status = 'timed_out' WHERE plugin = 'c'")
    assert "after" not in house.run()
    assert house.scope(instance) == "failed"


def test_nested_splits_close_from_the_inside_out(make) -> None:
    inner = {"id": "in", "split": [{"uses": "c"}, {"uses": "d"}]}
    house = make(
        {"id": "out", "split": [{"uses": "b"}, {"steps": [{"uses": "a"}, inner]}]},
        {"id": "after", "uses": "j"},
    )
    instance = house.start("p", {})
    ran = house.run()
    assert ran[-1] == "after"
    assert ran.count("after") == 1
    assert house.scope(instance) == "ended"


def test_two_branches_that_end_at_once_make_one_join(make) -> None:
    house = make(*SPLIT)
    house.start("p", {})
    house.end(house.take())
    claims = [house.take() for _ in range(3)]
    gate = threading.Barrier(3)

    def end(claimed: ClaimedJob) -> None:
        gate.wait()
        house.end(claimed)

    threads = [threading.Thread(target=end, args=(claimed,)) for claimed in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert house.run() == ["after"]


def test_a_false_if_goes_on_with_the_next_step(make) -> None:
    condition = {"path": "payload.n", "op": "gt", "value": 5}
    house = make({"id": "big", "uses": "a", "if": condition}, {"id": "then", "uses": "b"})
    house.start("p", {"n": 1})
    assert house.run() == ["big__switch", "then"]


def test_each_step_has_a_context_that_contains_its_parents(make) -> None:
    house = make(
        {"id": "one", "uses": "a", "baggage": {"who.name": "payload.name"}},
        {"id": "two", "uses": "b", "baggage": {"who.age": "payload.age"}},
    )
    house.start("p", {"name": "ann", "age": 7})
    house.run()
    [last] = [row for row in house.rows("jobs", **_filters()) if row["step_path"] == "two"]
    [context] = house.rows("contexts", job_id=last["id"])
    carried = orjson.loads(str(context["accumulated_json"]))
    assert carried["who"] == {"name": "ann", "age": 7}
    assert carried["ductile"]["route_depth"] == 2
    assert carried["ductile"]["origin"]["submitted_by"] == "api"


def test_a_context_row_cannot_be_changed(make) -> None:
    house = make({"uses": "a"})
    house.start("p", {})
    with pytest.raises(Exception, match="cannot be changed"):
        execute(house.ledger, "UPDATE event_context SET accumulated_json = '{}'")


def test_a_first_step_that_is_needless_ends_its_instance_skipped(make) -> None:
    house = make({"uses": "a"})
    house.start("p", {}, dedupe_key="k")
    house.run()
    again = house.start("p", {}, dedupe_key="k")
    [row] = house.rows("scope", id=again)
    assert row["status"] == "skipped"
    assert "deduplicated" in str(row["reason"])


def test_a_loop_ends_dead_with_its_reason_and_nothing_else_stops(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    routes = (Route("a", "ping", "b"), Route("b", "ping", "a"))
    house = House(
        ledger, clock, entropy, [{"name": "p", "on": "x", "steps": [{"uses": "a"}]}], routes
    )
    house.start("p", {})
    ping = {"status": "ok", "result": "", "events": [{"type": "ping"}]}
    ran = house.run(a=ping, b=ping)
    assert len(ran) == 21
    [dead] = house.rows("jobs", **_filters(status="dead"))
    assert "hop 21" in str(dead["last_error"])


def test_an_instance_whose_first_job_is_over_its_limit_is_announced_as_failed_once(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    pipelines: list[dict[str, object]] = [
        {"name": "p", "on": "go", "steps": [{"uses": "a"}]},
        {"name": "q", "on": "next", "steps": [{"uses": "b"}]},
    ]
    house = House(ledger, clock, entropy, pipelines, max_hops=1)
    house.start("p", {})
    further = {"status": "ok", "result": "", "events": [{"type": "next"}]}
    house.run(a=further, b=further)
    [dead] = house.rows("jobs", **_filters(status="dead"))
    assert house.announced(str(dead["scope_id"])) == ["pipeline.failed"]


def test_any_number_of_splits_can_end_in_one_transaction(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    # Each branch is over the limit and ends at once, so that each split ends when it opens.
    count = 200
    splits = [{"split": [{"uses": "b"}], "join": "always"} for _ in range(count)]
    steps = [{"uses": "a"}, *splits, {"uses": "j"}]
    pipeline = {"name": "p", "on": "go", "max_depth": 1, "steps": steps}
    house = House(ledger, clock, entropy, [pipeline])
    instance = house.start("p", {})
    assert house.run() == ["step_1"]
    dead = house.rows("jobs", **_filters(status="dead", limit=2 * count))
    assert len(dead) == count + 1
    assert house.announced(instance) == ["pipeline.failed"]


def test_an_instance_that_a_retry_opens_again_is_announced_at_each_of_its_ends(make) -> None:
    house = make(*SPLIT)
    instance = house.start("p", {})
    house.run(c=FINAL)
    for bodies in ({"c": FINAL}, {}):
        [failed] = house.rows("jobs", **_filters(status="failed"))
        job = house.ledger.read(lambda tx, id=failed["id"]: read.load_job(tx, id))
        house.ledger.write(lambda tx, job=job: requeue.retry_job(tx, job, 4, house.clock.now()))
        house.run(**bodies)
    assert house.announced(instance) == ["pipeline.failed", "pipeline.failed", "pipeline.ended"]


def test_the_same_event_delivered_again_makes_no_second_job(make) -> None:
    house = make({"uses": "a"})
    now = house.clock.now()
    event = Event("go", {}, None, "hook", now, "event-1")
    routing = house.tx_config.router.arrive(event, plugin="b", submitted_by=SubmittedBy.WEBHOOK)
    routed = tuple(i for i in routing.intents if hasattr(i, "identity"))
    for base in (house.entropy.uuid(), house.entropy.uuid()):
        house.ledger.write(
            lambda tx, base=base: close.write_intents(
                tx, routed, SpawnPoint(), house.tx_config, Ids(base), now
            )
        )
    assert len(house.rows("jobs", **_filters(plugin="b"))) == 1


def test_a_hook_fires_once_when_a_root_job_ends_and_never_for_a_hooks_own_job(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    pipelines: list[dict[str, object]] = [
        {"name": "p", "on": "go", "steps": [{"uses": "a"}]},
        {"name": "h", "on-hook": "job.completed", "steps": [{"uses": "e"}, {"uses": "d"}]},
    ]
    house = House(ledger, clock, entropy, pipelines, notify=frozenset({"a", "e", "d"}))
    house.start("p", {})
    ran = house.run()
    assert len(ran) == 3
    hooked = house.rows("jobs", **_filters(submitted_by="hook"))
    assert [row["plugin"] for row in hooked] == ["e"]


def test_what_follows_a_split_fires_no_hook_though_it_has_no_parent(
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
    house = House(ledger, clock, entropy, pipelines, notify=frozenset("abcdj"))
    house.start("p", {})
    house.run()
    hooked = house.rows("jobs", **_filters(submitted_by="hook"))
    told = [house.event_of(row)["payload"]["plugin"] for row in hooked]
    assert sorted(told) == ["a", "b"]


TIMED_OUT = Outcome(Ending.TIMED_OUT, duration=1.0)
HOOKS = ("job.completed", "job.failed", "job.timed_out")


@pytest.mark.parametrize("outcome", [TIMED_OUT, Outcome(Ending.LOST)], ids=["late", "lost"])
@pytest.mark.parametrize("again", [False, True], ids=["waiting", "retried"])
def test_a_job_that_is_cancelled_before_its_next_attempt_tells_whether_the_last_timed_out(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy, outcome: Outcome, again: bool
) -> None:
    pipelines: list[dict[str, object]] = [
        {"name": hook, "on-hook": hook, "steps": [{"uses": "e"}]} for hook in HOOKS
    ]
    house = House(ledger, clock, entropy, pipelines, notify=frozenset("a"))
    new = NewJob("a", "poll", SubmittedBy.API)
    id, now = entropy.uuid(), clock.now()
    ledger.write(lambda tx: enqueue.enqueue_job(tx, new, house.tx_config, id=id, now=now))
    claimed = house.take()
    last = replace(claimed.job, max_attempts=1) if again else claimed.job
    house.settle(judge(last, outcome, house.rules, now, 0.5))
    job = ledger.read(lambda tx: read.load_job(tx, id))
    if again:
        execute(ledger, "DELETE FROM job_queue WHERE plugin = 'e'")
        assert ledger.write(lambda tx: requeue.retry_job(tx, job, 4, now))
        job = ledger.read(lambda tx: read.load_job(tx, id))
    base, why = Ids(entropy.uuid()), "cancelled"
    assert ledger.write(
        lambda tx: close.end_queued(tx, job, JobStatus.DEAD, why, now, house.tx_config, base)
    )
    fired = {row["pipeline"] for row in house.rows("jobs", **_filters(submitted_by="hook"))}
    late = outcome.ending is Ending.TIMED_OUT
    assert fired == set(HOOKS if late else HOOKS[:2])


def test_ending_a_queued_branch_closes_its_scopes_too(make) -> None:
    house = make(*SPLIT)
    instance = house.start("p", {})
    house.end(house.take())
    [waiting] = house.ledger.read(lambda tx: requeue.list_queued(tx, "d", house.clock.now(), 10))
    base = house.entropy.uuid()
    house.ledger.write(
        lambda tx: close.end_queued(
            tx, waiting, JobStatus.DEAD, "cancelled", house.clock.now(), house.tx_config, Ids(base)
        )
    )
    house.run()
    assert house.scope(instance) == "failed"


def _filters(**given: object) -> dict[str, object]:
    none = {"status": None, "plugin": None, "command": None, "submitted_by": None, "before": None}
    return {**none, "limit": 100, **given}


def test_a_retry_after_the_join_has_run_does_not_open_the_instance_again(make) -> None:
    steps = [dict(step) for step in SPLIT]
    steps[1]["join"] = "always"
    house = make(*steps)
    instance = house.start("p", {})
    house.run(c=FINAL, j=FINAL)
    assert house.scope(instance) == "failed"
    [branch] = house.rows("jobs", **_filters(status="failed", plugin="c"))
    job = house.ledger.read(lambda tx: read.load_job(tx, branch["id"]))
    house.ledger.write(lambda tx: requeue.retry_job(tx, job, 4, house.clock.now()))
    house.run()
    assert house.scope(instance) == "failed"
