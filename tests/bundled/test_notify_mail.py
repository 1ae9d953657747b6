"""The mail channel of `notify` with a fake SMTP server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bundled.bundled_site import BundledSite
from tests.bundled.fakes.smtp import MailServer
from tests.bundled.providers import HELLO, SOON, Providers, mail_settings, send_notification
from tests.engine.receiver import CertificateAuthority


def test_mail_over_implicit_tls(site: BundledSite, authority: CertificateAuthority) -> None:
    with MailServer(authority.server(), implicit=True) as server:
        site.use("notify", {"channels": [mail_settings(server, authority, security="tls")]})
        with site.running() as running:
            assert send_notification(running, HELLO)["status"] == "succeeded"
        [mail] = server.mails
    assert mail.encrypted
    assert mail.message["Auto-Submitted"] == "auto-generated"
    assert server.refusals == []


def test_mail_has_its_headers_and_text(site: BundledSite, providers: Providers) -> None:
    payload = {"title": "Grüße, 世界", "text": "Zeile\n.\nEnde", "url": "https://a.example/x"}
    site.use("notify", {"channels": [providers.settings("email", reply_to="me@example.org")]})
    with site.running() as running:
        send_notification(running, {**payload, "priority": "high"})
    [mail] = providers.mail.mails
    message = mail.message
    assert message["Subject"] == "Grüße, 世界"
    assert message["From"] == "Gateway <gateway@example.org>"
    assert message["To"] == "me@example.org"
    assert message["Reply-To"] == "me@example.org"
    assert message["Importance"] == "high"
    assert mail.text.replace("\r\n", "\n") == "Zeile\n.\nEnde\nhttps://a.example/x\n"


def test_recipient_that_is_listed_twice_gets_one_mail(
    site: BundledSite, providers: Providers
) -> None:
    to = ["me@example.org", "Me <me@example.org>"]
    site.use("notify", {"channels": [providers.settings("email", to=to)]})
    with site.running() as running:
        send_notification(running, HELLO)
    assert len(providers.mail.mails) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"security": "none"}, "a password requires TLS"),
        ({"security": "ssl"}, "security must be"),
        ({"from": "no address"}, "from must be a mail address"),
        ({"from": "a@b.c\nBcc: d@e.f"}, "from must be a mail address"),
        ({"to": []}, "to must list"),
        ({"to": ["a@b.c", 7]}, "to must be a mail address"),
        ({"port": 0}, "port must be"),
        ({"hots": "x"}, "unknown setting 'hots'"),
    ],
)
def test_invalid_mail_settings_are_rejected(
    site: BundledSite, providers: Providers, settings: dict[str, Any], message: str
) -> None:
    site.use("notify", {"channels": [providers.settings("email", **settings)]})
    for command in ("handle", "health"):
        done = site.direct("notify", command, payload=HELLO)
        assert done.code == 78
        assert message in done.response["error"]
    assert providers.mail.lines == []


def test_password_without_tls_must_be_allowed(
    site: BundledSite, authority: CertificateAuthority
) -> None:
    with MailServer(plain_auth=True) as server:
        settings = mail_settings(server, authority, security="none", allow_plaintext_auth=True)
        site.use("notify", {"channels": [settings]})
        assert site.direct("notify", "handle", payload=HELLO).response["status"] == "ok"
        assert len(server.mails) == 1


def test_server_without_starttls_gets_no_password(
    site: BundledSite, authority: CertificateAuthority
) -> None:
    with MailServer(plain_auth=True) as server:
        site.use("notify", {"channels": [mail_settings(server, authority)]})
        done = site.direct("notify", "handle", payload=HELLO)
        assert done.response["retry"] is False
        assert "STARTTLS" in done.response["error"]
        assert not any(line.startswith("AUTH") for line in server.lines)


def test_server_with_an_invalid_certificate_gets_no_password(
    site: BundledSite, providers: Providers
) -> None:
    settings = providers.settings("email")
    del settings["ca_file"]
    site.use("notify", {"channels": [settings]})
    done = site.direct("notify", "handle", payload=HELLO)
    assert done.response["retry"] is False
    assert "certificate" in done.response["error"]
    assert not any(line.startswith("AUTH") for line in providers.mail.lines)


@pytest.mark.parametrize(
    ("verb", "reply", "retry"),
    [
        ("CONNECT", "421 too busy", True),
        ("CONNECT", "554 no", False),
        ("MAIL", "451 4.3.0 local error", True),
        ("MAIL", "553 5.1.8 sender unknown", False),
        ("RCPT", "450 4.2.0 greylisted", True),
        ("RCPT", "550 5.1.1 gone", False),
        ("DATA", "452 4.3.1 no room", True),
        (".", "554 5.7.1 spam", False),
        (".", "421 4.3.2 stopping", True),
        ("MAIL", "", True),
    ],
)
def test_smtp_errors_are_retried_by_code(
    site: BundledSite, providers: Providers, verb: str, reply: str, retry: bool
) -> None:
    providers.mail.next(verb, reply)
    site.use("notify", {"channels": [providers.settings("email")]})
    response = site.direct("notify", "handle", payload=HELLO).response
    assert (response["status"], response["retry"]) == ("error", retry)
    assert providers.mail.mails == []


def test_repeated_mail_has_the_same_message_id(site: BundledSite, providers: Providers) -> None:
    providers.mail.next(".", "")
    site.use("notify", {"channels": [providers.settings("email")]}, retry=SOON)
    with site.running() as running:
        assert send_notification(running, HELLO)["attempt"] == 2
    assert len(providers.mail.inbox) == 2
    assert len(set(providers.mail.inbox)) == 1


def test_rejected_recipient_does_not_affect_the_others(
    site: BundledSite, providers: Providers
) -> None:
    to = ["unknown@example.org", "you@example.org", "me@example.org"]
    site.use("notify", {"channels": [providers.settings("email", to=to)]})
    with site.running() as running:
        job = send_notification(running, HELLO)
    assert job["status"] == "succeeded"
    assert "email failed: returned code 550" in job["result"]["result"]
    assert [to for to, _ in providers.mail.inbox] == ["you@example.org", "me@example.org"]


def test_hanging_mail_server_is_aborted_at_the_deadline(
    site: BundledSite, providers: Providers
) -> None:
    providers.mail.next("EHLO", "hang")
    site.use("notify", {"channels": [providers.settings("email")]})
    done = site.direct("notify", "handle", payload=HELLO, seconds=6)
    assert done.response["error"] == "email the server did not reply in time"
