"""Configure the plugins that need an account with one of a fake provider."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ductile.store.jobs import plugin_state
from tests.bundled.bundled_site import BundledSite
from tests.bundled.fakes import garmin as fake_garmin
from tests.bundled.fakes import google as fake_google
from tests.bundled.fakes import withings as fake_withings
from tests.engine.site import Running

HOURS_TO_NOON = 12 - datetime.now(UTC).hour
NOON_ZONE = f"NOON{-HOURS_TO_NOON:+d}"
"""A time zone in which it is about noon, so that the date does not change during a test."""
TODAY = (datetime.now(UTC) + timedelta(hours=HOURS_TO_NOON)).date()
DAYS = [(TODAY - timedelta(days=ago)).isoformat() for ago in (3, 2, 1, 0)]


def get_state(running: Running, plugin: str) -> dict[str, Any]:
    return running.gateway.ledger.read(lambda tx: plugin_state.load_state(tx, plugin))


def connect_withings(
    site: BundledSite, fake: fake_withings.Withings, *, poll: str = "60s", **config: Any
) -> None:
    given = {
        "client_id": fake_withings.CLIENT_ID,
        "client_secret": fake_withings.CLIENT_SECRET,
        "redirect_uri": fake_withings.REDIRECT,
        "refresh_token": fake.issue().refresh,
        "base_url": fake.url,
    }
    _use(site, "withings", {**given, **config}, poll)


def connect_google(
    site: BundledSite, fake: fake_google.Google, *, poll: str = "60s", **config: Any
) -> None:
    given = {
        "client_id": fake_google.CLIENT_ID,
        "client_secret": fake_google.CLIENT_SECRET,
        "refresh_token": fake.grant(),
        "base_url": f"{fake.url}/calendar/v3",
        "token_url": f"{fake.url}/token",
    }
    _use(site, "google-calendar", {**given, **config}, poll)


def connect_garmin(
    site: BundledSite, fake: fake_garmin.Garmin, *, poll: str = "60s", **config: Any
) -> None:
    given = {
        "client_id": fake_garmin.CLIENT_ID,
        "refresh_token": fake.grant(),
        "base_url": fake.url,
        "auth_url": fake.url,
    }
    site.environ["TZ"] = NOON_ZONE
    _use(site, "garmin", {**given, **config}, poll)


def connect_garmin_signing(site: BundledSite, fake: fake_garmin.Garmin, **config: Any) -> None:
    """Configure `garmin` with an OAuth 1 token."""
    signing = {
        "client_id": None,
        "refresh_token": None,
        "consumer_key": fake_garmin.CONSUMER_KEY,
        "consumer_secret": fake_garmin.CONSUMER_SECRET,
        "oauth_token": fake_garmin.OAUTH_TOKEN,
        "oauth_token_secret": fake_garmin.OAUTH_TOKEN_SECRET,
    }
    connect_garmin(site, fake, **{**signing, **config})


def _use(site: BundledSite, name: str, config: Mapping[str, Any], poll: str) -> None:
    """Enable a plugin with the settings that are not None."""
    given = {key: value for key, value in config.items() if value is not None}
    site.use(name, given, timeouts={"poll": poll})
