"""`ductile job retry`, `cancel`, `replay`, `inspect` and `why`, with real gateways and plugins."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.clock import SystemClock
from ductile.errors import Refused
from ductile.model import JobStatus, NewJob, SubmittedBy
from ductile.operations import jobs as operate
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import claim, enqueue
from ductile.store.tx_config import TxConfig
from tests.cli.pipelines import (
    add_pipelines,
    executed_steps,
    graph_by_step,
    is_alive,
    wait_until_running,
)
from tests.cli.runner import CliRunner
from tests.postgres import Server
from tests.waiting import until


@pytest.fixture
def flow(cli: CliRunner) -> CliRunner:
    return add_pipelines(cli)


def test_retrying_a_branch_completes_the_split_and_joins_once(flow: CliRunner) -> None:
    with flow.gateway():
        done = flow("pipeline", "run", "fan", "--payload", '{"who": "ann"}', "--json")
        assert (done.code, done.json["status"]) == (1, "failed")
        root = done.json["job_id"]
        weak = graph_by_step(flow, root)["wide.1.weak"]
        assert (weak["status"], weak["last_error"]) == ("dead", "not fixed")
        assert "last" not in graph_by_step(flow, root)

        dry = flow("job", "retry", weak["job_id"], "--dry-run", "--json").json
        assert (dry["dry_run"], dry["status"]) == (True, "dead")
        assert graph_by_step(flow, root)["wide.1.weak"]["status"] == "dead"

        flow.write("fixed", "")
        again = flow("job", "retry", weak["job_id"])
        assert (again.code, again.out) == (0, f"job {weak['job_id']} is queued, attempt 2 of 2\n")
        last = until(lambda: graph_by_step(flow, root).get("last"))
        until(lambda: executed_steps(flow).count("last") == 1)
        assert last["join_of"]
        refused = flow("job", "retry", weak["job_id"], "--json")
        assert (refused.code, refused.json["code"]) == (1, "refused")
    nodes = graph_by_step(flow, root)
    assert [nodes[step]["status"] for step in nodes] == ["succeeded"] * 4
    assert len(nodes["wide.1.weak"]["attempts"]) == 2
    assert executed_steps(flow).count("last") == 1


def test_inspect_shows_the_whole_graph(flow: CliRunner) -> None:
    with flow.gateway():
        root = flow("pipeline", "run", "fan", "--payload", '{"who": "ann"}', "--json").json[
            "job_id"
        ]
    weak = graph_by_step(flow, root)["wide.1.weak"]["job_id"]
    text = flow("job", "inspect", weak).out
    assert "first: mark handle  succeeded" in text
    assert "wide.0.good [good]: mark handle  succeeded" in text
    assert "wide.1.weak [weak]: flaky handle  dead" in text
    assert "error: not fixed" in text
    assert 'baggage run: { "who": "ann" }' in text
    assert graph_by_step(flow, weak).keys() == graph_by_step(flow, root).keys()


def test_an_instance_that_starts_with_a_split_is_one_graph(flow: CliRunner) -> None:
    with flow.gateway():
        root = flow("pipeline", "run", "wide", "--json").json["job_id"]
    nodes = graph_by_step(flow, root)
    assert [node["branch"] for node in nodes.values()] == ["0", "1", None]
    assert [node["depth"] for node in nodes.values()] == [0, 0, 0]
    for node in list(nodes.values()):
        assert graph_by_step(flow, node["job_id"]).keys() == nodes.keys()


def test_cancel_kills_a_running_job(flow: CliRunner) -> None:
    with flow.gateway():
        started = flow("pipeline", "run", "slowly", "--async", "--json").json
        pid = wait_until_running(flow)
        dry = flow("job", "cancel", started["job_id"], "--dry-run").out
        assert dry == f"would cancel job {started['job_id']} (running) and kill its processes\n"
        assert is_alive(pid)
        done = flow("job", "cancel", started["job_id"])
        result = f"cancelled job {started['job_id']}: it is dead (was running)\n"
        assert (done.code, done.out) == (0, result)
        assert not is_alive(pid)
        assert "after" not in graph_by_step(flow, started["job_id"])
        again = flow("job", "cancel", started["job_id"], "--json")
        assert (again.code, again.json["code"]) == (1, "refused")
        assert "running → dead: cancelled" in flow("job", "why", started["job_id"]).out


def test_cancel_and_retry_a_queued_job_without_a_gateway(flow: CliRunner) -> None:
    job = flow("run", "mark", "--async", "--json").json["job_id"]
    assert flow("job", "cancel", job, "--dry-run").out.startswith("would cancel job")
    assert flow("job", "inspect", job, "--json").json["status"] == "queued"
    assert flow("job", "cancel", job).code == 0
    assert flow("job", "inspect", job, "--json").json["status"] == "dead"
    assert flow("job", "retry", job).code == 0
    assert flow("job", "inspect", job, "--json").json["status"] == "queued"
    assert "retried by an operator" in flow("job", "why", job).out


def test_cancel_and_retry_by_filters(flow: CliRunner) -> None:
    first, second = (flow("run", "mark", "--async", "--json").json["job_id"] for _ in range(2))
    which = ("--plugin", "mark")
    assert flow("job", "cancel", *which, "--until", "1h", "--json").json["jobs"] == []
    planned = flow("job", "cancel", *which, "--since", "1h", "--dry-run").out
    assert planned == f"would cancel 2 jobs\n  {first}\n  {second}\n"
    assert flow("job", "cancel", *which).out == "cancelled 2 jobs\n"
    # An operator wanted them to end.
    left = flow("job", "retry", "--status", "dead")
    assert (left.code, left.out) == (0, "retrying 0 jobs\n")
    assert "add --acknowledged to retry these" in left.err
    chosen = ("--status", "dead", "--acknowledged")
    done = flow("job", "retry", *chosen, "--limit", "1", "--json").json
    assert (done["jobs"], done["more"]) == ([first], True)
    for wrong in (["retry"], ["retry", second, *which], ["cancel"], ["cancel", *which, "--force"]):
        assert flow("job", *wrong).code == 2, wrong


def test_acknowledged_jobs_need_nobody(flow: CliRunner) -> None:
    flow.plugin("bad", "echo no luck >&2; exit 1")
    text = (flow.root / "config.yaml").read_text()
    once = "plugins:\n  bad: {retry: {max_attempts: 1}}\n"
    flow.write("config.yaml", text.replace("plugins:\n", once, 1))
    with flow.gateway():
        ids = [flow("run", "bad", "--json").json["job_id"] for _ in range(3)]
        assert "3 dead jobs of bad poll: exit code 1" in flow("status").out
        first, second, third = ids
        assert flow("job", "acknowledge", first, "--dry-run").out.startswith("would acknowledge")
        done = flow("job", "acknowledge", first)
        assert (done.code, done.out) == (0, f"acknowledged job {first} (dead)\n")
        assert "acknowledged" in flow("job", "inspect", first).out
        assert "2 dead jobs of bad poll" in flow("status").out
        listed = flow("job", "list", "--status", "dead", "--not-acknowledged", "--json").json
        assert [row["job_id"] for row in listed["jobs"]] == [third, second]
        planned = flow("job", "acknowledge", "--plugin", "bad", "--dry-run").out
        assert planned == f"would acknowledge 2 jobs\n  {second}\n  {third}\n"
        assert flow("job", "acknowledge", "--plugin", "bad").out == "acknowledged 2 jobs\n"
        assert "dead job" not in flow("status").out


def test_retry_runs_a_job_that_waits_out_its_backoff_now(flow: CliRunner) -> None:
    fixed = f"[ -e '{flow.root}/fixed' ] || exit 1\necho '{{\"status\": \"ok\"}}'"
    flow.plugin("hopeful", fixed)
    text = (flow.root / "config.yaml").read_text()
    once = "plugins:\n  hopeful: {retry: {max_attempts: 2, backoff_base: 1h}}\n"
    flow.write("config.yaml", text.replace("plugins:\n", once, 1))
    with flow.gateway():
        job = flow("run", "hopeful", "--async", "--json").json["job_id"]
        until(lambda: flow("job", "inspect", job, "--json").json["next_retry_at"])
        dry = flow("job", "retry", job, "--dry-run")
        assert dry.out == f"would retry job {job} (queued) as attempt 2\n"
        flow.write("fixed", "")
        again = flow("job", "retry", job)
        assert (again.code, again.out) == (0, f"job {job} is queued, attempt 2 of 2\n")
        until(lambda: flow("job", "inspect", job, "--json").json["status"] == "succeeded")
        refused = flow("job", "retry", job, "--json")
        assert "jobs that wait for their next attempt, can be retried" in refused.json["error"]


def test_replay_runs_a_step_with_its_original_input(flow: CliRunner) -> None:
    flow.write("fixed", "")
    with flow.gateway():
        root = flow("pipeline", "run", "fan", "--payload", '{"who": "ann"}', "--json").json[
            "job_id"
        ]
        before = graph_by_step(flow, root)
        dry = flow("job", "replay", root, "--step", "wide.0.good", "--dry-run", "--json").json
        assert dry == {"replay_of": before["wide.0.good"]["job_id"], "dry_run": True}
        assert flow("job", "replay", root, "--step", "good", "--dry-run", "--json").json == dry
        first = flow("job", "replay", root, "--json").json
        assert first["replay_of"] == root
        # The steps that follow the replayed one run as well, and no others.
        until(lambda: executed_steps(flow).count("last") == 2)
        good = flow("job", "replay", root, "--step", "wide.0.good", "--json").json
        until(lambda: flow("job", "inspect", good["job_id"], "--json").json["result"])
        assert executed_steps(flow).count("good") == 3
        assert executed_steps(flow).count("last") == 2
        assert flow("job", "replay", root, "--step", "nope", "--json").json["code"] == "not_found"
        other = flow("job", "replay", root, "--payload", '{"who": "eve"}', "--json").json["job_id"]
        shown = flow("job", "inspect", other, "--json").json["payload"]
        assert (shown["type"], shown["payload"]) == ("fan.go", {"who": "eve"})
        assert flow("job", "replay", root, "--payload", "null", "--json").json["code"] == "usage"
    nodes = flow("job", "inspect", good["job_id"], "--json").json
    assert (nodes["replay_of"], nodes["submitted_by"]) == (before["wide.0.good"]["job_id"], "cli")
    assert nodes["payload"] == flow("job", "inspect", nodes["replay_of"], "--json").json["payload"]
    trail = (flow.state / "workspaces" / good["job_id"] / "trail").read_text().split()
    assert trail == ["first", "good"]
    assert f"It replays job {nodes['replay_of']}" in flow("job", "why", good["job_id"]).out


def test_a_step_that_was_removed_is_not_run_again(flow: CliRunner) -> None:
    with flow.gateway():
        root = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json["job_id"]
        weak = graph_by_step(flow, root)["wide.1.weak"]["job_id"]
    config = (flow.root / "config.yaml").read_text()
    flow.write("config.yaml", config.replace("id: weak", "id: feeble"))
    for verb in ("retry", "replay"):
        done = flow("job", verb, weak, "--json")
        assert (done.code, done.json["code"]) == (1, "refused")
        assert "no longer exists in pipeline fan" in done.json["error"]


def test_why_explains_submission_routing_and_deduplication(flow: CliRunner) -> None:
    work_signal = 'echo \'{"status":"ok","events":[{"type":"mark.done"},{"type":"unrouted"}]}\''
    flow.plugin("work_signal", work_signal)
    deaf = 'echo \'{"status":"ok","events":[{"type":"unrouted"}]}\''
    flow.plugin("deaf", deaf)
    rung = flow("run", "work_signal", "--dedupe-key", "k", "--json").json["job_id"]
    again = flow("run", "work_signal", "--dedupe-key", "k", "--json").json
    assert again["deduplicated"]
    result = "\n".join(flow("job", "why", rung, "--json").json["why"])
    assert "It was submitted by cli" in result
    assert "did not start pipeline picky: its `if` payload.never exists is false" in result
    assert "payload.never does not exist" in result
    assert "Its event unrouted was not routed" in result, "although another event was routed"
    assert "with key 'k' was dropped as a duplicate of this one" in result
    without_gateway = flow("run", "deaf", "--json").json["job_id"]
    assert "Its event unrouted was not routed" in flow("job", "why", without_gateway).out
    waits = flow("run", "work_signal", "--async", "--json").json["job_id"]
    assert "It is queued: no gateway is running." in flow("job", "why", waits).out
    assert flow("job", "why", "nope", "--json").json["code"] == "not_found"


def test_why_names_the_job_that_replaced_a_dropped_event(flow: CliRunner) -> None:
    event = '{"type":"chain.go","dedupe_key":"k","payload":{"name":"x"}}'
    flow.plugin("source", f"""echo '{{"status":"ok","events":[{event}]}}'""")
    with flow.gateway():
        jobs = []
        for _ in range(2):
            jobs.append(flow("run", "source", "--json").json["job_id"])
            until(lambda: flow("queue", "--json").json["queue_depth"] == 0)
        first, second = ("\n".join(flow("job", "why", id, "--json").json["why"]) for id in jobs)
    assert "It led to job" in first
    winner = first.partition("It led to job ")[2].partition(" ")[0]
    expected = f"Its event chain.go for pipeline chain was dropped as a duplicate of job {winner}"
    assert expected in second
    assert "was not routed" not in second
    shown = flow("job", "inspect", winner).out
    assert "dedupe key:    k; duplicates dropped: 1\n" in shown


def test_why_explains_a_join_that_did_not_run(flow: CliRunner) -> None:
    with flow.gateway():
        run = flow("pipeline", "run", "fan", "--payload", '{"who": "ann"}', "--json").json
    weak = graph_by_step(flow, run["job_id"])["wide.1.weak"]["job_id"]
    reason = f"step wide.1.weak ended as dead (job {weak}): not fixed"
    assert (run["status"], run["reason"]) == ("failed", reason)
    expected = f"Step last, which joins split wide, did not run: {reason}"
    nodes = graph_by_step(flow, run["job_id"])
    for step in ("first", "wide.0.good", "wide.1.weak"):
        assert expected in flow("job", "why", nodes[step]["job_id"], "--json").json["why"], step
    assert reason in flow("job", "why", run["instance_id"]).out
    # A retry reopens the run, and its end has another reason or none.
    flow.write("fixed", "")
    with flow.gateway():
        flow("job", "retry", weak)
        until(lambda: executed_steps(flow).count("last") == 1)
    assert expected not in flow("job", "why", weak, "--json").json["why"]


def test_inspect_shows_what_with_sets(flow: CliRunner) -> None:
    with flow.gateway():
        run = flow("pipeline", "run", "chain", "--payload", '{"name": "ann"}', "--json").json
    two = graph_by_step(flow, run["job_id"])["two"]["job_id"]
    shown = flow("job", "inspect", two, "--json").json
    assert shown["with"] == {"values": {"text": "hello ann"}, "fails": None, "exact": True}
    assert "with\n" in flow("job", "inspect", two).out
    config = (flow.root / "config.yaml").read_text()
    flow.write("config.yaml", config.replace('"hello {payload.name}"', '"bye {payload.none}"'))
    shown = flow("job", "inspect", two, "--json").json["with"]
    assert (shown["values"], shown["exact"]) == (None, False)
    assert "payload.none does not exist" in shown["fails"]
    assert "with (by the current configuration)" in flow("job", "inspect", two).out
    one = graph_by_step(flow, run["job_id"])["one__switch"]["job_id"]
    assert flow("job", "inspect", one, "--json").json["with"] is None


def delete_rows(flow: CliRunner, table: str, key: str, value: str) -> None:
    """Delete rows, as retention does."""
    ledger = apsw.Connection(str(flow.state / "state.db"))
    ledger.execute(f"DELETE FROM {table} WHERE {key} = ?", (value,))
    ledger.close()


def test_the_graph_remains_when_a_parent_is_pruned(flow: CliRunner) -> None:
    flow.write("fixed", "")
    with flow.gateway():
        root = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json["job_id"]
    good = graph_by_step(flow, root)["wide.0.good"]["job_id"]
    delete_rows(flow, "job_queue", "id", root)
    assert graph_by_step(flow, good).keys() == {"wide.0.good", "wide.1.weak", "last"}
    assert flow("job", "inspect", root, "-v").code == 0
    (node,) = flow("job", "inspect", root, "--json").json["graph"]
    assert (node["status"], node["pruned"], node["depth"]) == (
        "succeeded",
        True,
        0,
    )
    assert flow("job", "inspect", root).code == 0
    assert "It was submitted by" in flow("job", "why", root).out
    for verb in ("retry", "cancel", "replay"):
        done = flow("job", verb, root, "--json")
        assert (done.code, done.json["code"]) == (1, "not_found")
        assert "past its retention" in done.json["error"]
    delete_rows(flow, "job_log", "job_id", root)
    assert flow("job", "inspect", root, "--json").json["code"] == "not_found"


@dataclass
class Claimed:
    """The part of a gateway that cancel uses; its job is claimed, but has no process yet."""

    ledger: SqliteLedger
    looks: int
    boot: str = "me"
    clock: SystemClock = field(default_factory=SystemClock)

    def cancel_running(self, *_: Any) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_cancel_waits_for_the_process_of_a_claimed_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    now = SystemClock().now()
    new = NewJob("x", "poll", SubmittedBy.CLI)
    ledger.write(lambda tx: enqueue.enqueue_job(tx, new, TxConfig(0.0), id="j", now=now))
    ledger.write(lambda tx: claim.start_job(tx, claim.ClaimPolicy("me"), "j", now))
    claimed: Any = Claimed(ledger, 3)
    assert operate.cancel(claimed, "j") is JobStatus.RUNNING
    assert claimed.looks < 0
    monkeypatch.setattr(operate, "START_TIMEOUT", 0.05)
    elsewhere: Any = Claimed(ledger, 1000)
    with pytest.raises(Refused, match="no worker of this gateway owns it"):
        operate.cancel(elsewhere, "j")
    ledger.close()


def test_job_actions_work_on_postgres(flow: CliRunner, postgres: Server) -> None:
    config = (flow.root / "config.yaml").read_text()
    state = f"state: {{url: '{postgres.database()}', dir: ./data}}"
    config = config.replace("state: {path: ./data/state.db}", state)
    schedule = "  mark: {schedules: [{id: s, cron: '* * * * *'}], config"
    flow.write("config.yaml", config.replace("  mark: {config", schedule))
    flow.state.mkdir()
    with flow.gateway():
        done = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json
        weak = graph_by_step(flow, done["job_id"])["wide.1.weak"]["job_id"]
        flow.write("fixed", "")
        assert flow("job", "retry", weak).code == 0
        until(lambda: executed_steps(flow).count("last") == 1)
        assert flow("schedule", "pause", "mark/s").code == 0
        assert flow("job", "replay", weak).code == 0
    reads = ("schedule list", "schedule explain mark", "system breaker mark", f"job why {weak}")
    for line in reads:
        assert flow(*line.split(), "--json").code == 0
    line = ("pipeline", "dry-run", "fan", "--step", "first", "--job", weak)
    assert flow(*line).code == 0
    assert flow("schedule", "resume", "mark/s").code == 0
