"""Mail by `notify`, against a server that keeps to the standards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bundled.house import BundledSite
from tests.bundled.standins.smtp import MailServer
from tests.bundled.town import HELLO, SOON, Town, mailing, tell
from tests.engine.receiver import CertificateAuthority


def test_mail_over_tls_from_the_first_byte(
    site: BundledSite, authority: CertificateAuthority
) -> None:
    with MailServer(authority.server(), implicit=True) as server:
        site.use("notify", {"channels": [mailing(server, authority, security="tls")]})
        with site.running() as house:
            assert tell(house, HELLO)["status"] == "succeeded"
        [mail] = server.mails
    assert mail.encrypted
    assert mail.message["Auto-Submitted"] == "auto-generated"
    assert server.refusals == []


def test_mail_says_who_what_and_where(site: BundledSite, town: Town) -> None:
    payload = {"title": "Grüße, 世界", "text": "Zeile\n.\nEnde", "url": "https://a.example/x"}
    site.use("notify", {"channels": [town.settings("email", reply_to="me@example.org")]})
    with site.running() as house:
        tell(house, {**payload, "priority": "high"})
    [mail] = town.mail.mails
    message = mail.message
    assert message["Subject"] == "Grüße, 世界"
    assert message["From"] == "Gateway <gateway@example.org>"
    assert message["To"] == "me@example.org"
    assert message["Reply-To"] == "me@example.org"
    assert message["Importance"] == "high"
    assert mail.text.replace("\r\n", "\n") == "Zeile\n.\nEnde\nhttps://a.example/x\n"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"security": "none"}, "a password is not sent without TLS"),
        ({"security": "ssl"}, "security must be"),
        ({"from": "nobody"}, "from must be a mail address"),
        ({"from": "a@b.c\nBcc: d@e.f"}, "from must be a mail address"),
        ({"to": []}, "to must name"),
        ({"to": ["a@b.c", 7]}, "to must be a mail address"),
        ({"port": 0}, "port must be"),
        ({"hots": "x"}, "unknown setting 'hots'"),
    ],
)
def test_a_mail_channel_that_cannot_work_is_refused(
    site: BundledSite, town: Town, settings: dict[str, Any], said: str
) -> None:
    site.use("notify", {"channels": [town.settings("email", **settings)]})
    for command in ("handle", "health"):
        done = site.direct("notify", command, payload=HELLO)
        assert done.code == 78
        assert said in done.answer["error"]
    assert town.mail.said == []


def test_a_password_goes_in_the_clear_only_where_that_is_said(
    site: BundledSite, authority: CertificateAuthority
) -> None:
    with MailServer(plain_auth=True) as server:
        settings = mailing(server, authority, security="none", allow_plaintext_auth=True)
        site.use("notify", {"channels": [settings]})
        assert site.direct("notify", "handle", payload=HELLO).answer["status"] == "ok"
        assert len(server.mails) == 1


def test_a_server_without_starttls_gets_no_password(
    site: BundledSite, authority: CertificateAuthority
) -> None:
    with MailServer(plain_auth=True) as server:
        site.use("notify", {"channels": [mailing(server, authority)]})
        done = site.direct("notify", "handle", payload=HELLO)
        assert done.answer["retry"] is False
        assert "STARTTLS" in done.answer["error"]
        assert not any(line.startswith("AUTH") for line in server.said)


def test_a_server_with_a_strange_certificate_gets_no_password(
    site: BundledSite, town: Town
) -> None:
    settings = town.settings("email")
    del settings["ca_file"]
    site.use("notify", {"channels": [settings]})
    done = site.direct("notify", "handle", payload=HELLO)
    assert done.answer["retry"] is False
    assert "certificate" in done.answer["error"]
    assert not any(line.startswith("AUTH") for line in town.mail.said)


@pytest.mark.parametrize(
    ("verb", "reply", "retry"),
    [
        ("CONNECT", "421 too busy", True),
        ("CONNECT", "554 no", False),
        ("AUTH", "454 4.7.0 try later", True),
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
def test_a_mail_servers_refusals(
    site: BundledSite, town: Town, verb: str, reply: str, retry: bool
) -> None:
    town.mail.next(verb, reply)
    site.use("notify", {"channels": [town.settings("email")]}, retry=SOON)
    with site.running() as house:
        job = tell(house, HELLO)
    assert job["status"] == ("succeeded" if retry else "failed")
    assert len(town.mail.mails) == (1 if retry else 0)


def test_a_mail_whose_acceptance_is_lost_comes_again_under_the_same_id(
    site: BundledSite, town: Town
) -> None:
    town.mail.next(".", "")
    site.use("notify", {"channels": [town.settings("email")]}, retry=SOON)
    with site.running() as house:
        assert tell(house, HELLO)["attempt"] == 2
    assert len(town.mail.inbox) == 2
    assert len(set(town.mail.inbox)) == 1


def test_one_recipient_who_is_refused_does_not_hurt_the_other(
    site: BundledSite, town: Town
) -> None:
    to = ["nobody@example.org", "you@example.org", "me@example.org"]
    site.use("notify", {"channels": [town.settings("email", to=to)]})
    with site.running() as house:
        job = tell(house, HELLO)
    assert job["status"] == "succeeded"
    assert "email was given up: answered 550" in job["result"]["result"]
    assert [to for to, _ in town.mail.inbox] == ["you@example.org", "me@example.org"]


def test_a_server_that_hangs_costs_no_more_than_its_time(site: BundledSite, town: Town) -> None:
    town.mail.next("EHLO", "hang")
    site.use("notify", {"channels": [town.settings("email")]})
    done = site.direct("notify", "handle", payload=HELLO, seconds=6)
    assert done.answer["error"] == "email the server did not answer in time"
