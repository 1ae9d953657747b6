#!/usr/bin/env python3
"""Measures from Withings: fetched once each, with tokens that are never lost. See README.md."""

from __future__ import annotations

import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
import health
import oauth2
from protocol import Answer, Failure, Misconfigured, Request, serve
from quoting import hidden, secrets_in
from web import Busy, Reply, Site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

API = "https://wbsapi.withings.net"
CONSENT = "https://account.withings.com/oauth2_user/authorize2"
SCOPE = "user.metrics"
AGENT = "ductile-withings/1.0"
MEASURES = {
    1: "weight",
    4: "height",
    5: "fat_free_mass",
    6: "fat_ratio",
    8: "fat_mass",
    9: "diastolic",
    10: "systolic",
    11: "pulse",
    12: "temperature",
    54: "spo2",
    71: "body_temperature",
    73: "skin_temperature",
    76: "muscle_mass",
    77: "hydration",
    88: "bone_mass",
    91: "pulse_wave_velocity",
    123: "vo2_max",
    170: "visceral_fat",
    227: "metabolic_age",
}
SINCE_DAYS = 30
MOST_READINGS = 1000
"""In one run; what is left is fetched by the next."""
SLOWEST_PAGE = 25.0
"""Seconds that must be left to ask for another page."""
LONGEST_REASON = 1000
OK = 0
TOKEN_REFUSED = (100, 101, 102, 200, 401)
FORBIDDEN = (214, 277, 403, 2553, 2554, 2555)
INVALID = 503
TOO_MANY = 601


class Told:
    """What Withings answered: a status of its own, what was asked for, or why not."""

    def __init__(self, status: int, body: dict[str, Any], said: str) -> None:
        self.status, self.body, self.said = status, body, said


