"""What an operator does to jobs, on real gateways with real plugins."""

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
from tests.cli.flows import alive, furnish, is_up, ran, steps
from tests.cli.running import House
from tests.postgres import Server
from tests.waiting import until


@pytest.fixture
def flow(house: House) -> House:
    return furnish(house)


def test_a_retried_branch_lets_the_split_complete_and_the_join_run_once(flow: House) -> None:
    with flow.gateway():
        done = flow("pipeline", "run", "fan", "--payload", '{"who": "ann"}', "--json")
        assert (done.code, done.json["status"]) == (1, "failed")
        root = done.json["job_id"]
        weak = steps(flow, root)["wide.1.weak"]
        assert (weak["status"], weak["last_error"]) == ("dead", "not mended")
        assert "last" not in steps(flow, root)

        dry = flow("job", "retry", weak["job_id"], "--dry-run", "--json").json
        assert (dry["dry_run"], dry["status"]) == (True, "dead")
        assert steps(flow, root)["wide.1.weak"]["status"] == "dead"

        flow.write("mended", "")
        again = flow("job", "retry", weak["job_id"])
        assert (again.code, again.out) == (0, f"job {weak['job_id']} is queued, attempt 2 of 2\n")
        last = until(lambda: steps(flow, root).get("last"))
        until(lambda: ran(flow).count("last") == 1)
        assert last["join_of"]
        refused = flow("job", "retry", weak["job_id"], "--json")
        assert (refused.code, refused.json["code"]) == (1, "refused")
    nodes = steps(flow, root)
    assert [nodes[step]["status"] for step in nodes] == ["succeeded"] * 4
    assert len(nodes["wide.1.weak"]["attempts"]) == 2
    assert ran(flow).count("last") == 1


def test_inspect_shows_the_whole_graph(flow: House) -> None:
    with flow.gateway():
        root = flow("pipeline", "run", "fan", "--payload", '{"who": "ann"}', "--json").json[
            "job_id"
        ]
    weak = steps(flow, root)["wide.1.weak"]["job_id"]
    text = flow("job", "inspect", weak).out
    assert "first: mark handle  succeeded" in text
    assert "wide.0.good [good]: mark handle  succeeded" in text
    assert "wide.1.weak [weak]: flaky handle  dead" in text
    assert "error: not mended" in text
    assert 'baggage run: { "who": "ann" }' in text
    assert steps(flow, weak).keys() == steps(flow, root).keys()


def test_an_instance_that_begins_with_a_split_is_one_graph(flow: House) -> None:
    with flow.gateway():
        root = flow("pipeline", "run", "wide", "--json").json["job_id"]
    nodes = steps(flow, root)
    assert [node["branch"] for node in nodes.values()] == ["0", "1", None]
    assert [node["depth"] for node in nodes.values()] == [0, 0, 0]
    for node in list(nodes.values()):
        assert steps(flow, node["job_id"]).keys() == nodes.keys()


def test_cancel_kills_what_runs(flow: House) -> None:
    with flow.gateway():
        started = flow("pipeline", "run", "slowly", "--async", "--json").json
        pid = is_up(flow)
        dry = flow("job", "cancel", started["job_id"], "--dry-run").out
        assert dry == f"would cancel job {started['job_id']} (running) and kill its processes\n"
        assert alive(pid)
        done = flow("job", "cancel", started["job_id"])
        told = f"cancelled job {started['job_id']}: it is dead (was running)\n"
        assert (done.code, done.out) == (0, told)
        assert not alive(pid)
        assert "after" not in steps(flow, started["job_id"])
        again = flow("job", "cancel", started["job_id"], "--json")
        assert (again.code, again.json["code"]) == (1, "refused")
        assert "running → dead: cancelled" in flow("job", "why", started["job_id"]).out


def test_cancel_and_retry_of_what_waits_without_a_gateway(flow: House) -> None:
    job = flow("run", "mark", "--async", "--json").json["job_id"]
    assert flow("job", "cancel", job, "--dry-run").out.startswith("would cancel job")
    assert flow("job", "inspect", job, "--json").json["status"] == "queued"
    assert flow("job", "cancel", job).code == 0
    assert flow("job", "inspect", job, "--json").json["status"] == "dead"
    assert flow("job", "retry", job).code == 0
    assert flow("job", "inspect", job, "--json").json["status"] == "queued"
    assert "retried by an operator" in flow("job", "why", job).out


def test_replay_runs_a_step_again_from_what_entered_it(flow: House) -> None:
    flow.write("mended", "")
    with flow.gateway():
        root = flow("pipeline", "run", "fan", "--payload", '{"who": "ann"}', "--json").json[
            "job_id"
        ]
        before = steps(flow, root)
        dry = flow("job", "replay", root, "--step", "wide.0.good", "--dry-run", "--json").json
        assert dry == {"replay_of": before["wide.0.good"]["job_id"], "dry_run": True}
        first = flow("job", "replay", root, "--json").json
        assert first["replay_of"] == root
        # A replayed first step is followed by its pipeline, join and all, and only by that.
        until(lambda: ran(flow).count("last") == 2)
        good = flow("job", "replay", root, "--step", "wide.0.good", "--json").json
        until(lambda: flow("job", "inspect", good["job_id"], "--json").json["result"])
        assert ran(flow).count("wide.0.good") == 3
        assert ran(flow).count("last") == 2
        assert flow("job", "replay", root, "--step", "nope", "--json").json["code"] == "not_found"
    nodes = flow("job", "inspect", good["job_id"], "--json").json
    assert (nodes["replay_of"], nodes["submitted_by"]) == (before["wide.0.good"]["job_id"], "cli")
    assert nodes["payload"] == flow("job", "inspect", nodes["replay_of"], "--json").json["payload"]
    trail = (flow.state / "workspaces" / good["job_id"] / "trail").read_text().split()
    assert trail == ["first", "wide.0.good"]
    assert f"It replays job {nodes['replay_of']}" in flow("job", "why", good["job_id"]).out


