"""The door for other gateways: `POST {listen_path}/{peer}` on the API listener."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from ductile.core.delivery.relay import Peer, is_permanent_rejection, sign_request
from ductile.core.jobs.limits import DEEPEST
from ductile.core.values.redact import Redactor
from ductile.engine.ingress.rejection_limiter import MAX_PER_MINUTE
from ductile.errors import LedgerBusy
from ductile.http.routes.relay_ingress import ROUTE
from ductile.log import configure
from ductile.store.jobs import read
from tests.http import doors
from tests.http.doors import Answer, House
from tests.waiting import WAIT_LIMIT, until

SECRET = "a-shared-secret-of-two"
CONFIG = f"""{doors.CONFIG}
remote_ingress:
  max_body_size: 2KB
  require_key_id: true
  peers:
    - name: home
      secret: {SECRET}
      key_id: v1
      accept: [backup.ready]
      baggage: {{allow: [trace]}}
    - {{name: asleep, secret: {SECRET}, key_id: v1, enabled: false}}
routes:
  - {{from: "relay:home", event_type: backup.ready, to: echo}}
pipelines:
  - name: offsite
    on: backup.ready
    steps:
      - {{id: verify, uses: echo, baggage: {{seen: context.trace}}}}
"""
PATH = "/ingest/peer/home"


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with doors.opened(CONFIG) as house:
        yield house


def envelope(event_id: str | None = "e-1", **event: Any) -> dict[str, Any]:
    origin = {"instance": "home"} | ({"event_id": event_id} if event_id else {})
    return {
        "event": {"type": "backup.ready", "payload": {"n": 1}, **event},
        "origin": origin,
        "baggage": {"trace": "t-1", "other": "no"},
    }


def signed(
    house: House, body: bytes, *, path: str = PATH, peer: str = "home", late: float = 0.0
) -> dict[str, str]:
    at = house.gateway.clock.now() - timedelta(seconds=late)
    return sign_request(peer, Peer(peer, SECRET, "v1"), path, body, at)


def send(house: House, body: Any, **more: Any) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = more.get("path", PATH)
    return house.ask("POST", path, raw, token=None, headers=signed(house, raw, **more))


def jobs_of(house: House, told: dict[str, Any]) -> list[dict[str, Any]]:
    """The jobs that an accepted event has made."""
    listing = house.ask("GET", "/jobs?submitted_by=relay&limit=100").json["jobs"]
    return [house.ask("GET", f"/job/{job['job_id']}").json for job in listing if job_of(job, told)]


def job_of(job: dict[str, Any], told: dict[str, Any]) -> bool:
    return bool(job["source_event_id"] == told["receiver_event_id"])


def test_an_event_of_a_peer_is_accepted_and_routed_as_a_local_root(house: House) -> None:
    answer = send(house, envelope("e-root"))
    assert answer.status == 202
    told = answer.json
    assert told.keys() == {"status", "peer", "event_type", "receiver_event_id", "job_id"}
    assert (told["status"], told["peer"]) == ("accepted", "home")
    assert told["event_type"] == "backup.ready"
    job = house.ask("GET", f"/job/{told['job_id']}").json
    assert job["submitted_by"] == "relay"
    assert job["parent_job_id"] is None
    assert job["source_event_id"] == told["receiver_event_id"]


def test_it_goes_to_routes_from_the_peer_and_to_pipelines(house: House) -> None:
    told = send(house, envelope("e-both")).json
    assert sorted(job["pipeline"] or "" for job in jobs_of(house, told)) == ["", "offsite"]


def test_allowed_baggage_begins_the_context(house: House) -> None:
    told = send(house, envelope("e-baggage")).json
    [job] = [job for job in jobs_of(house, told) if job["pipeline"]]

    def tree() -> str:
        return json.dumps(house.ask("GET", f"/job/{job['job_id']}/tree").json)

    until(lambda: '"seen": "t-1"' in tree())
    assert '"other"' not in tree()


def test_the_same_event_sent_again_is_the_same_job(house: House) -> None:
    first, again = send(house, envelope("e-twice")), send(house, envelope("e-twice"))
    assert (first.status, again.status) == (202, 202)
    assert again.json["duplicate"] is True
    assert again.json["job_id"] == first.json["job_id"]
    assert again.json["receiver_event_id"] == first.json["receiver_event_id"]


def test_the_same_event_sent_twice_at_once_is_one_job(house: House) -> None:
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(send(house, envelope("e-at-once"))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert [answer.status for answer in answers] == [202] * 4
    assert len({answer.json["job_id"] for answer in answers}) == 1
    assert sum("duplicate" not in answer.json for answer in answers) == 1
    assert len(jobs_of(house, answers[0].json)) == 2


def test_an_event_whose_job_is_needless_answers_with_the_job_that_makes_it_so(
    house: House,
) -> None:
    first = send(house, envelope("e-first", dedupe_key="the same")).json

    def done() -> bool:
        return all(job["status"] == "succeeded" for job in jobs_of(house, first))

    until(done)
    other = send(house, envelope("e-other", dedupe_key="the same")).json
    assert other["deduplicated"] is True
    assert other["job_id"] in {job["job_id"] for job in jobs_of(house, first)}
    again = send(house, envelope("e-other", dedupe_key="the same")).json
    assert again["duplicate"] is True
    assert again["job_id"] == other["job_id"]
    assert jobs_of(house, other) == []


def test_a_routed_job_enters_with_the_baggage_too(house: House) -> None:
    told = send(house, envelope("e-routed")).json
    [job] = [job for job in jobs_of(house, told) if not job["pipeline"]]
    ledger = house.gateway.ledger
    row = ledger.read(lambda tx: read.load_job(tx, job["job_id"]))
    assert row is not None
    context = ledger.read(lambda tx: tx.one("context", id=row.entered_context_id))
    assert context is not None
    assert json.loads(context[0]) == {"trace": "t-1"}


def test_a_payload_as_deep_as_it_may_be_goes_through_all_that_is_done_with_it() -> None:
    config = CONFIG.replace("max_body_size: 2KB", "max_body_size: 64KB")
    with doors.opened(config) as house:
        payload: Any = {}
        for _ in range(DEEPEST - 1):
            payload = {"a": payload}
        body = envelope("e-deep", payload=payload)
        body["baggage"] = {"trace": payload["a"]}
        answer = send(house, body)
        assert answer.status == 202

        def states() -> list[str]:
            return [job["status"] for job in jobs_of(house, answer.json)]

        until(lambda: states() == ["succeeded"] * 2)
        for job in jobs_of(house, answer.json):
            assert house.ask("GET", f"/job/{job['job_id']}/tree").status == 200
        body["event"]["payload"] = {"a": payload}
        assert send(house, body).status == 400


def test_the_same_bytes_do_not_get_in_twice(house: House) -> None:
    body = json.dumps(envelope("e-replay")).encode()
    headers = signed(house, body)
    first = house.ask("POST", PATH, body, token=None, headers=headers)
    replayed = house.ask("POST", PATH, body, token=None, headers=headers)
    assert (first.status, replayed.status) == (202, 403)
    assert replayed.json == {"error": "forbidden", "code": "forbidden"}


@pytest.mark.parametrize(
    ("path", "peer", "late"),
    [
        pytest.param("/ingest/peer/nobody", "nobody", 0.0, id="unlisted"),
        pytest.param("/ingest/peer/asleep", "asleep", 0.0, id="disabled"),
        pytest.param("/ingest/peer/", "home", 0.0, id="nobody's path"),
        pytest.param(PATH, "home", 301.0, id="too late"),
        pytest.param(PATH, "home", -301.0, id="too early"),
    ],
)
def test_all_who_are_not_let_in_hear_the_same(
    house: House, path: str, peer: str, late: float
) -> None:
    answer = send(house, envelope("e-no"), path=path, peer=peer, late=late)
    assert (answer.status, answer.json) == (403, {"error": "forbidden", "code": "forbidden"})


def test_a_changed_body_is_refused(house: House) -> None:
    body = json.dumps(envelope("e-changed")).encode()
    headers = signed(house, body)
    answer = house.ask("POST", PATH, body.replace(b"1", b"2"), token=None, headers=headers)
    assert answer.status == 403


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param("/ingest/peer/h%6Fme", 202, id="encoded"),
        pytest.param("/ingest/peer/home?x=1", 202, id="with a query"),
        pytest.param("/ingest/peer/home/", 403, id="trailing slash"),
        pytest.param("/ingest/peer//home", 403, id="double slash"),
        pytest.param("/ingest/peer/%2Fhome", 403, id="encoded slash"),
        pytest.param("/ingest/peer/./home", 403, id="dot"),
        pytest.param("/ingest/peer/x/../home", 403, id="dots"),
        pytest.param("/ingest/peer/HOME", 403, id="another case"),
        pytest.param("/ingest/peer/home%00", 403, id="U+0000"),
        pytest.param("/ingest//peer/home", 401, id="another path of the API"),
        pytest.param("/INGEST/peer/home", 401, id="another case of the path"),
        pytest.param("/ingest/peer", 401, id="no peer at all"),
    ],
)
def test_only_the_one_path_leads_in(house: House, sent: str, status: int) -> None:
    body = json.dumps(envelope(f"e-{sent}")).encode()
    headers = signed(house, body)
    assert house.ask("POST", sent, body, token=None, headers=headers).status == status


def test_a_header_that_comes_twice_is_refused(house: House) -> None:
    body = json.dumps(envelope("e-header")).encode()
    head = [f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in signed(house, body).items()]
    head += ["X-Ductile-Peer: home", "Connection: close", "", ""]
    with house.connect() as connection:
        connection.sendall("\r\n".join(head).encode() + body)
        assert doors.read_all(connection).startswith(b"HTTP/1.1 403 ")


def test_a_stranger_cannot_fill_the_log(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with doors.opened(CONFIG, working=False) as house:
        for _ in range(3 * MAX_PER_MINUTE):
            assert send(house, b"{}", path="/ingest/peer/nobody", peer="nobody").status == 403
        said = capsysbinary.readouterr().out.count(b"unknown peer")
    assert said == MAX_PER_MINUTE


def test_answers_are_counted_without_the_callers_path(house: House) -> None:
    send(house, b"{}", path="/ingest/peer/nobody", peer="nobody")
    text = house.ask("GET", "/metrics").raw.decode()
    assert f'route="{ROUTE}",status="403"' in text
    assert "nobody" not in text


@pytest.mark.parametrize("committed", [True, False])
def test_an_event_whose_commit_is_unknown_is_not_told_accepted_and_comes_again(
    house: House, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    ledger = house.gateway.ledger
    submit = ledger.submit

    def lost(work: Any, done: Any) -> None:
        error = LedgerBusy("the connection was lost")
        if committed:
            submit(work, lambda _result, _error: done(None, error))
        else:
            done(None, error)

    event = envelope(f"e-unknown-{committed}")
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "submit", lost)
        assert send(house, event).status == 503
    told = send(house, event).json
    assert told.get("duplicate", False) is committed
    assert len(jobs_of(house, told)) == 2


def test_a_token_does_not_stand_for_a_signature(house: House) -> None:
    assert house.ask("POST", PATH, envelope()).status == 403


def test_a_body_that_is_too_large_is_refused_before_it_is_verified(house: House) -> None:
    assert send(house, b"x" * 2049).status == 413


def test_another_event_type_is_named_in_the_refusal(house: House) -> None:
    answer = send(house, envelope("e-type", type="report.made"))
    assert answer.status == 422
    assert answer.json["code"] == "event_not_accepted"


def test_a_signed_body_that_is_no_envelope_is_a_bad_request(house: House) -> None:
    answer = send(house, b"[1]")
    assert answer.status == 400
    assert is_permanent_rejection(answer.status, answer.raw)


def test_only_post_is_taken(house: House) -> None:
    answer = house.ask("GET", PATH)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_a_foreign_host_is_refused_here_too(house: House) -> None:
    body = json.dumps(envelope("e-host")).encode()
    headers = {**signed(house, body), "Host": "evil.example"}
    assert house.ask("POST", PATH, body, token=None, headers=headers).status == 421


def test_an_event_that_nothing_wants_is_accepted_without_a_job_and_logged_at_debug(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    config = CONFIG.replace("accept: [backup.ready]", "accept: []")
    with doors.opened(config, working=False) as house:
        configure("debug", "json", Redactor())
        try:
            answer = send(house, envelope("e-unwanted", type="nobody.cares"))
            again = send(house, envelope("e-unwanted", type="nobody.cares", payload={}))
            assert send(house, envelope("e-wanted")).json["job_id"]
        finally:
            configure("info", "json", Redactor())
    assert (answer.status, answer.json["job_id"]) == (202, None)
    assert again.json["duplicate"]
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    [line] = [
        line for line in lines if line["message"] == "relayed event matches no route or pipeline"
    ]
    assert (line["level"], line["peer"], line["event_type"]) == ("debug", "home", "nobody.cares")


def test_without_peers_there_is_no_such_path() -> None:
    with doors.opened(working=False) as house:
        assert send(house, envelope()).status == 401


def test_a_peer_that_a_reload_removes_is_refused_from_then_on() -> None:
    with doors.opened(CONFIG) as house:
        assert send(house, envelope("e-before")).status == 202
        gone = CONFIG.replace("name: home", "name: elsewhere")
        house.write("config.yaml", gone.replace("relay:home", "relay:elsewhere"))
        house.gateway.reload()
        assert send(house, envelope("e-after")).status == 403


def test_where_its_path_meets_the_apis_the_api_wins() -> None:
    config = CONFIG.replace("max_body_size: 2KB", "max_body_size: 2KB\n  listen_path: /")
    with doors.opened(config) as house:
        assert house.ask("GET", "/jobs").status == 200
        assert house.ask("POST", "/plugin/echo/poll", {}).status == 202
        assert send(house, envelope("e-root-path"), path="/home").status == 202
        assert send(house, envelope("e-root-path"), path="/elsewhere").status == 403


def test_a_peer_that_knows_anothers_secret_cannot_send_to_its_path_by_its_own_signature() -> None:
    config = CONFIG.replace("name: asleep", "name: other").replace(", enabled: false", "")
    with doors.opened(config, working=False) as house:
        body = json.dumps(envelope("e-shared")).encode()
        headers = signed(house, body, path="/ingest/peer/other", peer="other")
        for name in ("other", "home"):
            told = {**headers, "X-Ductile-Peer": name}
            assert house.ask("POST", PATH, body, token=None, headers=told).status == 403
        warnings = [str(warning) for warning in house.gateway.compiled.warnings]
        assert any("the secret of peer home too" in warning for warning in warnings)
