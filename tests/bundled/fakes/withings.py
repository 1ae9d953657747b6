"""A fake of Withings, by its public documentation.

- https://developer.withings.com/api-reference (`oauth2-getaccesstoken`, `oauth2-revoke`,
  `signaturev2-getnonce`, `measure-getmeas`, response status): POST with form fields, HTTP
  200 whatever happened, the outcome in the body's `status`; groups with `more`/`offset`.
- https://developer.withings.com/developer-guide/v3/integration-guide/public-health-data-api/
  get-access/oauth-authorization-url/: codes are good for 30 seconds.
- .../get-access/access-and-refresh-tokens/: access tokens live 3 hours, refresh tokens a
  year; each renewal gives out a new one, and the former ends after 8 hours *or as soon as
  the new access token is used*.
- .../get-access/sign-your-requests/: HMAC-SHA256 over `action,client_id,nonce` (for a nonce:
  over `action,client_id,timestamp`), a nonce good once and for 30 minutes.
- Statuses as seen and listed by open clients: 401 invalid token, 403 scope, 503 invalid
  parameters, 601 too many requests, 2554 wrong action.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from typing import Any

from tests.bundled.fakes.server import FakeReply, FakeServer, ReceivedRequest

ACCESS_LIFE = 10_800
REFRESH_LIFE = 365 * 86_400
FORMER_LIFE = 8 * 3600
CODE_LIFE = 30
NONCE_LIFE = 1800
CLOCK_TOLERANCE = 300
CLIENT_ID = "withings-client"
CLIENT_SECRET = "canary-withings-client-secret"
REDIRECT = "https://example.org/withings"


@dataclass
class Tokens:
    """Tokens that were issued together."""

    access: str
    refresh: str
    scope: str
    access_ends: float
    refresh_ends: float
    former: Tokens | None = None
    """The tokens that these replace; they become invalid when these are first used."""


@dataclass
class Code:
    redirect_uri: str
    scope: str
    ends: float


@dataclass
class Withings(FakeServer):
    life: int = ACCESS_LIFE
    page: int = 3
    groups: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.codes: dict[str, Code] = {}
        self.tokens: list[Tokens] = []
        self.nonces: dict[str, float] = {}
        self.given = 0

    # Actions of users

    def consent(self, redirect_uri: str = REDIRECT, scope: str = "user.metrics") -> str:
        """The code in the redirect after the user agrees."""
        code = f"canary-code-{secrets.token_hex(8)}"
        self.codes[code] = Code(redirect_uri, scope, self.now() + CODE_LIFE)
        return code

    def issue(self, scope: str = "user.metrics", former: Tokens | None = None) -> Tokens:
        self.given += 1
        tokens = Tokens(
            f"canary-access-{self.given}-{secrets.token_hex(8)}",
            f"canary-refresh-{self.given}-{secrets.token_hex(8)}",
            scope,
            self.now() + self.life,
            self.now() + REFRESH_LIFE,
            former,
        )
        self.tokens.append(tokens)
        return tokens

    def weigh(self, grpid: int, *, at: int, modified: int | None = None, **more: Any) -> None:
        """Add a measurement, or change the one with this group id."""
        changed = at if modified is None else modified
        group = {
            "grpid": grpid,
            "attrib": 0,
            "date": at,
            "created": at,
            "modified": changed,
            "category": 1,
            "deviceid": "d1",
            "hash_deviceid": "d1",
            "measures": [{"value": 81_250, "type": 1, "unit": -3}],
            "model": "Body+",
            **more,
        }
        self.groups = [known for known in self.groups if known["grpid"] != grpid] + [group]

    # The service

    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        routes = {
            "/v2/oauth2": self._oauth2,
            "/v2/signature": self._signature,
            "/measure": self._measure,
        }
        if request.path not in routes:
            return self.refuse("path", FakeReply(status=404))
        if request.method != "POST" and request.path != "/measure":
            return self.refuse("method", FakeReply(status=405))
        return routes[request.path](request)

    def _error(self, reason: str, status: int, error: str) -> FakeReply:
        return self.refuse(reason, FakeReply({"status": status, "body": {}, "error": error}))

    def _oauth2(self, request: ReceivedRequest) -> FakeReply:
        action = request.form.get("action")
        if action == "revoke":
            return self._revoke(request.form)
        if action != "requesttoken":
            return self._error("action", 2554, "Wrong action")
        form = request.form
        if form.get("client_id") != CLIENT_ID:
            return self._error("client_id", 503, "Invalid Params: invalid client_id")
        if form.get("client_secret") != CLIENT_SECRET and not self._signed(form):
            return self._error("client_secret", 503, "Invalid Params: invalid client_secret")
        if form.get("grant_type") == "authorization_code":
            return self._by_code(form)
        if form.get("grant_type") == "refresh_token":
            return self._by_refresh(form)
        return self._error("grant_type", 503, "Invalid Params: invalid grant_type")

    def _by_code(self, form: dict[str, str]) -> FakeReply:
        code = self.codes.pop(form.get("code", ""), None)
        if code is None:
            return self._error("code", 503, "Invalid Params: invalid code")
        if self.now() > code.ends:
            return self._error("code expired", 503, "Invalid Params: invalid code")
        if form.get("redirect_uri") != code.redirect_uri:
            return self._error("redirect_uri", 503, "Invalid Params: invalid redirect_uri")
        return self._granted(self.issue(code.scope))

    def _by_refresh(self, form: dict[str, str]) -> FakeReply:
        given = form.get("refresh_token")
        held = next((tokens for tokens in self.tokens if tokens.refresh == given), None)
        if held is None or self.now() > held.refresh_ends:
            return self._error("refresh_token", 503, "Invalid Params: invalid refresh_token")
        held.refresh_ends = min(held.refresh_ends, self.now() + FORMER_LIFE)
        return self._granted(self.issue(held.scope, held))

    def _granted(self, tokens: Tokens) -> FakeReply:
        body = {
            "userid": "363",
            "access_token": tokens.access,
            "refresh_token": tokens.refresh,
            "expires_in": self.life,
            "scope": tokens.scope,
            "csrf_token": "x",
            "token_type": "Bearer",
        }
        return FakeReply({"status": 0, "body": body})

    def _signature(self, request: ReceivedRequest) -> FakeReply:
        form = request.form
        if form.get("action") != "getnonce" or form.get("client_id") != CLIENT_ID:
            return self._error("action", 2554, "Wrong action")
        stamp = form.get("timestamp", "")
        if not stamp.isdigit() or abs(int(stamp) - self.now()) > CLOCK_TOLERANCE:
            return self._error("timestamp", 503, "Invalid Params: invalid timestamp")
        if not _same(form.get("signature"), f"getnonce,{CLIENT_ID},{stamp}"):
            return self._error("signature", 503, "Invalid Params: invalid signature")
        nonce = secrets.token_hex(8)
        self.nonces[nonce] = self.now() + NONCE_LIFE
        return FakeReply({"status": 0, "body": {"nonce": nonce}})

    def _signed(self, form: dict[str, str]) -> bool:
        """Whether a form has an unused nonce and a valid signature."""
        nonce = form.get("nonce", "")
        fresh = self.nonces.pop(nonce, 0.0) > self.now()
        signed = f"{form.get('action')},{CLIENT_ID},{nonce}"
        return fresh and _same(form.get("signature"), signed)

    def _revoke(self, form: dict[str, str]) -> FakeReply:
        if not self._signed(form):
            return self._error("signature", 503, "Invalid Params: invalid signature")
        if form.get("userid") != "363":
            return self._error("userid", 503, "Invalid Params: invalid userid")
        self.tokens.clear()
        return FakeReply({"status": 0, "body": {}})

    def _measure(self, request: ReceivedRequest) -> FakeReply:
        held = next((tokens for tokens in self.tokens if tokens.access == request.bearer), None)
        if held is None or self.now() > held.access_ends:
            return self._error("access_token", 401, "XRequestID: Not provided invalid_token")
        if held.former is not None:
            held.former.refresh_ends = 0.0
        if "user.metrics" not in held.scope.split(","):
            return self._error("scope", 403, "XRequestID: Not provided insufficient_scope")
        fields = {**request.query, **request.form}
        if fields.get("action") != "getmeas":
            return self._error("action", 2554, "Wrong action")
        numbers = [fields.get(key, "0") for key in ("lastupdate", "offset", "category")]
        types = fields.get("meastypes", "1").split(",")
        if not all(text.isdigit() for text in (*numbers, *types)):
            return self._error("parameters", 503, "Invalid Params")
        return self._page(int(numbers[0]), int(numbers[1]), {int(kind) for kind in types})

    def _page(self, lastupdate: int, offset: int, types: set[int]) -> FakeReply:
        changed = sorted(
            (group for group in self.groups if group["modified"] > lastupdate),
            key=lambda group: -int(group["date"]),
        )
        shown = [
            {**group, "measures": [one for one in group["measures"] if one["type"] in types]}
            for group in changed[offset : offset + self.page]
        ]
        body: dict[str, Any] = {
            "updatetime": int(self.now()),
            "timezone": "Europe/Vienna",
            "measuregrps": shown,
        }
        if offset + self.page < len(changed):
            body |= {"more": 1, "offset": offset + self.page}
        return FakeReply({"status": 0, "body": body})


def _same(signature: str | None, text: str) -> bool:
    expected = hmac.new(CLIENT_SECRET.encode(), text.encode(), hashlib.sha256).hexdigest()
    return hmac.compare_digest(signature or "", expected)