def test_what_the_config_no_longer_has_is_not_run_again(flow: House) -> None:
    with flow.gateway():
        root = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json["job_id"]
        weak = steps(flow, root)["wide.1.weak"]["job_id"]
    config = (flow.root / "config.yaml").read_text()
    flow.write("config.yaml", config.replace("id: weak", "id: feeble"))
    for verb in ("retry", "replay"):
        done = flow("job", verb, weak, "--json")
        assert (done.code, done.json["code"]) == (1, "refused")
        assert "no longer exists in pipeline fan" in done.json["error"]


def test_why(flow: House) -> None:
    work_signal = 'echo \'{"status":"ok","events":[{"type":"mark.done"},{"type":"unheard"}]}\''
    flow.plugin("work_signal", work_signal)
    deaf = 'echo \'{"status":"ok","events":[{"type":"unheard"}]}\''
    flow.plugin("deaf", deaf)
    rung = flow("run", "work_signal", "--dedupe-key", "k", "--json").json["job_id"]
    again = flow("run", "work_signal", "--dedupe-key", "k", "--json").json
    assert again["deduplicated"]
    told = "\n".join(flow("job", "why", rung, "--json").json["why"])
    assert "It was submitted by cli" in told
    assert "did not start pipeline picky: its `if` is false" in told
    assert "with key 'k' was dropped as a duplicate of this one" in told
    alone = flow("run", "deaf", "--json").json["job_id"]
    assert "Its event unheard was not routed" in flow("job", "why", alone).out
    waits = flow("run", "work_signal", "--async", "--json").json["job_id"]
    assert "It is queued: no gateway is running." in flow("job", "why", waits).out
    assert flow("job", "why", "nope", "--json").json["code"] == "not_found"


def forget(flow: House, table: str, key: str, value: str) -> None:
    """As retention does."""
    ledger = apsw.Connection(str(flow.state / "state.db"))
    ledger.execute(f"DELETE FROM {table} WHERE {key} = ?", (value,))
    ledger.close()


def test_the_graph_outlives_a_parent_that_is_past_its_retention(flow: House) -> None:
    flow.write("mended", "")
    with flow.gateway():
        root = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json["job_id"]
    good = steps(flow, root)["wide.0.good"]["job_id"]
    forget(flow, "job_queue", "id", root)
    assert steps(flow, good).keys() == {"wide.0.good", "wide.1.weak", "last"}
    (alone,) = flow("job", "inspect", root, "--json").json["graph"]
    assert (alone["status"], alone["pruned"], alone["depth"]) == ("succeeded", True, 0)
    assert flow("job", "inspect", root).code == 0
    assert "It was submitted by" in flow("job", "why", root).out
    for verb in ("retry", "cancel", "replay"):
        done = flow("job", verb, root, "--json")
        assert (done.code, done.json["code"]) == (1, "not_found")
        assert "past its retention" in done.json["error"]
    forget(flow, "job_log", "job_id", root)
    assert flow("job", "inspect", root, "--json").json["code"] == "not_found"


@dataclass
class Claimed:
    """As much of a gateway as cancel needs: its job is claimed, its process yet to come."""

    ledger: SqliteLedger
    looks: int
    boot: str = "me"
    clock: SystemClock = field(default_factory=SystemClock)

    def cancel_running(self, *_: Any) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_cancel_waits_for_the_process_of_a_job_that_was_just_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    now = SystemClock().now()
    new = NewJob("x", "poll", SubmittedBy.CLI)
    ledger.write(lambda tx: enqueue.enqueue_job(tx, new, TxConfig(0.0), id="j", now=now))
    ledger.write(lambda tx: claim.start_job(tx, claim.ClaimPolicy("me"), "j", now))
    patient: Any = Claimed(ledger, 3)
    assert operate.cancel(patient, "j") is JobStatus.RUNNING
    assert patient.looks < 0
    monkeypatch.setattr(operate, "START_TIMEOUT", 0.05)
    elsewhere: Any = Claimed(ledger, 1000)
    with pytest.raises(Refused, match="no worker of this gateway owns it"):
        operate.cancel(elsewhere, "j")
    ledger.close()


def test_on_postgres_it_makes_no_difference(flow: House, postgres: Server) -> None:
    config = (flow.root / "config.yaml").read_text()
    state = f"state: {{url: '{postgres.database()}', dir: ./data}}"
    config = config.replace("state: {path: ./data/state.db}", state)
    schedule = "  mark: {schedules: [{id: s, cron: '* * * * *'}], config"
    flow.write("config.yaml", config.replace("  mark: {config", schedule))
    flow.state.mkdir()
    with flow.gateway():
        done = flow("pipeline", "run", "fan", "--payload", '{"who": 1}', "--json").json
        weak = steps(flow, done["job_id"])["wide.1.weak"]["job_id"]
        flow.write("mended", "")
        assert flow("job", "retry", weak).code == 0
        until(lambda: ran(flow).count("last") == 1)
        assert flow("schedule", "pause", "mark/s").code == 0
        assert flow("job", "replay", weak).code == 0
    reads = ("schedule list", "schedule explain mark", "system breaker mark", f"job why {weak}")
    for line in reads:
        assert flow(*line.split(), "--json").code == 0
    line = ("pipeline", "dry-run", "fan", "--step", "first", "--job", weak)
    assert flow(*line).code == 0
    assert flow("schedule", "resume", "mark/s").code == 0
