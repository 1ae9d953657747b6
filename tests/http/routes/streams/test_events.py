"""`GET /events` and `GET /notices`: streaming, resuming, filtering, access."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from ductile.core.jobs.limits import PAGE_BYTES
from ductile.core.values.redact import Redactor
from ductile.engine.notices import bus
from ductile.engine.observability.health import FailingPart, HealthMonitor
from ductile.errors import LedgerError
from ductile.http.middleware import context
from ductile.http.middleware.caller_limit import CallerLimit
from ductile.http.middleware.context import AppContext
from ductile.http.routes.streams import events
from ductile.http.routes.streams.changes import ChangeFeed
from ductile.http.routes.streams.events import Encoder
from ductile.model import Notice
from ductile.store import agents, notices
from ductile.store.engines.api import StoredNotice, Tx
from tests.core.agents.test_decision_log import LOG
from tests.http.harness import ADMIN, CONFIG, READER, ApiHarness, running_api
from tests.http.subscriber import subscribed
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT, until

AUTH = f"Authorization: Bearer {ADMIN}\r\n"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(working=False) as api:
        yield api


@pytest.fixture(scope="module")
def working() -> Iterator[ApiHarness]:
    with running_api() as api:
        yield api


def trigger(api: ApiHarness) -> str:
    job_id: str = api.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
    return job_id


def test_events_of_a_job_are_streamed(api: ApiHarness) -> None:
    trigger(api)
    with subscribed(api) as subscriber:
        job_id = trigger(api)
        event = subscriber.next()
    assert event["event"] == "job.queued"
    assert event["data"]["data"]["job_id"] == job_id
    assert event["data"]["topic"] == "jobs"
    assert int(event["id"]) == event["data"]["id"]


def test_stream_resumes_without_gaps(api: ApiHarness) -> None:
    with subscribed(api) as subscriber:
        first = trigger(api)
        last = subscriber.next()
    missed = [trigger(api) for _ in range(5)]
    with subscribed(api, Last_Event_ID=last["id"]) as subscriber:
        live = trigger(api)
        got = [subscriber.next()["data"]["data"]["job_id"] for _ in range(6)]
    assert last["data"]["data"]["job_id"] == first
    assert got == [*missed, live]


def test_stream_resumes_if_it_ended_before_the_first_event(api: ApiHarness) -> None:
    with subscribed(api) as subscriber:
        start = subscriber.start
    missed = trigger(api)
    with subscribed(api, Last_Event_ID=start) as subscriber:
        assert subscriber.next()["data"]["data"]["job_id"] == missed


def test_old_events_are_read_from_the_ledger(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subscribed(api) as subscriber:
        trigger(api)
        last = subscriber.next()["id"]
    monkeypatch.setattr(bus, "RING_NOTICES", 2)
    ids = [trigger(api) for _ in range(10)]
    with subscribed(api, f"?after={last}") as subscriber:
        assert [subscriber.next()["data"]["data"]["job_id"] for _ in ids] == ids
        ids = [trigger(api) for _ in range(10)]
        assert [subscriber.next()["data"]["data"]["job_id"] for _ in ids] == ids


def test_new_client_can_ask_for_past_events(api: ApiHarness) -> None:
    past = [trigger(api) for _ in range(3)]
    with subscribed(api, "?last=2") as subscriber:
        live = trigger(api)
        got = [subscriber.next()["data"]["data"]["job_id"] for _ in range(3)]
    assert got == [*past[1:], live]


def test_stream_in_the_form_of_the_go_program(api: ApiHarness) -> None:
    past = trigger(api)
    with subscribed(api, "?format=go&last=1") as subscriber:
        live = trigger(api)
        first, second = subscriber.next(), subscriber.next()
    assert (first["event"], first["data"]["job_id"]) == ("job.enqueued", past)
    assert first["data"].keys() == {"at", "job_id", "plugin", "command", "status", "submitted_by"}
    assert second["data"]["job_id"] == live
    with subscribed(api, "?format=go") as subscriber:
        assert int(subscriber.next()["id"]) <= int(first["id"])
    with subscribed(api, "?format=go", Last_Event_ID=first["id"]) as subscriber:
        assert subscriber.next()["data"]["job_id"] == live


def test_unknown_format_is_refused(api: ApiHarness) -> None:
    answer = api.ask("GET", "/events?format=rust")
    assert (answer.status, "must be one of go" in answer.json["error"]) == (400, True)


def test_topics_are_filtered(api: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_INTERVAL", 0.02)
    with subscribed(api, "?topic=breakers,pipelines") as subscriber:
        trigger(api)
        newest = api.gateway.ledger.read(notices.last_position)
        while subscriber.line() != f"id: {newest}":
            pass
    with subscribed(api, "?topic=jobs") as subscriber:
        trigger(api)
        assert subscriber.next()["event"] == "job.queued"


@pytest.mark.parametrize(
    ("query", "part"),
    [("nope", "topics: jobs, "), ("jobs,job", "did you mean 'jobs'?"), ("jobs&topic=x", "'x'")],
)
def test_unknown_topic_is_refused_with_the_known_ones(
    api: ApiHarness, query: str, part: str
) -> None:
    answer = api.ask("GET", f"/events?topic={query}")
    assert (answer.status, answer.slug) == (400, "usage")
    assert part in answer.json["error"]


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "1-2-3", "1-", "1-x", "9" * 40])
def test_invalid_cursor_is_refused(api: ApiHarness, last: str) -> None:
    assert api.ask("GET", "/events", headers={"Last-Event-ID": last}).status == 400


def test_cursor_beyond_the_end_starts_from_the_beginning(api: ApiHarness) -> None:
    trigger(api)
    with subscribed(api, "?after=99999999") as subscriber:
        assert subscriber.next()["event"] == "job.queued"


APPROVAL_TOKEN = "Ab0_-" * 8 + "xyz"


def secret_document() -> dict[str, str]:
    """A secret of the configuration, plain and as a header carries it, and an approval link."""
    basic = base64.b64encode(f"user:{READER}".encode()).decode()
    link = f"https://ductile.example/approve/{APPROVAL_TOKEN}"
    return {"note": f"the token is {READER}.", "header": f"Basic {basic}", "link": link}


def assert_redacted(text: str) -> None:
    assert "[REDACTED]" in text
    for hidden in (READER, APPROVAL_TOKEN, base64.b64encode(f"user:{READER}".encode()).decode()):
        assert hidden not in text


def test_events_of_agents_and_webhooks_contain_no_secret(working: ApiHarness) -> None:
    new = {"source_identifier": "a", "event_type": "e", "target_session": "s"}
    webhook = working.ask("POST", "/gateway/webhook-configs", new).json["id"]
    sent = {"webhook_id": webhook, "payload": secret_document()}
    remind = {"agent_id": "a1", "delay_ms": 1, "payload": secret_document()}
    log = {**LOG, "internal_monologue": f"I use {READER}"}
    with subscribed(working) as subscriber:
        assert working.ask("POST", "/gateway/messages", log).status == 202
        assert working.ask("POST", "/gateway/cron", remind).status == 201
        assert working.ask("POST", "/gateway/deliveries", sent).status == 202
        seen: dict[str, str] = {}
        while not {"decision_log", "reminder", "WebhookEvent"} <= seen.keys():
            event = subscriber.next()
            seen[event["event"]] = json.dumps(event)
    for type in ("decision_log", "reminder", "WebhookEvent"):
        assert_redacted(seen[type])


def test_notice_that_is_stored_with_a_secret_is_streamed_without_it(api: ApiHarness) -> None:
    notice = Notice(f"session:{READER}", "WebhookEvent", secret_document())
    now = api.gateway.clock.now()
    with subscribed(api) as subscriber:
        api.gateway.ledger.write(lambda tx: notices.post(tx, notice, now))
        streamed = subscriber.next()
    assert_redacted(json.dumps(streamed))
    assert_redacted(api.ask("GET", "/notices?last=1").raw.decode())


def limit_subscribers(api: ApiHarness, monkeypatch: pytest.MonkeyPatch, places: int) -> CallerLimit:
    [router] = [each.app for each in api.server.listeners if each.name == "local"]
    limit: CallerLimit = router.state.app_context.subscribers.limit  # type: ignore[attr-defined]
    until(lambda: limit.count == 0)
    monkeypatch.setattr(limit, "places", places)
    return limit


def test_number_of_subscribers_is_limited(api: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    limit_subscribers(api, monkeypatch, 1)
    with subscribed(api):
        answer = api.ask("GET", "/events", token=created(api, "second"))
        assert (answer.status, answer.slug) == (503, "too_many_followers")


def test_subscribers_of_one_token_are_limited(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = limit_subscribers(api, monkeypatch, 8)
    greedy = created(api, "greedy")
    with subscribed(api, token=greedy), subscribed(api, token=greedy):
        answer = api.ask("GET", "/events", token=greedy)
        assert (answer.status, answer.slug) == (429, "too_many_open_requests")
        with subscribed(api, token=created(api, "modest")):
            assert limit.count == 3
    until(lambda: limit.count == 0)
    with subscribed(api, token=greedy):
        pass


def test_refused_subscriber_takes_no_place(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = limit_subscribers(api, monkeypatch, 8)
    for _ in range(5):
        assert api.ask("GET", "/events?after=x").status == 400
    assert limit.count == 0


def test_subscriber_that_leaves_at_once_gives_its_place_back(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = limit_subscribers(api, monkeypatch, 8)
    for _ in range(20):
        with api.connect() as raw:
            raw.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\n{AUTH}\r\n".encode())
    until(lambda: limit.count == 0)


def created(api: ApiHarness, name: str, **more: str) -> str:
    asked = {"name": name, "scopes": ["events:ro", "jobs:ro"], **more}
    token: str = api.ask("POST", "/tokens", asked).json["token"]
    return token


def test_stream_ends_when_its_token_is_revoked(api: ApiHarness) -> None:
    with subscribed(api, token=created(api, "revoked")) as subscriber:
        trigger(api)
        assert subscriber.next()["event"] == "job.queued"
        assert api.ask("POST", "/token/revoked/revoke").status == 200
        trigger(api)
        assert subscriber.rest() == b""


def test_idle_stream_of_a_revoked_token_ends(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_INTERVAL", 0.02)
    with subscribed(api, token=created(api, "quiet")) as subscriber:
        assert api.ask("POST", "/token/quiet/revoke").status == 200
        assert b"event:" not in subscriber.rest()


def test_stream_ends_when_its_token_expires(api: ApiHarness) -> None:
    token = created(api, "short", expires_in="1s")
    with subscribed(api, token=token) as subscriber:
        until(lambda: api.ask("GET", "/jobs", token=token).status == 401)
        trigger(api)
        assert subscriber.rest() == b""


@pytest.mark.parametrize("left", ["", "      - {token: configured-token-01, scopes: [jobs:ro]}\n"])
def test_stream_ends_when_a_reload_removes_its_token_or_scope(left: str) -> None:
    listed = "      - {token: configured-token-01, scopes: [events:ro]}\n"
    with running_api(CONFIG + listed, working=False) as own:
        with subscribed(own, token="configured-token-01") as subscriber:
            own.write("config.yaml", CONFIG + left)
            own.gateway.reload()
            trigger(own)
            assert subscriber.rest() == b""
        with subscribed(own):
            pass


def test_wait_is_refused_if_its_token_expires_meanwhile(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, job_id = created(api, "waiting"), trigger(api)
    waits, when_ended = threading.Event(), api.gateway.notice_bus.add_on_end

    def waiting(job_id: str, callback: Callable[[], None]) -> None:
        when_ended(job_id, callback)
        waits.set()

    monkeypatch.setattr(api.gateway.notice_bus, "add_on_end", waiting)
    raw = http.client.HTTPConnection(*api.address("api"), timeout=WAIT_LIMIT)
    raw.request("GET", f"/job/{job_id}?wait=20", headers={"Authorization": f"Bearer {token}"})
    assert waits.wait(WAIT_LIMIT)
    assert api.ask("POST", "/token/waiting/revoke").status == 200
    assert api.ask("POST", f"/job/{job_id}/cancel").status == 202
    assert raw.getresponse().status == 401
    raw.close()


def test_streams_survive_a_reload_and_end_at_a_stop() -> None:
    with running_api() as own, subscribed(own) as subscriber:
        own.write(
            "config.yaml", CONFIG.replace("max_workers: 2", "max_workers: 2, log_level: warn")
        )
        assert own.ask("POST", "/system/reload").status == 200
        trigger(own)
        assert subscriber.next()["event"] == "job.queued"
        own.server.stop()
        assert subscriber.response.read() is not None


def test_notices_after_a_cursor_beyond_the_end_start_from_the_beginning(api: ApiHarness) -> None:
    trigger(api)
    whole = api.ask("GET", "/notices?after=0").json
    beyond = api.ask("GET", f"/notices?after={int(whole['cursor']) + 1000}").json
    assert beyond == whole
    assert api.ask("GET", f"/notices?after={whole['cursor']}").json["notices"] == []


def test_error_names_the_invalid_cursor(api: ApiHarness) -> None:
    for path in ("/notices?after=x", "/events?after=x"):
        assert api.ask("GET", path).json["error"].startswith("after must")
    answer = api.ask("GET", "/events", headers={"Last-Event-ID": "x"}).json
    assert answer["error"].startswith("Last-Event-ID must")


def _post(api: ApiHarness, *sizes: int) -> None:
    now = api.gateway.clock.now()
    for size in sizes:
        notice = Notice("session:large", "sized", {"text": "x" * size})
        api.gateway.ledger.write(lambda tx, notice=notice: notices.post(tx, notice, now))


def test_page_of_large_notices_ends_early_with_a_cursor(api: ApiHarness) -> None:
    start = api.ask("GET", "/notices").json["cursor"]
    _post(api, *[PAGE_BYTES // 3] * 5, 10)
    pages, cursor = [], start
    while found := (page := api.ask("GET", f"/notices?after={cursor}").json)["notices"]:
        pages.append(len(found))
        cursor = page["cursor"]
    assert pages == [2, 2, 2]


@pytest.mark.parametrize("ring", [bus.RING_NOTICES, 1])
def test_large_events_are_sent_in_small_batches(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch, ring: int
) -> None:
    monkeypatch.setattr(bus, "RING_NOTICES", ring)
    start = api.ask("GET", "/notices").json["cursor"]
    written: list[int] = []
    write = events._encode

    async def noted(found: list[StoredNotice], redactor: Redactor, one: Encoder) -> str:
        written.append(sum(len(notice.payload) for notice in found))
        return await write(found, redactor, one)

    monkeypatch.setattr(events, "_encode", noted)
    _post(api, *[events.MAX_BATCH_BYTES // 3] * 7)
    with subscribed(api, f"?topic=session:large&after={start}") as subscriber:
        sizes = [len(subscriber.next()["data"]["data"]["text"]) for _ in range(7)]
    assert sizes == [events.MAX_BATCH_BYTES // 3] * 7
    assert max(written) <= events.MAX_BATCH_BYTES


def test_number_that_equals_a_secret_leaves_valid_json() -> None:
    environ = {"CHAT_ID": "123456789"}
    config = CONFIG + "plugins: {echo: {config: {chat: '${CHAT_ID}'}}}\n"
    with running_api(config, working=False, environ=environ) as api, subscribed(api) as subscriber:
        body = {"payload": {"chat_id": 123456789}}
        job_id = api.ask("POST", "/plugin/echo/poll", body).json["job_id"]
        assert subscriber.next()["data"]["data"]["job_id"] == job_id
        notice = Notice("system", "any.thing", {"chat_id": 123456789})
        api.gateway.ledger.write(lambda tx: notices.post(tx, notice, api.gateway.clock.now()))
        assert subscriber.next()["data"]["data"] == {"chat_id": "[REDACTED]"}
        assert api.ask("GET", f"/job/{job_id}").json["payload"] == {"chat_id": "[REDACTED]"}


@pytest.mark.parametrize("path", ["/events", "/job/{}/log/stream"])
def test_head_has_headers_only_and_takes_no_place(api: ApiHarness, path: str) -> None:
    path = path.format(trigger(api))
    request = f"HEAD {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{AUTH}\r\n"
    last = request.replace("\r\nHost", "\r\nConnection: close\r\nHost")
    with api.connect() as connection:
        connection.sendall((request * 3 + last).encode())
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.count(b"HTTP/1.1 200 OK") == 4
    assert received.count(b"content-type: text/event-stream") == 4
    assert b"following" not in received
    assert api.ask("HEAD", "/job/none/log/stream").status == 404


def test_bug_within_a_stream_is_logged(api: ApiHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[BaseException] = []
    monkeypatch.setattr(events, "log_crash", lambda _message, error: logged.append(error))
    with subscribed(api) as subscriber:
        monkeypatch.setattr(events, "_encode", None)
        trigger(api)
        with pytest.raises((http.client.IncompleteRead, OSError)):
            subscriber.response.read()
    assert [type(error) for error in logged] == [TypeError]


def test_changes_are_streamed_on_request_and_without_an_id(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ChangeFeed, "interval", 0.02)
    monitor = HealthMonitor(api.gateway)
    monkeypatch.setattr(api.gateway, "health", monitor)
    api.gateway.agents.heartbeats.start()
    beat = {"type": "heartbeat", "agent_id": "agent-42", "cluster_id": "west"}
    with subscribed(api, "?changes=agents,nodes&changes=health") as subscriber:
        for kind, change in (
            ("agents", lambda: api.ask("POST", "/gateway/heartbeat", json.dumps(beat))),
            ("nodes", lambda: [api.gateway.set_drained(drained) for drained in (True, False)]),
            ("health", lambda: setattr(monitor, "last_failing", (FailingPart("x", "y"),))),
        ):
            change()
            event = subscriber.next()
            assert (event["event"], event["data"]["topic"]) == (f"{kind}.changed", kind)
            assert "id" not in event, "a client resumes after the last stored event"


def test_changes_take_the_scopes_of_what_changes(api: ApiHarness) -> None:
    scopes = ["events:ro", "agents:ro"]
    token = api.ask("POST", "/tokens", {"name": "screen", "scopes": scopes}).json["token"]
    for kinds, scope in (("nodes", "system:ro"), ("agents,health", "system:ro")):
        assert api.ask("HEAD", f"/events?changes={kinds}", token=token).status == 403
        refused = api.ask("GET", f"/events?changes={kinds}", token=token)
        assert (refused.status, refused.json["scope"]) == (403, scope)
    refused = api.ask("GET", "/events?changes=agents,jobs", token=token)
    assert (refused.status, "agents, nodes, health" in refused.json["error"]) == (400, True)
    with subscribed(api, "?changes=agents", token=token):
        pass


def test_contacts_with_other_nodes_are_found_in_the_ledger(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "CONTACT_INTERVAL", 0.0)
    monkeypatch.setattr(ChangeFeed, "interval", 0.0)
    monkeypatch.setattr(api.gateway, "has_other_nodes", lambda: True)

    def contact(id: str) -> None:
        """As another node stores it."""
        sql = "INSERT INTO gateway_heartbeats VALUES"
        execute(api.gateway.ledger, f"{sql} ('{id}', 'west', '9{id}', '9{id}', NULL)")

    def refuse(_tx: Tx) -> str:
        raise LedgerError("the disk is full")

    async def look() -> list[str]:
        feed = ChangeFeed(AppContext(api.gateway), ["agents"])
        found = [await feed.read()]
        contact("1")
        found += [await feed.read(), await feed.read()]
        contact("2")
        with monkeypatch.context() as failing:
            failing.setattr(agents, "find_newest_contact", refuse)
            unread = ChangeFeed(AppContext(api.gateway), ["agents"])
            found.append(await unread.read())
        return [*found, await feed.read()]

    first, second, unchanged, without_ledger, third = asyncio.run(look())
    assert first == unchanged == without_ledger == ""
    assert "agents.changed" in second
    assert "agents.changed" in third
