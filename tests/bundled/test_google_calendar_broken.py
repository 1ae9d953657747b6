"""A `google-calendar` that breaks one of Google's rules is refused: the stand-in knows them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bundled.accounts import connect_google as connect
from tests.bundled.house import BundledSite
from tests.bundled.standins.google import Google

NAME = "google-calendar"


@pytest.mark.parametrize(
    ("file", "old", "new", "refused"),
    [
        ("run.py", 'form={**client, **fields}', 'query={**client, **fields}', "client"),
        ("run.py", '("client_id", "client_secret")}', '("client_id",)}', "client"),
        ("run.py", '.send("POST", ""', '.send("PUT", ""', "method"),
        ("run.py", 'grant_type="refresh_token"', 'grant_type="refresh"', "grant_type"),
        ("run.py", "refresh_token=refresh_token)", 'refresh_token="x")', "refresh_token"),
        ("run.py", 'f"Bearer {token}"', 'f"OAuth {token}"', "access_token"),
        ("run.py", '.send("GET"', '.send("POST"', "scope"),
        ("sync.py", "PAGE = 250", "PAGE = 2501", "maxResults"),
        ("sync.py", '["pageToken"] = self.page_token', '["pageToken"] = "x"', "pageToken"),
        ("sync.py", 'query["syncToken"] = self.sync_token\n        else:',
         'query["syncToken"] = self.sync_token\n        if True:', "restrictions"),
        ("sync.py", '"showDeleted": "true"}', '"showDeleted": "false"}', "changed parameters"),
    ],
)  # fmt: skip
def test_a_plugin_that_breaks_a_rule_is_refused(
    site: BundledSite, google: Google, file: str, old: str, new: str, refused: str
) -> None:
    connect(site, google)
    site.mutate(f"{NAME}/{file}", old, new)
    for index in range(3):
        google.put(f"e{index}")
    first = site.direct(NAME, "poll").answer
    site.direct(NAME, "poll", state=first.get("state_updates"))
    assert refused in google.refusals


@pytest.mark.parametrize(
    ("file", "old", "new", "refused"),
    [
        (f"{NAME}/run.py", "pkce=True", "pkce=False", "challenge"),
        (f"{NAME}/run.py", "code_verifier=verifier,", "", "verifier"),
        ("lib/oauth2.py", "hashlib.sha256(verifier", "hashlib.sha1(verifier", "verifier"),
        ("lib/oauth2.py", '.rstrip(b"=")', "", "verifier"),
        (f"{NAME}/run.py", "            redirect_uri=_redirect(calendar),", "", "redirect_uri"),
        (f"{NAME}/run.py", "            code=code,", '            code="x",', "code"),
    ],
)
def test_an_exchange_that_breaks_a_rule_is_refused(
    site: BundledSite, google: Google, file: str, old: str, new: str, refused: str
) -> None:
    connect(site, google, refresh_token=None)
    site.mutate(file, old, new)
    asking = site.direct(NAME, "authorize").answer
    back = {"url": google.consent(asking["result"].removeprefix("open "))}
    done = site.direct(NAME, "oauth_callback", state=asking["state_updates"], payload=back)
    assert done.answer["status"] == "error"
    assert refused in google.refusals


def test_without_offline_access_there_is_no_refresh_token_and_that_is_said(
    site: BundledSite, google: Google
) -> None:
    connect(site, google, refresh_token=None)
    site.mutate(f"{NAME}/run.py", '"access_type": "offline",', "")
    asking = site.direct(NAME, "authorize").answer
    back = {"url": google.consent(asking["result"].removeprefix("open "))}
    done = site.direct(NAME, "oauth_callback", state=asking["state_updates"], payload=back)
    assert "no refresh token" in done.answer["error"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"refresh_token": "revoked"}, "no longer accepts the authorization"),
        ({"client_secret": "wrong"}, "invalid_client"),
        ({"calendar_id": "somebody@example.org"}, "notFound"),
    ],
)
def test_what_only_a_person_can_mend_is_not_tried_again(
    site: BundledSite, google: Google, config: dict[str, Any], said: str
) -> None:
    connect(site, google, **config)
    done = site.direct(NAME, "poll")
    assert done.answer["retry"] is False
    assert said in done.answer["error"]


def test_a_grant_for_another_scope_is_refused(site: BundledSite, google: Google) -> None:
    connect(site, google, refresh_token=google.grant("https://www.googleapis.com/auth/drive"))
    done = site.direct(NAME, "poll")
    assert "insufficientPermissions" in done.answer["error"]
    assert google.refusals == ["scope"]
