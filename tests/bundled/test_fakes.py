"""The fake providers reject what the real ones reject: each plugin is made to send one invalid
request."""

from __future__ import annotations

import pytest

from tests.bundled.accounts import (
    connect_garmin,
    connect_garmin_signing,
    connect_google,
    connect_withings,
)
from tests.bundled.bundled_site import BundledSite
from tests.bundled.fakes.garmin import MFA_TOKEN, Garmin
from tests.bundled.fakes.google import Google
from tests.bundled.fakes.withings import Withings
from tests.bundled.providers import HELLO, Providers

CALENDAR = "google-calendar"
MAIL, CHATS = "notify/mail.py", "notify/chats.py"
MESSAGES = [
    ("email", MAIL, 'mail["Date"] = formatdate(localtime=True)', "pass", "one Date"),
    ("email", MAIL, "server.starttls(context=self._make_context())", "pass", "STARTTLS"),
    ("email", MAIL, 'server.login(self.text("username"), self.text("password"))', "pass", "530"),
    ("ntfy", CHATS, "headers=self._credentials()", "headers={}", "unauthorized"),
    (
        "ntfy",
        CHATS,
        "split(message.text, self.LIMIT, count_json)",
        "[message.text[:5000]]",
        "attachments",
    ),
    (
        "discord",
        CHATS,
        'split(f"{title}{message.text_with_link}", self.LIMIT, count_utf16)',
        "[title + message.text_with_link]",
        "2000 or fewer",
    ),
    ("discord", CHATS, 'query={"wait": "true"}, ', "", "without wait"),
    ("discord-bot", CHATS, "key[: self.MAX_NONCE]", "key", "25 or fewer"),
    ("slack", CHATS, "return [_escape(part) for part in parts]", "return parts", "not escaped"),
    (
        "slack-bot",
        CHATS,
        "f\"Bearer {self.text('token')}\"},\n        )",
        '""},\n        )',
        "not_authed",
    ),
    ("telegram", CHATS, "LIMIT = 4096", "LIMIT = 40_960", "too long"),
    (
        "telegram",
        "lib/http_api.py",
        ".dumps(document).encode()",
        ".dumps(document).encode()[1:]",
        "can't parse",
    ),
]


@pytest.mark.parametrize(("channel", "file", "old", "new", "reason"), MESSAGES)
def test_notify(
    site: BundledSite,
    providers: Providers,
    channel: str,
    file: str,
    old: str,
    new: str,
    reason: str,
) -> None:
    site.mutate(file, old, new)
    settings = providers.settings(channel)
    if "starttls" in old:
        # Without TLS the server does not offer AUTH, and smtplib would stop there.
        del settings["username"]
    site.use("notify", {"channels": [settings]})
    text = HELLO["text"] + " word" * 3000
    site.direct("notify", "handle", payload={**HELLO, "text": text})
    assert any(reason in refusal for refusal in providers.provider(channel).refusals)


@pytest.mark.parametrize(
    ("old", "new", "rejected"),
    [
        ('"client_secret": self.config["client_secret"],', "", "client_secret"),
        ("refresh_token=refresh_token)", 'refresh_token="wrong")', "refresh_token"),
        ('f"Bearer {token}"', 'f"Token {token}"', "access_token"),
        ('"offset": sync.offset', '"offset": "first"', "parameters"),
    ],
)
def test_withings(site: BundledSite, withings: Withings, old: str, new: str, rejected: str) -> None:
    connect_withings(site, withings)
    site.mutate("withings/run.py", old, new)
    assert "events" not in site.direct("withings", "poll").response
    assert rejected in withings.refusals


@pytest.mark.parametrize(
    ("file", "old", "new", "rejected"),
    [
        (
            "lib/http_api.py",
            'sent["Content-Type"] = "application/x-www-form-urlencoded"',
            'sent["Content-Type"] = "application/json"',
            "action",
        ),
        (
            "lib/oauth2.py",
            'self.state["refresh_token"] = grant.refresh_token',
            "pass",
            "refresh_token",
        ),
    ],
)
def test_withings_forms_and_tokens(
    site: BundledSite, withings: Withings, file: str, old: str, new: str, rejected: str
) -> None:
    connect_withings(site, withings)
    withings.life = 1
    site.mutate(file, old, new)
    first = site.direct("withings", "poll").response
    site.direct("withings", "poll", state=first.get("state_updates"))
    assert rejected in withings.refusals


