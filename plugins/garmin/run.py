#!/usr/bin/env python3
"""Emits daily totals and weigh-ins from Garmin Connect, once each. See README.md."""

from __future__ import annotations

import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
import health
import oauth1
import oauth2
from http_api import ApiClient, RateLimited, Reply
from protocol import ConfigError, Failure, Request, Response, serve
from redact import find_secrets

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

API = "https://connectapi.garmin.com"
AUTH = "https://diauth.garmin.com"
AGENT = "ductile-garmin/1.0"
EXCHANGE_PATH = "/oauth-service/oauth/exchange/user/2.0"
REFRESH_PATH = "/di-oauth2-service/oauth/token"
DAYS_BACK = 3
MAX_DAYS = 31
MAX_READINGS = 1000
"""Maximum number per run; the next run emits the rest."""
REQUEST_RESERVE = 8.0
"""Seconds that must be left to request another day."""
BY_REFRESH_TOKEN = ("client_id", "refresh_token")
BY_SIGNATURE = ("consumer_key", "consumer_secret", "oauth_token", "oauth_token_secret")
DAILY_MEASURES = {
    "totalSteps": "steps",
    "totalDistanceMeters": "distance",
    "totalKilocalories": "calories",
    "activeKilocalories": "active_calories",
    "floorsAscended": "floors",
    "restingHeartRate": "resting_heart_rate",
    "maxHeartRate": "max_heart_rate",
    "averageStressLevel": "stress",
    "bodyBatteryMostRecentValue": "body_battery",
    "sleepingSeconds": "sleep",
}
WEIGH_IN_MEASURES = {
    "weight": ("weight", 1000),
    "bmi": ("bmi", 1),
    "bodyFat": ("fat_ratio", 1),
    "bodyWater": ("body_water", 1),
    "boneMass": ("bone_mass", 1000),
    "muscleMass": ("muscle_mass", 1000),
    "visceralFat": ("visceral_fat", 1),
}


class Garmin:
    """A client of Garmin Connect for one run."""

    def __init__(self, request: Request) -> None:
        self.config = config = request.config
        self.api_url: str = (config.get("base_url") or API).rstrip("/")
        agent = config.get("user_agent") or AGENT
        self.site = ApiClient(self.api_url, request.remaining, agent=agent)
        self.auth = ApiClient(config.get("auth_url") or AUTH, request.remaining, agent=agent)
        self.signs = _uses_signature(config)
        seed = {"refresh_token": config["oauth_token" if self.signs else "refresh_token"]}
        self.session = oauth2.Session(seed, request.state, time.time(), renew=self._refresh)

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """A document, empty if there is none; a rejected token is refreshed once."""
        reply = self._request(self.session.access_token(), path, query)
        if reply.status == 401:
            reply = self._request(self.session.renew(), path, query)
        if reply.status == 204 or (reply.status == 200 and not reply.body):
            return {}
        if reply.status in (401, 403):
            reason = f"{reply.host} denies access (status {reply.status})"
            raise Failure(reason, retry=False, details=self._quote(reply))
        return self._check_status(reply).json()

    def display_name(self) -> str:
        """The account name in Garmin's URLs, requested once."""
        known = self.session.state.get("display_name")
        name = known or self.get("/userprofile-service/socialProfile").get("displayName")
        if not isinstance(name, str) or not name:
            raise Failure("Garmin did not return the account name")
        self.session.state["display_name"] = name
        return name

    def _request(self, token: str, path: str, query: Mapping[str, str]) -> Reply:
        headers = {"Authorization": f"Bearer {token}"}
        return self.site.send("GET", path, query=query, headers=headers)

    def _refresh(self, refresh_token: str) -> oauth2.Grant:
        if self.signs:
            return self._exchange()
        import base64

        client = self.config["client_id"]
        basic = base64.b64encode(f"{client}:".encode()).decode()
        reply = self.auth.send(
            "POST",
            REFRESH_PATH,
            form={
                "grant_type": "refresh_token",
                "client_id": client,
                "refresh_token": refresh_token,
            },
            headers={"Authorization": f"Basic {basic}"},
        )
        grant = self._read_grant(reply)
        self.site.insist = True
        return grant

    def _exchange(self) -> oauth2.Grant:
        mfa = self.config.get("mfa_token")
        form = {"mfa_token": mfa} if mfa else {}
        signed = oauth1.sign_request(
            "POST",
            f"{self.api_url}{EXCHANGE_PATH}",
            form,
            consumer=(self.config["consumer_key"], self.config["consumer_secret"]),
            token=(self.config["oauth_token"], self.config["oauth_token_secret"]),
            now=time.time(),
        )
        reply = self.site.send("POST", EXCHANGE_PATH, form=form, headers={"Authorization": signed})
        grant = self._read_grant(reply)
        # The signed token is used for each refresh and does not change.
        grant.refresh_token = None
        return grant

    def _read_grant(self, reply: Reply) -> oauth2.Grant:
        if reply.status in (400, 401, 403):
            raise Failure(
                f"Garmin rejects the tokens (status {reply.status}); log in again with an "
                "open client and put its tokens into the configuration",
                retry=False,
                details=self._quote(reply),
            )
        return oauth2.Grant(self._check_status(reply).json(), reply.host)

    def _check_status(self, reply: Reply) -> Reply:
        if reply.status == 429:
            raise RateLimited(reply.host, reply.retry_after(oauth2.get_backoff(self.session.state)))
        if reply.status != 200:
            raise Failure(
                f"{reply.host} returned status {reply.status}", details=self._quote(reply)
            )
        return reply

    def _quote(self, reply: Reply) -> str:
        return reply.quote(find_secrets(self.config, self.session.state))


