"""A `withings` that breaks one of the provider's rules is refused: the stand-in knows them."""

from __future__ import annotations

import time
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.bundled.accounts import connect_withings as connect
from tests.bundled.house import BundledSite
from tests.bundled.standins.withings import REDIRECT, Withings

MORNING = int(time.time()) - 86_400


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ('"action": "requesttoken"', '"action": "gettoken"', "action"),
        (
            '"client_id": self.config["client_id"],\n                    "client_secret"',
            '"client": "x",\n                    "client_secret"',
            "client_id",
        ),
        ('"client_secret": self.config["client_secret"],', "", "client_secret"),
        ('grant_type="refresh_token"', 'grant_type="password"', "grant_type"),
        ("refresh_token=refresh_token)", 'refresh_token="wrong")', "refresh_token"),
        ('f"Bearer {token}"', 'f"Token {token}"', "access_token"),
        ('"action": "getmeas"', '"action": "getmeasures"', "action"),
        ('"offset": work.offset', '"offset": "first"', "parameters"),
        ('"/measure",', '"/measures",', "path"),
    ],
)
def test_a_plugin_that_breaks_a_rule_is_refused(
    site: BundledSite, withings: Withings, old: str, new: str, refused: str
) -> None:
    connect(site, withings)
    site.mutate("withings/run.py", old, new)
    withings.weigh(1, at=MORNING)
    assert "events" not in site.direct("withings", "poll").answer
    assert refused in withings.refusals


@pytest.mark.parametrize(
    ("file", "old", "new", "refused"),
    [
        (
            "lib/web.py",
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
def test_a_library_that_breaks_a_rule_is_refused(
    site: BundledSite, withings: Withings, file: str, old: str, new: str, refused: str
) -> None:
    connect(site, withings)
    withings.life = 1
    site.mutate(file, old, new)
    first = site.direct("withings", "poll").answer
    site.direct("withings", "poll", state=first.get("state_updates"))
    assert refused in withings.refusals


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        (
            '"action": "revoke", "client_id": self.config["client_id"], "nonce": self._nonce()',
            '"action": "revoke", "client_id": self.config["client_id"], "nonce": "1"',
            "signature",
        ),
        ("for name in sorted(form)", "for name in sorted(form, reverse=True)", "signature"),
        ("str(int(time.time()))", "str(int(time.time()) - 4000)", "timestamp"),
        ('{**form, "userid": user_id}', "form", "userid"),
        ('"POST", "/v2/signature"', '"PUT", "/v2/signature"', "method"),
    ],
)
def test_a_revocation_that_is_not_signed_as_it_should_be_is_refused(
    site: BundledSite, withings: Withings, old: str, new: str, refused: str
) -> None:
    connect(site, withings)
    site.mutate("withings/run.py", old, new)
    state = site.direct("withings", "poll").answer["state_updates"]
    assert site.direct("withings", "disconnect", state=state).answer["status"] == "error"
    assert withings.refusals == [refused]
    assert withings.tokens != []


@pytest.mark.parametrize(
    ("late", "redirect", "refused"),
    [(31, REDIRECT, "code expired"), (0, "https://example.org/other", "redirect_uri")],
)
def test_a_code_that_is_late_or_for_another_address_is_refused(
    site: BundledSite, withings: Withings, late: float, redirect: str, refused: str
) -> None:
    connect(site, withings, refresh_token=None)
    asking = site.direct("withings", "authorize").answer
    nonce = parse_qs(urlsplit(asking["result"]).query)["state"][0]
    given = {"code": withings.consent(redirect), "state": nonce}
    withings.ahead = late
    state = asking["state_updates"]
    done = site.direct("withings", "oauth_callback", state=state, payload=given)
    assert done.answer["retry"] is False
    assert withings.refusals == [refused]


def test_a_grant_for_other_scopes_lets_nothing_be_read(
    site: BundledSite, withings: Withings
) -> None:
    connect(site, withings, refresh_token=withings.issue(scope="user.info").refresh)
    done = site.direct("withings", "poll")
    done = site.direct("withings", "poll", state=done.answer["state_updates"])
    assert "does not let us read measures" in done.answer["error"]
    assert withings.refusals == ["scope", "scope"]
