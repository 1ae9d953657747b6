#!/usr/bin/env python3
"""Daily totals and weigh-ins from Garmin Connect, told once each. See README.md."""

from __future__ import annotations

import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
import health
import oauth1
import oauth2
from protocol import Answer, Failure, Misconfigured, Request, serve
from quoting import secrets_in
from web import Busy, Reply, Site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

API = "https://connectapi.garmin.com"
AUTH = "https://diauth.garmin.com"
AGENT = "ductile-garmin/1.0"
EXCHANGE = "/oauth-service/oauth/exchange/user/2.0"
RENEWAL = "/di-oauth2-service/oauth/token"
DAYS_BACK = 3
MOST_DAYS = 31
MOST_READINGS = 1000
"""In one run; what is left is told by the next."""
SLOWEST_REQUEST = 8.0
"""Seconds that must be left to ask for another day."""
BY_REFRESH_TOKEN = ("client_id", "refresh_token")
BY_SIGNATURE = ("consumer_key", "consumer_secret", "oauth_token", "oauth_token_secret")
OF_A_DAY = {
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
OF_A_WEIGH_IN = {
    "weight": ("weight", 1000),
    "bmi": ("bmi", 1),
    "bodyFat": ("fat_ratio", 1),
    "bodyWater": ("body_water", 1),
    "boneMass": ("bone_mass", 1000),
    "muscleMass": ("muscle_mass", 1000),
    "visceralFat": ("visceral_fat", 1),
}


class Garmin:
    """Garmin Connect for one run."""

    def __init__(self, request: Request) -> None:
        self.config = config = request.config
        self.api_url: str = (config.get("base_url") or API).rstrip("/")
        agent = config.get("user_agent") or AGENT
        self.site = Site(self.api_url, request.remaining, agent=agent)
        self.auth = Site(config.get("auth_url") or AUTH, request.remaining, agent=agent)
        self.signs = _signs(config)
        seed = {"refresh_token": config["oauth_token" if self.signs else "refresh_token"]}
        self.session = oauth2.Session(seed, request.state, time.time(), renew=self._renewed)

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """One document, empty where there is none; a token that is refused is renewed once."""
        reply = self._got(self.session.access_token(), path, query)
        if reply.status == 401:
            reply = self._got(self.session.renew(), path, query)
        if reply.status == 204 or (reply.status == 200 and not reply.body):
            return {}
        if reply.status in (401, 403):
            why = f"{reply.host} does not let us in ({reply.status})"
            raise Failure(why, retry=False, said=self._quoted(reply))
        return self._good(reply).json()

    def display_name(self) -> str:
        """The name that Garmin's addresses go by, asked for once."""
        known = self.session.state.get("display_name")
        name = known or self.get("/userprofile-service/socialProfile").get("displayName")
        if not isinstance(name, str) or not name:
            raise Failure("Garmin does not tell the account's name")
        self.session.state["display_name"] = name
        return name

    def _got(self, token: str, path: str, query: Mapping[str, str]) -> Reply:
        headers = {"Authorization": f"Bearer {token}"}
        return self.site.send("GET", path, query=query, headers=headers)

    def _renewed(self, refresh_token: str) -> oauth2.Grant:
        if self.signs:
            return self._exchanged()
        import base64

        client = self.config["client_id"]
        basic = base64.b64encode(f"{client}:".encode()).decode()
        reply = self.auth.send(
            "POST",
            RENEWAL,
            form={
                "grant_type": "refresh_token",
                "client_id": client,
                "refresh_token": refresh_token,
            },
            headers={"Authorization": f"Basic {basic}"},
        )
        grant = self._granted(reply)
        self.site.insist = True
        return grant

    def _exchanged(self) -> oauth2.Grant:
        mfa = self.config.get("mfa_token")
        form = {"mfa_token": mfa} if mfa else {}
        signed = oauth1.authorization(
            "POST",
            f"{self.api_url}{EXCHANGE}",
            form,
            consumer=(self.config["consumer_key"], self.config["consumer_secret"]),
            token=(self.config["oauth_token"], self.config["oauth_token_secret"]),
            now=time.time(),
        )
        reply = self.site.send("POST", EXCHANGE, form=form, headers={"Authorization": signed})
        grant = self._granted(reply)
        # The signed token is what renews here, and it stays the same.
        grant.refresh_token = None
        return grant

    def _granted(self, reply: Reply) -> oauth2.Grant:
        if reply.status in (400, 401, 403):
            raise Failure(
                f"Garmin no longer accepts these tokens ({reply.status}); log in anew with an "
                "open client and put its tokens into the configuration",
                retry=False,
                said=self._quoted(reply),
            )
        return oauth2.Grant(self._good(reply).json(), reply.host)

    def _good(self, reply: Reply) -> Reply:
        if reply.status == 429:
            raise Busy(reply.host, reply.retry_after(oauth2.backoff(self.session.state)))
        if reply.status != 200:
            raise Failure(f"{reply.host} answered {reply.status}", said=self._quoted(reply))
        return reply

    def _quoted(self, reply: Reply) -> str:
        return reply.quoted(secrets_in(self.config, self.session.state))


def _signs(config: Mapping[str, Any]) -> bool:
    """Whether the configuration holds a token that signs, rather than one that refreshes."""
    signs = config.get("oauth_token") is not None
    oauth2.required(config, *(BY_SIGNATURE if signs else BY_REFRESH_TOKEN))
    return signs


def _days(config: Mapping[str, Any], now: float) -> list[str]:
    """The days to look at, the oldest first, by the gateway's own calendar."""
    from datetime import datetime, timedelta

    back = config.get("days_back", DAYS_BACK)
    if isinstance(back, bool) or not isinstance(back, int) or not 1 <= back <= MOST_DAYS:
        raise Misconfigured(f"config.days_back must be a whole number from 1 to {MOST_DAYS}")
    today = datetime.fromtimestamp(now).astimezone().date()
    days = [(today - timedelta(days=ago)).isoformat() for ago in range(back, 0, -1)]
    return [*days, today.isoformat()] if config.get("include_today") is True else days


def _day(summary: Mapping[str, Any], day: str) -> dict[str, Any] | None:
    """The reading of a day; None where nothing was measured."""
    measures = {
        name: summary[key] for key, name in OF_A_DAY.items() if _is_measured(summary.get(key))
    }
    return _reading(f"daily:{day}", f"{day}T23:59:59Z", day, measures)


def _weigh_ins(document: Mapping[str, Any]) -> tuple[list[dict[str, Any]], int]:
    """The readings, and how many entries are none that we understand."""
    entries = document.get("dateWeightList")
    readings, unreadable = [], 0
    for entry in entries if isinstance(entries, list) else ():
        try:
            at = int(entry.get("timestampGMT") or entry["date"]) / 1000
            measures = {
                name: round(entry[key] / scale, 3)
                for key, (name, scale) in OF_A_WEIGH_IN.items()
                if _is_measured(entry.get(key))
            }
            record, day = f"weight:{int(entry['samplePk'])}", str(entry["calendarDate"])
            reading = _reading(record, health.utc(at), day, measures)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, OSError):
            unreadable += 1
            continue
        if reading is not None:
            readings.append(reading)
    return readings, unreadable


