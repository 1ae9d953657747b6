"""The log of a running job: streamed as it is written, and equal to what is stored."""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.http.harness import ADMIN, CONFIG, READER, ApiHarness, running_api
from tests.http.subscriber import subscribed
from tests.waiting import WAIT_LIMIT, until

SECRET = "a-very-secret-value"
MORE = f"""\
plugins:
  talk: {{config: {{token: {SECRET}}}}}
  fail: {{retry: {{max_attempts: 2, backoff_base: 10ms}}}}
"""
TALK = """\
#!/bin/sh
cat > /dev/null
echo "one $1" >&2
echo "::progress 40 copying" >&2
printf 'a-very-' >&2
read go < '@root@/gate'
echo 'secret-value and two' >&2
read go < '@root@/gate'
echo '{"status":"ok","logs":[{"level":"info","message":"from the response"}]}'
"""
FAIL = '#!/bin/sh\necho trouble >&2\necho \'{"status":"error","error":"no","retry":true}\'\n'
TOKEN = "Ab0_-" * 8 + "xyz"
NOTIFY = f"""\
#!/bin/sh
cat > /dev/null
printf 'no answer: https://ductile.example/approve/{TOKEN[:20]}' >&2
sleep 0.5
echo '{TOKEN[20:]} failed' >&2
echo '{{"status":"error","retry":false,"error":"cannot send https://ductile.example/approve/{TOKEN}"}}'
"""


class TalkingApi(ApiHarness):
    """A gateway whose plugin `talk` waits twice for `continue_talk`."""

    gate: int

    def continue_talk(self) -> None:
        os.write(self.gate, b"go\n")


@pytest.fixture
def api() -> Iterator[TalkingApi]:
    with running_api(CONFIG + MORE, plugins={"talk": TALK, "fail": FAIL}) as running:
        api = TalkingApi(running.root, running.gateway, running.server)
        os.mkfifo(api.root / "gate")
        # Read-write and open to the end, so that neither side waits for the other to open it.
        api.gate = os.open(api.root / "gate", os.O_RDWR)
        api.write("plugins/talk/run.sh", TALK.replace("@root@", str(api.root)), 0o700)
        yield api
        os.close(api.gate)


def start(api: ApiHarness, plugin: str) -> str:
    job_id: str = api.ask("POST", f"/plugin/{plugin}/poll", {}).json["job_id"]
    return job_id


class LogStream:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self._response = response
        self.last_id = ""

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        fields: dict[str, str] = {}
        for raw in self._response:
            line = raw.decode().rstrip("\n")
            if line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "event" in fields:
                self.last_id = fields["id"]
                yield fields["event"], json.loads(fields["data"])
                fields = {}

    def text_until(self, wanted: str) -> str:
        """Read the log until it contains `wanted`."""
        text = ""
        for name, data in self:
            text += data["text"] if name == "log" else ""
            if wanted in text:
                return text
        pytest.fail(f"the stream ended with {text!r}")


