"""The plugin `notify` through a real gateway, against every provider's stand-in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ductile.store.jobs import plugin_state
from tests.bundled.house import BundledSite, emitted, job_logs, ledger_text
from tests.bundled.standins import discord, ntfy, slack, smtp, telegram
from tests.bundled.standins.ntfy import Ntfy
from tests.bundled.standins.server import Told
from tests.bundled.standins.smtp import MailServer
from tests.bundled.town import CHANNELS, CHATS, HELLO, PATHS, SOON, Town, state_of, tell
from tests.engine.site import Running

# One channel


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_notification_arrives_once(site: BundledSite, town: Town, channel: str) -> None:
    site.use("notify", {"channels": [town.settings(channel)]})
    with site.running() as house:
        job = tell(house, HELLO)
        state = state_of(house)
    assert job["status"] == "succeeded"
    event = {"event_id": job["payload"]["event_id"]}
    again = site.direct("notify", "handle", payload=HELLO, state=state, event=event)
    assert again.answer["result"].startswith("sent before by ")
    [got] = town.got(channel)
    assert "Weight" in got
    assert "82 kg" in got
    assert town.provider(channel).refusals == []


@pytest.mark.parametrize("channel", CHATS)
def test_a_rate_limit_is_waited_out_by_the_gateway(
    site: BundledSite, town: Town, channel: str
) -> None:
    limited = {
        "ntfy": Told({"code": 42901, "http": 429, "error": "limit reached"}, 429),
        "discord": discord.limited(3600),
        "slack": slack.limited(3600),
        "telegram": telegram.limited(3600),
    }[channel.partition("-")[0]]
    town.provider(channel).next(PATHS[channel], limited)
    site.use("notify", {"channels": [town.settings(channel)]}, retry=SOON)
    with site.running() as house:
        job = tell(house, HELLO)
        first = [row for row in job_logs(house, "notify") if row["attempt"] == 1]
    assert job["status"] == "succeeded"
    assert job["attempt"] == 2
    assert "asks us to wait" in first[0]["last_error"]
    assert len(town.got(channel)) == 1


@pytest.mark.parametrize("channel", CHATS)
def test_trouble_that_passes_is_tried_again(site: BundledSite, town: Town, channel: str) -> None:
    trouble = (Told("down", 503), Told(b"<html>", 502), Told(b"{", 500))
    town.provider(channel).next(PATHS[channel], *trouble)
    site.use("notify", {"channels": [town.settings(channel)]}, retry=SOON)
    with site.running() as house:
        job = tell(house, HELLO)
    assert (job["status"], job["attempt"]) == ("succeeded", 4)
    assert len(town.got(channel)) == 1


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
def test_a_bad_credential_is_final(site: BundledSite, town: Town, channel: str) -> None:
    provider = town.provider(channel)
    url = getattr(provider, "url", "")
    wrong = {key: value.replace("{url}", url) for key, value in WRONG[channel].items()}
    site.use("notify", {"channels": [town.settings(channel, **wrong)]}, retry=SOON)
    with site.running() as house:
        job = tell(house, HELLO)
    assert (job["status"], job["attempt"]) == ("failed", 1)
    assert provider.refusals
    assert town.got(channel) == []


@pytest.mark.parametrize("channel", ["ntfy", "telegram"])
@pytest.mark.parametrize("how", ["hangs", "drips"])
def test_a_server_that_never_finishes_costs_no_more_than_its_time(
    site: BundledSite, town: Town, channel: str, how: str
) -> None:
    town.provider(channel).next(PATHS[channel], Told(b"{}", **{how: True}))
    site.use("notify", {"channels": [town.settings(channel)]})
    done = site.direct("notify", "handle", payload=HELLO, seconds=6)
    assert done.answer["status"] == "error"
    assert done.answer["retry"] is True
    assert "did not answer" in done.answer["error"]


# Several channels


def test_a_failing_channel_neither_blocks_the_others_nor_doubles_them(
    site: BundledSite, town: Town
) -> None:
    town.ntfy.next("/", Told({}, 503))
    channels = [town.settings("ntfy"), town.settings("email"), town.settings("telegram")]
    site.use("notify", {"channels": channels})
    with site.running() as house:
        job = tell(house, HELLO)
        waiting = state_of(house)["waiting"]
        assert job["status"] == "succeeded"
        assert "ntfy waits: answered 503" in job["result"]["result"]
        assert [one["channel"] for one in waiting] == ["ntfy"]
        assert house.run("notify", "poll")["result"]["result"] == "nothing to send"
        hurry(house)
        assert house.run("notify", "poll")["result"]["result"] == "sent by ntfy"
        assert house.run("notify", "poll")["result"]["result"] == "nothing to send"
        assert state_of(house)["waiting"] == []
    assert [len(town.got(name)) for name in ("ntfy", "email", "telegram")] == [1, 1, 1]


def hurry(house: Running) -> None:
    """Make what waits due now."""

    def change(tx: Any) -> None:
        state = plugin_state.load_state(tx, "notify")
        for one in state["waiting"]:
            one["next_at"] = 0
        tx.run("set_state", plugin="notify", state=json.dumps(state), now="2026-01-01")

    house.gateway.ledger.write(change)


def test_what_waits_goes_along_with_the_next_notification(site: BundledSite, town: Town) -> None:
    town.ntfy.next("/", Told({}, 503))
    site.use("notify", {"channels": [town.settings("ntfy"), town.settings("telegram")]})
    with site.running() as house:
        tell(house, {"title": "One", "text": "one"})
        hurry(house)
        tell(house, {"title": "Two", "text": "two", "channels": ["telegram"]})
        assert state_of(house)["waiting"] == []
    assert town.got("ntfy") == ["One\none"]
    assert town.got("telegram") == ["One\none", "Two\ntwo"]


def test_where_no_channel_could_send_the_gateway_tries_all_again(
    site: BundledSite, town: Town
) -> None:
    town.ntfy.next("/", Told({}, 503))
    town.telegram.next(telegram.SEND, Told({}, 500))
    channels = [town.settings("ntfy"), town.settings("telegram")]
    site.use("notify", {"channels": channels}, retry=SOON)
    with site.running() as house:
        job = tell(house, HELLO)
    assert (job["status"], job["attempt"]) == ("succeeded", 2)
    assert [len(town.got(name)) for name in ("ntfy", "telegram")] == [1, 1]


def test_a_channel_that_refuses_for_good_is_told_of(site: BundledSite, town: Town) -> None:
    channels = [town.settings("ntfy", token="tk_wrong"), town.settings("telegram")]
    site.use("notify", {"channels": channels})
    with site.running() as house:
        job = tell(house, HELLO)
        assert "ntfy was given up: answered 401" in job["result"]["result"]
        assert house.run("notify", "poll")["status"] == "succeeded"
        house.run("notify", "poll")
        [event] = emitted(house, "notify")
    assert event["type"] == "notify.failed"
    assert event["payload"]["channel"] == "ntfy"
    assert event["payload"]["id"] == job["payload"]["event_id"]
    assert len(town.got("telegram")) == 1


def test_what_keeps_failing_is_given_up(site: BundledSite, town: Town) -> None:
    town.ntfy.next("/", *[Told({}, 503)] * 3)
    channels = [town.settings("ntfy"), town.settings("telegram")]
    site.use("notify", {"channels": channels, "max_tries": 2})
    with site.running() as house:
        tell(house, HELLO)
        hurry(house)
        house.run("notify", "poll")
        [event] = emitted(house, "notify")
        assert state_of(house)["waiting"] == []
    assert event["payload"]["tries"] == 2


def test_a_channel_that_is_taken_away_leaves_nothing_waiting(site: BundledSite, town: Town) -> None:
    town.ntfy.next("/", Told({}, 503))
    site.use("notify", {"channels": [town.settings("ntfy"), town.settings("telegram")]})
    state = site.direct("notify", "handle", payload=HELLO).answer["state_updates"]
    site.use("notify", {"channels": [town.settings("telegram")]})
    polled = site.direct("notify", "poll", state=state).answer
    assert polled["events"][0]["type"] == "notify.failed"
    assert polled["state_updates"]["waiting"] == []


def test_a_bad_setting_shows_before_any_channel_has_sent(site: BundledSite, town: Town) -> None:
    bad = town.settings("telegram", token="no token")
    site.use("notify", {"channels": [town.settings("ntfy"), bad]})
    done = site.direct("notify", "handle", payload=HELLO)
    assert done.code == 78
    assert town.got("ntfy") == []


def test_the_state_is_bounded(site: BundledSite, town: Town) -> None:
    town.ntfy.next("/", Told({}, 503))
    site.use("notify", {"channels": [town.settings("ntfy"), town.settings("telegram")]})
    message = {"id": "x", "type": "t", "title": "old", "text": "y" * 30_000, "priority": 3}
    old = {"channel": "ntfy", "tries": 1, "next_at": 9e12, "error": "", "failed": False}
    state = {
        "sent": [f"{number:032x}" for number in range(5000)],
        "waiting": [{**old, "message": {**message, "url": None}}] * 60,
    }
    answer = site.direct("notify", "handle", payload=HELLO, state=state).answer
    kept = answer["state_updates"]
    assert len(json.dumps(kept)) < 600_000
    assert len(kept["sent"]) == 2000
    assert kept["waiting"][-1]["message"]["title"] == "Weight"
    assert any("is lost" in line["message"] for line in answer["logs"])


# Twice


@pytest.mark.parametrize(
    ("channel", "seen"),
    [("email", 1), ("ntfy", 1), ("discord-bot", 1), ("discord", 2), ("slack", 2), ("telegram", 2)],
)
def test_a_crash_before_the_commit_is_what_the_readme_says(
    site: BundledSite, town: Town, channel: str, seen: int
) -> None:
    site.use("notify", {"channels": [town.settings(channel)]})
    for _ in range(2):
        assert site.direct("notify", "handle", payload=HELLO).answer["status"] == "ok"
    provider = town.provider(channel)
    if isinstance(provider, MailServer):
        assert len(set(provider.inbox)) == seen
    elif isinstance(provider, Ntfy):
        assert len(provider.shown) == seen
    else:
        assert len(provider.messages) == seen


def test_the_same_words_of_another_event_are_another_notification(
    site: BundledSite, town: Town
) -> None:
    site.use("notify", {"channels": [town.settings("telegram")]})
    with site.running() as house:
        for _ in range(2):
            tell(house, HELLO)
    assert len(town.got("telegram")) == 2


def test_other_words_about_the_same_event_are_another_notification(
    site: BundledSite, town: Town
) -> None:
    site.use("notify", {"channels": [town.settings("telegram")]})
    state: dict[str, Any] = {}
    for text in ("one", "two"):
        state |= site.direct("notify", "handle", payload={"text": text}, state=state).answer[
            "state_updates"
        ]
    assert len(town.got("telegram")) == 2


# Words


def test_templates_and_rules_for_types(site: BundledSite, town: Town) -> None:
    config = {
        "channels": [town.settings("telegram"), town.settings("ntfy")],
        "text": "{payload.user.name|nobody} did {payload.what}",
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
    assert town.got("telegram") == ["T\nnobody did it"]
    urgent = town.ntfy.published[-1]
    assert urgent["title"] == "disk.full on db1"
    assert urgent["priority"] == 5
    assert json.loads(urgent["message"])["n"] == 1.5


@pytest.mark.parametrize(
    ("config", "payload", "said"),
    [
        ({"text": "{payload.gone}"}, {}, "the event has no payload.gone"),
        ({}, {"text": "x", "channels": ["nowhere"]}, "there is no channel 'nowhere'"),
        ({}, {"text": "x", "channels": 7}, "channels must be text"),
        ({}, {"text": "x", "priority": 9}, "priority must be 1 to 5"),
        ({}, {"text": "x", "title": "a\r\nBcc: all@example.org"}, "one line of printable text"),
        ({"title": "{payload.t}"}, {"text": "x", "t": "a\nb"}, "one line of printable text"),
        ({"text": " "}, {}, "the text is empty"),
    ],
)
def test_what_cannot_be_said_is_refused_for_good(
    site: BundledSite, town: Town, config: dict[str, Any], payload: dict[str, Any], said: str
) -> None:
    site.use("notify", {"channels": [town.settings("email")], **config})
    done = site.direct("notify", "handle", payload=payload)
    assert done.answer["retry"] is False
    assert said in done.answer["error"]
    assert town.got("email") == []


def test_an_event_without_words_is_shown_as_it_is(site: BundledSite, town: Town) -> None:
    site.use("notify", {"channels": [town.settings("telegram")]})
    with site.running() as house:
        tell(house, {"level": 3})
    [got] = town.got("telegram")
    assert got == 'api.trigger\n{\n "level": 3\n}'


LONG = ("word " * 3000, "é😀" * 3000, "<&>" * 3000, "\n" * 3000 + "x" * 9000)


@pytest.mark.parametrize("text", LONG, ids=["words", "wide", "escaped", "blank"])
def test_a_long_text_is_cut_to_each_providers_measure(
    site: BundledSite, town: Town, text: str
) -> None:
    site.use("notify", {"channels": [{**town.settings(name), "name": name} for name in CHANNELS]})
    done = site.direct("notify", "handle", payload={"title": "Long", "text": text})
    assert done.answer["result"] == f"sent by {', '.join(CHANNELS)}"
    for channel in CHANNELS:
        assert town.provider(channel).refusals == []
    assert all(1 <= len(town.got(channel)) <= 10 for channel in CHANNELS)


def test_parts_that_were_sent_are_not_sent_again(site: BundledSite, town: Town) -> None:
    text = "\n".join(f"line {number}" for number in range(700))
    site.use("notify", {"channels": [town.settings("discord")]})
    town.discord.next(discord.WEBHOOK, town.discord.answer, Told({}, 503))
    first = site.direct("notify", "handle", payload={"text": text}).answer
    assert first["status"] == "ok"
    assert len(town.got("discord")) == 1
    state = first["state_updates"]
    state["waiting"][0]["next_at"] = 0
    assert site.direct("notify", "poll", state=state).answer["result"] == "sent by discord"
    lines = "\n".join(town.got("discord")).split("\n")
    assert lines == ["**test**", *text.split("\n")]


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


def quoting(channel: str, status: int) -> Told:
    """A refusal that repeats the credential that it was sent."""
    quoted = f"bad credential: {SECRETS[channel]}"
    body = {"error": quoted, "message": quoted, "description": quoted, "ok": False}
    return Told(body, status)


def test_no_secret_is_told(site: BundledSite, town: Town, tmp_path: Path) -> None:
    """Not even where every provider fails and repeats what it was sent."""
    log = tmp_path / "argv"
    real = site.environ["PATH"].partition(":")[0]
    spy = tmp_path / "python3"
    spy.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {real}/python3 "$@"\n')
    spy.chmod(0o755)
    site.environ["PATH"] = f"{tmp_path}:{site.environ['PATH']}"
    site.use("notify", {"channels": [{**town.settings(name), "name": name} for name in CHANNELS]})
    for name in CHATS:
        town.provider(name).next(PATHS[name], quoting(name, 503), quoting(name, 401))
    town.mail.next("RCPT", f"450 {smtp.PASSWORD}", f"550 {smtp.PASSWORD}")
    with site.running() as house:
        ended = [tell(house, HELLO)["status"] for _ in range(3)]
        house.run("notify", "poll")
        said = ledger_text(house) + json.dumps(state_of(house)) + log.read_text()
    assert ended == ["dead", "failed", "succeeded"]
    assert log.read_text().count("run.py") == 4
    assert [name for name, secret in SECRETS.items() if secret in said] == []


@pytest.mark.parametrize("channel", CHATS)
def test_the_plugin_does_not_lean_on_the_gateways_redaction(
    site: BundledSite, town: Town, channel: str
) -> None:
    town.provider(channel).next(PATHS[channel], quoting(channel, 401))
    site.use("notify", {"channels": [town.settings(channel)]})
    done = site.direct("notify", "handle", payload=HELLO)
    assert "bad credential: [REDACTED]" in done.answer["error"]
    assert SECRETS[channel] not in json.dumps(done.answer) + done.stderr


def test_health_sends_nothing_and_tells_what_waits(site: BundledSite, town: Town) -> None:
    site.use("notify", {"channels": [{**town.settings(name), "name": name} for name in CHANNELS]})
    well = site.direct("notify", "health").answer
    assert well["result"] == "7 channels, 0 wait"
    message = {"id": "x", "type": "t", "title": "T", "text": "y", "priority": 3, "url": None}
    old = {"channel": "ntfy", "tries": 3, "next_at": 0, "error": "down", "failed": False}
    state = {"waiting": [{**old, "message": message}]}
    sick = site.direct("notify", "health", state=state).answer
    assert sick["status"] == "error"
    assert "1 notifications could not be sent; ntfy: down" in sick["error"]
    assert all(town.got(name) == [] for name in CHANNELS)


def test_channels_of_one_type_need_names(site: BundledSite, town: Town) -> None:
    site.use("notify", {"channels": [town.settings("ntfy"), town.settings("ntfy")]})
    done = site.direct("notify", "health")
    assert (done.code, "names of their own" in done.answer["error"]) == (78, True)
