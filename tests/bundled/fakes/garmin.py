"""A fake of Garmin Connect, as its open clients use it.

Garmin documents none of this for the public. What is known comes from reading:

- https://github.com/matin/garth (`sso.py`, `http.py`): POST
  `/oauth-service/oauth/exchange/user/2.0` on connectapi, signed by OAuth 1.0a (HMAC-SHA1,
  RFC 5849), a form with `mfa_token` if there is one, trades a token of about a year for a
  bearer token; data by GET with that token; 204 where there is none.
- https://github.com/cyberjunky/python-garminconnect (`client.py`): POST
  `/di-oauth2-service/oauth/token` on diauth, a form with `grant_type=refresh_token
  client_id refresh_token` and the client id as the user of Basic; a new refresh token comes
  with each reply. Whether Garmin then refuses the former one is not
  known for certain; the fake does, which is the harder case.
- The same clients for the paths and fields of the data: `socialProfile` with
  `displayName`, `usersummary/daily/{displayName}?calendarDate`, with `privacyProtected`
  where it may not be seen, `weight/dateRange?startDate&endDate` in grams.
- The errors are those of RFC 6749 and RFC 5849; the clock's tolerance is a guess.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from tests.bundled.fakes.server import FakeReply, FakeServer, ReceivedRequest

CLIENT_ID = "CONNECT_TEST_DI"
CONSUMER_KEY = "consumer-key"
CONSUMER_SECRET = "canary-consumer-secret"
OAUTH_TOKEN = "canary-oauth1-token"
OAUTH_TOKEN_SECRET = "canary-oauth1-token-secret"
MFA_TOKEN = "canary-mfa-token"
CLOCK_TOLERANCE = 300
EXCHANGE = "/oauth-service/oauth/exchange/user/2.0"
RENEWAL = "/di-oauth2-service/oauth/token"
NAME = "0c8f-runner"
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
PARAMETER = re.compile(r'(\w+)="([^"]*)"')


@dataclass
class Garmin(FakeServer):
    life: int = 3600
    wants_mfa: bool = False
    days: dict[str, dict[str, Any]] = field(default_factory=dict)
    weights: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.access: dict[str, float] = {}
        self.refresh: set[str] = set()
        self.nonces: set[str] = set()

    def grant(self) -> str:
        token = f"canary-refresh-{secrets.token_hex(8)}"
        self.refresh.add(token)
        return token

    def live(self, day: str, **fields: Any) -> None:
        """Set the summary of a day."""
        self.days[day] = {"calendarDate": day, "privacyProtected": False, **fields}

    def weigh(self, pk: int, day: str, grams: float, **fields: Any) -> None:
        entry = {"samplePk": pk, "calendarDate": day, "weight": grams, "timestampGMT": pk * 1000}
        known = [one for one in self.weights if one["samplePk"] != pk]
        self.weights = [*known, {**entry, "bmi": None, "sourceType": "MANUAL", **fields}]

    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        if request.path == RENEWAL:
            return self._renewal(request)
        if request.path == EXCHANGE:
            return self._exchange(request)
        if self.now() > self.access.get(request.bearer or "", 0.0):
            return self.refuse("access_token", FakeReply({"error": "invalid_token"}, 401))
        if request.method != "GET":
            return self.refuse("method", FakeReply(status=405))
        return self._data(request)

    def _renewal(self, request: ReceivedRequest) -> FakeReply:
        form = request.form
        basic = "Basic " + base64.b64encode(f"{CLIENT_ID}:".encode()).decode()
        if request.method != "POST":
            return self.refuse("method", FakeReply(status=405))
        if request.headers.get("authorization") != basic:
            return self.refuse("basic", FakeReply({"error": "invalid_client"}, 401))
        if form.get("client_id") != CLIENT_ID:
            return self.refuse("client_id", FakeReply({"error": "invalid_client"}, 401))
        if form.get("grant_type") != "refresh_token":
            return self.refuse("grant_type", FakeReply({"error": "unsupported_grant_type"}, 400))
        if form.get("refresh_token") not in self.refresh:
            return self.refuse("refresh_token", FakeReply({"error": "invalid_grant"}, 400))
        self.refresh.discard(form["refresh_token"])
        return self._granted(self.grant())

    def _granted(self, refresh: str) -> FakeReply:
        token = f"canary-access-{secrets.token_hex(8)}"
        self.access[token] = self.now() + self.life
        return FakeReply(
            {
                "scope": "CONNECT_READ",
                "jti": "j",
                "token_type": "Bearer",
                "access_token": token,
                "refresh_token": refresh,
                "expires_in": self.life,
                "refresh_token_expires_in": 7776000,
            }
        )

    def _exchange(self, request: ReceivedRequest) -> FakeReply:
        scheme, _, rest = request.headers.get("authorization", "").partition(" ")
        given = {name: unquote(value) for name, value in PARAMETER.findall(rest)}
        wanted = {
            "oauth_consumer_key": CONSUMER_KEY,
            "oauth_token": OAUTH_TOKEN,
            "oauth_signature_method": "HMAC-SHA1",
            "oauth_version": "1.0",
        }
        if request.method != "POST" or scheme != "OAuth":
            return self.refuse("scheme", FakeReply(status=401))
        for name, value in wanted.items():
            if given.get(name) != value:
                return self.refuse(name, FakeReply(status=401))
        stamp = given.get("oauth_timestamp", "")
        if not stamp.isdigit() or abs(int(stamp) - self.now()) > CLOCK_TOLERANCE:
            return self.refuse("timestamp", FakeReply(status=401))
        if given.get("oauth_nonce", "") in self.nonces | {""}:
            return self.refuse("nonce", FakeReply(status=401))
        signature = given.pop("oauth_signature", "")
        if not hmac.compare_digest(signature, self._signature(request, given)):
            return self.refuse("signature", FakeReply(status=401))
        if self.wants_mfa and request.form.get("mfa_token") != MFA_TOKEN:
            return self.refuse("mfa_token", FakeReply(status=401))
        self.nonces.add(given["oauth_nonce"])
        return self._granted("canary-unused-refresh")

    def _signature(self, request: ReceivedRequest, oauth: Mapping[str, str]) -> str:
        """The signature of RFC 5849, section 3.4: of method, URL and all parameters."""
        both = [*oauth.items(), *request.query.items(), *request.form.items()]
        pairs = sorted((_quoted(name), _quoted(value)) for name, value in both)
        parameters = "&".join(f"{name}={value}" for name, value in pairs)
        base = "&".join(map(_quoted, (request.method, self.url + request.path, parameters)))
        key = f"{_quoted(CONSUMER_SECRET)}&{_quoted(OAUTH_TOKEN_SECRET)}"
        digest = hmac.new(key.encode(), base.encode(), hashlib.sha1).digest()
        return base64.b64encode(digest).decode()

    def _data(self, request: ReceivedRequest) -> FakeReply:
        if request.path == "/userprofile-service/socialProfile":
            return FakeReply({"displayName": NAME, "fullName": "R"})
        if request.path == f"/usersummary-service/usersummary/daily/{NAME}":
            day = request.query.get("calendarDate", "")
            if not DAY.fullmatch(day):
                return self.refuse("calendarDate", FakeReply(status=400))
            return FakeReply(self.days[day]) if day in self.days else FakeReply(status=204)
        if request.path == "/weight-service/weight/dateRange":
            first, last = (request.query.get(key, "") for key in ("startDate", "endDate"))
            if not DAY.fullmatch(first) or not DAY.fullmatch(last):
                return self.refuse("dates", FakeReply(status=400))
            found = [one for one in self.weights if first <= one["calendarDate"] <= last]
            return FakeReply({"startDate": first, "endDate": last, "dateWeightList": found})
        return self.refuse("path", FakeReply(status=404))


def _quoted(text: str) -> str:
    return quote(text, safe="-._~")
