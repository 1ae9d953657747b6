"""Approvals over HTTP: scopes and audit entries, and the page behind a link."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from ductile.engine.ingress.login_limiter import MAX_FAILURES
from ductile.store.waits import wait_rows
from tests.http.harness import ADMIN, CONFIG, ECHO, Answer, ApiHarness, running_api
from tests.waiting import until

APPROVER, OPERATOR, VIEWER = "approver-0123456789", "operator-0123456789", "viewer-01234567890"
MORE = f"""\
      - {{token: {APPROVER}, scopes: ["approvals:rw"], name: ann}}
      - {{token: {VIEWER}, scopes: ["approvals:ro"], name: vic}}
      - {{token: {OPERATOR}, scopes: ["jobs:rw", "plugin:rw", "system:rw"], name: ops}}
  public_url: https://ductile.example
pipelines:
  - name: pay
    on: x
    steps:
      - id: ask
        wait: {{approval: {{title: "Pay <b>{{payload.amount}}</b>?", description: "One\\nTwo"}}}}
      - {{uses: echo}}
  - {{name: tell, on: approval.waiting, steps: [{{id: told, uses: echo}}]}}
"""
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + MORE, plugins={"echo": ECHO}) as api:
        yield api


def start(api: ApiHarness) -> dict[str, Any]:
    """Start a run and wait for its approval."""
    before = {row["id"] for row in waiting(api)}
    started = api.ask("POST", "/pipeline/pay", {"payload": {"amount": 5}})
    assert started.status == 202
    [row] = until(lambda: [row for row in waiting(api) if row["id"] not in before])
    return dict(row)


def waiting(api: ApiHarness) -> list[dict[str, Any]]:
    return list(api.ask("GET", "/approvals?status=waiting").json["approvals"])


def link_of(api: ApiHarness, approval_id: str) -> str:
    """The path of the link that the notification received."""

    def find() -> str | None:
        for job in api.ask("GET", "/jobs?plugin=echo").json["jobs"]:
            [row] = api.gateway.ledger.read(lambda tx, id=job["job_id"]: tx.dicts("job", id=id))
            payload = json.loads(row["payload"])["payload"]
            if payload.get("approval_id") == approval_id:
                shown = api.ask("GET", f"/job/{job['job_id']}")
                # Who may read jobs may not decide for others.
                assert shown.json["payload"]["payload"]["link"].endswith("/approve/[REDACTED]")
                assert payload["link"].rpartition("/")[2] not in shown.raw.decode()
                return str(payload["link"])
        return None

    link = until(find)
    assert link.startswith("https://ductile.example/approve/")
    return link.removeprefix("https://ductile.example")


def post(api: ApiHarness, path: str, **fields: str) -> Answer:
    headers = {**FORM, "Host": "ductile.example", "Origin": "https://ductile.example"}
    return api.ask("POST", path, urlencode(fields), token=None, headers=headers)


def shown(api: ApiHarness, approval_id: str) -> dict[str, Any]:
    return dict(api.ask("GET", f"/approvals/{approval_id}").json)


def test_runs_name_what_they_wait_for(api: ApiHarness) -> None:
    row = start(api)
    [listed] = api.ask("GET", "/pipeline-runs?pipeline=pay").json["runs"]
    assert listed["status"] == "running"
    assert listed["reason"].startswith("it waits for the approval 'Pay <b>5</b>?' since ")
    run = f"/pipeline-runs/{row['instance_id']}"
    assert api.ask("GET", run).json["reason"] == listed["reason"]
    api.ask("POST", f"/approvals/{row['id']}/approve", {})
    assert until(lambda: api.ask("GET", run).json["status"] == "succeeded")
    assert api.ask("GET", run).json["reason"] is None


def test_only_the_scope_for_approvals_decides(api: ApiHarness) -> None:
    row = start(api)
    for token, allowed in ((OPERATOR, False), (VIEWER, True), (APPROVER, True), (ADMIN, True)):
        found = api.ask("GET", f"/approvals/{row['id']}", token=token)
        assert (found.status == 200) is allowed
    for token in (OPERATOR, VIEWER, None):
        refused = api.ask("POST", f"/approvals/{row['id']}/approve", {}, token=token)
        assert refused.status in (401, 403)
    assert shown(api, row["id"])["status"] == "waiting"
    done = api.ask("POST", f"/approvals/{row['id']}/approve", {"comment": "ok"}, token=APPROVER)
    assert (done.status, done.json["status"]) == (202, "approved")
    assert shown(api, row["id"])["ended_by"] == "token:ann"
    again = api.ask("POST", f"/approvals/{row['id']}/reject", {}, token=APPROVER)
    assert again.status == 409


def test_decision_is_in_the_audit_log(api: ApiHarness) -> None:
    row = start(api)
    api.ask("POST", f"/approvals/{row['id']}/reject", {"comment": "no"}, token=APPROVER)
    [entry, *_] = api.ask("GET", "/audit").json["entries"]
    assert (entry["action"], entry["actor"], entry["target"]) == (
        "approval.reject",
        "token:ann",
        row["id"],
    )


def test_repeated_decision_with_a_key_returns_the_first_answer(api: ApiHarness) -> None:
    row, key = start(api), {"Idempotency-Key": "one"}
    answers = [
        api.ask("POST", f"/approvals/{row['id']}/approve", {}, headers=key) for _ in range(2)
    ]
    assert [answer.status for answer in answers] == [202, 202]
    assert answers[0].json == answers[1].json


def test_link_shows_on_get_and_decides_on_post(api: ApiHarness) -> None:
    row = start(api)
    path = link_of(api, row["id"])
    for _ in range(2):
        page = api.ask("GET", path, token=None, headers={"Host": "ductile.example"})
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "Pay &lt;b&gt;5&lt;/b&gt;?" in page.raw.decode()
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert page.headers["cache-control"] == "no-store"
        assert b"<script" not in page.raw
    assert shown(api, row["id"])["status"] == "waiting"
    done = post(api, path, decision="approve", comment="fine")
    assert done.status == 200
    assert re.search(r"approved by link at [\d-]+ [\d:]{8} UTC: fine", done.raw.decode())
    found = shown(api, row["id"])
    assert (found["status"], found["ended_by"], found["comment"]) == ("approved", "link", "fine")
    assert post(api, path, decision="reject").status == 409
    [entry, *_] = api.ask("GET", "/audit").json["entries"]
    assert (entry["action"], entry["actor"], entry["target"]) == (
        "approval.approve",
        "link",
        row["id"],
    )
    assert path.rpartition("/")[2] not in str(api.ask("GET", "/audit").json)


def test_link_without_a_valid_decision_changes_nothing(api: ApiHarness) -> None:
    row = start(api)
    path = link_of(api, row["id"])
    for fields in ({}, {"decision": "maybe"}, {f"f{n}": "x" for n in range(20)}):
        assert post(api, path, **fields).status == 400
    foreign = {**FORM, "Origin": "https://evil.example"}
    sent = api.ask("POST", path, "decision=approve", token=None, headers=foreign)
    assert sent.status == 403
    assert shown(api, row["id"])["status"] == "waiting"


def test_unknown_links_are_limited_like_logins(api: ApiHarness) -> None:
    statuses = [
        api.ask("GET", f"/approve/guess-{n}", token=None).status for n in range(MAX_FAILURES + 1)
    ]
    assert statuses == [404] * MAX_FAILURES + [429]


def test_malformed_token_is_refused_before_the_ledger_is_read(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(wait_rows, "find_by_token", lambda tx, hash: asked.append(hash))
    for text in ("guess", "x" * 42, "x" * 44, "x" * 42 + "."):
        assert api.ask("GET", f"/approve/{text}", token=None).status == 404
    assert asked == []
    assert api.ask("GET", f"/approve/{'x' * 43}", token=None).status == 404
    assert len(asked) == 1


def test_comment_with_a_nul_is_stored_without_it(api: ApiHarness) -> None:
    row = start(api)
    sent = post(api, link_of(api, row["id"]), decision="approve", comment="a\0b")
    assert sent.status == 200
    assert shown(api, row["id"])["comment"] == "a\ufffdb"


def test_queue_and_run_name_the_wait(api: ApiHarness) -> None:
    row = start(api)
    [job] = [job for job in api.ask("GET", "/queue").json["jobs"] if job["job_id"] == row["job_id"]]
    assert job["waits_for"].startswith("it waits for the approval 'Pay <b>5</b>?' since ")
    assert f"ductile approval approve {row['id']}" in job["waits_for"]
    assert job["next_retry_at"] is None
    run = api.ask("GET", f"/pipeline-runs/{row['instance_id']}").json
    assert [step["status"] for step in run["steps"]] == ["waiting", "waiting"]
    queue = api.ask("GET", "/system/overview").json["queue"]
    assert (queue["approvals"], queue["waits"], queue["retrying"]) == (1, 1, 0)


def test_approvals_are_listed_in_pages(api: ApiHarness) -> None:
    rows = [start(api) for _ in range(3)]
    first = api.ask("GET", "/approvals?limit=2").json
    second = api.ask("GET", f"/approvals?limit=2&before={first['cursor']}").json
    ids = [row["id"] for row in (*first["approvals"], *second["approvals"])]
    assert ids == [row["id"] for row in reversed(rows)]
    assert second["cursor"] is None
    assert api.ask("GET", "/approvals?before=nonsense").status == 400
    assert api.ask("GET", "/approvals?pipeline=other").json["approvals"] == []
