"""The plugins that need an account, configured with one of a stand-in's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ductile.store.jobs import plugin_state
from tests.bundled.house import BundledSite
from tests.bundled.standins import garmin as garmin_standin
from tests.bundled.standins import google as google_standin
from tests.bundled.standins import withings as withings_standin
from tests.engine.site import Running

TO_NOON = 12 - datetime.now(UTC).hour
NOON = f"NOON{-TO_NOON:+d}"
"""A time zone in which it is about noon, so that no test meets midnight."""
TODAY = (datetime.now(UTC) + timedelta(hours=TO_NOON)).date()
DAYS = [(TODAY - timedelta(days=ago)).isoformat() for ago in (3, 2, 1, 0)]


def state_of(house: Running, plugin: str) -> dict[str, Any]:
    return house.gateway.ledger.read(lambda tx: plugin_state.load_state(tx, plugin))


def connect_withings(
    site: BundledSite, standin: withings_standin.Withings, *, poll: str = "60s", **config: Any
) -> None:
    given = {
        "client_id": withings_standin.CLIENT_ID,
        "client_secret": withings_standin.CLIENT_SECRET,
        "redirect_uri": withings_standin.REDIRECT,
        "refresh_token": standin.issue().refresh,
        "base_url": standin.url,
    }
    _use(site, "withings", {**given, **config}, poll)


def connect_google(
    site: BundledSite, standin: google_standin.Google, *, poll: str = "60s", **config: Any
) -> None:
    given = {
        "client_id": google_standin.CLIENT_ID,
        "client_secret": google_standin.CLIENT_SECRET,
        "refresh_token": standin.grant(),
        "base_url": f"{standin.url}/calendar/v3",
        "token_url": f"{standin.url}/token",
    }
    _use(site, "google-calendar", {**given, **config}, poll)


def connect_garmin(
    site: BundledSite, standin: garmin_standin.Garmin, *, poll: str = "60s", **config: Any
) -> None:
    given = {
        "client_id": garmin_standin.CLIENT_ID,
        "refresh_token": standin.grant(),
        "base_url": standin.url,
        "auth_url": standin.url,
    }
    site.environ["TZ"] = NOON
    _use(site, "garmin", {**given, **config}, poll)


def connect_garmin_signing(
    site: BundledSite, standin: garmin_standin.Garmin, **config: Any
) -> None:
    """The same with a token that signs."""
    signing = {
        "client_id": None,
        "refresh_token": None,
        "consumer_key": garmin_standin.CONSUMER_KEY,
        "consumer_secret": garmin_standin.CONSUMER_SECRET,
        "oauth_token": garmin_standin.OAUTH_TOKEN,
        "oauth_token_secret": garmin_standin.OAUTH_TOKEN_SECRET,
    }
    connect_garmin(site, standin, **{**signing, **config})


def _use(site: BundledSite, name: str, config: Mapping[str, Any], poll: str) -> None:
    """With what is not None."""
    given = {key: value for key, value in config.items() if value is not None}
    site.use(name, given, timeouts={"poll": poll})
