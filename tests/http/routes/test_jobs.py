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
from tests.engine.site import OK, Site
from tests.http.doors import allow_long_waits
from tests.waiting import WAIT_LIMIT, until

JOBS = dict.fromkeys(("status", "plugin", "command", "submitted_by", "before"))


@pytest.fixture
def served(site: Site, serve):
    site.plugin("echo", OK)
    return serve()


def error(answer, status: int, code: str) -> str:
    """The one shape of a refusal."""
    assert answer.status == status, answer.body
    assert answer.json["code"] == code
    assert isinstance(answer.json["error"], str)
    assert "Traceback" not in answer.body.decode()
    return answer.json["error"]


# Triggering


def test_a_job_is_accepted_with_its_id(served) -> None:
    answer = served.post("/plugin/echo/poll", {"payload": {"n": 1}})
    assert answer.status == 202
    found = answer.json
    assert found["status"] == "queued"
    assert (found["plugin"], found["command"]) == ("echo", "poll")
    job = served.house.ended(found["job_id"])
    assert (job["payload"], job["submitted_by"]) == ({"n": 1}, "api")


def test_an_accepted_job_is_committed_before_the_answer(site: Site, serve) -> None:
    """Another process finds it as soon as the caller has its id."""
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    served = serve()
    beside = apsw.Connection(str(site.state / "state.db"), flags=apsw.SQLITE_OPEN_READONLY)
    ids = []
    for _ in range(20):
        id = served.post("/plugin/echo/poll").json["job_id"]
        ids.append(id)
        found = beside.execute("SELECT 1 FROM job_queue WHERE id = ?", (id,)).fetchall()
        assert found == [(1,)]
    beside.close()
    gate.open(len(ids))
    for id in ids:
        served.house.ended(id)


@pytest.mark.parametrize("body", [None, b"", b"  \n", {}, {"payload": None}, {"payload": {}}])
def test_a_body_without_a_payload_is_an_empty_payload(served, body) -> None:
    id = served.post("/plugin/echo/poll", body).json["job_id"]
    assert served.house.ended(id)["payload"] == {}


@pytest.mark.parametrize("payload", [[1, 2], "text", 5, False, {"a": {"b": None}}, 0, ""])
@pytest.mark.parametrize("command", ["poll", "handle"])
def test_a_payload_may_be_any_json(served, payload, command) -> None:
    id = served.post(f"/plugin/echo/{command}", {"payload": payload}).json["job_id"]
    job = served.house.ended(id)
    assert job["status"] == "succeeded"
    # A `handle` job's column holds the event's envelope.
    stored = job["payload"]["payload"] if command == "handle" else job["payload"]
    assert stored == payload


def test_the_command_line_names_itself(served) -> None:
    answer = served.client.request("POST", "/plugin/echo/poll", {}, {"X-Ductile-Client": "cli"})
    assert served.house.ended(answer.json["job_id"])["submitted_by"] == "cli"


def test_an_unknown_plugin_is_refused(served) -> None:
    assert "nosuch" in error(served.post("/plugin/nosuch/poll", {}), 400, "usage")


def test_an_unknown_command_is_refused_naming_those_there_are(served) -> None:
    text = error(served.post("/plugin/echo/nosuch", {}), 400, "usage")
    assert "handle, poll, sync" in text


def test_a_disabled_plugin_is_refused_as_such(site: Site, serve) -> None:
    site.plugin("off", OK, enabled=False)
    answer = serve().post("/plugin/off/poll")
    error(answer, 400, "usage")
    assert answer.json["error"] == "plugin 'off' is disabled (enabled: false)"


def test_a_refused_plugin_is_refused_with_its_reason(site: Site, serve) -> None:
    site.plugin("bad", OK, manifest="config_keys: {required: [url]}\n")
    assert "url" in error(serve().post("/plugin/bad/poll", {}), 400, "usage")


@pytest.mark.parametrize(
    "body",
    [
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
    ],
)
def test_what_is_no_json_object_is_refused(served, body) -> None:
    error(served.post("/plugin/echo/poll", body), 400, "usage")


@pytest.mark.parametrize("depth", [101, 300, 1000])
def test_a_payload_that_is_nested_too_deeply_is_refused(served, depth: int) -> None:
    body = b'{"payload": ' + b"[" * depth + b"]" * depth + b"}"
    error(served.post("/plugin/echo/poll", body), 400, "usage")


