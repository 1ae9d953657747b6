"""A fake of Google's token endpoint and Calendar API, by their public documentation.

- https://developers.google.com/identity/protocols/oauth2/native-app: the consent page's
  query (`code_challenge`, `code_challenge_method=S256`), the exchange and the renewal as
  forms by POST; `access_type=offline` for a refresh token
  (https://developers.google.com/identity/protocols/oauth2/web-server); errors as RFC 6749
  §5.2 has them (`invalid_grant`, `invalid_client`, `unsupported_grant_type`,
  `redirect_uri_mismatch`).
- https://developers.google.com/workspace/calendar/api/v3/reference/events/list: parameters,
  `nextPageToken` and `nextSyncToken` (on the last page only), what must not be combined with a
  `syncToken` and that everything else must be as it was at the first sync.
- https://developers.google.com/workspace/calendar/api/guides/sync: 410 wants a full sync;
  deleted events come as `cancelled`, of which only the id is certain.
- https://developers.google.com/workspace/calendar/api/guides/errors: the shape of errors,
  401 `authError`, 403 `insufficientPermissions` and `rateLimitExceeded`, 404 `notFound`, 429.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from tests.bundled.fakes.server import FakeReply, FakeServer, ReceivedRequest

CLIENT_ID = "google-client.apps.example.org"
CLIENT_SECRET = "canary-google-client-secret"
READ_EVENTS = "https://www.googleapis.com/auth/calendar.events.readonly"
READ = {
    READ_EVENTS,
    "https://www.googleapis.com/auth/calendar.readonly",
    "https://www.googleapis.com/auth/calendar",
    "https://www.googleapis.com/auth/calendar.events",
}
NOT_WITH_SYNC = {
    "iCalUID",
    "orderBy",
    "privateExtendedProperty",
    "q",
    "sharedExtendedProperty",
    "timeMin",
    "timeMax",
    "updatedMin",
}
LARGEST_PAGE = 2500
CODE_LIFE = 600


@dataclass
class Code:
    redirect_uri: str
    scope: str
    challenge: str
    offline: bool
    ends: float


@dataclass
class Listing:
    """The rest of a listing that a page token refers to, and its query."""

    items: list[dict[str, Any]]
    query: Mapping[str, str]
    version: int


@dataclass
class Google(FakeServer):
    life: int = 3599
    page: int = 2
    calendar: str = "primary"
    rotates: bool = False
    events: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()
        self.codes: dict[str, Code] = {}
        self.access: dict[str, tuple[str, float]] = {}
        self.refresh: dict[str, str] = {}
        self.version = 0
        self.changed: dict[str, int] = {}
        self.syncs: dict[str, tuple[int, Mapping[str, str]]] = {}
        self.pages: dict[str, Listing] = {}
        self.given = 0

    # Actions of users

    def grant(self, scope: str = READ_EVENTS) -> str:
        """A refresh token."""
        self.given += 1
        token = f"canary-refresh-{self.given}-{secrets.token_hex(8)}"
        self.refresh[token] = scope
        return token

    def consent(self, link: str) -> str:
        """The URL to which the browser is redirected after the user agrees."""
        query = dict(parse_qsl(urlsplit(link).query))
        assert query["client_id"] == CLIENT_ID
        assert query["response_type"] == "code"
        if query.get("code_challenge_method") != "S256" or not query.get("code_challenge"):
            self.refusals.append("challenge")
        code = f"canary-code-{secrets.token_hex(8)}"
        self.codes[code] = Code(
            query["redirect_uri"],
            query["scope"],
            query.get("code_challenge", ""),
            query.get("access_type") == "offline",
            self.now() + CODE_LIFE,
        )
        return f"{query['redirect_uri']}?state={quote(query['state'])}&code={code}"

    def put(self, id: str, **fields: Any) -> None:
        """Create or change an event."""
        self.version += 1
        moment = datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="milliseconds")
        known = self.events.get(id, {"id": id, "created": moment})
        self.events[id] = {
            "kind": "calendar#event",
            "status": "confirmed",
            "summary": f"event {id}",
            "start": {"dateTime": "2031-02-08T10:00:00+01:00", "timeZone": "Europe/Vienna"},
            "end": {"dateTime": "2031-02-08T11:00:00+01:00", "timeZone": "Europe/Vienna"},
            "htmlLink": f"https://calendar.google.com/{id}",
            "organizer": {"email": "owner@example.org", "self": True},
            **known,
            **fields,
            "updated": moment,
            "etag": f'"{3_000_000_000_000_000 + self.version}"',
        }
        self.changed[id] = self.version

    def delete(self, id: str) -> None:
        """Delete an event; only its id remains."""
        self.version += 1
        etag = f'"{3_000_000_000_000_000 + self.version}"'
        self.events[id] = {"kind": "calendar#event", "id": id, "status": "cancelled", "etag": etag}
        self.changed[id] = self.version

    def forget_syncs(self) -> None:
        """Invalidate all sync tokens, as Google does now and then."""
        self.syncs.clear()

    # The service

    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        if request.path == "/token":
            return self._token(request)
        if request.path == f"/calendar/v3/calendars/{quote(self.calendar, safe='')}/events":
            return self._events(request)
        return self._refused("path", 404, "notFound", "global")

    def _token(self, request: ReceivedRequest) -> FakeReply:
        form = request.form
        if request.method != "POST":
            return self.refuse("method", FakeReply({"error": "invalid_request"}, 405))
        if form.get("client_id") != CLIENT_ID or form.get("client_secret") != CLIENT_SECRET:
            return self.refuse("client", FakeReply({"error": "invalid_client"}, 401))
        if form.get("grant_type") == "authorization_code":
            return self._by_code(form)
        if form.get("grant_type") == "refresh_token":
            return self._by_refresh(form.get("refresh_token", ""))
        return self.refuse("grant_type", FakeReply({"error": "unsupported_grant_type"}, 400))

    def _by_code(self, form: Mapping[str, str]) -> FakeReply:
        code = self.codes.pop(form.get("code", ""), None)
        if code is None or self.now() > code.ends:
            return self.refuse("code", FakeReply({"error": "invalid_grant"}, 400))
        if form.get("redirect_uri") != code.redirect_uri:
            return self.refuse("redirect_uri", FakeReply({"error": "redirect_uri_mismatch"}, 400))
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != code.challenge:
            return self.refuse("verifier", FakeReply({"error": "invalid_grant"}, 400))
        return self._granted(code.scope, self.grant(code.scope) if code.offline else None)

    def _by_refresh(self, token: str) -> FakeReply:
        scope = self.refresh.get(token)
        if scope is None:
            return self.refuse("refresh_token", FakeReply({"error": "invalid_grant"}, 400))
        if not self.rotates:
            return self._granted(scope, None)
        del self.refresh[token]
        return self._granted(scope, self.grant(scope))

    def _granted(self, scope: str, refresh: str | None) -> FakeReply:
        token = f"canary-access-{secrets.token_hex(8)}"
        self.access[token] = (scope, self.now() + self.life)
        body = {
            "access_token": token,
            "expires_in": self.life,
            "scope": scope,
            "token_type": "Bearer",
        }
        return FakeReply(body if refresh is None else {**body, "refresh_token": refresh})

    def _refused(self, why: str, code: int, reason: str, domain: str) -> FakeReply:
        return self.refuse(why, failure(code, reason, domain))

    def _events(self, request: ReceivedRequest) -> FakeReply:
        scope, ends = self.access.get(request.bearer or "", ("", 0.0))
        if self.now() > ends:
            return self._refused("access_token", 401, "authError", "global")
        if request.method != "GET" or not READ & set(scope.split()):
            return self._refused("scope", 403, "insufficientPermissions", "global")
        query = dict(request.query)
        page_token, sync_token = query.pop("pageToken", None), query.pop("syncToken", None)
        size = query.get("maxResults", "250")
        if not size.isdigit() or not 0 < int(size) <= LARGEST_PAGE:
            return self._refused("maxResults", 400, "invalidParameter", "global")
        if sync_token is not None and NOT_WITH_SYNC & query.keys():
            return self._refused(
                "restrictions", 400, "syncTokenWithRequestRestrictions", "calendar"
            )
        kept = {key: value for key, value in query.items() if key not in NOT_WITH_SYNC}
        if page_token is not None:
            listing = self.pages.pop(page_token, None)
            if listing is None or listing.query != kept:
                return self._refused("pageToken", 400, "invalidPageToken", "calendar")
            return self._page(listing)
        since = 0
        if sync_token is not None:
            if sync_token not in self.syncs:
                return self._refused("syncToken", 410, "fullSyncRequired", "calendar")
            since, before = self.syncs[sync_token]
            if before != kept or query.get("showDeleted") != "true":
                return self._refused("changed parameters", 400, "invalid", "calendar")
        return self._page(Listing(self._since(since, query), kept, self.version))

    def _since(self, version: int, query: Mapping[str, str]) -> list[dict[str, Any]]:
        changed = sorted((at, id) for id, at in self.changed.items() if at > version)
        items = [self.events[id] for _, id in changed]
        if query.get("showDeleted") != "true":
            items = [item for item in items if item["status"] != "cancelled"]
        earliest = query.get("timeMin")
        return [item for item in items if earliest is None or _ends(item) > earliest]

    def _page(self, listing: Listing) -> FakeReply:
        body: dict[str, Any] = {
            "kind": "calendar#events",
            "timeZone": "Europe/Vienna",
            "items": listing.items[: self.page],
        }
        token = secrets.token_hex(8)
        if rest := listing.items[self.page :]:
            self.pages[token] = Listing(rest, listing.query, listing.version)
            body["nextPageToken"] = token
        else:
            self.syncs[token] = (listing.version, listing.query)
            body["nextSyncToken"] = token
        return FakeReply(body)


def failure(code: int, reason: str, domain: str = "usageLimits", **headers: str) -> FakeReply:
    """An error reply in the format of Google."""
    detail = {"domain": domain, "reason": reason, "message": reason}
    body = {"error": {"errors": [detail], "code": code, "message": reason}}
    return FakeReply(body, code, {name.replace("_", "-"): value for name, value in headers.items()})


def _ends(item: Mapping[str, Any]) -> str:
    end = item.get("end") or {}
    return str(end.get("dateTime") or end.get("date") or "9999")
