"""The plugin `google-calendar` through a real gateway, against the stand-in."""

from __future__ import annotations

import json

import pytest

from tests.bundled.accounts import connect_google as connect
from tests.bundled.accounts import state_of
from tests.bundled.house import BundledSite, emitted, ledger_text, process_arguments
from tests.bundled.standins.google import CLIENT_ID, CLIENT_SECRET, Google, failure
from tests.bundled.standins.server import Told
from tests.engine.site import Running
from tests.waiting import until

NAME = "google-calendar"
EVENTS = "/calendar/v3/calendars/primary/events"


def told(house: Running) -> list[tuple[str, str]]:
    """Every change so far: what happened, and to which event."""
    return [
        (event["type"].removeprefix("calendar."), event["payload"]["event_id"])
        for event in emitted(house, NAME)
    ]


def test_created_updated_and_cancelled_are_told_once_each(
    site: BundledSite, google: Google
) -> None:
    connect(site, google)
    google.put("old")
    with site.running() as house:
        house.run(NAME)
        assert told(house) == []
        google.put("new", summary="Dentist", attendees=[{"email": "a@example.org"}])
        google.put("old", summary="Moved")
        house.run(NAME)
        house.run(NAME)
        google.delete("new")
        house.run(NAME)
        house.run(NAME)
        assert told(house) == [("created", "new"), ("updated", "old"), ("cancelled", "new")]
        created, _, cancelled = (event["payload"] for event in emitted(house, NAME))
    assert created["attendees"] == [{"email": "a@example.org", "response": ""}]
    assert created["start"] == cancelled["start"] == "2031-02-08T10:00:00+01:00"
    assert cancelled["summary"] == "Dentist"
    assert google.refusals == []


def test_what_is_there_already_is_told_where_that_is_wanted(
    site: BundledSite, google: Google
) -> None:
    connect(site, google, emit_existing=True)
    for index in range(5):
        google.put(f"e{index}")
    with site.running() as house:
        house.run(NAME)
        house.run(NAME)
        assert told(house) == [("created", f"e{index}") for index in range(5)]


def test_every_page_is_read_also_over_several_runs(site: BundledSite, google: Google) -> None:
    connect(site, google, emit_existing=True)
    site.mutate(f"{NAME}/run.py", "MOST_CHANGES = 2000", "MOST_CHANGES = 3")
    for index in range(9):
        google.put(f"e{index}")
    with site.running() as house:
        for _ in range(3):
            house.run(NAME)
        assert told(house) == [("created", f"e{index}") for index in range(9)]
        assert state_of(house, NAME)["page_token"] is None
    assert google.refusals == []


def test_after_gone_a_full_sync_tells_only_what_is_news(site: BundledSite, google: Google) -> None:
    connect(site, google)
    for id in ("same", "changed", "deleted", "vanished"):
        google.put(id)
    with site.running() as house:
        house.run(NAME)
        google.put("changed", summary="other")
        google.put("added")
        google.delete("deleted")
        del google.changed["vanished"]
        google.forget_syncs()
        house.run(NAME)
        house.run(NAME)
        assert sorted(told(house)) == [
            ("cancelled", "deleted"),
            ("cancelled", "vanished"),
            ("created", "added"),
            ("updated", "changed"),
        ]
    assert google.refusals == ["syncToken"]


def test_what_is_past_is_no_cancellation_when_a_full_sync_leaves_it_out(
    site: BundledSite, google: Google
) -> None:
    connect(site, google, past_days=36500)
    google.put("past", end={"date": "2020-01-02"}, start={"date": "2020-01-01"})
    with site.running() as house:
        house.run(NAME)
        del google.changed["past"]
        google.forget_syncs()
        house.run(NAME)
        assert told(house) == []


def test_an_old_event_that_we_had_forgotten_is_updated_not_created(
    site: BundledSite, google: Google
) -> None:
    connect(site, google)
    with site.running() as house:
        house.run(NAME)
        google.put("ancient", created="2001-01-01T00:00:00.000Z")
        house.run(NAME)
        assert told(house) == [("updated", "ancient")]


