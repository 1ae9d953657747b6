"""Waiting steps in a running gateway: approvals, events, times, restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import pytest

from ductile.clock import to_text
from ductile.core.waits.decision import WaitStatus
from ductile.engine.scheduling.waits import LONGEST_SLEEP, WaitTimer
from ductile.errors import NotFound, Refused
from ductile.model import SubmittedBy
from ductile.operations import job_tree
from ductile.operations.jobs import JobRetry
from ductile.operations.pipelines import PipelineStart, RunRetry, cancel_run
from ductile.operations.reports import runs
from ductile.operations.waits.approvals import (
    ApprovalDecision,
    DecidedApproval,
    list_approvals,
    show_approval,
)
from ductile.operations.why import explain_job
from ductile.store import nodes
from tests.engine.site import PYTHON, Running, Site
from tests.postgres import Server
from tests.store.jobs.harness import job_filters
from tests.waiting import until

Step = dict[str, Any]
ECHO = (
    PYTHON + "request = json.load(sys.stdin)\n"
    'print(json.dumps({"status": "ok", "result": request["event"]["payload"]}))\n'
)
EMIT = (
    PYTHON + 'print(json.dumps({"status": "ok", "result": 1, "events": '
    '[{"type": "paid", "payload": {"invoice": 7}}]}))\n'
)


def prepare(site: Site, *steps: Step, **more: Any) -> None:
    site.plugin("echo", ECHO)
    site.settings["pipelines"] = [{"name": "p", "on": "go", "steps": list(steps), **more}]


def start(running: Running, payload: Any = None) -> str:
    gateway = running.gateway
    work = PipelineStart(gateway, "p", payload or {}, SubmittedBy.API)
    return gateway.ledger.write(work).instance_id


def instance(running: Running, id: str) -> dict[str, Any]:
    return running.gateway.ledger.read(lambda tx: job_tree.instance(tx, id))


def wait_for_end(running: Running, id: str) -> dict[str, Any]:
    until(lambda: instance(running, id)["status"] != "open")
    return instance(running, id)


def list_results(found: dict[str, Any]) -> list[tuple[str, str]]:
    return [(job["step"], job["status"]) for job in found["jobs"]]


def approvals(running: Running, status: str | None = "waiting") -> list[dict[str, Any]]:
    filters: dict[str, Any] = {"status": status, "pipeline": None, "before": None, "limit": 50}
    return running.gateway.ledger.read(lambda tx: list_approvals(tx, **filters))["approvals"]


def await_approval(running: Running) -> dict[str, Any]:
    until(lambda: approvals(running))
    [found] = approvals(running)
    return found


def decide(
    running: Running, id: str, status: WaitStatus = WaitStatus.APPROVED, comment: str | None = None
) -> DecidedApproval:
    gateway = running.gateway
    return gateway.ledger.write(ApprovalDecision(gateway, id, status, "token:ann", comment))


def result_of(running: Running, job: dict[str, Any]) -> Any:
    return running.job(job["job_id"])["result"]["result"]


def test_approved_step_continues_with_the_decision(site: Site) -> None:
    wait = {"approval": {"title": "Pay {payload.amount}?", "description": "To {payload.to}"}}
    prepare(site, {"id": "ask", "wait": wait}, {"id": "pay", "uses": "echo"})
    with site.running() as running:
        run = start(running, {"amount": 5, "to": "Bob"})
        found = await_approval(running)
        assert (found["title"], found["description"]) == ("Pay 5?", "To Bob")
        assert (found["instance_id"], found["step"], found["due_at"]) == (run, "ask", None)
        assert instance(running, run)["status"] == "open"
        done = decide(running, found["id"], comment="fine")
        assert done.job_status == "succeeded"
        ended = wait_for_end(running, run)
        assert list_results(ended) == [("ask", "succeeded"), ("pay", "succeeded")]
        sent = result_of(running, ended["jobs"][1])
        assert sent["amount"] == 5
        assert (sent["result"]["wait"], sent["result"]["by"]) == ("approved", "token:ann")
        assert sent["result"]["comment"] == "fine"
        shown = running.gateway.ledger.read(lambda tx: show_approval(tx, found["id"][:13]))
        assert (shown["status"], shown["ended_by"], shown["comment"]) == (
            "approved",
            "token:ann",
            "fine",
        )


def test_rejected_approval_fails_the_run_and_its_hooks_see_the_reason(site: Site) -> None:
    prepare(
        site,
        {"id": "ask", "wait": {"approval": "Pay?"}},
        {"uses": "echo"},
        on_failure=[{"id": "tell", "uses": "echo"}],
    )
    with site.running() as running:
        run = start(running)
        decide(running, await_approval(running)["id"], WaitStatus.REJECTED, "too much")
        ended = wait_for_end(running, run)
        reason = "approval rejected by token:ann: too much"
        assert list_results(ended) == [("ask", "failed")]
        assert ended["jobs"][0]["last_error"] == reason
        until(lambda: hook_result(running) is not None)
        hook = hook_result(running)
        assert hook is not None
        assert (hook["failed_step"], hook["error"]) == ("ask", reason)


def hook_result(running: Running) -> dict[str, Any] | None:
    """What the only succeeded job of the plugin received."""
    filters = job_filters(status="succeeded", plugin="echo")
    rows = running.gateway.ledger.read(lambda tx: tx.dicts("jobs", **filters))
    return dict(running.job(rows[0]["id"])["result"]["result"]) if rows else None


def test_ended_approval_cannot_be_decided_again(site: Site) -> None:
    prepare(site, {"wait": {"approval": "Pay?"}})
    with site.running() as running:
        run = start(running)
        found = await_approval(running)
        decide(running, found["id"])
        wait_for_end(running, run)
        with pytest.raises(Refused, match="was approved by token:ann at"):
            decide(running, found["id"], WaitStatus.REJECTED)
        with pytest.raises(NotFound):
            decide(running, "0000-none")


@pytest.mark.parametrize(
    ("action", "run_status", "steps"),
    [
        ("fail", "failed", [("ask", "failed")]),
        ("continue", "succeeded", [("ask", "succeeded"), ("pay", "succeeded")]),
        ("skip", "succeeded", [("ask", "skipped")]),
    ],
)
def test_timeout_of_an_approval(
    site: Site, action: str, run_status: str, steps: list[tuple[str, str]]
) -> None:
    wait = {"approval": "Pay?", "timeout": "50ms", "on_timeout": action}
    prepare(site, {"id": "ask", "wait": wait}, {"id": "pay", "uses": "echo"})
    with site.running() as running:
        ended = wait_for_end(running, start(running))
        assert (ended["status"], list_results(ended)) == (run_status, steps)
        assert [row["status"] for row in approvals(running, None)] == ["expired"]
        running.notice("approval.expired")
        if action == "fail":
            error = "no approval came within the timeout of the wait"
            assert ended["jobs"][0]["last_error"] == error
        if action == "continue":
            assert result_of(running, ended["jobs"][1])["result"]["wait"] == "expired"


def test_duration_and_time_let_the_run_continue(site: Site) -> None:
    moment = to_text(datetime.now(UTC) + timedelta(milliseconds=200))
    prepare(site, {"wait": "50ms"}, {"wait": {"until": "{payload.at}"}}, {"uses": "echo"})
    with site.running() as running:
        ended = wait_for_end(running, start(running, {"at": moment}))
        assert [status for _, status in list_results(ended)] == ["succeeded"] * 3
        assert running.job(ended["jobs"][1]["job_id"])["completed_at"] >= moment


def test_time_that_is_not_a_time_fails_the_step(site: Site) -> None:
    prepare(site, {"wait": {"until": "{payload.at}"}}, {"uses": "echo"})
    with site.running() as running:
        ended = wait_for_end(running, start(running, {"at": "soon"}))
        assert list_results(ended) == [("step_1", "failed")]
        assert ended["jobs"][0]["last_error"] == "wait.until: soon is not a time"


def test_event_that_matches_ends_the_wait(site: Site) -> None:
    condition = {"path": "payload.invoice", "op": "eq", "value": "{payload.invoice}"}
    prepare(
        site,
        {"id": "hold", "wait": {"event": "paid", "if": condition}},
        {"id": "after", "uses": "echo"},
    )
    site.plugin("emit", EMIT)
    with site.running() as running:
        mine, other = start(running, {"invoice": 7}), start(running, {"invoice": 8})
        for run in (mine, other):
            running.notice("job.waiting", instance(running, run)["jobs"][0]["job_id"])
        running.put("emit")
        ended = wait_for_end(running, mine)
        assert list_results(ended) == [("hold", "succeeded"), ("after", "succeeded")]
        received = result_of(running, ended["jobs"][1])
        assert received["result"]["event"]["payload"]["invoice"] == 7
        assert instance(running, other)["status"] == "open"


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
@pytest.mark.parametrize("restarts", [False, True])
def test_event_ends_a_wait_whose_type_the_configuration_no_longer_names(
    site: Site, request: pytest.FixtureRequest, engine: str, restarts: bool
) -> None:
    if engine == "postgres":
        server: Server = request.getfixturevalue("postgres")
        site.settings["state"] = {"url": server.database(), "dir": str(site.state)}
    after = {"id": "after", "uses": "echo"}
    prepare(site, {"id": "hold", "wait": {"event": "paid"}}, after)
    site.plugin("emit", EMIT)
    with ExitStack() as stack:
        running = stack.enter_context(site.running())
        run = start(running)
        running.notice("job.waiting", instance(running, run)["jobs"][0]["job_id"])
        prepare(site, {"id": "hold", "wait": {"event": "settled"}}, after)
        site.write()
        if restarts:
            stack.close()
            running = stack.enter_context(site.running())
        else:
            running.gateway.reload()
        running.put("emit")
        ended = wait_for_end(running, run)
        assert list_results(ended) == [("hold", "succeeded"), ("after", "succeeded")]


def test_event_at_a_node_that_does_not_know_the_pipeline_ends_its_wait(
    site: Site, another: Callable[[], Site], postgres: Server
) -> None:
    url, other = postgres.database(), another()
    prepare(site, {"id": "hold", "wait": {"event": "paid"}}, {"uses": "echo"})
    other.plugin("emit", EMIT)
    for each in (site, other):
        each.settings["state"] = {"url": url, "dir": str(each.state)}
    with site.running() as one, other.running() as two:
        run = start(one)
        one.notice("job.waiting", instance(one, run)["jobs"][0]["job_id"])
        # The request of the node that has begun the wait, not the check of every minute.
        until(lambda: "paid" in two.gateway.compiled.tx_config.router.awaited)
        two.put("emit")
        ended = wait_for_end(one, run)
        assert list_results(ended) == [("hold", "succeeded"), ("step_1", "succeeded")]
        assert not two.gateway.ledger.read(lambda tx: nodes.list_requests(tx, two.gateway.boot))


def end_due_waits(running: Running) -> None:
    gateway = running.gateway
    timer = WaitTimer(gateway.ledger, gateway.boot, lambda: gateway.compiled, gateway.entropy)
    timer.tick(gateway.clock.now())


def test_approval_at_a_node_without_the_pipeline_continues_the_run(
    site: Site, another: Callable[[], Site], postgres: Server
) -> None:
    url, other = postgres.database(), another()
    prepare(site, {"id": "ask", "wait": {"approval": "Pay?"}}, {"uses": "echo"})
    other.plugin("emit", EMIT)
    for each in (site, other):
        each.settings["state"] = {"url": url, "dir": str(each.state)}
    with site.opened() as one, other.running() as two:
        run = start(one)
        [job] = instance(one, run)["jobs"]
        now = two.gateway.clock.now()
        why = explain_job(two.gateway.ledger, job["job_id"], two.gateway.compiled, {}, now=now)[
            "why"
        ]
        assert "has pipeline p" in str(why)
        one.gateway.start()
        found = await_approval(two)
        one.gateway.loops["waits"].stop()
        one.gateway.loops["waits"].join()
        assert decide(two, found["id"]).job_status == "queued", "left to the node that knows it"
        with pytest.raises(Refused, match="was approved by"):
            decide(one, found["id"])
        end_due_waits(two)
        assert instance(one, run)["jobs"][0]["status"] == "queued"
        end_due_waits(one)
        ended = wait_for_end(one, run)
        assert list_results(ended) == [("ask", "succeeded"), ("step_1", "succeeded")]


def test_wait_survives_a_restart_and_needs_no_worker(site: Site) -> None:
    site.settings["service"]["max_workers"] = 1
    prepare(site, {"id": "ask", "wait": {"approval": "Pay?"}}, {"uses": "echo"})
    with site.running() as running:
        run = start(running)
        found = await_approval(running)
        running.put("echo", "handle", {"payload": {}})
        until(lambda: hook_result(running) is not None)
    with site.running() as running:
        assert await_approval(running)["id"] == found["id"]
        decide(running, found["id"])
        assert wait_for_end(running, run)["status"] == "succeeded"


def test_wait_that_became_due_while_the_gateway_was_down_ends_at_the_start(site: Site) -> None:
    prepare(site, {"wait": "1s"}, {"uses": "echo"})
    with site.running() as running:
        run = start(running)
        running.notice("job.waiting")
    with site.running() as running:
        assert wait_for_end(running, run)["status"] == "succeeded"


def test_cancelled_run_ends_its_wait(site: Site) -> None:
    prepare(site, {"id": "ask", "wait": {"approval": "Pay?"}}, {"uses": "echo"})
    with site.running() as running:
        run = start(running)
        found = await_approval(running)
        cancel_run(running.gateway, run)
        ended = wait_for_end(running, run)
        assert (ended["status"], list_results(ended)) == ("failed", [("ask", "dead")])
        assert [row["status"] for row in approvals(running, None)] == ["cancelled"]
        with pytest.raises(Refused, match="was cancelled"):
            decide(running, found["id"])


def test_retried_run_waits_again(site: Site) -> None:
    prepare(site, {"id": "ask", "wait": {"approval": "Pay?"}}, {"uses": "echo"})
    with site.running() as running:
        run, gateway = start(running), running.gateway
        first = await_approval(running)
        decide(running, first["id"], WaitStatus.REJECTED)
        wait_for_end(running, run)
        gateway.ledger.write(RunRetry(gateway, run))
        second = await_approval(running)
        assert second["id"] != first["id"]
        assert second["job_id"] == first["job_id"]
        decide(running, second["job_id"])
        ended = wait_for_end(running, run)
        assert [status for _, status in list_results(ended)] == ["succeeded", "succeeded"]
        job = running.job(first["job_id"])
        assert [row["status"] for row in job["attempts"]] == ["failed", "succeeded"]


def test_waiting_job_cannot_be_retried(site: Site) -> None:
    prepare(site, {"wait": {"approval": "Pay?"}})
    with site.running() as running:
        start(running)
        found, gateway = await_approval(running), running.gateway
        with pytest.raises(Refused, match="cannot be retried: it waits for the approval 'Pay\\?'"):
            gateway.ledger.write(JobRetry(gateway, found["job_id"]))


def test_join_waits_for_a_waiting_branch(site: Site) -> None:
    prepare(
        site,
        {"id": "fan", "split": [{"uses": "echo"}, {"id": "ask", "wait": {"approval": "Pay?"}}]},
        {"id": "join", "uses": "echo"},
    )
    with site.running() as running:
        run = start(running)
        found = await_approval(running)
        until(lambda: "succeeded" in [s for _, s in list_results(instance(running, run))])
        assert found["instance_id"] == run
        assert "join" not in dict(list_results(instance(running, run)))
        decide(running, found["id"])
        ended = wait_for_end(running, run)
        assert dict(list_results(ended))["join"] == "succeeded"


def test_skipped_branch_does_not_wait(site: Site) -> None:
    condition = {"path": "payload.big", "op": "eq", "value": True}
    prepare(
        site,
        {"id": "ask", "if": condition, "wait": {"approval": "Pay?"}},
        {"id": "pay", "uses": "echo"},
    )
    with site.running() as running:
        ended = wait_for_end(running, start(running, {"big": False}))
        assert dict(list_results(ended))["pay"] == "succeeded"
        assert approvals(running, None) == []


def test_reasons_name_the_wait_and_the_command_that_decides(site: Site) -> None:
    prepare(site, {"id": "ask", "wait": {"approval": "Pay?", "timeout": "1h"}})
    with site.running() as running:
        run, gateway = start(running), running.gateway
        found = await_approval(running)
        now = gateway.clock.now()
        why = explain_job(gateway.ledger, found["job_id"], gateway.compiled, {}, now=now)["why"]
        text = (
            f"it waits for the approval 'Pay?' since {found['created_at']}, until "
            f"{found['due_at']}; decide with `ductile approval approve {found['id']}` or `reject`"
        )
        assert f"It is queued: {text}." in why
        shown = gateway.ledger.read(lambda tx: runs.show_run(tx, run, gateway.compiled))
        [step] = shown["steps"]
        assert (step["status"], step["reason"], step["next_retry_at"]) == ("waiting", text, None)


def test_notification_gets_a_link_if_there_is_a_public_url(site: Site) -> None:
    prepare(site, {"id": "ask", "wait": {"approval": "Pay?"}})
    site.settings["api"] = {"public_url": "https://ductile.example/"}
    notify = {"name": "n", "on": "approval.waiting", "steps": [{"id": "tell", "uses": "echo"}]}
    site.settings["pipelines"].append(notify)
    with site.running() as running:
        start(running)
        found = await_approval(running)
        until(lambda: hook_result(running) is not None)
        sent = hook_result(running)
        assert sent is not None
        assert sent["approval_id"] == found["id"]
        # What a plugin prints is stored without the token; what it receives has it.
        assert sent["link"] == "https://ductile.example/approve/[REDACTED]"
        [row] = running.gateway.ledger.read(
            lambda tx: tx.dicts("jobs", **job_filters(status="succeeded", plugin="echo"))
        )
        link = running.job(row["id"])["payload"]["payload"]["link"]
        token = link.removeprefix("https://ductile.example/approve/")
        assert len(token) >= 40
        rows = running.gateway.ledger.read(
            lambda tx: tx.dicts("waits_of_job", job_id=found["job_id"])
        )
        assert token not in json.dumps(rows)


def test_wait_works_across_nodes(site: Site, another: Callable[[], Site], postgres: Server) -> None:
    url, other = postgres.database(), another()
    for each in (site, other):
        prepare(each, {"id": "ask", "wait": {"approval": "Pay?"}}, {"uses": "echo"})
        each.settings["state"] = {"url": url, "dir": str(each.state)}
    with site.running() as one, other.running() as two:
        run = start(one)
        decide(two, await_approval(two)["id"])
        assert wait_for_end(one, run)["status"] == "succeeded"


def test_wait_whose_job_a_script_ended_does_not_keep_the_timer_busy(site: Site) -> None:
    prepare(site, {"wait": {"approval": "Pay?", "timeout": "1h"}})
    with site.running() as running:
        start(running)
        found, ledger = await_approval(running), running.gateway.ledger
        with closing(apsw.Connection(str(site.state / "state.db"))) as script:
            script.set_busy_timeout(5000)
            script.execute("UPDATE job_queue SET status = 'dead', next_retry_at = NULL")
        gateway = running.gateway
        timer = WaitTimer(ledger, gateway.boot, lambda: gateway.compiled, gateway.entropy)
        later = running.gateway.clock.now() + timedelta(hours=2)
        assert timer.tick(later) == LONGEST_SLEEP
        assert [row["status"] for row in approvals(running, None)] == ["cancelled"]
        with pytest.raises(Refused):
            decide(running, found["id"])
