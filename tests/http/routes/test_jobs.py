"""Jobs over the local socket."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress

import apsw
import pytest

from ductile.core.values.redact import Redactor
from ductile.http.responses import JsonResponse
from ductile.store.jobs.read import JobFilter, list_jobs
from tests.engine.site import OK, Site
from tests.http.harness import allow_long_waits
from tests.waiting import WAIT_LIMIT, until


@pytest.fixture
def served(site: Site, serve):
    site.plugin("echo", OK)
    return serve()


def error(answer, status: int, code: str) -> str:
    """Check the shape of an error and return its text."""
    assert answer.status == status, answer.body
    assert answer.json["code"] == code
    assert isinstance(answer.json["error"], str)
    assert "Traceback" not in answer.body.decode()
    return answer.json["error"]


# Triggering


def test_trigger_returns_the_id_of_the_queued_job(served) -> None:
    answer = served.post("/plugin/echo/poll", {"payload": {"n": 1}})
    assert answer.status == 202
    found = answer.json
    assert found["status"] == "queued"
    assert (found["plugin"], found["command"]) == ("echo", "poll")
    job = served.running.ended(found["job_id"])
    assert (job["payload"], job["submitted_by"]) == ({"n": 1}, "api")


def test_job_is_committed_before_the_response(site: Site, serve) -> None:
    """Another process can read the job as soon as the caller has its id."""
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    served = serve()
    connection = apsw.Connection(str(site.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ids = []
    for _ in range(20):
        id = served.post("/plugin/echo/poll").json["job_id"]
        ids.append(id)
        found = connection.execute("SELECT 1 FROM job_queue WHERE id = ?", (id,)).fetchall()
        assert found == [(1,)]
    connection.close()
    gate.open(len(ids))
    for id in ids:
        served.running.ended(id)


def test_body_without_payload_is_an_empty_payload(served) -> None:
    for body in (None, b"", b"  \n", {}, {"payload": None}, {"payload": {}}):
        id = served.post("/plugin/echo/poll", body).json["job_id"]
        assert served.running.ended(id)["payload"] == {}, body


def test_payload_may_be_any_json_value(served) -> None:
    for command in ("poll", "handle"):
        for payload in ([1, 2], "text", 5, False, {"a": {"b": None}}, 0, ""):
            id = served.post(f"/plugin/echo/{command}", {"payload": payload}).json["job_id"]
            job = served.running.ended(id)
            assert job["status"] == "succeeded"
            # The column of a `handle` job holds the envelope of the event.
            stored = job["payload"]["payload"] if command == "handle" else job["payload"]
            assert stored == payload


def test_jobs_of_the_command_line_are_submitted_by_cli(served) -> None:
    answer = served.client.request("POST", "/plugin/echo/poll", {}, {"X-Ductile-Client": "cli"})
    assert served.running.ended(answer.json["job_id"])["submitted_by"] == "cli"


def test_unknown_plugin_returns_400(served) -> None:
    assert "nosuch" in error(served.post("/plugin/nosuch/poll", {}), 400, "usage")


def test_unknown_command_returns_400_with_the_known_commands(served) -> None:
    text = error(served.post("/plugin/echo/nosuch", {}), 400, "usage")
    assert "handle, poll, sync" in text


def test_disabled_plugin_returns_400(site: Site, serve) -> None:
    site.plugin("off", OK, enabled=False)
    answer = serve().post("/plugin/off/poll")
    error(answer, 400, "usage")
    assert answer.json["error"].startswith("plugin 'off' is disabled (enabled: false, ")
    assert answer.json["run"].startswith("ductile config set 'plugins[off].enabled' true")


def test_refused_plugin_returns_400_with_its_reason(site: Site, serve) -> None:
    site.plugin("bad", OK, manifest="config_keys: {required: [url]}\n")
    assert "url" in error(serve().post("/plugin/bad/poll", {}), 400, "usage")


BAD_BODIES = [
    b"{",
    b"nope",
    b"[]",
    b"5",
    b'"text"',
    b"\xff\xfe",
    b'{"payload": NaN}',
    b'{"payload": "\\ud800"}',
    b'{"payload": "\xff"}',
    b'{"payload": "\xff"} trailing',
    b"\x00",
    b"[" * 100_000,
    b'{"payloda": {}}',
    b'{"dedupe_key": 5}',
    b'{"dedupe_key": "k", "dedupe_ttl": "soon"}',
    *(b'{"payload": ' + b"[" * depth + b"]" * depth + b"}" for depth in (101, 300, 1000)),
]


def test_malformed_body_is_refused(served) -> None:
    for body in BAD_BODIES:
        error(served.post("/plugin/echo/poll", body), 400, "usage")
    assert served.get("/jobs").json["jobs"] == []


def test_payload_at_the_nesting_limit_is_accepted(served) -> None:
    body = b'{"payload": ' + b"[" * 90 + b"]" * 90 + b"}"
    answer = served.post("/plugin/echo/poll", body)
    assert answer.status == 202
    assert served.running.ended(answer.json["job_id"])["status"] == "succeeded"


def test_too_deep_payload_in_the_ledger_is_shown_as_text(site: Site, served) -> None:
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.running.ended(id)
    for levels in (251, 255, 1000):
        text = "[" * levels + "]" * levels
        connection = apsw.Connection(str(site.state / "state.db"))
        connection.set_busy_timeout(5000)
        connection.execute("UPDATE job_queue SET payload = ? WHERE id = ?", (text, id))
        connection.execute("UPDATE job_log SET result = ? WHERE job_id = ?", (text, id))
        connection.close()
        answer = served.get(f"/job/{id}")
        assert (answer.status, answer.json["payload"], answer.json["result"]) == (200, text, text)
        assert served.get("/jobs").status == 200
        assert served.get("/job-logs").status == 200


def test_integer_beyond_64_bits_is_refused(served) -> None:
    body = b'{"payload": {"n": 9223372036854775808}}'
    for after in (b"", b"\ntrailing"):
        answer = served.post("/plugin/echo/poll", body + after)
        assert "beyond 64 bits" in error(answer, 400, "usage")


def test_bytes_after_the_json_value_are_ignored(served) -> None:
    for after in (b"\ntrailing", b"\xff\xfe", b"\xc3", b'{"dry_run": "no"}'):
        answer = served.post("/plugin/echo/poll", b'{"payload": {"n": 1}}' + after)
        assert answer.status == 202
        assert served.running.ended(answer.json["job_id"])["payload"] == {"n": 1}


def test_bytes_after_the_json_value_of_an_action_are_refused(served) -> None:
    body = b'{"filter": {"plugin": "echo"}} {"dry_run": true}'
    error(served.post("/jobs/cancel", body), 400, "usage")


def test_body_above_the_limit_returns_413(served) -> None:
    body = json.dumps({"payload": "x" * 1024**2}).encode()
    error(served.post("/plugin/echo/poll", body), 413, "body_too_large")
    assert served.post("/plugin/echo/poll", {}).status == 202


def test_chunked_body_above_the_limit_returns_413_while_it_arrives(served) -> None:
    def chunks():
        for _ in range(64):
            yield b"x" * 65_536

    sock = served.client.connect()
    sock.sendall(
        b"POST /plugin/echo/poll HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    try:
        for chunk in chunks():
            sock.sendall(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
    except (BrokenPipeError, ConnectionResetError):
        pass
    assert b" 413 " in sock.recv(4096)
    sock.close()


def test_nul_in_a_payload_is_stored_as_a_replacement_character(served) -> None:
    answer = served.post("/plugin/echo/poll", {"payload": {"a\0": "b\0c"}, "dedupe_key": "k\0"})
    assert answer.status == 202
    assert served.running.ended(answer.json["job_id"])["payload"] == {"a\ufffd": "b\ufffdc"}


# Dedupe


def test_duplicate_returns_the_first_job(served) -> None:
    body = {"dedupe_key": "k", "dedupe_ttl": "1h"}
    first = served.post("/plugin/echo/poll", body).json
    again = served.post("/plugin/echo/poll", body).json
    assert first["deduplicated"] is False
    assert (again["deduplicated"], again["job_id"]) == (True, first["job_id"])


def test_duplicate_is_logged_once_at_info(
    site: Site, serve, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A request that is repeated with its Idempotency-Key does not count as another duplicate."""
    site.settings["service"]["log_level"] = "info"
    site.plugin("echo", OK)
    served = serve()
    body = {"dedupe_key": "k", "dedupe_ttl": "1h"}
    first = served.post("/plugin/echo/poll", body).json["job_id"]
    for _ in range(2):
        served.client.request("POST", "/plugin/echo/poll", body, {"Idempotency-Key": "i"})
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    [line] = [line for line in lines if line["message"] == "deduplicated"]
    assert (line["level"], line["plugin"], line["job_id"]) == ("info", "echo", first)
    assert line["dedupe_key"] == "k"


