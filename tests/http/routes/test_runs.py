"""Pipeline runs: listed with their outcome, shown with their steps, cancelled and retried."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.http.harness import CONFIG, ECHO, READER, ApiHarness, running_api
from tests.postgres import Server
from tests.waiting import until

PIPELINES = """\
plugins: {bad: {retry: {max_attempts: 1}}, flaky: {retry: {max_attempts: 1}}}
pipelines:
  - {name: chain, on: chain.go, steps: [{id: one, uses: echo}, {id: two, uses: echo}]}
  - {name: broken, on: broken.go, steps: [{id: first, uses: bad}, {id: second, uses: echo}]}
  - name: fan
    on: fan.go
    steps:
      - id: both
        split:
          - {id: left, steps: [{id: l, uses: echo}]}
          - {id: right, steps: [{id: r, uses: bad}]}
      - {id: joined, uses: echo}
  - name: stubborn
    on: stubborn.go
    steps:
      - id: both
        join: always
        split:
          - {id: left, steps: [{id: l, uses: echo}]}
          - {id: right, steps: [{id: r, uses: stubborn}]}
      - {id: joined, uses: hang}
  - name: asked
    on: asked.go
    steps: [{id: only, uses: echo, if: {path: payload.n, op: gte, value: 5}}]
  - {name: slow, on: slow.go, steps: [
      {id: wait, uses: hang}, {id: after, uses: echo},
      {id: last, uses: echo, if: {path: payload.n, op: exists}}]}
  - {name: idle, on: idle.go, steps: [{id: only, uses: echo}]}
  - {name: mending, on: mending.go, steps: [{id: try, uses: flaky}, {id: then, uses: echo}]}