def test_a_payload_that_is_nested_to_the_limit_runs(served) -> None:
    body = b'{"payload": ' + b"[" * 90 + b"]" * 90 + b"}"
    answer = served.post("/plugin/echo/poll", body)
    assert answer.status == 202
    assert served.house.ended(answer.json["job_id"])["status"] == "succeeded"


@pytest.mark.parametrize("levels", [251, 255, 1000])
def test_a_deep_payload_that_stands_in_the_ledger_is_shown_as_text(
    site: Site, served, levels: int
) -> None:
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.house.ended(id)
    text = "[" * levels + "]" * levels
    beside = apsw.Connection(str(site.state / "state.db"))
    beside.set_busy_timeout(5000)
    beside.execute("UPDATE job_queue SET payload = ? WHERE id = ?", (text, id))
    beside.execute("UPDATE job_log SET result = ? WHERE job_id = ?", (text, id))
    beside.close()
    answer = served.get(f"/job/{id}")
    assert (answer.status, answer.json["payload"], answer.json["result"]) == (200, text, text)
    assert served.get("/jobs").status == 200
    assert served.get("/job-logs").status == 200


@pytest.mark.parametrize("after", [b"", b"\ntrailing"])
def test_an_integer_that_would_become_another_number_is_refused(served, after: bytes) -> None:
    body = b'{"payload": {"n": 9223372036854775808}}'
    answer = served.post("/plugin/echo/poll", body + after)
    assert "beyond 64 bits" in error(answer, 400, "usage")


@pytest.mark.parametrize("after", [b"\ntrailing", b"\xff\xfe", b"\xc3", b'{"dry_run": "no"}'])
def test_bytes_after_the_json_value_are_ignored(served, after: bytes) -> None:
    """SPEC §7 (compat)."""
    answer = served.post("/plugin/echo/poll", b'{"payload": {"n": 1}}' + after)
    assert answer.status == 202
    assert served.house.ended(answer.json["job_id"])["payload"] == {"n": 1}


def test_a_body_over_its_cap_is_refused(served) -> None:
    body = json.dumps({"payload": "x" * 1024**2}).encode()
    error(served.post("/plugin/echo/poll", body), 413, "body_too_large")
    assert served.post("/plugin/echo/poll", {}).status == 202


def test_a_body_without_a_length_is_capped_while_it_streams(served) -> None:
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
    assert served.house.ended(answer.json["job_id"])["payload"] == {"a\ufffd": "b\ufffdc"}


# Dedupe


def test_a_repeat_is_answered_with_the_first_job(served) -> None:
    body = {"dedupe_key": "k", "dedupe_ttl": "1h"}
    first = served.post("/plugin/echo/poll", body).json
    again = served.post("/plugin/echo/poll", body).json
    assert first["deduplicated"] is False
    assert (again["deduplicated"], again["job_id"]) == (True, first["job_id"])


