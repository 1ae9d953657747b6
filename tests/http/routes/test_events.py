"""`GET /events`: live, resumed with nothing missing, filtered, kept over a reload."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator

import pytest

from ductile.core.jobs.limits import PAGE_BYTES
from ductile.core.values.redact import Redactor
from ductile.engine.notices import bus
from ductile.http.middleware import subscribers
from ductile.http.routes import events
from ductile.model import Notice
from ductile.store import notices
from ductile.store.engines.api import StoredNotice
from tests.http.doors import CONFIG, House, opened
from tests.http.following import following
from tests.waiting import WAIT_LIMIT, until


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(working=False) as house:
        yield house


def trigger(house: House) -> str:
    job_id: str = house.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
    return job_id


def test_what_happens_is_told(house: House) -> None:
    trigger(house)
    with following(house) as follower:
        job_id = trigger(house)
        event = follower.next()
    assert event["event"] == "job.queued"
    assert event["data"]["data"]["job_id"] == job_id
    assert event["data"]["topic"] == "jobs"
    assert int(event["id"]) == event["data"]["id"]


def test_a_dropped_connection_resumes_with_nothing_missing(house: House) -> None:
    with following(house) as follower:
        first = trigger(house)
        last = follower.next()
    missed = [trigger(house) for _ in range(5)]
    with following(house, Last_Event_ID=last["id"]) as follower:
        live = trigger(house)
        got = [follower.next()["data"]["data"]["job_id"] for _ in range(6)]
    assert last["data"]["data"]["job_id"] == first
    assert got == [*missed, live]


def test_who_is_cut_off_before_the_first_event_can_go_on_too(house: House) -> None:
    with following(house) as follower:
        start = follower.start
    missed = trigger(house)
    with following(house, Last_Event_ID=start) as follower:
        assert follower.next()["data"]["data"]["job_id"] == missed


def test_what_the_ring_has_passed_comes_from_the_ledger(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(house) as follower:
        trigger(house)
        last = follower.next()["id"]
    monkeypatch.setattr(bus, "RING_NOTICES", 2)
    ids = [trigger(house) for _ in range(10)]
    with following(house, f"?after={last}") as follower:
        assert [follower.next()["data"]["data"]["job_id"] for _ in ids] == ids
        ids = [trigger(house) for _ in range(10)]
        assert [follower.next()["data"]["data"]["job_id"] for _ in ids] == ids


def test_a_topic_is_filtered(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_INTERVAL", 0.02)
    with following(house, "?topic=breakers,pipelines") as follower:
        trigger(house)
        newest = house.gateway.ledger.read(notices.last_position)
        while follower.line() != f"id: {newest}":
            pass
    with following(house, "?topic=jobs") as follower:
        trigger(house)
        assert follower.next()["event"] == "job.queued"


@pytest.mark.parametrize("last", ["x", "-1", "1.5", "1-2-3", "1-", "1-x", "9" * 40])
def test_a_bad_cursor_is_refused(house: House, last: str) -> None:
    assert house.ask("GET", "/events", headers={"Last-Event-ID": last}).status == 400


def test_a_cursor_of_the_future_gets_all_there_is(house: House) -> None:
    trigger(house)
    with following(house, "?after=99999999") as follower:
        assert follower.next()["event"] == "job.queued"


def test_followers_are_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscribers, "MAX_SUBSCRIBERS", 0)
    assert house.ask("GET", "/events").status == 503


def created(house: House, name: str, **more: str) -> str:
    asked = {"name": name, "scopes": ["events:ro", "jobs:ro"], **more}
    token: str = house.ask("POST", "/tokens", asked).json["token"]
    return token


def test_a_revoked_token_is_told_nothing_more(house: House) -> None:
    with following(house, token=created(house, "revoked")) as follower:
        trigger(house)
        assert follower.next()["event"] == "job.queued"
        assert house.ask("POST", "/token/revoked/revoke").status == 200
        trigger(house)
        assert follower.rest() == b""


def test_a_revoked_token_does_not_wait_for_ever(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_INTERVAL", 0.02)
    with following(house, token=created(house, "quiet")) as follower:
        assert house.ask("POST", "/token/quiet/revoke").status == 200
        assert b"event:" not in follower.rest()


def test_a_token_that_ends_is_told_nothing_more(house: House) -> None:
    token = created(house, "short", expires_in="1s")
    with following(house, token=token) as follower:
        until(lambda: house.ask("GET", "/jobs", token=token).status == 401)
        trigger(house)
        assert follower.rest() == b""


@pytest.mark.parametrize("left", ["", "      - {token: configured-token-01, scopes: [jobs:ro]}\n"])
def test_a_token_that_a_reload_takes_it_from_is_told_nothing_more(left: str) -> None:
    listed = "      - {token: configured-token-01, scopes: [events:ro]}\n"
    with opened(CONFIG + listed, working=False) as own:
        with following(own, token="configured-token-01") as follower:
            own.write("config.yaml", CONFIG + left)
            own.gateway.reload()
            trigger(own)
            assert follower.rest() == b""
        with following(own):
            pass


def test_who_waits_by_a_token_that_ends_meanwhile_is_refused(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, job_id = created(house, "waiting"), trigger(house)
    waits, when_ended = threading.Event(), house.gateway.notice_bus.add_on_end

    def waiting(job_id: str, callback: Callable[[], None]) -> None:
        when_ended(job_id, callback)
        waits.set()

    monkeypatch.setattr(house.gateway.notice_bus, "add_on_end", waiting)
    raw = http.client.HTTPConnection(*house.address("api"), timeout=WAIT_LIMIT)
    raw.request("GET", f"/job/{job_id}?wait=20", headers={"Authorization": f"Bearer {token}"})
    assert waits.wait(WAIT_LIMIT)
    assert house.ask("POST", "/token/waiting/revoke").status == 200
    assert house.ask("POST", f"/job/{job_id}/cancel").status == 202
    assert raw.getresponse().status == 401
    raw.close()


def test_a_reload_keeps_followers_and_a_stop_sends_them_away() -> None:
    with opened() as own, following(own) as follower:
        own.write(
            "config.yaml", CONFIG.replace("max_workers: 2", "max_workers: 2, log_level: warn")
        )
        assert own.ask("POST", "/system/reload").status == 200
        trigger(own)
        assert follower.next()["event"] == "job.queued"
        own.server.stop()
        assert follower.response.read() is not None


def test_notices_after_a_cursor_beyond_the_end_begin_anew(house: House) -> None:
    trigger(house)
    whole = house.ask("GET", "/notices?after=0").json
    beyond = house.ask("GET", f"/notices?after={int(whole['cursor']) + 1000}").json
    assert beyond == whole
    assert house.ask("GET", f"/notices?after={whole['cursor']}").json["notices"] == []


def test_a_cursor_that_is_none_is_called_by_its_name(house: House) -> None:
    for path in ("/notices?after=x", "/events?after=x"):
        assert house.ask("GET", path).json["error"].startswith("after must")
    answer = house.ask("GET", "/events", headers={"Last-Event-ID": "x"}).json
    assert answer["error"].startswith("Last-Event-ID must")


def _post(house: House, *sizes: int) -> None:
    now = house.gateway.clock.now()
    for size in sizes:
        notice = Notice("large", "sized", {"text": "x" * size})
        house.gateway.ledger.write(lambda tx, notice=notice: notices.post(tx, notice, now))


def test_a_page_of_large_notices_ends_early_and_goes_on(house: House) -> None:
    start = house.ask("GET", "/notices").json["cursor"]
    _post(house, *[PAGE_BYTES // 3] * 5, 10)
    pages, cursor = [], start
    while found := (page := house.ask("GET", f"/notices?after={cursor}").json)["notices"]:
        pages.append(len(found))
        cursor = page["cursor"]
    assert pages == [2, 2, 2]


@pytest.mark.parametrize("ring", [bus.RING_NOTICES, 1])
def test_a_follower_is_told_large_events_a_few_at_a_time(
    house: House, monkeypatch: pytest.MonkeyPatch, ring: int
) -> None:
    monkeypatch.setattr(bus, "RING_NOTICES", ring)
    start = house.ask("GET", "/notices").json["cursor"]
    written: list[int] = []
    write = events._encode

    async def noted(found: list[StoredNotice], redactor: Redactor) -> str:
        written.append(sum(len(notice.payload) for notice in found))
        return await write(found, redactor)

    monkeypatch.setattr(events, "_encode", noted)
    _post(house, *[events.MAX_BATCH_BYTES // 3] * 7)
    with following(house, f"?topic=large&after={start}") as follower:
        sizes = [len(follower.next()["data"]["data"]["text"]) for _ in range(7)]
    assert sizes == [events.MAX_BATCH_BYTES // 3] * 7
    assert max(written) <= events.MAX_BATCH_BYTES