"""
BAD = '#!/bin/sh\necho \'no luck today\' >&2\necho \'{"status":"error","error":"no luck"}\'\n'
HANG = "#!/bin/sh\nexec sleep 600\n"
STUBBORN = "#!/bin/sh\ntrap 'sleep 1; exit 1' TERM\nsleep 600 & wait\n"
"""Ends a second after it was asked to."""
FLAKY = """\
#!/bin/sh
cat > /dev/null
[ -e '@root@/fixed' ] || { echo '{"status":"error","error":"not yet"}'; exit 0; }
echo '{"status":"ok","result":"done","events":[{"type":"made","payload":{"n":1}}]}'
"""
MADE = ECHO.replace(
    '"result":"done"', '"result":"done","events":[{"type":"made","payload":{"n":1}}]'
)
PLUGINS = {"echo": MADE, "bad": BAD, "hang": HANG, "flaky": FLAKY, "stubborn": STUBBORN}


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def api(request: pytest.FixtureRequest) -> Iterator[ApiHarness]:
    config = CONFIG + PIPELINES
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        config = config.replace("{path: ./data/state.db}", f"{{url: '{server.database()}'}}")
    with running_api(config, plugins=PLUGINS) as api:
        api.write("plugins/flaky/run.sh", FLAKY.replace("@root@", str(api.root)), 0o700)
        yield api


def start(api: ApiHarness, name: str, payload: dict[str, Any] | None = None) -> str:
    answer = api.ask("POST", f"/pipeline/{name}?async=true", {"payload": payload or {}})
    assert answer.status == 202, answer.raw
    run_id: str = answer.json["instance_id"]
    return run_id


def ended(api: ApiHarness, run_id: str) -> Any:
    run = api.ask("GET", f"/pipeline-runs/{run_id}?wait=60").json
    assert run["status"] != "running"
    return run


def steps(run: dict[str, Any]) -> dict[str, tuple[str, str | None]]:
    return {step["step"]: (step["status"], step["reason"]) for step in run["steps"]}


def list_runs(api: ApiHarness, query: str = "") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = api.ask("GET", f"/pipeline-runs{query}").json["runs"]
    return rows


def test_successful_run_shows_inputs_and_outputs(api: ApiHarness) -> None:
    run = ended(api, start(api, "chain", {"n": 12345678901234567}))
    assert (run["status"], run["trigger"], run["failed_step"]) == ("succeeded", "api", None)
    assert steps(run) == {"one": ("succeeded", None), "two": ("succeeded", None)}
    one, two = run["steps"]
    assert one["payload"]["payload"]["n"] == 12345678901234567
    assert one["result"]["result"] == "done"
    assert (one["depends_on"], two["depends_on"]) == ([], ["one"])
    assert run["duration_ms"] > 0
    assert run["queued_ms"] >= 0


def test_failed_run_names_the_step_its_error_and_what_did_not_run(api: ApiHarness) -> None:
    run = ended(api, start(api, "broken"))
    assert (run["status"], run["failed_step"]) == ("failed", "first")
    assert steps(run)["second"] == ("not_run", "first failed")
    assert run["steps"][0]["log_tail"] == "no luck today\n"
    assert "no luck" in run["steps"][0]["reason"]
    assert "no luck" in run["reason"]


def test_list_of_pipelines_has_the_last_run_of_each(api: ApiHarness) -> None:
    ended(api, start(api, "broken"))
    run = ended(api, start(api, "broken"))
    rows = api.ask("GET", "/pipelines").json["pipelines"]
    last = {row["name"]: row["last_run"] for row in rows}
    names = ("instance_id", "status", "started_at", "ended_at")
    assert last["broken"] == {name: run[name] for name in names}
    assert last["idle"] is None
    scopes = ["events:ro"]
    token = api.ask("POST", "/tokens", {"name": "events", "scopes": scopes}).json["token"]
    [row, *_] = api.ask("GET", "/pipelines", token=token).json["pipelines"]
    assert "last_run" not in row


def test_step_with_a_false_condition_names_the_values_and_the_line(api: ApiHarness) -> None:
    status, reason = steps(ended(api, start(api, "asked", {"n": "7"})))["only"]
    assert status == "not_run"
    assert str(reason).startswith("The `if` payload.n gte 5 of step only is false")
    assert 'payload.n: "7" is text, 5 is a number' in str(reason)
    config = (api.root / "config.yaml").read_text().splitlines()
    line = 1 + next(n for n, text in enumerate(config) if "id: only" in text)
    assert f"config.yaml:{line})" in str(reason)


def test_join_that_did_not_run_names_the_branch(api: ApiHarness) -> None:
    run = ended(api, start(api, "fan"))
    found = steps(run)
    assert found["both"][0] == "failed"
    joined = next(step for step in run["steps"] if step["step"] == "joined")
    assert sorted(joined["depends_on"]) == ["both.0.left.l", "both.1.right.r"]
    assert (joined["status"], joined["reason"]) == ("not_run", "both.1.right.r failed")
    assert run["failed_step"] == "both.1.right.r"


def test_runs_are_listed_by_pipeline_status_and_time(api: ApiHarness) -> None:
    good, bad = ended(api, start(api, "chain")), ended(api, start(api, "broken"))
    newest = list_runs(api, "?limit=2")
    assert [row["instance_id"] for row in newest] == [bad["instance_id"], good["instance_id"]]
    assert {row["pipeline"] for row in list_runs(api, "?pipeline=chain")} == {"chain"}
    assert {row["status"] for row in list_runs(api, "?status=failed")} == {"failed"}
    assert {row["pipeline"] for row in list_runs(api, "?status=failed&pipeline=fan")} <= {"fan"}
    since = list_runs(api, f"?since={bad['started_at']}")
    assert [row["instance_id"] for row in since] == [bad["instance_id"]]
    until_then = list_runs(api, f"?until={bad['started_at']}")
    assert bad["instance_id"] not in [row["instance_id"] for row in until_then]
    assert list_runs(api, "?pipeline=broken&limit=1")[0]["failed_step"] == "first"


def test_pages_follow_each_other_without_an_empty_last_one(api: ApiHarness) -> None:
    for _ in range(3):
        ended(api, start(api, "chain"))
    everything = [row["instance_id"] for row in list_runs(api, "?pipeline=chain")]
    found: list[str] = []
    cursor, pages = "", 0
    while True:
        page = api.ask("GET", f"/pipeline-runs?pipeline=chain&limit=1{cursor}").json
        found += [row["instance_id"] for row in page["runs"]]
        pages += 1
        if page["cursor"] is None:
            break
        cursor = f"&before={page['cursor']}"
    assert found == everything
    assert pages == len(everything)


def test_cancelled_run_ends_and_its_later_steps_do_not_run(api: ApiHarness) -> None:
    run_id = start(api, "slow")
    until(lambda: list_runs(api, "?pipeline=slow&status=running"))
    shown = api.ask("GET", f"/pipeline-runs/{run_id}").json
    assert steps(shown)["after"] == ("waiting", "waits for wait")
    assert steps(shown)["last"] == ("waiting", "waits for the `if` of last")
    plan = api.ask("POST", f"/pipeline-runs/{run_id}/cancel", {"dry_run": True})
    assert (plan.status, len(plan.json["job_ids"])) == (200, 1)
    done = api.ask("POST", f"/pipeline-runs/{run_id}/cancel", {})
    assert (done.status, done.json["job_ids"]) == (202, plan.json["job_ids"])
    run = ended(api, run_id)
    assert (run["status"], steps(run)["after"][0]) == ("failed", "not_run")
    again = api.ask("POST", f"/pipeline-runs/{run_id}/cancel", {})
    assert (again.status, again.json["code"]) == (409, "refused")


def test_steps_that_follow_a_cancelled_one_are_cancelled_too(api: ApiHarness) -> None:
    run_id = start(api, "stubborn")
    until(lambda: api.ask("GET", "/jobs?plugin=stubborn&status=running").json["jobs"])
    done = api.ask("POST", f"/pipeline-runs/{run_id}/cancel", {})
    run = ended(api, run_id)
    joined = next(step for step in run["steps"] if step["step"] == "joined")
    assert joined["job_id"] in done.json["job_ids"]
    assert (run["status"], joined["status"]) == ("failed", "dead")


def test_retried_run_continues_from_its_failed_step(api: ApiHarness) -> None:
    run_id = start(api, "mending")
    assert ended(api, run_id)["failed_step"] == "try"
    api.write("fixed", "")
    assert api.ask("POST", f"/pipeline-runs/{run_id}/retry", {"dry_run": True}).status == 200
    assert api.ask("POST", f"/pipeline-runs/{run_id}/retry", {}).status == 202
    run = ended(api, run_id)
    assert (run["status"], list(steps(run))) == ("succeeded", ["try", "then"])
    assert api.ask("POST", f"/pipeline-runs/{run_id}/retry", {}).status == 409


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/pipeline-runs/nope", 404),
        ("/pipeline-runs?status=open", 400),
        ("/pipeline-runs?before=x", 400),
        ("/pipeline-runs?since=yesterday", 400),
        ("/pipeline-runs?limit=0", 400),
    ],
)
def test_invalid_requests_are_refused(api: ApiHarness, path: str, status: int) -> None:
    assert api.ask("GET", path).status == status


def test_reader_may_look_but_not_act(api: ApiHarness) -> None:
    assert api.ask("GET", "/pipeline-runs", token=READER).status == 200
    assert api.ask("POST", "/pipeline-runs/x/cancel", {}, token=READER).status == 403