def test_too_long_dedupe_key_is_refused(served) -> None:
    assert served.post("/plugin/echo/poll", {"dedupe_key": "€" * 341}).status == 202
    answer = served.post("/plugin/echo/poll", {"dedupe_key": "€" * 342})
    error(answer, 400, "usage")
    assert answer.json["error"] == "dedupe_key is 1026 bytes long; the maximum is 1024"


# Showing


def test_job_is_shown_with_its_attempts_and_transitions(served) -> None:
    id = served.post("/plugin/echo/poll", {"payload": {"n": 1}}).json["job_id"]
    served.running.ended(id)
    found = served.get(f"/job/{id}").json
    assert (found["job_id"], found["status"]) == (id, "succeeded")
    assert found["result"] == {"status": "ok", "result": "done"}
    assert len(found["attempts"]) == 1
    assert [t["to_status"] for t in found["transitions"]] == ["running", "succeeded"]


def test_unknown_job_returns_404(served) -> None:
    for id in ("nosuch", "%00", "..%2f..", "a" * 5000, "'; drop table x", "nosuch?wait=5"):
        error(served.get(f"/job/{id.replace(' ', '%20')}"), 404, "not_found")


def test_wait_returns_when_the_job_ends(site: Site, serve) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    served = serve()
    id = served.post("/plugin/echo/poll").json["job_id"]
    gate.arrived()
    found: list = []
    thread = threading.Thread(target=lambda: found.append(served.get(f"/job/{id}?wait=30")))
    thread.start()
    gate.open()
    thread.join(WAIT_LIMIT)
    assert found[0].json["status"] == "succeeded"


