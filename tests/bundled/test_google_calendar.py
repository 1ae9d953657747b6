"""The plugin `google-calendar` with a fake of Google."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bundled.accounts import connect_google as connect
from tests.bundled.accounts import get_state
from tests.bundled.bundled_site import BundledSite, ledger_text, list_events, process_arguments
from tests.bundled.fakes.google import CLIENT_ID, CLIENT_SECRET, Google, failure
from tests.bundled.fakes.server import FakeReply
from tests.engine.site import Running
from tests.waiting import until

NAME = "google-calendar"
EVENTS = "/calendar/v3/calendars/primary/events"


def list_changes(running: Running) -> list[tuple[str, str]]:
    """The emitted changes, as type and event id."""
    return [
        (event["type"].removeprefix("calendar."), event["payload"]["event_id"])
        for event in list_events(running, NAME)
    ]


def test_changes_are_emitted_once(site: BundledSite, google: Google) -> None:
    connect(site, google)
    google.put("old")
    with site.running() as running:
        running.run(NAME)
        assert list_changes(running) == []
        google.put("new", summary="Dentist", attendees=[{"email": "a@example.org"}])
        google.put("old", summary="Moved")
        running.run(NAME)
        running.run(NAME)
        google.delete("new")
        running.run(NAME)
        running.run(NAME)
        assert list_changes(running) == [
            ("created", "new"),
            ("updated", "old"),
            ("cancelled", "new"),
        ]
        created, _, cancelled = (event["payload"] for event in list_events(running, NAME))
    assert created["attendees"] == [{"email": "a@example.org", "response": ""}]
    assert created["start"] == cancelled["start"] == "2031-02-08T10:00:00+01:00"
    assert cancelled["summary"] == "Dentist"
    assert google.refusals == []


def test_existing_events_are_emitted_if_configured(site: BundledSite, google: Google) -> None:
    connect(site, google, emit_existing=True)
    for index in range(5):
        google.put(f"e{index}")
    with site.running() as running:
        running.run(NAME)
        running.run(NAME)
        assert list_changes(running) == [("created", f"e{index}") for index in range(5)]


def test_pages_are_read_over_several_runs(site: BundledSite, google: Google) -> None:
    connect(site, google, emit_existing=True)
    site.mutate(f"{NAME}/run.py", "MAX_CHANGES = 2000", "MAX_CHANGES = 3")
    for index in range(9):
        google.put(f"e{index}")
    with site.running() as running:
        for _ in range(3):
            running.run(NAME)
        assert list_changes(running) == [("created", f"e{index}") for index in range(9)]
        assert get_state(running, NAME)["page_token"] is None
    assert google.refusals == []


def test_full_sync_emits_only_changes(site: BundledSite, google: Google) -> None:
    connect(site, google)
    for id in ("same", "changed", "deleted", "vanished"):
        google.put(id)
    with site.running() as running:
        running.run(NAME)
        google.put("changed", summary="other")
        google.put("added")
        google.delete("deleted")
        del google.changed["vanished"]
        google.forget_syncs()
        running.run(NAME)
        running.run(NAME)
        assert sorted(list_changes(running)) == [
            ("cancelled", "deleted"),
            ("cancelled", "vanished"),
            ("created", "added"),
            ("updated", "changed"),
        ]
    assert google.refusals == ["syncToken"]


def test_past_event_missing_from_a_full_sync_is_not_cancelled(
    site: BundledSite, google: Google
) -> None:
    connect(site, google, past_days=36500)
    google.put("past", end={"date": "2020-01-02"}, start={"date": "2020-01-01"})
    with site.running() as running:
        running.run(NAME)
        del google.changed["past"]
        google.forget_syncs()
        running.run(NAME)
        assert list_changes(running) == []


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {
            "recurrence": ["RRULE:FREQ=WEEKLY"],
            "start": {"date": "2020-01-01"},
            "end": {"date": "2020-01-02"},
        },
    ],
    ids=["future", "series"],
)
def test_unknown_event_is_reported_as_created_although_it_is_old(
    site: BundledSite, google: Google, fields: dict[str, Any]
) -> None:
    """An invitation has the time at which its organizer created the event."""
    connect(site, google)
    with site.running() as running:
        running.run(NAME)
        google.put("invitation", created="2001-01-01T00:00:00.000Z", **fields)
        running.run(NAME)
        assert list_changes(running) == [("created", "invitation")]


def test_change_of_an_event_that_was_not_read_is_reported_as_updated(
    site: BundledSite, google: Google
) -> None:
    connect(site, google)
    past = {"start": {"date": "2020-01-01"}, "end": {"date": "2020-01-02"}}
    with site.running() as running:
        running.run(NAME)
        google.put("past", created="2001-01-01T00:00:00.000Z", **past)
        running.run(NAME)
        assert list_changes(running) == [("updated", "past")]


def test_change_of_a_dropped_event_is_reported_as_updated(
    site: BundledSite, google: Google
) -> None:
    connect(site, google)
    site.mutate(f"{NAME}/sync.py", "MAX_KNOWN = 600_000", "MAX_KNOWN = 400")
    for year in range(2031, 2041):
        end = {"dateTime": f"{year}-02-08T11:00:00+01:00"}
        google.put(f"e{year}", created="2001-01-01T00:00:00.000Z", end=end)
    with site.running() as running:
        running.run(NAME)
        assert "e2031" not in get_state(running, NAME)["known"]
        google.put("e2031", summary="Moved")
        running.run(NAME)
        assert list_changes(running) == [("updated", "e2031")]


def test_cancelled_date_of_a_series_is_reported(site: BundledSite, google: Google) -> None:
    connect(site, google)
    google.put("series", summary="Yoga", recurrence=["RRULE:FREQ=WEEKLY"])
    date = {"dateTime": "2031-02-15T10:00:00+01:00"}
    with site.running() as running:
        running.run(NAME)
        google.put(
            "series_1", status="cancelled", recurringEventId="series", originalStartTime=date
        )
        running.run(NAME)
        google.forget_syncs()
        running.run(NAME)
        assert list_changes(running) == [("cancelled", "series_1")]
        payload = list_events(running, NAME)[0]["payload"]
    assert (payload["summary"], payload["start"]) == ("Yoga", "2031-02-15T10:00:00+01:00")


@pytest.mark.parametrize("ahead", [86_400.0, -86_400.0])
def test_clock_of_the_provider_may_differ(site: BundledSite, google: Google, ahead: float) -> None:
    google.ahead = ahead
    connect(site, google)
    first = site.direct(NAME, "poll").response
    google.put("new")
    second = site.direct(NAME, "poll", state=first["state_updates"]).response
    assert [event["type"] for event in second["events"]] == ["calendar.created"]


def test_rejected_token_is_refreshed(site: BundledSite, google: Google) -> None:
    connect(site, google)
    with site.running() as running:
        running.run(NAME)
        google.access.clear()
        assert running.run(NAME)["status"] == "succeeded"
    assert google.refusals == ["access_token"]


def test_rotated_refresh_token_is_stored_after_a_failure(site: BundledSite, google: Google) -> None:
    google.life, google.rotates = 1, True
    connect(site, google, poll="5s")
    with site.running() as running:
        google.next(EVENTS, FakeReply(status=500))
        job = running.run(NAME)
        assert job["status"] == "succeeded"
        assert "but the run failed" in job["result"]["result"]
        assert get_state(running, NAME)["refresh_token"] in google.refresh
        assert running.run(NAME)["status"] == "succeeded"
    assert google.refusals == []


ERRORS = {
    "500": (FakeReply(status=500), "returned status 500"),
    "backend": (failure(503, "backendError", "global"), "returned status 503"),
    "cut off": (FakeReply(body=b'{"items": ['), "not valid JSON"),
    "no sync token": (FakeReply({"items": []}), "no sync token"),
    "hangs": (FakeReply(hangs=True), "did not reply"),
    "redirect": (
        FakeReply(status=307, headers={"Location": "https://example.org"}),
        "returned status 307",
    ),
}


def test_errors_fail_the_job_without_losing_changes(site: BundledSite, google: Google) -> None:
    connect(site, google, poll="4500ms")
    with site.running() as running:
        running.run(NAME)
        before = get_state(running, NAME)
        google.put("new")
        for reply, message in ERRORS.values():
            google.next(EVENTS, reply)
            job = running.run(NAME)
            assert job["status"] == "dead"
            assert message in job["last_error"]
        assert get_state(running, NAME) == before
        running.run(NAME)
        assert list_changes(running) == [("created", "new")]


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (failure(403, "rateLimitExceeded"), 60),
        (failure(403, "userRateLimitExceeded", Retry_After="600"), 600),
        (failure(429, "rateLimitExceeded", Retry_After="600"), 600),
    ],
    ids=["403", "403 with a time", "429"],
)
def test_rate_limits_of_google_increase_the_wait(
    site: BundledSite, google: Google, limit: FakeReply, seconds: int
) -> None:
    connect(site, google)
    google.next(EVENTS, limit, limit)
    first = site.direct(NAME, "poll").response
    count = len(google.requests)
    waiting = site.direct(NAME, "poll", state=first["state_updates"]).response
    assert len(google.requests) == count
    assert f"for {seconds} s" in first["result"]
    assert "rate limited by the provider" in waiting["result"]
    later = {**first["state_updates"], "retry_at": 1}
    second = site.direct(NAME, "poll", state=later).response
    longer = seconds if "retry-after" in {name.lower() for name in limit.headers} else 2 * seconds
    assert f"for {longer} s" in second["result"]
    done = site.direct(NAME, "poll", state={**second["state_updates"], "retry_at": 1}).response
    assert {"retry_at", "busy"}.isdisjoint(done["state_updates"])


def test_authorization_uses_pkce(site: BundledSite, google: Google) -> None:
    connect(site, google, refresh_token=None)
    google.put("e1")
    with site.running() as running:
        assert "authorize" in running.run(NAME)["last_error"]
        link = running.run(NAME, "authorize")["result"]["result"].removeprefix("open ")
        assert link.startswith("https://accounts.google.com/o/oauth2/v2/auth?")
        back = google.consent(link)
        assert running.run(NAME, "oauth_callback", {"url": back})["status"] == "succeeded"
        assert running.run(NAME, "oauth_callback", {"url": back})["status"] == "failed"
        assert running.run(NAME)["status"] == "succeeded"
        assert get_state(running, NAME)["pending_verifier_secret"] is None
    assert google.refusals == []


def test_credentials_file_of_google_is_read(site: BundledSite, google: Google) -> None:
    path = site.folder / "client.json"
    client = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    connect(site, google, client_id=None, client_secret=None, credentials_file=str(path))
    for document in ({"installed": client}, {"web": client}, {"type": "authorized_user", **client}):
        path.write_text(json.dumps(document))
        assert site.direct(NAME, "poll").response["status"] == "ok"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"type": "service_account"}', '{"installed": {"client_id": "x"}}']
)
def test_invalid_credentials_file_is_not_retried(
    site: BundledSite, google: Google, text: str
) -> None:
    path = site.folder / "client.json"
    path.write_text(text)
    connect(site, google, client_id=None, client_secret=None, credentials_file=str(path))
    done = site.direct(NAME, "init")
    assert (done.code, done.response["retry"]) == (78, False)


def test_init_without_a_client_is_rejected(site: BundledSite) -> None:
    site.use(NAME, {"calendar_id": "primary"})
    with site.running() as running:
        failed = running.ended(running.notice("job.failed").job_id or "")
    assert (failed["command"], failed["status"]) == ("init", "failed")
    assert "config.client_id" in failed["last_error"]


def test_state_of_a_large_calendar_is_limited(site: BundledSite, google: Google) -> None:
    connect(site, google)
    google.page = 2500
    for index in range(4000):
        end = {"date": f"20{30 + index % 40}-01-01"}
        google.put(f"{'x' * 90}{index}", summary="Ä" * 200, end=end, start=end)
    state = site.direct(NAME, "poll").response["state_updates"]
    assert 0 < len(state["known"]) < 4000
    assert len(json.dumps(state, ensure_ascii=False).encode()) < 900_000


def test_secrets_are_only_in_configuration_and_state(
    site: BundledSite, google: Google, capfd: pytest.CaptureFixture[str]
) -> None:
    site.settings["service"]["log_level"] = "debug"
    google.life = 1
    connect(site, google)
    with site.running() as running:
        running.run(NAME)
        before = len(google.requests)
        google.next(EVENTS, FakeReply(hangs=True))
        held = running.put(NAME)
        until(lambda: len(google.requests) == before + 2)
        arguments = process_arguments(site)
        google.released.set()
        running.ended(held)
        google.next("/token", FakeReply({"error": CLIENT_SECRET}, 400))
        for command in ("poll", "authorize", "health", "poll"):
            running.run(NAME, command)
        verifier = get_state(running, NAME)["pending_verifier_secret"]
        text = ledger_text(running)
    assert any(f"{NAME}/run.py" in line for line in arguments)
    seen = text + "".join(capfd.readouterr()) + "".join(arguments)
    for secret in ("canary-access", "canary-refresh", CLIENT_SECRET, verifier):
        assert secret not in seen


def test_missing_refresh_token_is_reported(site: BundledSite, google: Google) -> None:
    connect(site, google, refresh_token=None)
    site.mutate(f"{NAME}/run.py", '"access_type": "offline",', "")
    started = site.direct(NAME, "authorize").response
    back = {"url": google.consent(started["result"].removeprefix("open "))}
    done = site.direct(NAME, "oauth_callback", state=started["state_updates"], payload=back)
    assert "no refresh token" in done.response["error"]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"refresh_token": "revoked"}, "rejects the authorization"),
        ({"client_secret": "wrong"}, "invalid_client"),
        ({"calendar_id": "other@example.org"}, "notFound"),
    ],
)
def test_permanent_errors_of_google_are_not_retried(
    site: BundledSite, google: Google, config: dict[str, Any], message: str
) -> None:
    connect(site, google, **config)
    done = site.direct(NAME, "poll")
    assert done.response["retry"] is False
    assert message in done.response["error"]


def test_grant_with_another_scope_is_rejected(site: BundledSite, google: Google) -> None:
    connect(site, google, refresh_token=google.grant("https://www.googleapis.com/auth/drive"))
    done = site.direct(NAME, "poll")
    assert "insufficientPermissions" in done.response["error"]
    assert google.refusals == ["scope"]