def _uses_signature(config: Mapping[str, Any]) -> bool:
    """Whether the configuration has an OAuth 1 token instead of a refresh token."""
    signs = config.get("oauth_token") is not None
    oauth2.require_texts(config, *(BY_SIGNATURE if signs else BY_REFRESH_TOKEN))
    return signs


def _list_days(config: Mapping[str, Any], now: float) -> list[str]:
    """The days to fetch, oldest first, in the time zone of the gateway."""
    from datetime import datetime, timedelta

    back = config.get("days_back", DAYS_BACK)
    if isinstance(back, bool) or not isinstance(back, int) or not 1 <= back <= MAX_DAYS:
        raise ConfigError(f"config.days_back must be a whole number from 1 to {MAX_DAYS}")
    today = datetime.fromtimestamp(now).astimezone().date()
    days = [(today - timedelta(days=ago)).isoformat() for ago in range(back, 0, -1)]
    return [*days, today.isoformat()] if config.get("include_today") is True else days


def _read_day(summary: Mapping[str, Any], day: str) -> dict[str, Any] | None:
    """The reading of a day; None if nothing was measured."""
    measures = {
        name: summary[key] for key, name in DAILY_MEASURES.items() if _is_measured(summary.get(key))
    }
    return _build_reading(f"daily:{day}", f"{day}T23:59:59Z", day, measures)


def _read_weigh_ins(document: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The readings, and the number of entries that are not valid."""
    entries = document.get("dateWeightList")
    readings, unreadable = [], 0
    for entry in entries if isinstance(entries, list) else ():
        try:
            at = int(entry.get("timestampGMT") or entry["date"]) / 1000
            measures = {
                name: round(entry[key] / scale, 3)
                for key, (name, scale) in WEIGH_IN_MEASURES.items()
                if _is_measured(entry.get(key))
            }
            record, day = f"weight:{int(entry['samplePk'])}", str(entry["calendarDate"])
            reading = _build_reading(record, health.format_utc(at), day, measures)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError):
            unreadable += 1
            continue
        if reading is not None:
            readings.append(reading)
    return readings, unreadable


def _is_measured(value: Any) -> bool:
    """Garmin returns null or a negative number for a missing measurement."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _build_reading(
    record: str, measured_at: str, day: str, measures: Mapping[str, float]
) -> dict[str, Any] | None:
    if not measures:
        return None
    return health.build_reading(
        provider="garmin",
        record=record,
        revision=_hash_values(measures),
        measured_at=measured_at,
        date=day,
        measures=measures,
    )