def test_wait_for_a_finished_job_returns_at_once(served, monkeypatch) -> None:
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.running.ended(id)
    # Longer than the client's own timeout.
    allow_long_waits(monkeypatch)
    assert served.get(f"/job/{id}?wait=3600").json["status"] == "succeeded"


def test_wait_returns_the_current_state_when_the_time_is_up(site: Site, serve) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    served = serve()
    id = served.post("/plugin/echo/poll").json["job_id"]
    gate.arrived()
    assert served.get(f"/job/{id}?wait=0.1").json["status"] in ("queued", "running")
    gate.open()
    served.running.ended(id)


def test_secret_in_a_payload_is_redacted(site: Site, serve) -> None:
    site.environ["SECRET"] = "hunter2hunter2"
    site.plugin("echo", OK, config={"token": "${SECRET}"})
    served = serve()
    body = {"payload": {"said": "it is hunter2hunter2"}}
    id = served.post("/plugin/echo/poll", body).json["job_id"]
    served.running.ended(id)
    for path in (f"/job/{id}", "/jobs", "/job-logs", "/queue"):
        assert b"hunter2" not in served.get(path).body


# Lists


def many(served, count: int = 7) -> list[str]:
    """Run jobs one after another, so that they end in this order."""
    ids = []
    for _ in range(count):
        ids.append(served.post("/plugin/echo/poll").json["job_id"])
        served.running.ended(ids[-1])
    return ids


def test_jobs_are_listed_newest_first(served) -> None:
    ids = many(served)
    found = served.get("/jobs").json
    assert [job["job_id"] for job in found["jobs"]] == ids[::-1]
    assert found["cursor"] is None


def test_pages_cover_every_row_once(served) -> None:
    ids = many(served)
    for path, key in (("/jobs", "jobs"), ("/job-logs", "logs")):
        seen: list[str] = []
        cursor = ""
        for _ in range(10):
            page = served.get(f"{path}?limit=3{cursor}").json
            seen += [row["job_id"] for row in page[key]]
            if page["cursor"] is None:
                break
            cursor = f"&before={page['cursor']}"
        assert seen == ids[::-1], path