class Withings:
    """Withings for one run."""

    def __init__(self, request: Request) -> None:
        self.config = request.config
        self.site = Site(self.config.get("base_url") or API, request.remaining, agent=AGENT)
        self.session = oauth2.Session(
            request.config, request.state, time.time(), renew=self._renewed
        )

    def grant(self, **fields: str) -> oauth2.Grant:
        """Ask for tokens, by code or by refresh token."""
        told = self._told(
            self.site.send(
                "POST",
                "/v2/oauth2",
                form={
                    "action": "requesttoken",
                    "client_id": self.config["client_id"],
                    "client_secret": self.config["client_secret"],
                    **fields,
                },
            )
        )
        why = f"Withings gives out no tokens (status {told.status})"
        if told.status in (INVALID, *TOKEN_REFUSED):
            raise oauth2.Unauthorized(why, said=told.said)
        if told.status != OK:
            raise Failure(why, said=told.said)
        if told.body.get("userid") is not None:
            self.session.state["user_id"] = str(told.body["userid"])
        return oauth2.Grant(told.body, self.site.host)

    def page(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """One page of measures; a token that is refused is renewed once."""
        told = self._measures(self.session.access_token(), fields)
        if told.status in TOKEN_REFUSED:
            told = self._measures(self.session.renew(), fields)
        if told.status in TOKEN_REFUSED:
            why = "Withings refuses a token that it just gave out"
            raise oauth2.Unauthorized(why, said=told.said)
        if told.status in FORBIDDEN:
            why = f"Withings does not let us read measures (status {told.status})"
            raise oauth2.Unauthorized(why, said=told.said)
        if told.status != OK:
            raise Failure(f"Withings gives out no measures (status {told.status})", said=told.said)
        return told.body

    def revoke(self, user_id: str) -> None:
        """Have the authorization forgotten; the one call that Withings wants signed."""
        form = {"action": "revoke", "client_id": self.config["client_id"], "nonce": self._nonce()}
        form["signature"] = self._signature(form)
        told = self._told(self.site.send("POST", "/v2/oauth2", form={**form, "userid": user_id}))
        if told.status != OK:
            why = f"Withings does not revoke the authorization (status {told.status})"
            raise Failure(why, said=told.said)

    def _renewed(self, refresh_token: str) -> oauth2.Grant:
        grant = self.grant(grant_type="refresh_token", refresh_token=refresh_token)
        self.site.insist = True
        return grant

    def _measures(self, token: str, fields: Mapping[str, Any]) -> Told:
        return self._told(
            self.site.send(
                "POST",
                "/measure",
                form={"action": "getmeas", "category": 1, **fields},
                headers={"Authorization": f"Bearer {token}"},
            )
        )

    def _nonce(self) -> str:
        form = {
            "action": "getnonce",
            "client_id": self.config["client_id"],
            "timestamp": str(int(time.time())),
        }
        form["signature"] = self._signature(form)
        told = self._told(self.site.send("POST", "/v2/signature", form=form))
        if told.status != OK or not isinstance(told.body.get("nonce"), str):
            why = f"Withings gives out no nonce (status {told.status}); is the clock right?"
            raise Failure(why, said=told.said)
        return str(told.body["nonce"])

    def _signature(self, form: Mapping[str, str]) -> str:
        """HMAC-SHA256 over the values, in the order of their names."""
        import hashlib
        import hmac

        text = ",".join(form[name] for name in sorted(form))
        return hmac.new(
            self.config["client_secret"].encode(), text.encode(), hashlib.sha256
        ).hexdigest()

    def _told(self, reply: Reply) -> Told:
        """What stands in the body; HTTP itself is always 200."""
        secrets = secrets_in(self.config, self.session.state)
        if reply.status == 429:
            raise Busy(reply.host, reply.retry_after(oauth2.backoff(self.session.state)))
        if reply.status != 200:
            raise Failure(f"{reply.host} answered {reply.status}", said=reply.quoted(secrets))
        document = reply.json()
        status, body, said = (document.get(key) for key in ("status", "body", "error"))
        if not isinstance(status, int):
            raise Failure(f"{reply.host} answered without a status")
        if status == TOO_MANY:
            raise Busy(reply.host, reply.retry_after(oauth2.backoff(self.session.state)))
        why = hidden(said, secrets)[:LONGEST_REASON] if isinstance(said, str) else ""
        return Told(status, body if isinstance(body, dict) else {}, why)


class Pass:
    """One pass over what changed since the cursor; it may take several runs."""

    def __init__(self, state: Mapping[str, Any], since: int) -> None:
        cursor = state.get("cursor") or {}
        self.since: int = cursor.get("lastupdate", since)
        self.offset: int = cursor.get("offset", 0)
        self.newest: int = cursor.get("newest", 0)
        self.seen: dict[str, int] = dict(state.get("seen") or {})
        self.readings: list[dict[str, Any]] = []
        self.unreadable = 0

    def take(self, page: Mapping[str, Any]) -> bool:
        """Take a page in; whether there is another."""
        zone = _zone(page.get("timezone"))
        server_time = _number(page.get("updatetime"))
        groups = page.get("measuregrps")
        groups = groups if isinstance(groups, list) else []
        for group in groups[:MOST_READINGS]:
            try:
                reading, modified = _reading(group, zone)
            except (KeyError, TypeError, ValueError, OverflowError):
                self.unreadable += 1
                continue
            known = self.seen.get(reading["record"])
            self.seen[reading["record"]] = modified
            self.newest = max(self.newest, min(modified, server_time or modified))
            if known != modified and reading["measures"]:
                self.readings.append(reading)
        if len(groups) > MOST_READINGS:
            self.offset += MOST_READINGS
            return True
        if not page.get("more"):
            return False
        offset = _number(page.get("offset"))
        if offset is None or offset <= self.offset:
            raise Failure("Withings says that there is more, but not where")
        self.offset = offset
        return True

    def state(self, *, done: bool) -> dict[str, Any]:
        """Where the next run goes on."""
        if not done:
            cursor = {"lastupdate": self.since, "offset": self.offset, "newest": self.newest}
            return {"cursor": cursor, "seen": self.seen}
        # What changes later in the newest second is asked for again, and known by `seen`.
        since = max(self.since, self.newest - 1)
        seen = {record: modified for record, modified in self.seen.items() if modified > since}
        return {"cursor": {"lastupdate": since}, "seen": seen}


def _reading(group: Mapping[str, Any], zone: Any) -> tuple[dict[str, Any], int]:
    from datetime import datetime

    at, modified = int(group["date"]), int(group.get("modified") or group["date"])
    model = group.get("model")
    reading = health.reading(
        provider="withings",
        record=str(int(group["grpid"])),
        revision=str(modified),
        measured_at=health.utc(at),
        date=datetime.fromtimestamp(at, zone).date().isoformat(),
        measures=dict(_values(group["measures"])),
        device=model if isinstance(model, str) else None,
    )
    return reading, modified


def _values(measures: Any) -> Iterator[tuple[str, float]]:
    for measure in measures:
        name = MEASURES.get(measure["type"])
        unit = int(measure["unit"])
        if name is not None and -12 <= unit <= 12:
            yield name, round(int(measure["value"]) * 10.0**unit, max(0, -unit))


def _zone(name: Any) -> Any:
    from datetime import UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, TypeError, OSError, KeyError):
        return UTC