def _hash_values(measures: Mapping[str, float]) -> str:
    """A hash of the values, because Garmin has no revision numbers."""
    import hashlib
    import json

    return hashlib.sha256(json.dumps(measures, sort_keys=True).encode()).hexdigest()[:12]


def poll(request: Request) -> Response:
    wait = oauth2.check_wait(request.state, time.time())
    if wait is not None:
        return wait
    garmin = Garmin(request)
    return oauth2.keep_tokens(garmin.session, lambda: _fetch(request, garmin))


def _fetch(request: Request, garmin: Garmin) -> Response:
    from urllib.parse import quote

    session = garmin.session
    days = _list_days(request.config, session.now)
    name = quote(garmin.display_name(), safe="")
    weights = garmin.get("/weight-service/weight/dateRange", startDate=days[0], endDate=days[-1])
    readings, unreadable = _read_weigh_ins(weights)
    resumed = session.state.pop("next_day", None)
    first = days.index(resumed) if resumed in days else 0
    for index, day in enumerate(order := days[first:] + days[:first]):
        if index and request.remaining() < REQUEST_RESERVE:
            session.state["next_day"] = day
            break
        summary = garmin.get(f"/usersummary-service/usersummary/daily/{name}", calendarDate=day)
        if summary.get("privacyProtected") is True:
            raise Failure(
                "the privacy settings of the account hide its daily summaries", retry=False
            )
        readings += filter(None, [_read_day(summary, day)])
    response = _build_response(request, session.state, readings, days[0])
    if unreadable:
        response.log("warn", f"{unreadable} weigh-ins are not valid and were skipped")
    if "next_day" in session.state:
        response.log(
            "warn", f"there was no time left for {len(order) - index} of {len(order)} days"
        )
    return response


def _build_response(
    request: Request, session: Mapping[str, Any], readings: list[dict[str, Any]], first: str
) -> Response:
    """Emit new readings, and store the revisions of the days that are fetched again."""
    state: dict[str, Any] = dict(session)
    known: dict[str, list[str]] = state.get("known") or {}
    state["known"] = {record: entry for record, entry in known.items() if entry[0] >= first}
    response = Response("")
    for reading in sorted(readings, key=lambda one: str(one["measured_at"])):
        entry = [reading["date"], reading["revision"]]
        if len(response.events) == MAX_READINGS:
            break
        if known.get(reading["record"]) != entry:
            health.emit_reading(response, request.instance, reading)
            state["known"][reading["record"]] = entry
            state["latest"] = health.update_latest(state, reading)
    response.result = f"new readings: {len(response.events)}"
    oauth2.clear_wait(state)
    response.state = state if state != request.state else None
    return response


def refresh(request: Request) -> Response:
    garmin = Garmin(request)
    garmin.session.renew()
    return Response("the tokens were refreshed", state=garmin.session.state)


def init(request: Request) -> Response:
    if not request.config:
        return Response("there is no configuration yet")
    Garmin(request)
    _list_days(request.config, time.time())
    return Response("the configuration is valid")


def report(request: Request) -> Response:
    state = Garmin(request).session.state
    known = state.get("latest") or {}
    newest = max((one["measured_at"] for one in known.values()), default="never")
    return Response(f"configured; newest reading: {newest}")


if __name__ == "__main__":
    serve(
        {
            "poll": poll,
            "handle": poll,
            "refresh": refresh,
            "init": init,
            "health": report,
        }
    )