def test_jobs_are_filtered(site: Site, serve) -> None:
    site.plugin("echo", OK)
    site.plugin("other", "exit 78")
    served = serve()
    many(served, 2)
    id = served.post("/plugin/other/sync").json["job_id"]
    served.running.ended(id)
    for query in ("plugin=other", "command=sync", "status=failed"):
        assert [job["job_id"] for job in served.get(f"/jobs?{query}").json["jobs"]] == [id]
        assert [row["job_id"] for row in served.get(f"/job-logs?{query}").json["logs"]] == [id]
    assert served.get("/jobs?submitted_by=cli").json["jobs"] == []
    assert served.get("/jobs?plugin=nosuch").json["jobs"] == []


def test_jobs_are_filtered_by_pipeline_and_time(site: Site, serve) -> None:
    site.plugin("echo", OK)
    step = {"id": "only", "uses": "echo"}
    site.settings["pipelines"] = [{"name": "deploy", "on": "deploy.go", "steps": [step]}]
    served = serve()
    first, second = many(served, 2)
    step_job = served.post("/pipeline/deploy", {"payload": {}}).json["job_id"]
    assert listed(served, "pipeline=deploy") == [step_job]
    assert listed(served, "pipeline=nosuch") == []
    made = served.get(f"/job/{second}").json["created_at"]
    assert listed(served, f"until={made}") == [first]
    assert listed(served, f"since={made}&plugin=echo") == [step_job, second]
    error(served.get("/jobs?until=tomorrow"), 400, "usage")


def listed(served, query: str) -> list[str]:
    return [job["job_id"] for job in served.get(f"/jobs?{query}").json["jobs"]]


def test_attempts_are_filtered_by_time_text_and_status(site: Site, serve) -> None:
    site.plugin("echo", OK)
    site.plugin("other", "echo No route to host >&2; exit 78")
    served = serve()
    many(served, 2)
    id = served.post("/plugin/other/sync").json["job_id"]
    served.running.ended(id)
    ended = served.get(f"/job/{id}").json["completed_at"]
    for query in (f"from={ended}", f"since={ended}", "query=NO%20ROUTE", "status=error"):
        assert [row["job_id"] for row in served.get(f"/job-logs?{query}").json["logs"]] == [id]
    assert len(served.get(f"/job-logs?to={ended}").json["logs"]) == 3
    for query in ("from=2090-01-01T00:00:00Z", "to=2020-01-01T00:00:00Z", "query=nothingatall"):
        assert served.get(f"/job-logs?{query}").json == {"logs": [], "cursor": None}
    assert served.get("/job-logs?submitted_by=cli").json["logs"] == []
    assert len(served.get("/job-logs?submitted_by=api").json["logs"]) == 3


def test_malformed_filter_is_refused(served) -> None:
    for path in (
        "/jobs?limit=0",
        "/queue?limit=1001",
        "/job-logs?limit=",
        "/jobs?before=x",
        "/jobs?status=done",
        "/job-logs?from=soon",
        "/job-logs?include_result=yes",
        "/job/x?wait=-1",
    ):
        error(served.get(path), 400, "usage")


def test_states_may_be_named_as_in_the_go_program(site: Site, serve) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("echo", OK)
    site.plugin("other", "exit 78")
    site.plugin("slow", gate.script() + OK)
    served = serve()
    for plugin in ("echo", "other"):
        served.running.ended(served.post(f"/plugin/{plugin}/poll").json["job_id"])
    served.post("/plugin/slow/poll")
    gate.arrived()
    served.post("/plugin/echo/poll")
    for alias, status in (("ok", "succeeded"), ("error", "failed"), ("pending", "queued")):
        [job] = served.get(f"/jobs?status={alias}").json["jobs"]
        assert job["status"] == status
        dry_run = {"filter": {"status": alias}, "dry_run": True}
        action = "cancel" if alias == "pending" else "retry"
        expected = [] if alias == "ok" else [job["job_id"]]
        assert served.post(f"/jobs/{action}", dry_run).json["jobs"] == expected
    gate.open(1)
    until(lambda: served.get("/healthz").json["queue_depth"] == 0)


