#!/usr/bin/env python3
"""Emits measures from Withings, once each. See README.md."""

from __future__ import annotations

import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
import health
import oauth2
from http_api import ApiClient, RateLimited, Reply
from protocol import ConfigError, Failure, Request, Response, serve
from redact import find_secrets, redact

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
MAX_READINGS = 1000
"""Maximum number per run; the next run fetches the rest."""
PAGE_RESERVE = 25.0
"""Seconds that must be left to request another page."""
MAX_REASON = 1000
OK = 0
TOKEN_REJECTED = (100, 101, 102, 200, 401)
FORBIDDEN = (214, 277, 403, 2553, 2554, 2555)
INVALID = 503
TOO_MANY = 601


class WithingsReply:
    """A reply of Withings: its status, the requested data, or the error text."""

    def __init__(self, status: int, body: dict[str, Any], details: str) -> None:
        self.status, self.body, self.details = status, body, details


class Withings:
    """A client of Withings for one run."""

    def __init__(self, request: Request) -> None:
        self.config = request.config
        self.site = ApiClient(self.config.get("base_url") or API, request.remaining, agent=AGENT)
        self.session = oauth2.Session(
            request.config, request.state, time.time(), renew=self._refresh
        )

    def grant(self, **fields: str) -> oauth2.Grant:
        """Request tokens by code or by refresh token."""
        reply = self._read_reply(
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
        why = f"Withings returned no tokens (status {reply.status})"
        if reply.status in (INVALID, *TOKEN_REJECTED):
            raise oauth2.Unauthorized(why, details=reply.details)
        if reply.status != OK:
            raise Failure(why, details=reply.details)
        if reply.body.get("userid") is not None:
            self.session.state["user_id"] = str(reply.body["userid"])
        return oauth2.Grant(reply.body, self.site.host)

    def page(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """A page of measures; a rejected token is refreshed once."""
        reply = self._request_measures(self.session.access_token(), fields)
        if reply.status in TOKEN_REJECTED:
            reply = self._request_measures(self.session.renew(), fields)
        if reply.status in TOKEN_REJECTED:
            why = "Withings rejects a token that it has just issued"
            raise oauth2.Unauthorized(why, details=reply.details)
        if reply.status in FORBIDDEN:
            why = f"Withings denies access to the measures (status {reply.status})"
            raise oauth2.Unauthorized(why, details=reply.details)
        if reply.status != OK:
            raise Failure(
                f"Withings returned no measures (status {reply.status})", details=reply.details
            )
        return reply.body

    def revoke(self, user_id: str) -> None:
        """Revoke the authorization by a signed request."""
        form = {
            "action": "revoke",
            "client_id": self.config["client_id"],
            "nonce": self._request_nonce(),
        }
        form["signature"] = self._sign(form)
        reply = self._read_reply(
            self.site.send("POST", "/v2/oauth2", form={**form, "userid": user_id})
        )
        if reply.status != OK:
            why = f"Withings did not revoke the authorization (status {reply.status})"
            raise Failure(why, details=reply.details)

    def _refresh(self, refresh_token: str) -> oauth2.Grant:
        grant = self.grant(grant_type="refresh_token", refresh_token=refresh_token)
        self.site.insist = True
        return grant

    def _request_measures(self, token: str, fields: Mapping[str, Any]) -> WithingsReply:
        return self._read_reply(
            self.site.send(
                "POST",
                "/measure",
                form={"action": "getmeas", "category": 1, **fields},
                headers={"Authorization": f"Bearer {token}"},
            )
        )

    def _request_nonce(self) -> str:
        form = {
            "action": "getnonce",
            "client_id": self.config["client_id"],
            "timestamp": str(int(time.time())),
        }
        form["signature"] = self._sign(form)
        reply = self._read_reply(self.site.send("POST", "/v2/signature", form=form))
        if reply.status != OK or not isinstance(reply.body.get("nonce"), str):
            why = f"Withings returned no nonce (status {reply.status}); check the system clock"
            raise Failure(why, details=reply.details)
        return str(reply.body["nonce"])

    def _sign(self, form: Mapping[str, str]) -> str:
        """HMAC-SHA256 of the values in the order of their names."""
        import hashlib
        import hmac

        text = ",".join(form[name] for name in sorted(form))
        return hmac.new(
            self.config["client_secret"].encode(), text.encode(), hashlib.sha256
        ).hexdigest()

    def _read_reply(self, reply: Reply) -> WithingsReply:
        """The status in the body; the HTTP status is always 200."""
        secrets = find_secrets(self.config, self.session.state)
        if reply.status == 429:
            raise RateLimited(reply.host, reply.retry_after(oauth2.get_backoff(self.session.state)))
        if reply.status != 200:
            raise Failure(
                f"{reply.host} returned status {reply.status}", details=reply.quote(secrets)
            )
        document = reply.json()
        status, body, error = (document.get(key) for key in ("status", "body", "error"))
        if not isinstance(status, int):
            raise Failure(f"{reply.host} returned no status")
        if status == TOO_MANY:
            raise RateLimited(reply.host, reply.retry_after(oauth2.get_backoff(self.session.state)))
        details = redact(error, secrets)[:MAX_REASON] if isinstance(error, str) else ""
        return WithingsReply(status, body if isinstance(body, dict) else {}, details)


class MeasureSync:
    """A sync of the changes since the cursor; it may take several runs."""

    def __init__(self, state: Mapping[str, Any], since: int) -> None:
        cursor = state.get("cursor") or {}
        self.since: int = cursor.get("lastupdate", since)
        self.offset: int = cursor.get("offset", 0)
        self.newest: int = cursor.get("newest", 0)
        self.seen: dict[str, int] = dict(state.get("seen") or {})
        self.readings: list[dict[str, Any]] = []
        self.unreadable = 0

    def add_page(self, page: Mapping[str, Any]) -> bool:
        """Process a page; whether there is another one."""
        zone = _get_zone(page.get("timezone"))
        server_time = _to_integer(page.get("updatetime"))
        groups = page.get("measuregrps")
        groups = groups if isinstance(groups, list) else []
        for group in groups[:MAX_READINGS]:
            try:
                reading, modified = _build_reading(group, zone)
            except (KeyError, TypeError, ValueError, OverflowError):
                self.unreadable += 1
                continue
            known = self.seen.get(reading["record"])
            self.seen[reading["record"]] = modified
            self.newest = max(self.newest, min(modified, server_time or modified))
            if known != modified and reading["measures"]:
                self.readings.append(reading)
        if len(groups) > MAX_READINGS:
            self.offset += MAX_READINGS
            return True
        if not page.get("more"):
            return False
        offset = _to_integer(page.get("offset"))
        if offset is None or offset <= self.offset:
            raise Failure("Withings announced another page without its offset")
        self.offset = offset
        return True

    def state(self, *, done: bool) -> dict[str, Any]:
        """The state for the next run."""
        if not done:
            cursor = {"lastupdate": self.since, "offset": self.offset, "newest": self.newest}
            return {"cursor": cursor, "seen": self.seen}
        # Changes later in the newest second are requested again; `seen` drops the known ones.
        since = max(self.since, self.newest - 1)
        seen = {record: modified for record, modified in self.seen.items() if modified > since}
        return {"cursor": {"lastupdate": since}, "seen": seen}


def _build_reading(group: Mapping[str, Any], zone: Any) -> tuple[dict[str, Any], int]:
    from datetime import datetime

    at, modified = int(group["date"]), int(group.get("modified") or group["date"])
    model = group.get("model")
    reading = health.build_reading(
        provider="withings",
        record=str(int(group["grpid"])),
        revision=str(modified),
        measured_at=health.format_utc(at),
        date=datetime.fromtimestamp(at, zone).date().isoformat(),
        measures=dict(_list_values(group["measures"])),
        device=model if isinstance(model, str) else None,
    )
    return reading, modified


def _list_values(measures: Any) -> Iterator[tuple[str, float]]:
    for measure in measures:
        name = MEASURES.get(measure["type"])
        unit = int(measure["unit"])
        if name is not None and -12 <= unit <= 12:
            yield name, round(int(measure["value"]) * 10.0**unit, max(0, -unit))


def _get_zone(name: Any) -> Any:
    from datetime import UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (ValueError, TypeError, OSError, KeyError):
        return UTC


def _to_integer(value: Any) -> int | None:
    """A number; Withings returns some of them as text."""
    if isinstance(value, str) and value.isdigit():
        return int(value[:18])
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _list_codes(config: Mapping[str, Any]) -> str:
    """The numbers of the requested measures."""
    wanted = config.get("measures")
    if wanted is None:
        return ",".join(map(str, MEASURES))
    codes = {name: code for code, name in MEASURES.items()}
    if not isinstance(wanted, list) or not wanted or not set(map(str, wanted)) <= set(codes):
        raise ConfigError(f"config.measures must be a list of: {', '.join(codes)}")
    return ",".join(str(codes[name]) for name in wanted)


def _get_start(config: Mapping[str, Any], now: float) -> int:
    days = config.get("since_days", SINCE_DAYS)
    if isinstance(days, bool) or not isinstance(days, int | float) or not 0 <= days <= 36_500:
        raise ConfigError("config.since_days must be a number of days")
    return max(0, int(now - days * 86_400))


def poll(request: Request) -> Response:
    wait = oauth2.check_wait(request.state, time.time())
    if wait is not None:
        return wait
    withings = Withings(request)
    return oauth2.keep_tokens(withings.session, lambda: _fetch(request, withings))


def _fetch(request: Request, withings: Withings) -> Response:
    session = withings.session
    sync = MeasureSync(session.state, _get_start(request.config, session.now))
    fields = {"meastypes": _list_codes(request.config), "lastupdate": sync.since}
    done = False
    while not done:
        done = not sync.add_page(withings.page({**fields, "offset": sync.offset}))
        if len(sync.readings) >= MAX_READINGS or request.remaining() < PAGE_RESERVE:
            break
    rest = "" if done else "; the next run fetches more"
    response = Response(f"new readings: {len(sync.readings)}{rest}")
    state = {**session.state, **sync.state(done=done)}
    oauth2.clear_wait(state)
    for reading in sorted(sync.readings, key=lambda one: str(one["measured_at"])):
        health.emit_reading(response, request.instance, reading)
        state["latest"] = health.update_latest(state, reading)
    if sync.unreadable:
        response.log("warn", f"{sync.unreadable} groups of measures are not valid and were skipped")
    response.state = state if state != request.state else None
    return response


def refresh(request: Request) -> Response:
    session = Withings(request).session

    def renew() -> Response:
        session.renew()
        return Response("the tokens were refreshed", state=session.state)

    return oauth2.keep_tokens(session, renew)


def authorize(request: Request) -> Response:
    from urllib.parse import urlencode

    oauth2.require_texts(request.config, "redirect_uri")
    query, state = oauth2.start_authorization(request.state, time.time(), pkce=False)
    query |= {
        "client_id": request.config["client_id"],
        "redirect_uri": request.config["redirect_uri"],
        "scope": SCOPE,
    }
    consent = request.config.get("authorize_url") or CONSENT
    return Response(f"open {consent}?{urlencode(query)}", state=state)


def oauth_callback(request: Request) -> Response:
    oauth2.require_texts(request.config, "redirect_uri")
    code, _ = oauth2.parse_callback(request.payload, request.state, time.time())
    withings = Withings(request)
    try:
        grant = withings.grant(
            grant_type="authorization_code",
            code=code,
            redirect_uri=request.config["redirect_uri"],
        )
    except Failure as failure:
        raise Failure(str(failure), retry=False, details=failure.details) from None
    withings.session.finish_authorization(grant)
    return Response("authorized", state=withings.session.state)


def disconnect(request: Request) -> Response:
    user_id = request.state.get("user_id")
    if user_id:
        Withings(request).revoke(user_id)
    forgotten = ("access_token", "refresh_token", "token_expiry", "user_id", *oauth2.PENDING)
    result = "the authorization was revoked" if user_id else "there was no authorization"
    return Response(f"{result}; the tokens were deleted", state=dict.fromkeys(forgotten))


def init(request: Request) -> Response:
    oauth2.require_texts(request.config, "client_id", "client_secret")
    _list_codes(request.config)
    _get_start(request.config, time.time())
    ApiClient(request.config.get("base_url") or API, request.remaining, agent=AGENT)
    return Response("the configuration is valid")


def report(request: Request) -> Response:
    session = Withings(request).session
    authorization = oauth2.describe_authorization(session.state)
    known = session.state.get("latest") or {}
    newest = max((one["measured_at"] for one in known.values()), default="never")
    return Response(f"{authorization}; newest reading: {newest}")


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