def _is_measured(value: Any) -> bool:
    """Garmin writes null, or a number below zero, for what was not measured."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _reading(
    record: str, measured_at: str, day: str, measures: Mapping[str, float]
) -> dict[str, Any] | None:
    if not measures:
        return None
    return health.reading(
        provider="garmin",
        record=record,
        revision=_revision(measures),
        measured_at=measured_at,
        date=day,
        measures=measures,
    )


def _revision(measures: Mapping[str, float]) -> str:
    """Garmin numbers no versions: a reading has changed when its values have."""
    import hashlib
    import json

    return hashlib.sha256(json.dumps(measures, sort_keys=True).encode()).hexdigest()[:12]


def poll(request: Request) -> Answer:
    told_to_wait = oauth2.waiting(request.state, time.time())
    if told_to_wait is not None:
        return told_to_wait
    garmin = Garmin(request)
    return oauth2.kept(garmin.session, lambda: _fetched(request, garmin))


def _fetched(request: Request, garmin: Garmin) -> Answer:
    from urllib.parse import quote

    session = garmin.session
    days = _days(request.config, session.now)
    name = quote(garmin.display_name(), safe="")
    weights = garmin.get("/weight-service/weight/dateRange", startDate=days[0], endDate=days[-1])
    readings, unreadable = _weigh_ins(weights)
    resumed = session.state.pop("next_day", None)
    first = days.index(resumed) if resumed in days else 0
    for index, day in enumerate(order := days[first:] + days[:first]):
        if index and request.remaining() < SLOWEST_REQUEST:
            session.state["next_day"] = day
            break
        summary = garmin.get(f"/usersummary-service/usersummary/daily/{name}", calendarDate=day)
        if summary.get("privacyProtected") is True:
            raise Failure("Garmin hides this account's days from us", retry=False)
        readings += filter(None, [_day(summary, day)])
    answer = _told(request, session.state, readings, days[0])
    if unreadable:
        answer.log("warn", f"weigh-ins that could not be read: {unreadable}")
    if "next_day" in session.state:
        answer.log("warn", f"no time was left for {len(order) - index} of {len(order)} days")
    return answer


def _told(
    request: Request, session: Mapping[str, Any], readings: list[dict[str, Any]], first: str
) -> Answer:
    """Emit what is new; remember what was said of the days that will be looked at again."""
    state: dict[str, Any] = dict(session)
    known: dict[str, list[str]] = state.get("known") or {}
    state["known"] = {record: entry for record, entry in known.items() if entry[0] >= first}
    answer = Answer("")
    for reading in sorted(readings, key=lambda one: str(one["measured_at"])):
        entry = [reading["date"], reading["revision"]]
        if len(answer.events) == MOST_READINGS:
            break
        if known.get(reading["record"]) != entry:
            health.emit(answer, request.instance, reading)
            state["known"][reading["record"]] = entry
            state["latest"] = health.latest(state, reading)
    answer.result = f"new readings: {len(answer.events)}"
    oauth2.rested(state)
    answer.state = state if state != request.state else None
    return answer


def refresh(request: Request) -> Answer:
    garmin = Garmin(request)
    garmin.session.renew()
    return Answer("the tokens were renewed", state=garmin.session.state)


def init(request: Request) -> Answer:
    if not request.config:
        return Answer("there is no configuration yet")
    Garmin(request)
    _days(request.config, time.time())
    return Answer("the configuration is good")


def report(request: Request) -> Answer:
    state = Garmin(request).session.state
    known = state.get("latest") or {}
    newest = max((one["measured_at"] for one in known.values()), default="never")
    return Answer(f"configured; the newest reading is of {newest}")


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