def test_unknown_query_parameter_is_refused_with_the_nearest_name(served) -> None:
    for target, suggestion in (
        ("/jobs?state=dead", "'status'"),
        ("/job-logs?Query=x", "'query'"),
        ("/queue?limits=1", "'limit'"),
        ("/tokens?name=x", None),
        ("/gateway/heartbeats?agent=x", "'agent_id'"),
    ):
        answer = served.get(target)
        assert answer.status == 400
        text = answer.json.get("error") or answer.json["detail"]
        assert target.partition("?")[2].partition("=")[0] in text
        assert ("did you mean" in text) == (suggestion is not None)
        assert suggestion is None or suggestion in text


def test_action_with_an_unknown_query_parameter_or_key_is_not_executed(served) -> None:
    [id] = many(served, 1)
    bulk = {"filter": {"plugin": "echo"}}
    error(served.post("/jobs/cancel?dry_run=true", bulk), 400, "usage")
    for action in ("cancel", "retry"):
        answer = served.post(f"/jobs/{action}", {**bulk, "dryrun": True})
        assert "did you mean 'dry_run'?" in error(answer, 400, "usage")
    assert served.post(f"/job/{id}/replay", {"stepp": "a"}).status == 400
    assert len(served.get("/jobs").json["jobs"]) == 1


@pytest.mark.parametrize("path", ["/jobs", "/job-logs", "/job-logs?plugin=echo&status=ok"])
def test_full_last_page_has_no_cursor(served, path: str) -> None:
    many(served, 3)
    key = "jobs" if path == "/jobs" else "logs"
    limit = f"{path}{'&' if '?' in path else '?'}limit="
    for count, is_last in ((2, False), (3, True), (4, True)):
        page = served.get(f"{limit}{count}").json
        assert (len(page[key]), page["cursor"] is None) == (min(count, 3), is_last)


def test_page_of_large_attempts_ends_early_with_a_cursor(site: Site, serve) -> None:
    mib = "head -c 3000000 /dev/zero | tr '\\0' x"
    site.plugin("echo", f'printf \'{{"status":"ok","result":"\'; {mib}; printf \'"}}\'')
    served = serve()
    ids = many(served, 3)
    seen: list[str] = []
    cursor = ""
    while True:
        answer = served.get(f"/job-logs?include_result=true{cursor}")
        assert len(answer.body) < 4 * 1024 * 1024
        seen += [row["job_id"] for row in answer.json["logs"]]
        if answer.json["cursor"] is None:
            break
        cursor = f"&before={answer.json['cursor']}"
    assert seen == ids[::-1]
    assert len(served.get("/job-logs").body) < 100_000


def test_job_reports_the_number_of_omitted_transitions(served) -> None:
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.running.ended(id)
    few = served.get(f"/job/{id}").json
    assert "transitions_left_out" not in few
    assert [change["to_status"] for change in few["transitions"]] == ["running", "succeeded"]

    def more(tx) -> None:
        for attempt in range(2, 1100):
            change = {
                "from_status": "running",
                "to_status": "queued",
                "reason": None,
                "now": "2026-02-08T10:00:00Z",
            }
            tx.run("insert_transition", job_id=id, attempt=attempt, **change)

    served.running.gateway.ledger.write(more)
    many = served.get(f"/job/{id}").json
    assert many["transitions_left_out"] == 100
    assert [change["attempt"] for change in many["transitions"]] == list(range(100, 1100))
    assert "older" not in many["transitions"][0]


def test_job_reports_the_number_of_omitted_attempts(site: Site, serve) -> None:
    mib = "head -c 3000000 /dev/zero | tr '\\0' x"
    script = f'printf \'{{"status":"error","error":"no","result":"\'; {mib}; printf \'"}}\''
    site.plugin("bad", script, retry={"max_attempts": 3, "backoff_base": "1ms"})
    site.plugin("echo", OK)
    served = serve()
    id = served.post("/plugin/bad/poll").json["job_id"]
    served.running.ended(id)
    answer = served.get(f"/job/{id}")
    assert len(answer.body) < 8 * 1024 * 1024
    assert [row["attempt"] for row in answer.json["attempts"]] == [3]
    assert answer.json["attempts_left_out"] == 2
    assert "older" not in answer.json["attempts"][0]
    found = served.get(f"/job-logs?job_id={id}").json["logs"]
    assert [row["attempt"] for row in found] == [3, 2, 1]
    few = served.post("/plugin/echo/poll").json["job_id"]
    served.running.ended(few)
    assert "attempts_left_out" not in served.get(f"/job/{few}").json


