"""The flows of docs/how-to/cookbook.md, end to end, with every provider's stand-in."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ductile.http.server.run import open_listeners
from tests.bundled.house import BundledSite, job_logs, ledger_text
from tests.bundled.standins import github, ntfy, withings
from tests.bundled.standins.server import Told
from tests.bundled.standins.withings import Withings
from tests.bundled.town import SOON, Town
from tests.engine.site import Running
from tests.waiting import until

NOW = int(time.time())
HEALTH_ROUTES = [
    {"from": "withings", "event_type": "new_health_data", "to": "health-analyzer"},
    {"from": "health-analyzer", "event_type": "alert", "to": "notify"},
]


@pytest.fixture
def scale() -> Iterator[Withings]:
    with Withings() as standin:
        yield standin


def settled(house: Running) -> None:
    """Wait until nothing is queued or runs."""

    def idle(tx: Any) -> bool:
        return not tx.one("queue_depth")[0] and not tx.one("running_count")[0]

    until(lambda: house.gateway.ledger.read(idle))


def weight(kilograms: float) -> list[dict[str, int]]:
    return [{"value": round(kilograms * 1000), "type": 1, "unit": -3}]


# withings -> health-analyzer -> notify


def health(site: BundledSite, scale: Withings, town: Town, **withings_settings: Any) -> None:
    config = {
        "client_id": withings.CLIENT_ID,
        "client_secret": withings.CLIENT_SECRET,
        "refresh_token": scale.issue().refresh,
        "base_url": scale.url,
    }
    site.use("withings", config, **withings_settings)
    site.use("health-analyzer", {"thresholds": {"weight": {"max": 80}}})
    channels = [town.settings("ntfy"), town.settings("email")]
    site.use("notify", {"channels": channels}, retry=SOON)
    site.settings["routes"] = HEALTH_ROUTES


def test_a_weight_over_the_limit_reaches_the_phone_by_a_schedule(
    site: BundledSite, scale: Withings, town: Town
) -> None:
    health(site, scale, town, schedules=[{"every": "1s"}])
    scale.weigh(1, at=NOW - 7200, measures=weight(79.5))
    scale.weigh(2, at=NOW - 3600, measures=weight(81.2))
    with site.running() as house:
        until(lambda: town.got("ntfy") and town.got("email"))
        first = len(job_logs(house, "withings"))
        until(lambda: len(job_logs(house, "withings")) > first)
    [pushed] = town.ntfy.published
    assert "81.2" in pushed["message"]
    [mail] = town.mail.mails
    assert mail.message["Subject"] == pushed["title"]
    assert scale.refusals == town.ntfy.refusals == town.mail.refusals == []


def test_an_alert_is_raised_again_only_after_the_limit_was_kept(
    site: BundledSite, scale: Withings, town: Town
) -> None:
    health(site, scale, town)
    with site.running() as house:
        for number, kilograms in enumerate((81, 82, 79, 83)):
            scale.weigh(number, at=NOW - 7200 + number * 600, measures=weight(kilograms))
            house.run("withings")
            settled(house)
    assert len(town.got("ntfy")) == len(town.got("email")) == 2


def test_trouble_at_every_hop_loses_and_doubles_nothing(
    site: BundledSite, scale: Withings, town: Town
) -> None:
    health(site, scale, town, retry=SOON)
    scale.next("/measure", Told(b"<html>", 502))
    town.ntfy.next("/", Told({}, 503))
    town.mail.next("RCPT", "451 greylisted")
    scale.weigh(1, at=NOW - 3600, measures=weight(85))
    with site.running() as house:
        house.run("withings")
        settled(house)
        assert [row["attempt"] for row in job_logs(house, "notify")] == [1, 2]
        shown = ledger_text(house)
    assert len(town.got("ntfy")) == len(town.got("email")) == 1
    secrets = (withings.CLIENT_SECRET, ntfy.TOKEN, github.SECRET)
    assert [secret for secret in secrets if secret in shown] == []


# GitHub -> pipeline -> notify


@contextmanager
def listening(site: BundledSite) -> Iterator[tuple[Running, tuple[str, int]]]:
    """A gateway at work, and the address of its webhooks."""
    with site.opened() as house:
        server = open_listeners(house.gateway)
        house.gateway.start()
        server.start()
        try:
            door = next(door for door in server.listeners if door.name == "webhooks")
            host, port = door.socket.getsockname()[:2]
            yield house, (host, port)
        finally:
            server.stop()


def github_flow(site: BundledSite, town: Town, **endpoint: Any) -> None:
    site.use("github-handler", {"events": ["push", "issues.opened"]})
    site.use("notify", {"channels": [town.settings("ntfy")]}, retry=SOON)
    site.settings["webhooks"] = {
        "listen": "127.0.0.1:0",
        "endpoints": [
            {
                "path": "/hook/github",
                "plugin": "github-handler",
                "provider": "github",
                "secret": github.SECRET,
                **endpoint,
            }
        ],
    }
    site.settings["pipelines"] = [
        {
            "name": "main-moved",
            "on": "github.push",
            "if": {"path": "payload.branch", "op": "eq", "value": "main"},
            "steps": [
                {
                    "id": "tell",
                    "uses": "notify",
                    "with": {"title": "{payload.repository} moved", "text": "{payload.message}"},
                }
            ],
        }
    ]


@pytest.mark.parametrize("form", [False, True], ids=["json", "form"])
def test_a_push_reaches_the_phone_once(site: BundledSite, town: Town, form: bool) -> None:
    github_flow(site, town)
    with listening(site) as (house, address):
        for _ in range(2):
            sent = github.deliver(
                address, "/hook/github", "push", github.push(), delivery="d-1", form=form
            )
            assert sent[0] == 202
        settled(house)
        for event, hook in (
            ("push", github.push("feature")),
            ("issues", github.issues("closed")),
            ("gollum", {"pages": []}),
            ("ping", github.ping()),
        ):
            assert github.deliver(address, "/hook/github", event, hook)[0] == 202
        settled(house)
        jobs = job_logs(house, "github-handler")
        assert len(jobs) == 5
        assert {row["status"] for row in jobs} == {"succeeded"}
    [pushed] = town.ntfy.published
    assert pushed["title"] == "octo/engine moved"
    assert pushed["message"] == "- Mend part 1 (mona)\n- Mend part 2 (mona)"


def test_who_has_no_secret_reaches_nobody(site: BundledSite, town: Town) -> None:
    github_flow(site, town)
    with listening(site) as (house, address):
        sent = github.deliver(address, "/hook/github", "push", github.push(), secret="guessed")
        assert sent[0] == 403
        settled(house)
        assert job_logs(house) == []
    assert town.ntfy.asked == []


def test_a_phone_that_is_off_for_a_while_gets_it_once(site: BundledSite, town: Town) -> None:
    github_flow(site, town)
    town.ntfy.next("/", Told({}, 503), Told(b"", 502), Told({"code": 42901}, 429))
    with listening(site) as (house, address):
        github.deliver(address, "/hook/github", "push", github.push())
        settled(house)
        assert [row["status"] for row in job_logs(house, "notify")][-1] == "succeeded"
    assert len(town.ntfy.published) == 1


def test_an_endpoint_that_names_no_provider_is_told_what_to_do(
    site: BundledSite, town: Town
) -> None:
    github_flow(site, town, provider=None)
    with listening(site) as (house, address):
        github.deliver(address, "/hook/github", "push", github.push())
        settled(house)
        [row] = job_logs(house, "github-handler")
    assert row["status"] == "failed"
    assert "provider: github" in row["last_error"]


def test_routes_of_the_webhook_see_what_its_headers_told(site: BundledSite, town: Town) -> None:
    github_flow(site, town)
    site.use("echo")
    site.settings["routes"] = [{"from": "github", "event_type": "webhook.github", "to": "echo"}]
    with listening(site) as (house, address):
        github.deliver(address, "/hook/github", "ping", github.ping(), delivery="d-7")
        settled(house)
        [row] = job_logs(house, "echo")
    payload = json.loads(row["result"])["result"]["payload"]
    assert payload["webhook"] == {"name": "github", "event": "ping", "delivery_id": "d-7"}