def test_a_drop_is_logged_at_info(
    site: Site, serve, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Once: a request that is sent again under its Idempotency-Key drops nothing."""
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


@pytest.mark.parametrize("key", ["", 5, [], True])
def test_a_dedupe_key_that_is_no_text_is_refused(served, key) -> None:
    error(served.post("/plugin/echo/poll", {"dedupe_key": key}), 400, "usage")


def test_a_dedupe_key_of_more_bytes_than_an_index_takes_is_refused(served) -> None:
    assert served.post("/plugin/echo/poll", {"dedupe_key": "€" * 341}).status == 202
    answer = served.post("/plugin/echo/poll", {"dedupe_key": "€" * 342})
    error(answer, 400, "usage")
    assert answer.json["error"] == "dedupe_key is 1026 bytes long; the maximum is 1024"


@pytest.mark.parametrize("ttl", [0, 1.5, 60, "5m", "1h30m"])
def test_a_dedupe_ttl_is_seconds_or_a_duration(served, ttl) -> None:
    answer = served.post("/plugin/echo/poll", {"dedupe_key": "k", "dedupe_ttl": ttl})
    assert answer.status == 202


@pytest.mark.parametrize("ttl", [-1, True, "soon", "", [], {}, 1e300, 1e12])
def test_a_dedupe_ttl_that_is_no_time_is_refused(served, ttl) -> None:
    error(served.post("/plugin/echo/poll", {"dedupe_key": "k", "dedupe_ttl": ttl}), 400, "usage")


# Looking


def test_a_job_is_shown_with_its_attempts_and_changes(served) -> None:
    id = served.post("/plugin/echo/poll", {"payload": {"n": 1}}).json["job_id"]
    served.house.ended(id)
    found = served.get(f"/job/{id}").json
    assert (found["job_id"], found["status"]) == (id, "succeeded")
    assert found["result"] == {"status": "ok", "result": "done"}
    assert len(found["attempts"]) == 1
    assert [t["to_status"] for t in found["transitions"]] == ["running", "succeeded"]


@pytest.mark.parametrize("id", ["nosuch", "%00", "..%2f..", "a" * 5000, "'; drop table x"])
def test_a_job_that_there_is_not_is_not_found(served, id: str) -> None:
    error(served.get(f"/job/{id.replace(' ', '%20')}"), 404, "not_found")


def test_waiting_for_a_job_answers_when_it_has_ended(site: Site, serve) -> None:
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


def test_waiting_for_a_job_that_has_ended_answers_at_once(served, monkeypatch) -> None:
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.house.ended(id)
    # Longer than the client waits.
    allow_long_waits(monkeypatch)
    assert served.get(f"/job/{id}?wait=3600").json["status"] == "succeeded"


def test_waiting_longer_than_one_wanted_answers_with_what_is(site: Site, serve) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script() + OK)
    served = serve()
    id = served.post("/plugin/echo/poll").json["job_id"]
    gate.arrived()
    assert served.get(f"/job/{id}?wait=0.1").json["status"] in ("queued", "running")
    gate.open()
    served.house.ended(id)


def test_waiting_for_a_job_that_there_is_not_is_not_found(served) -> None:
    error(served.get("/job/nosuch?wait=5"), 404, "not_found")


@pytest.mark.parametrize("wait", ["x", "-1", "nan", "inf", "1e400", ""])
def test_a_wait_that_is_no_time_is_refused(served, wait: str) -> None:
    error(served.get(f"/job/x?wait={wait}"), 400, "usage")


def test_a_secret_in_a_payload_is_hidden_when_it_is_shown(site: Site, serve) -> None:
    site.environ["SECRET"] = "hunter2hunter2"
    site.plugin("echo", OK, config={"token": "${SECRET}"})
    served = serve()
    body = {"payload": {"said": "it is hunter2hunter2"}}
    id = served.post("/plugin/echo/poll", body).json["job_id"]
    served.house.ended(id)
    for path in (f"/job/{id}", "/jobs", "/job-logs", "/queue"):
        assert b"hunter2" not in served.get(path).body


# Lists


def many(served, count: int = 7) -> list[str]:
    """One after the other, so that they end in the order they were put."""
    ids = []
    for _ in range(count):
        ids.append(served.post("/plugin/echo/poll").json["job_id"])
        served.house.ended(ids[-1])
    return ids


def test_jobs_are_listed_the_newest_first(served) -> None:
    ids = many(served)
    found = served.get("/jobs").json
    assert [job["job_id"] for job in found["jobs"]] == ids[::-1]
    assert found["cursor"] is None


@pytest.mark.parametrize(("path", "key"), [("/jobs", "jobs"), ("/job-logs", "logs")])
def test_pages_cover_everything_once(served, path: str, key: str) -> None:
    ids = many(served)
    seen: list[str] = []
    cursor = ""
    for _ in range(10):
        page = served.get(f"{path}?limit=3{cursor}").json
        seen += [row["job_id"] for row in page[key]]
        if page["cursor"] is None:
            break
        cursor = f"&before={page['cursor']}"
    assert seen == ids[::-1]


def test_jobs_are_filtered(site: Site, serve) -> None:
    site.plugin("echo", OK)
    site.plugin("other", "exit 78")
    served = serve()
    many(served, 2)
    id = served.post("/plugin/other/sync").json["job_id"]
    served.house.ended(id)
    for query in ("plugin=other", "command=sync", "status=failed"):
        assert [job["job_id"] for job in served.get(f"/jobs?{query}").json["jobs"]] == [id]
        assert [row["job_id"] for row in served.get(f"/job-logs?{query}").json["logs"]] == [id]
    assert served.get("/jobs?submitted_by=cli").json["jobs"] == []
    assert served.get("/jobs?plugin=nosuch").json["jobs"] == []


def test_the_log_is_filtered_as_the_go_program_filters_it(site: Site, serve) -> None:
    site.plugin("echo", OK)
    site.plugin("other", "echo No route to host >&2; exit 78")
    served = serve()
    many(served, 2)
    id = served.post("/plugin/other/sync").json["job_id"]
    served.house.ended(id)
    ended = served.get(f"/job/{id}").json["completed_at"]
    for query in (f"from={ended}", f"since={ended}", "query=NO%20ROUTE", "status=error"):
        assert [row["job_id"] for row in served.get(f"/job-logs?{query}").json["logs"]] == [id]
    assert len(served.get(f"/job-logs?to={ended}").json["logs"]) == 3
    for query in ("from=2090-01-01T00:00:00Z", "to=2020-01-01T00:00:00Z", "query=nothingatall"):
        assert served.get(f"/job-logs?{query}").json == {"logs": [], "cursor": None}
    assert served.get("/job-logs?submitted_by=cli").json["logs"] == []
    assert len(served.get("/job-logs?submitted_by=api").json["logs"]) == 3


@pytest.mark.parametrize("query", ["from=soon", "to=x", "submitted_by=me", "include_result=1"])
def test_a_filter_of_the_log_that_says_nothing_is_refused(served, query: str) -> None:
    assert query.partition("=")[0] in error(served.get(f"/job-logs?{query}"), 400, "usage")


@pytest.mark.parametrize(
    ("alias", "status"), [("ok", "succeeded"), ("error", "failed"), ("pending", "queued")]
)
def test_states_have_the_names_of_the_go_program_too(site: Site, serve, alias, status) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("echo", OK)
    site.plugin("other", "exit 78")
    site.plugin("slow", gate.script() + OK)
    served = serve()
    for plugin in ("echo", "other"):
        served.house.ended(served.post(f"/plugin/{plugin}/poll").json["job_id"])
    served.post("/plugin/slow/poll")
    gate.arrived()
    served.post("/plugin/echo/poll")
    [job] = served.get(f"/jobs?status={alias}").json["jobs"]
    assert job["status"] == status
    dry = {"filter": {"status": alias}, "dry_run": True}
    done = "cancel" if alias == "pending" else "retry"
    wanted = [] if alias == "ok" else [job["job_id"]]
    assert served.post(f"/jobs/{done}", dry).json["jobs"] == wanted
    gate.open(1)
    until(lambda: served.get("/healthz").json["queue_depth"] == 0)


@pytest.mark.parametrize(
    ("asked", "close"),
    [
        ("/jobs?state=dead", "'status'"),
        ("/job-logs?Query=x", "'query'"),
        ("/queue?limits=1", "'limit'"),
        ("/tokens?name=x", None),
        ("/gateway/heartbeats?agent=x", "'agent_id'"),
    ],
)
def test_a_filter_that_nobody_knows_is_refused_with_the_nearest(served, asked, close) -> None:
    answer = served.get(asked)
    assert answer.status == 400
    told = answer.json.get("error") or answer.json["detail"]
    assert asked.partition("?")[2].partition("=")[0] in told
    assert ("did you mean" in told) == (close is not None)
    assert close is None or close in told


def test_a_page_of_large_responses_ends_early_and_goes_on(site: Site, serve) -> None:
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


def test_a_job_says_how_many_changes_of_state_it_is_shown_without(served) -> None:
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.house.ended(id)
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

    served.house.gateway.ledger.write(more)
    many = served.get(f"/job/{id}").json
    assert many["transitions_left_out"] == 100
    assert [change["attempt"] for change in many["transitions"]] == list(range(100, 1100))
    assert "older" not in many["transitions"][0]


def test_a_job_says_how_many_attempts_it_is_shown_without(site: Site, serve) -> None:
    mib = "head -c 3000000 /dev/zero | tr '\\0' x"
    script = f'printf \'{{"status":"error","error":"no","result":"\'; {mib}; printf \'"}}\''
    site.plugin("bad", script, retry={"max_attempts": 3, "backoff_base": "1ms"})
    site.plugin("echo", OK)
    served = serve()
    id = served.post("/plugin/bad/poll").json["job_id"]
    served.house.ended(id)
    answer = served.get(f"/job/{id}")
    assert len(answer.body) < 8 * 1024 * 1024
    assert [row["attempt"] for row in answer.json["attempts"]] == [3]
    assert answer.json["attempts_left_out"] == 2
    assert "older" not in answer.json["attempts"][0]
    found = served.get(f"/job-logs?job_id={id}").json["logs"]
    assert [row["attempt"] for row in found] == [3, 2, 1]
    few = served.post("/plugin/echo/poll").json["job_id"]
    served.house.ended(few)
    assert "attempts_left_out" not in served.get(f"/job/{few}").json


@pytest.mark.parametrize(
    "path", ["/job/{id}", "/job/{id}/tree", "/job-logs", "/jobs", "/notices?after=0"]
)
def test_what_may_be_large_is_written_out_and_redacted_off_the_loop(
    site: Site, serve, monkeypatch, path: str
) -> None:
    site.plugin("echo", OK)
    served = serve()
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.house.ended(id)
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
    assert served.get(path.format(id=id)).status == 200
    assert in_the_loop == []


def test_lists_of_jobs_leave_payloads_in_the_ledger(site: Site, served) -> None:
    [id] = many(served, 1)
    for query, more in (("jobs", JOBS), ("pending_jobs", {})):
        rows = served.house.gateway.ledger.read(
            lambda tx, query=query, more=more: tx.dicts(query, limit=10, **more)
        )
        assert all("payload" not in row for row in rows)
    assert served.get("/jobs").json["jobs"][0]["job_id"] == id


# Dry


def test_a_dry_trigger_says_what_it_would_do_and_does_nothing(served) -> None:
    answer = served.post("/plugin/echo/poll", {"dry_run": True})
    assert (answer.status, answer.json["dry_run"]) == (200, True)
    assert (answer.json["deduplicated"], answer.json["job_id"]) == (False, None)
    assert served.get("/jobs").json["jobs"] == []
    error(served.post("/plugin/nosuch/poll", {"dry_run": True}), 400, "usage")


def test_a_dry_trigger_tells_the_job_that_makes_it_needless(served) -> None:
    body = {"dedupe_key": "k", "dedupe_ttl": "1h"}
    id = served.post("/plugin/echo/poll", body).json["job_id"]
    served.house.ended(id)
    answer = served.post("/plugin/echo/poll", {**body, "dry_run": True}).json
    assert (answer["deduplicated"], answer["job_id"]) == (True, id)
    ledger = served.house.gateway.ledger
    assert ledger.read(lambda tx: tx.all("dedupe_drops_of", id=id)) == []
    fresh = served.post("/plugin/echo/poll", {"dedupe_key": "other", "dry_run": True}).json
    assert fresh["deduplicated"] is False


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "nan", "1e9", ""])
@pytest.mark.parametrize("path", ["/jobs", "/queue", "/job-logs"])
def test_a_limit_out_of_range_is_refused(served, path: str, limit: str) -> None:
    error(served.get(f"{path}?limit={limit}"), 400, "usage")


@pytest.mark.parametrize("before", ["x", "-5", "1e300"])
def test_a_cursor_that_is_none_is_refused(served, before: str) -> None:
    error(served.get(f"/jobs?before={before}"), 400, "usage")


def test_the_queue_shows_what_runs_and_waits_and_why(site: Site, serve) -> None:
    gate = site.gate()
    site.settings["service"]["max_workers"] = 1
    site.plugin("echo", gate.script() + OK)
    site.plugin("bad", "exit 1")
    served = serve()
    bad = served.post("/plugin/bad/poll").json["job_id"]
    served.house.tried(bad)
    running = served.post("/plugin/echo/poll").json["job_id"]
    gate.arrived()
    waiting = served.post("/plugin/echo/poll").json["job_id"]
    found = served.get("/queue").json
    assert (found["running"], found["queue_depth"]) == (1, 2)
    assert [job["job_id"] for job in found["jobs"]] == [bad, running, waiting]
    why = {job["job_id"]: job["waits_for"] for job in found["jobs"]}
    assert "retry" in why[bad]
    assert why[running] is None
    assert why[waiting] == "all workers are busy"
    gate.open(2)
    until(lambda: served.get("/healthz").json["queue_depth"] == 1)
    served.house.ended(waiting)


def test_a_log_line_has_what_its_attempt_said(site: Site, serve) -> None:
    site.plugin("echo", "echo careful >&2\n" + OK)
    served = serve()
    id = served.post("/plugin/echo/poll").json["job_id"]
    served.house.ended(id)
    [row] = served.get(f"/job-logs?job_id={id}&include_result=true").json["logs"]
    assert (row["stderr"], row["result"]["result"]) == ("careful\n", "done")