def test_one_date_of_a_series_that_is_cancelled_is_told_with_its_date(
    site: BundledSite, google: Google
) -> None:
    connect(site, google)
    google.put("series", summary="Yoga", recurrence=["RRULE:FREQ=WEEKLY"])
    date = {"dateTime": "2031-02-15T10:00:00+01:00"}
    with site.running() as house:
        house.run(NAME)
        google.put(
            "series_1", status="cancelled", recurringEventId="series", originalStartTime=date
        )
        house.run(NAME)
        google.forget_syncs()
        house.run(NAME)
        assert told(house) == [("cancelled", "series_1")]
        payload = emitted(house, NAME)[0]["payload"]
    assert (payload["summary"], payload["start"]) == ("Yoga", "2031-02-15T10:00:00+01:00")


@pytest.mark.parametrize("ahead", [86_400.0, -86_400.0])
def test_a_provider_whose_clock_differs_is_no_problem(
    site: BundledSite, google: Google, ahead: float
) -> None:
    google.ahead = ahead
    connect(site, google)
    first = site.direct(NAME, "poll").answer
    google.put("new")
    second = site.direct(NAME, "poll", state=first["state_updates"]).answer
    assert [event["type"] for event in second["events"]] == ["calendar.created"]


def test_a_token_that_ended_early_is_renewed(site: BundledSite, google: Google) -> None:
    connect(site, google)
    with site.running() as house:
        house.run(NAME)
        google.access.clear()
        assert house.run(NAME)["status"] == "succeeded"
    assert google.refusals == ["access_token"]


def test_a_refresh_token_that_rotates_survives_a_failure(site: BundledSite, google: Google) -> None:
    google.life, google.rotates = 1, True
    connect(site, google, poll="5s")
    with site.running() as house:
        google.next(EVENTS, Told(status=500))
        job = house.run(NAME)
        assert job["status"] == "succeeded"
        assert "nothing else was done" in job["result"]["result"]
        assert state_of(house, NAME)["refresh_token"] in google.refresh
        assert house.run(NAME)["status"] == "succeeded"
    assert google.refusals == []


TROUBLES = {
    "500": (Told(status=500), "answered 500"),
    "backend": (failure(503, "backendError", "global"), "answered 503"),
    "cut off": (Told(body=b'{"items": ['), "with no JSON"),
    "no sync token": (Told({"items": []}), "no sync token"),
    "hangs": (Told(hangs=True), "did not answer"),
    "redirect": (Told(status=307, headers={"Location": "https://example.org"}), "answered 307"),
}


def test_trouble_is_a_failed_job_and_costs_nothing(site: BundledSite, google: Google) -> None:
    connect(site, google, poll="4500ms")
    with site.running() as house:
        house.run(NAME)
        before = state_of(house, NAME)
        google.put("new")
        for trouble, said in TROUBLES.values():
            google.next(EVENTS, trouble)
            job = house.run(NAME)
            assert job["status"] == "dead"
            assert said in job["last_error"]
        assert state_of(house, NAME) == before
        house.run(NAME)
        assert told(house) == [("created", "new")]


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [
        (failure(403, "rateLimitExceeded"), 60),
        (failure(403, "userRateLimitExceeded", Retry_After="600"), 600),
        (failure(429, "rateLimitExceeded", Retry_After="600"), 600),
    ],
    ids=["403", "403 with a time", "429"],
)
def test_a_busy_google_is_left_alone_for_longer_each_time(
    site: BundledSite, google: Google, limit: Told, seconds: int
) -> None:
    connect(site, google)
    google.next(EVENTS, limit, limit)
    first = site.direct(NAME, "poll").answer
    asked = len(google.asked)
    waiting = site.direct(NAME, "poll", state=first["state_updates"]).answer
    assert len(google.asked) == asked
    assert f"wait {seconds} s" in first["result"]
    assert "were asked to wait" in waiting["result"]
    later = {**first["state_updates"], "retry_at": 1}
    second = site.direct(NAME, "poll", state=later).answer
    longer = seconds if "retry-after" in {name.lower() for name in limit.headers} else 2 * seconds
    assert f"wait {longer} s" in second["result"]
    done = site.direct(NAME, "poll", state={**second["state_updates"], "retry_at": 1}).answer
    assert {"retry_at", "busy"}.isdisjoint(done["state_updates"])


