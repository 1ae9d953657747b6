"""The plugin `notify` with fake providers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ductile.store.jobs import plugin_state
from tests.bundled.bundled_site import BundledSite, ledger_text, list_events
from tests.bundled.fakes import discord, ntfy, slack, smtp, telegram
from tests.bundled.fakes.ntfy import Ntfy
from tests.bundled.fakes.server import FakeReply
from tests.bundled.fakes.smtp import MailServer
from tests.bundled.providers import (
    CHANNELS,
    CHATS,
    HELLO,
    PATHS,
    SOON,
    Providers,
    get_state,
    send_notification,
)
from tests.engine.site import Running

ALONE = ("email", "ntfy", "telegram")

# One channel


def test_notification_is_sent_once(site: BundledSite, providers: Providers) -> None:
    channels = [{**providers.settings(name), "name": name} for name in CHANNELS]
    site.use("notify", {"channels": channels})
    with site.running() as running:
        job = send_notification(running, HELLO)
        state = get_state(running)
    assert job["status"] == "succeeded"
    event = {"event_id": job["payload"]["event_id"]}
    again = site.direct("notify", "handle", payload=HELLO, state=state, event=event)
    assert again.response["result"] == f"already sent by {', '.join(CHANNELS)}"
    for channel in CHANNELS:
        # Two channels of one provider share its messages.
        assert len(providers.received(channel)) == (1 if channel in ALONE else 2)
        assert all("Weight" in text and "82 kg" in text for text in providers.received(channel))
        assert providers.provider(channel).refusals == []


@pytest.mark.parametrize("channel", CHATS)
def test_rate_limit_is_retried(site: BundledSite, providers: Providers, channel: str) -> None:
    limited = {
        "ntfy": FakeReply({"code": 42901, "http": 429, "error": "limit reached"}, 429),
        "discord": discord.limited(3600),
        "slack": slack.limited(3600),
        "telegram": telegram.limited(3600),
    }[channel.partition("-")[0]]
    providers.provider(channel).next(PATHS[channel], limited)
    site.use("notify", {"channels": [providers.settings(channel)]})
    response = site.direct("notify", "handle", payload=HELLO).response
    assert "rate limited by" in response["error"]
    assert response["retry"] is True


@pytest.mark.parametrize("channel", CHATS[1:])
def test_transient_error_is_retried(site: BundledSite, providers: Providers, channel: str) -> None:
    providers.provider(channel).next(PATHS[channel], FakeReply(b"<html>", 502))
    site.use("notify", {"channels": [providers.settings(channel)]})
    response = site.direct("notify", "handle", payload=HELLO).response
    assert (response["status"], response["retry"]) == ("error", True)


def test_notification_is_sent_once_after_retries(site: BundledSite, providers: Providers) -> None:
    errors = (FakeReply("down", 503), FakeReply(b"<html>", 502), FakeReply(b"{", 500))
    providers.ntfy.next("/", *errors)
    site.use("notify", {"channels": [providers.settings("ntfy")]}, retry=SOON)
    with site.running() as running:
        job = send_notification(running, HELLO)
    assert (job["status"], job["attempt"]) == ("succeeded", 4)
    assert len(providers.received("ntfy")) == 1


WRONG = {
    "ntfy": {"token": "tk_wrong"},
    "discord": {"secret_url": "{url}/api/v10/webhooks/1/wrong"},
    "discord-bot": {"token": "wrong"},
    "slack": {"secret_url": "{url}/services/T/B/wrong"},
    "slack-bot": {"token": "xoxb-wrong"},
    "telegram": {"token": f"1:{'w' * 35}"},
    "email": {"password": "wrong"},
}


@pytest.mark.parametrize("channel", CHANNELS)
def test_rejected_credentials_are_not_retried(
    site: BundledSite, providers: Providers, channel: str
) -> None:
    provider = providers.provider(channel)
    url = getattr(provider, "url", "")
    wrong = {key: value.replace("{url}", url) for key, value in WRONG[channel].items()}
    site.use("notify", {"channels": [providers.settings(channel, **wrong)]})
    response = site.direct("notify", "handle", payload=HELLO).response
    assert (response["status"], response["retry"]) == ("error", False)
    assert provider.refusals
    assert providers.received(channel) == []


@pytest.mark.parametrize("how", ["hangs", "drips"])
def test_slow_server_is_aborted_at_the_deadline(
    site: BundledSite, providers: Providers, how: str
) -> None:
    providers.ntfy.next("/", FakeReply(b"{}", **{how: True}))
    site.use("notify", {"channels": [providers.settings("ntfy")]})
    done = site.direct("notify", "handle", payload=HELLO, seconds=6)
    assert done.response["status"] == "error"
    assert done.response["retry"] is True
    assert "did not reply" in done.response["error"]


# Several channels


def test_failing_channel_does_not_affect_the_others(
    site: BundledSite, providers: Providers
) -> None:
    providers.ntfy.next("/", FakeReply({}, 503))
    channels = [
        providers.settings("ntfy"),
        providers.settings("email"),
        providers.settings("telegram"),
    ]
    site.use("notify", {"channels": channels})
    with site.running() as running:
        job = send_notification(running, HELLO)
        waiting = get_state(running)["waiting"]
        assert job["status"] == "succeeded"
        assert "ntfy will be retried: returned status 503" in job["result"]["result"]
        assert [one["channel"] for one in waiting] == ["ntfy"]
        assert running.run("notify", "poll")["result"]["result"] == "nothing to send"
        make_due(running)
        assert running.run("notify", "poll")["result"]["result"] == "sent by ntfy"
        assert running.run("notify", "poll")["result"]["result"] == "nothing to send"
        assert get_state(running)["waiting"] == []
    assert [len(providers.received(name)) for name in ("ntfy", "email", "telegram")] == [1, 1, 1]


def make_due(running: Running) -> None:
    """Make pending messages due now."""

    def change(tx: Any) -> None:
        state = plugin_state.load_state(tx, "notify")
        for one in state["waiting"]:
            one["next_at"] = 0
        tx.run("set_state", plugin="notify", state=json.dumps(state), now="2026-01-01")

    running.gateway.ledger.write(change)


def test_pending_message_is_retried_with_the_next_notification(
    site: BundledSite, providers: Providers
) -> None:
    providers.ntfy.next("/", FakeReply({}, 503))
    site.use("notify", {"channels": [providers.settings("ntfy"), providers.settings("telegram")]})
    with site.running() as running:
        send_notification(running, {"title": "One", "text": "one"})
        make_due(running)
        send_notification(running, {"title": "Two", "text": "two", "channels": ["telegram"]})
        assert get_state(running)["waiting"] == []
    assert providers.received("ntfy") == ["One\none"]
    assert providers.received("telegram") == ["One\none", "Two\ntwo"]


def test_job_is_retried_if_no_channel_could_send(site: BundledSite, providers: Providers) -> None:
    providers.ntfy.next("/", FakeReply({}, 503))
    providers.telegram.next(telegram.SEND, FakeReply({}, 500))
    channels = [providers.settings("ntfy"), providers.settings("telegram")]
    site.use("notify", {"channels": channels}, retry=SOON)
    with site.running() as running:
        job = send_notification(running, HELLO)
    assert (job["status"], job["attempt"]) == ("succeeded", 2)
    assert [len(providers.received(name)) for name in ("ntfy", "telegram")] == [1, 1]


def test_permanent_failure_of_a_channel_is_emitted(site: BundledSite, providers: Providers) -> None:
    channels = [providers.settings("ntfy", token="tk_wrong"), providers.settings("telegram")]
    site.use("notify", {"channels": channels})
    with site.running() as running:
        job = send_notification(running, HELLO)
        assert "ntfy failed: returned status 401" in job["result"]["result"]
        assert running.run("notify", "poll")["status"] == "succeeded"
        running.run("notify", "poll")
        [event] = list_events(running, "notify")
    assert event["type"] == "notify.failed"
    assert event["payload"]["channel"] == "ntfy"
    assert event["payload"]["id"] == job["payload"]["event_id"]
    assert len(providers.received("telegram")) == 1


def test_message_is_given_up_after_max_tries(site: BundledSite, providers: Providers) -> None:
    providers.ntfy.next("/", *[FakeReply({}, 503)] * 3)
    channels = [providers.settings("ntfy"), providers.settings("telegram")]
    site.use("notify", {"channels": channels, "max_tries": 2})
    with site.running() as running:
        send_notification(running, HELLO)
        make_due(running)
        running.run("notify", "poll")
        [event] = list_events(running, "notify")
        assert get_state(running)["waiting"] == []
    assert event["payload"]["tries"] == 2


def test_messages_of_a_removed_channel_are_dropped(site: BundledSite, providers: Providers) -> None:
    providers.ntfy.next("/", FakeReply({}, 503))
    site.use("notify", {"channels": [providers.settings("ntfy"), providers.settings("telegram")]})
    state = site.direct("notify", "handle", payload=HELLO).response["state_updates"]
    site.use("notify", {"channels": [providers.settings("telegram")]})
    polled = site.direct("notify", "poll", state=state).response
    assert polled["events"][0]["type"] == "notify.failed"
    assert polled["state_updates"]["waiting"] == []


def test_invalid_channel_is_reported_before_sending(
    site: BundledSite, providers: Providers
) -> None:
    bad = providers.settings("telegram", token="no token")
    site.use("notify", {"channels": [providers.settings("ntfy"), bad]})
    done = site.direct("notify", "handle", payload=HELLO)
    assert done.code == 78
    assert providers.received("ntfy") == []


def test_size_of_the_state_is_limited(site: BundledSite, providers: Providers) -> None:
    providers.ntfy.next("/", FakeReply({}, 503))
    site.use("notify", {"channels": [providers.settings("ntfy"), providers.settings("telegram")]})
    message = {"id": "x", "type": "t", "title": "old", "text": "y" * 30_000, "priority": 3}
    old = {"channel": "ntfy", "tries": 1, "next_at": 9e12, "error": "", "failed": False}
    state = {
        "sent": [f"{number:032x}" for number in range(5000)],
        "waiting": [{**old, "message": {**message, "url": None}}] * 60,
    }
    response = site.direct("notify", "handle", payload=HELLO, state=state).response
    kept = response["state_updates"]
    assert len(json.dumps(kept)) < 600_000
    assert len(kept["sent"]) == 2000
    assert kept["waiting"][-1]["message"]["title"] == "Weight"
    assert any("was dropped" in line["message"] for line in response["logs"])


# Repetition


@pytest.mark.parametrize(
    ("channel", "seen"),
    [("email", 1), ("ntfy", 1), ("discord-bot", 1), ("discord", 2), ("slack", 2), ("telegram", 2)],
)
def test_crash_before_the_commit_repeats_as_documented(
    site: BundledSite, providers: Providers, channel: str, seen: int
) -> None:
    site.use("notify", {"channels": [providers.settings(channel)]})
    for _ in range(2):
        assert site.direct("notify", "handle", payload=HELLO).response["status"] == "ok"
    provider = providers.provider(channel)
    if isinstance(provider, MailServer):
        assert len(set(provider.inbox)) == seen
    elif isinstance(provider, Ntfy):
        assert len(provider.shown) == seen
    else:
        assert len(provider.messages) == seen


def test_same_text_of_another_event_is_sent(site: BundledSite, providers: Providers) -> None:
    site.use("notify", {"channels": [providers.settings("telegram")]})
    with site.running() as running:
        for _ in range(2):
            send_notification(running, HELLO)
    assert len(providers.received("telegram")) == 2


def test_other_text_for_the_same_event_is_sent(site: BundledSite, providers: Providers) -> None:
    site.use("notify", {"channels": [providers.settings("telegram")]})
    state: dict[str, Any] = {}
    for text in ("one", "two"):
        state |= site.direct("notify", "handle", payload={"text": text}, state=state).response[
            "state_updates"
        ]
    assert len(providers.received("telegram")) == 2


# Texts


def test_templates_and_rules_by_event_type(site: BundledSite, providers: Providers) -> None:
    config = {
        "channels": [providers.settings("telegram"), providers.settings("ntfy")],
        "text": "{payload.user.name|unknown} did {payload.what}",
        "events": {
            "disk.full": {
                "title": "{event.type} on {payload.hosts.0}",
                "text": "{payload}",
                "channels": ["ntfy"],
                "priority": "urgent",
            }
        },
    }
    site.use("notify", config)
    site.direct("notify", "handle", payload={"what": "it", "title": "T"})
    full = {"hosts": ["db1"], "n": 1.5}
    site.direct("notify", "handle", payload=full, event={"type": "disk.full", "event_id": "e2"})
    assert providers.received("telegram") == ["T\nunknown did it"]
    urgent = providers.ntfy.published[-1]
    assert urgent["title"] == "disk.full on db1"
    assert urgent["priority"] == 5
    assert json.loads(urgent["message"])["n"] == 1.5


@pytest.mark.parametrize(
    ("config", "payload", "message"),
    [
        ({"text": "{payload.gone}"}, {}, "the event has no payload.gone"),
        ({}, {"text": "x", "channels": ["nowhere"]}, "there is no channel 'nowhere'"),
        ({}, {"text": "x", "channels": 7}, "channels must be text"),
        ({}, {"text": "x", "priority": 9}, "priority must be from 1 to 5"),
        ({}, {"text": "x", "title": "a\r\nBcc: all@example.org"}, "one line of printable text"),
        ({"title": "{payload.t}"}, {"text": "x", "t": "a\nb"}, "one line of printable text"),
        ({"text": " "}, {}, "the text is empty"),
    ],
)
def test_invalid_messages_are_not_retried(
    site: BundledSite,
    providers: Providers,
    config: dict[str, Any],
    payload: dict[str, Any],
    message: str,
) -> None:
    site.use("notify", {"channels": [providers.settings("email")], **config})
    done = site.direct("notify", "handle", payload=payload)
    assert done.response["retry"] is False
    assert message in done.response["error"]
    assert providers.received("email") == []


def test_event_without_text_is_sent_as_json(site: BundledSite, providers: Providers) -> None:
    site.use("notify", {"channels": [providers.settings("telegram")]})
    with site.running() as running:
        send_notification(running, {"level": 3})
    [received] = providers.received("telegram")
    assert received == 'api.trigger\n{\n "level": 3\n}'


LONG = ("word " * 3000, "é😀" * 3000, "<&>" * 3000, "\n" * 3000 + "x" * 9000)


@pytest.mark.parametrize("text", LONG, ids=["words", "wide", "escaped", "blank"])
def test_long_text_is_split_to_the_limits_of_the_provider(
    site: BundledSite, providers: Providers, text: str
) -> None:
    site.use(
        "notify", {"channels": [{**providers.settings(name), "name": name} for name in CHANNELS]}
    )
    done = site.direct("notify", "handle", payload={"title": "Long", "text": text})
    assert done.response["result"] == f"sent by {', '.join(CHANNELS)}"
    for channel in CHANNELS:
        assert providers.provider(channel).refusals == []
    assert all(1 <= len(providers.received(channel)) <= 10 for channel in CHANNELS)


def test_sent_parts_are_not_sent_again(site: BundledSite, providers: Providers) -> None:
    text = "\n".join(f"line {number}" for number in range(700))
    site.use("notify", {"channels": [providers.settings("discord")]})
    providers.discord.next(discord.WEBHOOK, providers.discord.reply_to, FakeReply({}, 503))
    first = site.direct("notify", "handle", payload={"text": text}).response
    assert first["status"] == "ok"
    assert len(providers.received("discord")) == 1
    state = first["state_updates"]
    state["waiting"][0]["next_at"] = 0
    assert site.direct("notify", "poll", state=state).response["result"] == "sent by discord"
    lines = "\n".join(providers.received("discord")).split("\n")
    assert lines == ["**test**", *text.split("\n")]


@pytest.mark.parametrize("channel", [name for name in CHANNELS if name != "email"])
def test_equal_parts_of_a_long_text_are_all_sent(
    site: BundledSite, providers: Providers, channel: str
) -> None:
    site.use("notify", {"channels": [providers.settings(channel)]})
    text = "x" * (9_000 if channel.startswith("discord") else 16_000)
    done = site.direct("notify", "handle", payload={"text": text})
    assert done.response["status"] == "ok"
    received = providers.received(channel)
    assert "".join(received).count("x") == len(text)
    assert len(received) > len(set(received))
    again = site.direct(
        "notify",
        "handle",
        payload={"text": text},
        state=done.response["state_updates"],
    )
    assert again.response["result"].startswith("already sent")
    assert providers.received(channel) == received


# Secrets and health

SECRETS = {
    "email": smtp.PASSWORD,
    "ntfy": ntfy.TOKEN,
    "discord": discord.WEBHOOK_TOKEN,
    "discord-bot": discord.BOT_TOKEN,
    "slack": slack.HOOK_TOKEN,
    "slack-bot": slack.BOT_TOKEN,
    "telegram": telegram.TOKEN,
}


def quote_secret(channel: str, status: int) -> FakeReply:
    """An error reply that repeats the credential of the request."""
    quoted = f"bad credential: {SECRETS[channel]}"
    body = {"error": quoted, "message": quoted, "description": quoted, "ok": False}
    return FakeReply(body, status)


def test_secrets_are_not_revealed(site: BundledSite, providers: Providers, tmp_path: Path) -> None:
    """Even if every provider fails and repeats the request."""
    log = tmp_path / "argv"
    real = site.environ["PATH"].partition(":")[0]
    spy = tmp_path / "python3"
    spy.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {real}/python3 "$@"\n')
    spy.chmod(0o755)
    site.environ["PATH"] = f"{tmp_path}:{site.environ['PATH']}"
    site.use(
        "notify", {"channels": [{**providers.settings(name), "name": name} for name in CHANNELS]}
    )
    for name in CHATS:
        providers.provider(name).next(PATHS[name], quote_secret(name, 503), quote_secret(name, 401))
    providers.mail.next("RCPT", f"450 {smtp.PASSWORD}", f"550 {smtp.PASSWORD}")
    with site.running() as running:
        ended = [send_notification(running, HELLO)["status"] for _ in range(3)]
        running.run("notify", "poll")
        text = ledger_text(running) + json.dumps(get_state(running)) + log.read_text()
    assert ended == ["dead", "failed", "succeeded"]
    assert "run.py" in log.read_text()
    assert [name for name, secret in SECRETS.items() if secret in text] == []


@pytest.mark.parametrize("channel", CHATS)
def test_plugin_redacts_secrets_itself(
    site: BundledSite, providers: Providers, channel: str
) -> None:
    providers.provider(channel).next(PATHS[channel], quote_secret(channel, 401))
    site.use("notify", {"channels": [providers.settings(channel)]})
    done = site.direct("notify", "handle", payload=HELLO)
    assert "bad credential: [REDACTED]" in done.response["error"]
    assert SECRETS[channel] not in json.dumps(done.response) + done.stderr


def test_health_reports_failed_messages_without_sending(
    site: BundledSite, providers: Providers
) -> None:
    site.use(
        "notify", {"channels": [{**providers.settings(name), "name": name} for name in CHANNELS]}
    )
    healthy = site.direct("notify", "health").response
    assert healthy["result"] == "7 channels, 0 pending messages"
    message = {"id": "x", "type": "t", "title": "T", "text": "y", "priority": 3, "url": None}
    old = {"channel": "ntfy", "tries": 3, "next_at": 0, "error": "down", "failed": False}
    state = {"waiting": [{**old, "message": message}]}
    failing = site.direct("notify", "health", state=state).response
    assert failing["status"] == "error"
    assert "1 notifications could not be sent; ntfy: down" in failing["error"]
    assert all(providers.received(name) == [] for name in CHANNELS)


def test_channels_of_the_same_type_need_names(site: BundledSite, providers: Providers) -> None:
    site.use("notify", {"channels": [providers.settings("ntfy"), providers.settings("ntfy")]})
    done = site.direct("notify", "health")
    assert (done.code, "must have different names" in done.response["error"]) == (78, True)