@pytest.mark.parametrize(
    ("old", "new", "rejected"),
    [
        ("for name in sorted(form)", "for name in sorted(form, reverse=True)", "signature"),
        ("str(int(time.time()))", "str(int(time.time()) - 4000)", "timestamp"),
    ],
)
def test_withings_signature(
    site: BundledSite, withings: Withings, old: str, new: str, rejected: str
) -> None:
    connect_withings(site, withings)
    site.mutate("withings/run.py", old, new)
    state = site.direct("withings", "poll").response["state_updates"]
    assert site.direct("withings", "disconnect", state=state).response["status"] == "error"
    assert withings.refusals == [rejected]
    assert withings.tokens != []


@pytest.mark.parametrize(
    ("file", "old", "new", "rejected"),
    [
        ("run.py", "refresh_token=refresh_token)", 'refresh_token="x")', "refresh_token"),
        ("run.py", 'f"Bearer {token}"', 'f"OAuth {token}"', "access_token"),
        ("sync.py", '["pageToken"] = self.page_token', '["pageToken"] = "x"', "pageToken"),
        ("sync.py", '"showDeleted": "true"}', '"showDeleted": "false"}', "changed parameters"),
    ],
)
def test_google(
    site: BundledSite, google: Google, file: str, old: str, new: str, rejected: str
) -> None:
    connect_google(site, google)
    site.mutate(f"{CALENDAR}/{file}", old, new)
    for index in range(3):
        google.put(f"e{index}")
    first = site.direct(CALENDAR, "poll").response
    site.direct(CALENDAR, "poll", state=first.get("state_updates"))
    assert rejected in google.refusals


@pytest.mark.parametrize(
    ("file", "old", "new", "rejected"),
    [
        (f"{CALENDAR}/run.py", "pkce=True", "pkce=False", "challenge"),
        ("lib/oauth2.py", '.rstrip(b"=")', "", "verifier"),
        (f"{CALENDAR}/run.py", "            code=code,", '            code="x",', "code"),
    ],
)
def test_google_authorization(
    site: BundledSite, google: Google, file: str, old: str, new: str, rejected: str
) -> None:
    connect_google(site, google, refresh_token=None)
    site.mutate(file, old, new)
    started = site.direct(CALENDAR, "authorize").response
    back = {"url": google.consent(started["result"].removeprefix("open "))}
    done = site.direct(CALENDAR, "oauth_callback", state=started["state_updates"], payload=back)
    assert done.response["status"] == "error"
    assert rejected in google.refusals


@pytest.mark.parametrize(
    ("old", "new", "rejected"),
    [
        ('f"Basic {basic}"', 'f"Bearer {basic}"', "basic"),
        ('f"Bearer {token}"', "token", "access_token"),
        ("calendarDate=day", 'calendarDate="today"', "calendarDate"),
    ],
)
def test_garmin(site: BundledSite, garmin: Garmin, old: str, new: str, rejected: str) -> None:
    connect_garmin(site, garmin)
    site.mutate("garmin/run.py", old, new)
    assert "events" not in site.direct("garmin", "poll").response
    assert rejected in garmin.refusals


@pytest.mark.parametrize(
    ("file", "old", "new", "rejected"),
    [
        ("oauth1.py", '"oauth_version": "1.0",', "", "oauth_version"),
        ("oauth1.py", "str(int(now))", "str(int(now) - 4000)", "timestamp"),
        ("oauth1.py", "{**oauth, **form}", "oauth", "signature"),
        (
            "run.py",
            'form = {"mfa_token": mfa} if mfa else {}',
            "form: dict[str, str] = {}",
            "mfa_token",
        ),
    ],
)
def test_garmin_signature(
    site: BundledSite, garmin: Garmin, file: str, old: str, new: str, rejected: str
) -> None:
    garmin.wants_mfa = True
    connect_garmin_signing(site, garmin, mfa_token=MFA_TOKEN)
    site.mutate(f"garmin/{file}", old, new)
    done = site.direct("garmin", "poll")
    assert "Garmin rejects the tokens" in done.response["error"]
    assert garmin.refusals == [rejected]


def test_garmin_nonce(site: BundledSite, garmin: Garmin) -> None:
    connect_garmin_signing(site, garmin)
    site.mutate("garmin/oauth1.py", "secrets.token_hex(16)", '"1"')
    assert site.direct("garmin", "refresh").response["status"] == "ok"
    assert site.direct("garmin", "refresh").response["retry"] is False
    assert garmin.refusals == ["nonce"]
