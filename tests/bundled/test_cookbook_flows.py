"""The flows of docs/how-to/cookbook.md, end to end with fake providers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ductile.http.server.open import open_listeners
from tests.bundled.bundled_site import BundledSite, job_logs, ledger_text
from tests.bundled.fakes import github, ntfy, withings
from tests.bundled.fakes.server import FakeReply
from tests.bundled.fakes.withings import Withings
from tests.bundled.providers import SOON, Providers
from tests.engine.site import Running
from tests.waiting import until

NOW = int(time.time())
HEALTH_ROUTES = [
    {"from": "withings", "event_type": "new_health_data", "to": "health-analyzer"},
    {"from": "health-analyzer", "event_type": "alert", "to": "notify"},
]


@pytest.fixture
def scale() -> Iterator[Withings]:
    with Withings() as fake:
        yield fake


def wait_until_idle(running: Running) -> None:
    """Wait until no job is queued or running."""

    def idle(tx: Any) -> bool:
        return not tx.one("queue_depth")[0] and not tx.one("running_count")[0]

    until(lambda: running.gateway.ledger.read(idle))


def weight(kilograms: float) -> list[dict[str, int]]:
    return [{"value": round(kilograms * 1000), "type": 1, "unit": -3}]


# withings -> health-analyzer -> notify


def use_health_flow(
    site: BundledSite, scale: Withings, providers: Providers, **withings_settings: Any
) -> None:
    config = {
        "client_id": withings.CLIENT_ID,
        "client_secret": withings.CLIENT_SECRET,
        "refresh_token": scale.issue().refresh,
        "base_url": scale.url,
    }
    site.use("withings", config, **withings_settings)
    site.use("health-analyzer", {"thresholds": {"weight": {"max": 80}}})
    channels = [providers.settings("ntfy"), providers.settings("email")]
    site.use("notify", {"channels": channels}, retry=SOON)
    site.settings["routes"] = HEALTH_ROUTES


def test_scheduled_poll_sends_an_alert_for_a_weight_over_the_limit(
    site: BundledSite, scale: Withings, providers: Providers
) -> None:
    use_health_flow(site, scale, providers, schedules=[{"every": "1s"}])
    scale.weigh(1, at=NOW - 7200, measures=weight(79.5))
    scale.weigh(2, at=NOW - 3600, measures=weight(81.2))
    with site.running() as running:
        until(lambda: providers.received("ntfy") and providers.received("email"))
        first = len(job_logs(running, "withings"))
        until(lambda: len(job_logs(running, "withings")) > first)
    [pushed] = providers.ntfy.published
    assert "81.2" in pushed["message"]
    [mail] = providers.mail.mails
    assert mail.message["Subject"] == pushed["title"]
    assert scale.refusals == providers.ntfy.refusals == providers.mail.refusals == []


def test_alert_is_repeated_only_after_the_limit_was_met_again(
    site: BundledSite, scale: Withings, providers: Providers
) -> None:
    use_health_flow(site, scale, providers)
    with site.running() as running:
        for number, kilograms in enumerate((81, 82, 79, 83)):
            scale.weigh(number, at=NOW - 7200 + number * 600, measures=weight(kilograms))
            running.run("withings")
            wait_until_idle(running)
    assert len(providers.received("ntfy")) == len(providers.received("email")) == 2


def test_failures_at_every_step_neither_lose_nor_repeat_a_notification(
    site: BundledSite, scale: Withings, providers: Providers
) -> None:
    use_health_flow(site, scale, providers, retry=SOON)
    scale.next("/measure", FakeReply(b"<html>", 502))
    providers.ntfy.next("/", FakeReply({}, 503))
    providers.mail.next("RCPT", "451 greylisted")
    scale.weigh(1, at=NOW - 3600, measures=weight(85))
    with site.running() as running:
        running.run("withings")
        wait_until_idle(running)
        assert [row["attempt"] for row in job_logs(running, "notify")] == [1, 2]
        text = ledger_text(running)
    assert len(providers.received("ntfy")) == len(providers.received("email")) == 1
    secrets = (withings.CLIENT_SECRET, ntfy.TOKEN, github.SECRET)
    assert [secret for secret in secrets if secret in text] == []


# GitHub -> pipeline -> notify


@contextmanager
def listening(site: BundledSite) -> Iterator[tuple[Running, tuple[str, int]]]:
    """A running gateway, and the address of its webhook listener."""
    with site.opened() as running:
        server = open_listeners(running.gateway)
        running.gateway.start()
        server.start()
        try:
            listener = next(one for one in server.listeners if one.name == "webhooks")
            host, port = listener.socket.getsockname()[:2]
            yield running, (host, port)
        finally:
            server.stop()


def use_github_flow(site: BundledSite, providers: Providers, **endpoint: Any) -> None:
    site.use("github-handler", {"events": ["push", "issues.opened"]})
    site.use("notify", {"channels": [providers.settings("ntfy")]}, retry=SOON)
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
                    "id": "send",
                    "uses": "notify",
                    "with": {"title": "{payload.repository} moved", "text": "{payload.message}"},
                }
            ],
        }
    ]


@pytest.mark.parametrize("form", [False, True], ids=["json", "form"])
def test_push_is_notified_once(site: BundledSite, providers: Providers, form: bool) -> None:
    use_github_flow(site, providers)
    with listening(site) as (running, address):
        for _ in range(2):
            sent = github.deliver(
                address, "/hook/github", "push", github.push(), delivery="d-1", form=form
            )
            assert sent[0] == 202
        wait_until_idle(running)
        for event, hook in (
            ("push", github.push("feature")),
            ("issues", github.issues("closed")),
            ("gollum", {"pages": []}),
            ("ping", github.ping()),
        ):
            assert github.deliver(address, "/hook/github", event, hook)[0] == 202
        wait_until_idle(running)
        jobs = job_logs(running, "github-handler")
        assert len(jobs) == 5
        assert {row["status"] for row in jobs} == {"succeeded"}
    [pushed] = providers.ntfy.published
    assert pushed["title"] == "octo/engine moved"
    assert pushed["message"] == "- Fix part 1 (mona)\n- Fix part 2 (mona)"


def test_webhook_with_a_wrong_signature_is_rejected(
    site: BundledSite, providers: Providers
) -> None:
    use_github_flow(site, providers)
    with listening(site) as (running, address):
        sent = github.deliver(address, "/hook/github", "push", github.push(), secret="guessed")
        assert sent[0] == 403
        wait_until_idle(running)
        assert job_logs(running) == []
    assert providers.ntfy.requests == []


def test_notification_is_retried_until_it_is_sent_once(
    site: BundledSite, providers: Providers
) -> None:
    use_github_flow(site, providers)
    providers.ntfy.next(
        "/", FakeReply({}, 503), FakeReply(b"", 502), FakeReply({"code": 42901}, 429)
    )
    with listening(site) as (running, address):
        github.deliver(address, "/hook/github", "push", github.push())
        wait_until_idle(running)
        assert [row["status"] for row in job_logs(running, "notify")][-1] == "succeeded"
    assert len(providers.ntfy.published) == 1


def test_endpoint_without_provider_fails_with_advice(
    site: BundledSite, providers: Providers
) -> None:
    use_github_flow(site, providers, provider=None)
    with listening(site) as (running, address):
        github.deliver(address, "/hook/github", "push", github.push())
        wait_until_idle(running)
        [row] = job_logs(running, "github-handler")
    assert row["status"] == "failed"
    assert "provider: github" in row["last_error"]


def test_routed_events_have_the_webhook_context(site: BundledSite, providers: Providers) -> None:
    use_github_flow(site, providers)
    site.use("echo")
    site.settings["routes"] = [{"from": "github", "event_type": "webhook.github", "to": "echo"}]
    with listening(site) as (running, address):
        github.deliver(address, "/hook/github", "ping", github.ping(), delivery="d-7")
        wait_until_idle(running)
        [row] = job_logs(running, "echo")
    payload = json.loads(row["result"])["result"]["payload"]
    assert payload["webhook"] == {"name": "github", "event": "ping", "delivery_id": "d-7"}