@contextmanager
def following(
    api: ApiHarness, job_id: str, *, token: str = ADMIN, last: str | None = None
) -> Iterator[LogStream]:
    connection = http.client.HTTPConnection(*api.address("api"), timeout=WAIT_LIMIT)
    headers = {"Authorization": f"Bearer {token}"}
    if last is not None:
        headers["Last-Event-ID"] = last
    try:
        connection.request("GET", f"/job/{job_id}/log/stream", headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        yield LogStream(response)
    finally:
        connection.close()


def stored_stderr(api: ApiHarness, job_id: str) -> str:
    job = api.ask("GET", f"/job/{job_id}?wait=60").json
    text: str = job["attempts"][-1]["stderr"]
    return text


def test_output_is_shown_while_the_job_runs_and_equals_what_is_stored(api: TalkingApi) -> None:
    job_id = start(api, "talk")
    with following(api, job_id) as stream:
        shown = stream.text_until("copying\n")
        assert api.ask("GET", f"/job/{job_id}").json["status"] == "running"
        api.continue_talk()
        shown += stream.text_until("two\n")
        assert SECRET not in shown
        api.continue_talk()
        rest = list(stream)
    assert [name for name, _ in rest] == ["attempt", "end"]
    assert rest[0][1]["logs"] == [{"level": "info", "message": "from the response"}]
    assert rest[1][1]["status"] == "succeeded"
    assert shown == stored_stderr(api, job_id)


def test_event_stream_has_the_progress_of_running_jobs_on_request(api: TalkingApi) -> None:
    with subscribed(api, "?progress=true") as subscriber:
        job_id = start(api, "talk")
        event = subscriber.next()
        while event["event"] != "job.progress":
            event = subscriber.next()
    assert "id" not in event, "a client resumes after the last stored event"
    progress = event["data"]["data"]
    assert (progress["job_id"], progress["percent"], progress["message"]) == (job_id, 40, "copying")
    for _ in range(2):
        api.continue_talk()
    stored_stderr(api, job_id)


def test_progress_in_the_event_stream_takes_the_scope_of_jobs(api: TalkingApi) -> None:
    created = api.ask("POST", "/tokens", {"name": "events", "scopes": ["events:ro"]}).json
    refused = api.ask("GET", "/events?progress=true", token=created["token"])
    assert (refused.status, refused.json["scope"]) == (403, "jobs:ro")


def test_streams_do_not_show_the_token_of_an_approval_link() -> None:
    """A reader of a job or of the events could otherwise decide the approval."""
    with running_api(CONFIG, plugins={"notify": NOTIFY}) as api:
        job_id = start(api, "notify")
        with following(api, job_id) as stream:
            events = list(stream)
        shown = "".join(data["text"] for name, data in events if name == "log")
        assert shown == "no answer: https://ductile.example/approve/[REDACTED] failed\n"
        assert TOKEN[:20] not in json.dumps(events)
        notices = api.ask("GET", "/notices?last=100").json["notices"]
        assert "approve/[REDACTED]" in json.dumps(notices)
        rows = api.gateway.ledger.read(lambda tx: tx.dicts("job", id=job_id))
        assert rows[0]["last_error"].endswith("/approve/[REDACTED]")


def test_reconnect_continues_where_the_client_stopped(api: TalkingApi) -> None:
    job_id = start(api, "talk")
    with following(api, job_id) as stream:
        shown = stream.text_until("copying\n")
        last = stream.last_id
    api.continue_talk()
    api.continue_talk()
    with following(api, job_id, last=last) as stream:
        events = list(stream)
    shown += "".join(data["text"] for name, data in events if name == "log")
    assert shown == stored_stderr(api, job_id)


def test_progress_is_in_the_stream_the_job_and_the_lists(api: TalkingApi) -> None:
    job_id = start(api, "talk")
    with following(api, job_id) as stream:
        data = next(data for name, data in stream if name == "progress")
        assert (data["percent"], data["message"]) == (40, "copying")
    shown = api.ask("GET", f"/job/{job_id}").json["progress"]
    assert (shown["percent"], shown["message"]) == (40, "copying")
    assert shown["seconds_left"] > 0
    for path in ("/jobs", "/queue"):
        [row] = api.ask("GET", path).json["jobs"]
        assert row["progress"]["percent"] == 40
    api.ask("POST", f"/job/{job_id}/cancel", {})
    until(lambda: "progress" not in api.ask("GET", f"/job/{job_id}").json)


def test_every_attempt_is_followed_to_the_end_of_the_job(api: TalkingApi) -> None:
    job_id = start(api, "fail")
    with following(api, job_id) as stream:
        events = list(stream)
    assert [name for name, _ in events] == ["log", "attempt", "log", "attempt", "end"]
    assert [data["attempt"] for name, data in events if name == "log"] == [1, 2]
    assert events[-1][1]["status"] == "dead"


def test_log_of_an_ended_job_is_complete_at_once(api: TalkingApi) -> None:
    job_id = start(api, "fail")
    api.ask("GET", f"/job/{job_id}?wait=60")
    with following(api, job_id, token=READER) as stream:
        assert [name for name, _ in stream][-1] == "end"


@pytest.mark.parametrize(
    ("headers", "status"), [({}, 404), ({"Last-Event-ID": "x"}, 400), ({"Last-Event-ID": "1"}, 400)]
)
def test_invalid_requests_are_refused(
    api: ApiHarness, headers: dict[str, str], status: int
) -> None:
    assert api.ask("GET", "/job/nope/log/stream", headers=headers).status == status


def test_stop_of_the_gateway_ends_the_stream(api: TalkingApi) -> None:
    job_id = start(api, "talk")
    with following(api, job_id) as stream:
        stream.text_until("copying\n")
        api.server.stop()
        assert [name for name, _ in stream if name == "end"] == []
