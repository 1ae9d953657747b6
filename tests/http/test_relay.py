"""The door for other gateways: `POST {listen_path}/{peer}` on the API listener."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from ductile.core.relay import Peer, signed_headers
from tests.http import doors
from tests.http.doors import Answer, House
from tests.runtime.site import until

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
    return signed_headers(peer, Peer(peer, SECRET, "v1"), path, body, at)


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


def test_a_token_does_not_stand_for_a_signature(house: House) -> None:
    assert house.ask("POST", PATH, envelope()).status == 403


def test_a_body_that_is_too_large_is_refused_before_it_is_verified(house: House) -> None:
    assert send(house, b"x" * 2049).status == 413


def test_another_event_type_is_named_in_the_refusal(house: House) -> None:
    answer = send(house, envelope("e-type", type="report.made"))
    assert answer.status == 422
    assert answer.json["code"] == "event_not_accepted"


def test_a_signed_body_that_is_no_envelope_is_a_bad_request(house: House) -> None:
    assert send(house, b"[1]").status == 400


def test_only_post_is_taken(house: House) -> None:
    answer = house.ask("GET", PATH)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_a_foreign_host_is_refused_here_too(house: House) -> None:
    body = json.dumps(envelope("e-host")).encode()
    headers = {**signed(house, body), "Host": "evil.example"}
    assert house.ask("POST", PATH, body, token=None, headers=headers).status == 421


def test_an_event_that_nothing_wants_is_accepted_without_a_job() -> None:
    config = CONFIG.replace("accept: [backup.ready]", "accept: []")
    with doors.opened(config, working=False) as house:
        answer = send(house, envelope("e-unwanted", type="nobody.cares"))
        assert (answer.status, answer.json["job_id"]) == (202, None)


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