def test_large_responses_are_encoded_and_redacted_off_the_event_loop(
    site: Site, serve, monkeypatch
) -> None:
    site.plugin("echo", OK)
    served = serve()
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.running.ended(id)
    in_the_loop: list[str] = []
    render, text = JsonResponse.render, Redactor.text

    def noted(what: str) -> None:
        with suppress(RuntimeError):
            asyncio.get_running_loop()
            in_the_loop.append(what)

    def rendering(self, content):
        noted("render")
        return render(self, content)

    def redacting(self, shown):
        noted("redact")
        return text(self, shown)

    monkeypatch.setattr(JsonResponse, "render", rendering)
    monkeypatch.setattr(Redactor, "text", redacting)
    for path in (f"/job/{id}", f"/job/{id}/tree", "/job-logs", "/jobs", "/notices?after=0"):
        assert served.get(path).status == 200
        assert in_the_loop == [], path


def test_job_lists_do_not_read_payloads(site: Site, served) -> None:
    [id] = many(served, 1)
    queue = served.running.gateway.ledger.read(lambda tx: tx.dicts("pending_jobs", limit=10))
    assert all("payload" not in row for row in queue)
    [job] = served.running.gateway.ledger.read(lambda tx: list_jobs(tx, JobFilter(), limit=10))
    assert (job["id"], "payload" in job) == (id, False)


# Dry runs


def test_dry_run_of_a_trigger_queues_nothing(served) -> None:
    answer = served.post("/plugin/echo/poll", {"dry_run": True})
    assert (answer.status, answer.json["dry_run"]) == (200, True)
    assert (answer.json["deduplicated"], answer.json["job_id"]) == (False, None)
    assert served.get("/jobs").json["jobs"] == []
    error(served.post("/plugin/nosuch/poll", {"dry_run": True}), 400, "usage")


def test_dry_run_of_a_trigger_reports_the_duplicate(served) -> None:
    body = {"dedupe_key": "k", "dedupe_ttl": "1h"}
    id = served.post("/plugin/echo/poll", body).json["job_id"]
    served.running.ended(id)
    answer = served.post("/plugin/echo/poll", {**body, "dry_run": True}).json
    assert (answer["deduplicated"], answer["job_id"]) == (True, id)
    ledger = served.running.gateway.ledger
    assert ledger.read(lambda tx: tx.all("dedupe_drops_of", id=id)) == []
    fresh = served.post("/plugin/echo/poll", {"dedupe_key": "other", "dry_run": True}).json
    assert fresh["deduplicated"] is False


def test_queue_lists_running_and_queued_jobs_with_the_reason(site: Site, serve) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("echo", gate.script() + OK)
    site.plugin("bad", "exit 1")
    served = serve()
    bad = served.post("/plugin/bad/poll").json["job_id"]
    served.running.tried(bad)
    running = served.post("/plugin/echo/poll").json["job_id"]
    gate.arrived()
    waiting = served.post("/plugin/echo/poll").json["job_id"]
    found = served.get("/queue").json
    assert (found["running"], found["queue_depth"]) == (1, 2)
    assert [job["job_id"] for job in found["jobs"]] == [bad, running, waiting]
    why = {job["job_id"]: job["waits_for"] for job in found["jobs"]}
    assert "retry" in why[bad]
    assert why[running] is None
    assert why[waiting].startswith(f"all workers are busy: job {running} since ")
    gate.open(2)
    until(lambda: served.get("/healthz").json["queue_depth"] == 1)
    served.running.ended(waiting)


def test_attempt_has_its_stderr_and_response(site: Site, serve) -> None:
    site.plugin("echo", "echo careful >&2\n" + OK)
    served = serve()
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.running.ended(id)
    [row] = served.get(f"/job-logs?job_id={id}&include_result=true").json["logs"]
    assert (row["stderr"], row["result"]["result"]) == ("careful\n", "done")
