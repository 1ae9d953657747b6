"""Enqueueing, claiming and settling jobs directly, for tests of the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson

from ductile.clock import Ids
from ductile.core.jobs.judge import Rules, judge, prepare_failed, switch, wait
from ductile.core.jobs.prepare import Entered
from ductile.core.jobs.retry import RetryPolicy
from ductile.core.pipelines.build_router import build_router
from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.graph import NodeKind
from ductile.core.pipelines.intents import Routing
from ductile.core.pipelines.pipeline import Compiled
from ductile.core.pipelines.routes import Route
from ductile.core.pipelines.step_io import Switched, entered_payload, judge_switch, prepare_step
from ductile.core.values.json_values import Failure
from ductile.core.values.redact import Redactor
from ductile.core.waits.begin import begin_wait
from ductile.model import (
    Ending,
    Event,
    NewJob,
    Outcome,
    Settlement,
    SubmittedBy,
)
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, Ledger
from ductile.store.engines.queries import NEVER
from ductile.store.jobs import claim as claims
from ductile.store.jobs import close, enqueue, plugin_state, read
from ductile.store.jobs.claim import MAX_SEQ, ClaimedJob, ClaimPolicy, claim
from ductile.store.jobs.settle import settle
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.tx_config import TxConfig
from tests.conftest import CountingEntropy, FakeClock

BASE = "01930000-0000-7000-8000-000000000000"
OK = Outcome(Ending.EXITED, exit_code=0, stdout=b'{"status": "ok", "result": "done"}')
BAD = Outcome(Ending.EXITED, exit_code=1, stdout=b'{"status": "error", "error": "no"}')
RULES = Rules(RetryPolicy(), Redactor())
POLICY = ClaimPolicy(owner="boot-1")
TX_CONFIG = TxConfig(dedupe_ttl=86_400.0)
PLUGINS = {name: frozenset({"poll", "handle"}) for name in "abcdej"}
SPLIT = [
    {"uses": "a"},
    {"id": "fan", "split": [{"uses": "b"}, {"uses": "c"}, {"uses": "d"}]},
    {"id": "after", "uses": "j"},
]
MOST_JOBS = 500
"""More than any test runs."""
FINAL = {"status": "error", "error": "no", "retry": False}


class JobQueue:
    """A queue of jobs, with the transactions of their life called directly."""

    def __init__(self, ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> None:
        self.ledger, self.clock, self.entropy = ledger, clock, entropy

    def put(
        self,
        plugin: str = "echo",
        command: str = "poll",
        *,
        attempts: int = 4,
        **more: object,
    ) -> enqueue.Enqueued:
        new = NewJob(plugin, command, SubmittedBy.CLI, **more)  # type: ignore[arg-type]
        id = self.entropy.uuid()
        now = self.clock.now()
        tx_config = replace(TX_CONFIG, attempts={plugin: attempts})
        return self.ledger.write(lambda tx: enqueue.enqueue_job(tx, new, tx_config, id=id, now=now))

    def take(self, policy: ClaimPolicy = POLICY) -> ClaimedJob | None:
        now = self.clock.now()
        claimed = self.ledger.write(lambda tx: claims.claim(tx, policy, now))
        return claimed[0] if claimed else None

    def take_all(self, workers: int, prefetch: int = 0, policy: ClaimPolicy = POLICY) -> list[str]:
        now = self.clock.now()
        claimed = self.ledger.write(lambda tx: claims.claim(tx, policy, now, workers, prefetch))
        return [one.job.id for one in claimed]

    def must_take(self, policy: ClaimPolicy = POLICY) -> ClaimedJob:
        claimed = self.take(policy)
        assert claimed is not None
        return claimed

    def end(self, claimed: ClaimedJob, outcome: Outcome = OK, rules: Rules = RULES) -> bool:
        verdict = judge(claimed.job, outcome, rules, self.clock.now(), 0.5)
        return self.ledger.write(lambda tx: settle(tx, verdict, TX_CONFIG, BASE)) is not None

    def job(self, job_id: str) -> dict[str, object]:
        found = self.ledger.read(lambda tx: read.describe_job(tx, job_id))
        assert found is not None
        return found

    def state(self, plugin: str) -> object:
        return self.ledger.read(lambda tx: plugin_state.load_state(tx, plugin))


class Pipelines:
    """Pipelines whose jobs are claimed and settled directly."""

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
        """Replace the pipelines; claimed jobs keep those under which they were claimed."""
        compiled = compile_pipelines(pipelines, PLUGINS)
        assert isinstance(compiled, Compiled), compiled
        router = build_router(self.routes, compiled, self.max_hops)
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
            judged = judge_switch(node, payload, context, {}, hops=job.hops)
            accumulated = judged.accumulated if isinstance(judged, Switched) else None
            entered = Entered(payload, accumulated, context)
            verdict = switch(job, judged, entered, rules, now, self.entropy.uuid())
        elif node is not None and node.kind is NodeKind.WAIT:
            begun = begin_wait(
                node, payload, context, now, hops=job.hops, wait_id=self.entropy.uuid()
            )
            verdict = wait(job, begun, Routing(), rules, now)
        else:
            accumulated = None
            if node is not None:
                step = prepare_step(node, payload, context, {}, hops=job.hops)
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
        """Run jobs until none is ready; returns their steps in order."""
        ran = []
        while (claimed := self.take()) is not None:
            ran.append(claimed.job.step_path or claimed.job.plugin)
            assert len(ran) <= MOST_JOBS, "jobs start jobs without an end"
            self.end(claimed, bodies.get(claimed.job.plugin))
        return ran

    def rows(self, query: str, **values: object) -> list[dict[str, object]]:
        return self.ledger.read(lambda tx: tx.dicts(query, **values))

    def scope(self, id: str) -> str:
        return str(self.rows("scope", id=id)[0]["status"])

    def announced(self, instance: str) -> list[str]:
        """The types of the notices about an instance, in order."""
        stored = self.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
        return [n.type for n in stored if n.topic == "pipelines" and n.job_id == instance]

    def payload_of(self, step: str) -> object:
        [row] = [row for row in self.rows("pending_jobs", limit=100) if row["step_path"] == step]
        return self.event_of(row)["payload"]

    def event_of(self, row: Mapping[str, object]) -> dict[str, Any]:
        """The event that created a job."""
        [whole] = self.rows("job", id=row["id"])
        return dict(orjson.loads(str(whole["payload"])))


def job_filters(**given: object) -> dict[str, object]:
    """The values of the query `jobs`, which lists the newest jobs first."""
    names = ("status", "plugin", "pipeline", "command", "submitted_by", "acknowledged")
    return {
        **dict.fromkeys(names),
        "since": "",
        "at": NEVER,
        "before": MAX_SEQ,
        "limit": 100,
        **given,
    }