def test_a_person_grants_access_with_a_proof_key(site: BundledSite, google: Google) -> None:
    connect(site, google, refresh_token=None)
    google.put("e1")
    with site.running() as house:
        assert "authorize" in house.run(NAME)["last_error"]
        link = house.run(NAME, "authorize")["result"]["result"].removeprefix("open ")
        assert link.startswith("https://accounts.google.com/o/oauth2/v2/auth?")
        back = google.consent(link)
        assert house.run(NAME, "oauth_callback", {"url": back})["status"] == "succeeded"
        assert house.run(NAME, "oauth_callback", {"url": back})["status"] == "failed"
        assert house.run(NAME)["status"] == "succeeded"
        assert state_of(house, NAME)["pending_verifier_secret"] is None
    assert google.refusals == []


def test_a_credentials_file_of_googles_own_is_understood(site: BundledSite, google: Google) -> None:
    path = site.folder / "client.json"
    client = {"client_id": CLIENT_ID, "client_secret": CLIENT_SECRET}
    connect(site, google, client_id=None, client_secret=None, credentials_file=str(path))
    for document in ({"installed": client}, {"web": client}, {"type": "authorized_user", **client}):
        path.write_text(json.dumps(document))
        assert site.direct(NAME, "poll").answer["status"] == "ok"


@pytest.mark.parametrize(
    "text", ["", "[]", '{"type": "service_account"}', '{"installed": {"client_id": "x"}}']
)
def test_another_credentials_file_is_a_matter_for_the_operator(
    site: BundledSite, google: Google, text: str
) -> None:
    path = site.folder / "client.json"
    path.write_text(text)
    connect(site, google, client_id=None, client_secret=None, credentials_file=str(path))
    done = site.direct(NAME, "init")
    assert (done.code, done.answer["retry"]) == (78, False)


def test_without_any_client_the_start_says_so(site: BundledSite) -> None:
    site.use(NAME, {"calendar_id": "primary"})
    with site.running() as house:
        failed = house.ended(house.notice("job.failed").job_id or "")
    assert (failed["command"], failed["status"]) == ("init", "failed")
    assert "config.client_id" in failed["last_error"]


def test_a_calendar_that_is_too_large_to_remember_stays_within_the_state(
    site: BundledSite, google: Google
) -> None:
    connect(site, google)
    google.page = 2500
    for index in range(4000):
        end = {"date": f"20{30 + index % 40}-01-01"}
        google.put(f"{'x' * 90}{index}", summary="Ä" * 200, end=end, start=end)
    state = site.direct(NAME, "poll").answer["state_updates"]
    assert 0 < len(state["known"]) < 4000
    assert len(json.dumps(state, ensure_ascii=False).encode()) < 900_000


def test_no_secret_leaves_configuration_and_state(
    site: BundledSite, google: Google, capfd: pytest.CaptureFixture[str]
) -> None:
    site.settings["service"]["log_level"] = "debug"
    google.life = 1
    connect(site, google)
    with site.running() as house:
        house.run(NAME)
        before = len(google.asked)
        google.next(EVENTS, Told(hangs=True))
        held = house.put(NAME)
        until(lambda: len(google.asked) == before + 2)
        arguments = process_arguments(site)
        google.letting_go.set()
        house.ended(held)
        google.next("/token", Told({"error": CLIENT_SECRET}, 400))
        for command in ("poll", "authorize", "health", "poll"):
            house.run(NAME, command)
        verifier = state_of(house, NAME)["pending_verifier_secret"]
        shown = ledger_text(house)
    assert any(f"{NAME}/run.py" in line for line in arguments)
    seen = shown + "".join(capfd.readouterr()) + "".join(arguments)
    for secret in ("canary-access", "canary-refresh", CLIENT_SECRET, verifier):
        assert secret not in seen