def _number(value: Any) -> int | None:
    """A count or a moment; Withings writes some of them as text."""
    if isinstance(value, str) and value.isdigit():
        return int(value[:18])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _codes(config: Mapping[str, Any]) -> str:
    """The measures to ask for, by their numbers."""
    wanted = config.get("measures")
    if wanted is None:
        return ",".join(map(str, MEASURES))
    codes = {name: code for code, name in MEASURES.items()}
    if not isinstance(wanted, list) or not wanted or not set(map(str, wanted)) <= set(codes):
        raise Misconfigured(f"config.measures must be a list of: {', '.join(codes)}")
    return ",".join(str(codes[name]) for name in wanted)


def _since(config: Mapping[str, Any], now: float) -> int:
    days = config.get("since_days", SINCE_DAYS)
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days <= 36_500:
        raise Misconfigured("config.since_days must be a number of days")
    return max(0, int(now - days * 86_400))


def poll(request: Request) -> Answer:
    told_to_wait = oauth2.waiting(request.state, time.time())
    if told_to_wait is not None:
        return told_to_wait
    withings = Withings(request)
    return oauth2.kept(withings.session, lambda: _fetched(request, withings))


def _fetched(request: Request, withings: Withings) -> Answer:
    session = withings.session
    work = Pass(session.state, _since(request.config, session.now))
    fields = {"meastypes": _codes(request.config), "lastupdate": work.since}
    done = False
    while not done:
        done = not work.take(withings.page({**fields, "offset": work.offset}))
        if len(work.readings) >= MOST_READINGS or request.remaining() < SLOWEST_PAGE:
            break
    left = "" if done else "; more is left for the next run"
    answer = Answer(f"new readings: {len(work.readings)}{left}")
    state = {**session.state, **work.state(done=done)}
    oauth2.rested(state)
    for reading in sorted(work.readings, key=lambda one: str(one["measured_at"])):
        health.emit(answer, request.instance, reading)
        state["latest"] = health.latest(state, reading)
    if work.unreadable:
        answer.log("warn", f"groups of measures that could not be read: {work.unreadable}")
    answer.state = state if state != request.state else None
    return answer


def refresh(request: Request) -> Answer:
    withings = Withings(request)
    withings.session.renew()
    return Answer("the tokens were renewed", state=withings.session.state)


def authorize(request: Request) -> Answer:
    from urllib.parse import urlencode

    oauth2.required(request.config, "redirect_uri")
    query, state = oauth2.authorization(request.state, time.time(), pkce=False)
    query |= {
        "client_id": request.config["client_id"],
        "redirect_uri": request.config["redirect_uri"],
        "scope": SCOPE,
    }
    consent = request.config.get("authorize_url") or CONSENT
    return Answer(f"open {consent}?{urlencode(query)}", state=state)


def oauth_callback(request: Request) -> Answer:
    oauth2.required(request.config, "redirect_uri")
    code, _ = oauth2.callback(request.payload, request.state, time.time())
    withings = Withings(request)
    try:
        grant = withings.grant(
            grant_type="authorization_code",
            code=code,
            redirect_uri=request.config["redirect_uri"],
        )
    except Failure as failure:
        raise Failure(str(failure), retry=False, said=failure.said) from None
    withings.session.authorized(grant)
    return Answer("authorized", state=withings.session.state)


def disconnect(request: Request) -> Answer:
    user_id = request.state.get("user_id")
    if user_id:
        Withings(request).revoke(user_id)
    forgotten = ("access_token", "refresh_token", "token_expiry", "user_id", *oauth2.PENDING)
    said = "the authorization is revoked" if user_id else "there was nothing to revoke"
    return Answer(f"{said}; the tokens are forgotten", state=dict.fromkeys(forgotten))


def init(request: Request) -> Answer:
    oauth2.required(request.config, "client_id", "client_secret")
    _codes(request.config)
    _since(request.config, time.time())
    Site(request.config.get("base_url") or API, request.remaining, agent=AGENT)
    return Answer("the configuration is good")


def report(request: Request) -> Answer:
    session = Withings(request).session
    if not session.state.get("refresh_token") and not session.state.get("access_token"):
        raise oauth2.Unauthorized("there is no authorization yet")
    known = session.state.get("latest") or {}
    newest = max((one["measured_at"] for one in known.values()), default="never")
    return Answer(f"authorized; the newest reading is of {newest}")


if __name__ == "__main__":
    serve(
        {
            "poll": poll,
            "handle": poll,
            "refresh": refresh,
            "authorize": authorize,
            "oauth_callback": oauth_callback,
            "disconnect": disconnect,
            "init": init,
            "health": report,
        }
    )
