#!/usr/bin/env python3
"""Emits changes of a Google calendar, once each. See README.md."""

from __future__ import annotations

import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
import oauth2
from http_api import ApiClient, RateLimited, Reply
from protocol import ConfigError, Failure, Request, Response, serve
from redact import find_secrets
from sync import Sync, read_past_days

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

API = "https://www.googleapis.com/calendar/v3"
TOKENS = "https://oauth2.googleapis.com/token"
CONSENT = "https://accounts.google.com/o/oauth2/v2/auth"
SCOPE = "https://www.googleapis.com/auth/calendar.events.readonly"
REDIRECT = "http://localhost"
AGENT = "ductile-google-calendar/1.0"
MAX_CHANGES = 2000
"""Maximum number per run; the next run fetches the rest."""
PAGE_RESERVE = 25.0
"""Seconds that must be left to request another page."""
LIMITS = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded")


class SyncExpired(Exception):
    """Google rejects the sync token, so a full sync is needed."""


class Calendar:
    """A client of one calendar for one run."""

    def __init__(self, request: Request) -> None:
        self.config = request.config
        self.credentials = _read_credentials(request.config)
        tokens = self.credentials.get("token_url") or TOKENS
        self.tokens = ApiClient(tokens, request.remaining, agent=AGENT)
        self.site = ApiClient(self.config.get("base_url") or API, request.remaining, agent=AGENT)
        seed = {**request.config, **_get_refresh_token(self.credentials)}
        self.session = oauth2.Session(seed, request.state, time.time(), renew=self._refresh)

    def grant(self, **fields: str) -> oauth2.Grant:
        """Request tokens by code or by refresh token."""
        client = {key: self.credentials[key] for key in ("client_id", "client_secret")}
        reply = self.tokens.send("POST", "", form={**client, **fields})
        if reply.status == 429:
            raise RateLimited(reply.host, reply.retry_after(oauth2.get_backoff(self.session.state)))
        details = self._quote(reply)
        document = reply.json() if reply.status in (200, 400, 401, 403) else {}
        error = document.get("error")
        if error == "invalid_grant":
            raise oauth2.Unauthorized("Google rejects the authorization", details=details)
        if error in ("invalid_client", "unauthorized_client", "redirect_uri_mismatch"):
            raise ConfigError(f"Google rejects the client: {error}", details=details)
        if reply.status != 200:
            raise Failure(f"{reply.host} returned status {reply.status}", details=details)
        return oauth2.Grant(document, reply.host)

    def _quote(self, reply: Reply) -> str:
        return reply.quote(find_secrets(self.credentials, self.session.state))

    def page(self, query: Mapping[str, Any]) -> Reply:
        """A page of events; a rejected token is refreshed once."""
        reply = self._list_events(self.session.access_token(), query)
        if reply.status == 401:
            reply = self._list_events(self.session.renew(), query)
        if reply.status == 200:
            return reply
        reason = _get_reason(reply)
        if reply.status == 429 or (reply.status == 403 and reason in LIMITS):
            raise RateLimited(reply.host, reply.retry_after(oauth2.get_backoff(self.session.state)))
        if reply.status == 410 or (reply.status == 400 and query.keys() & _CURSORS):
            raise SyncExpired
        details = self._quote(reply)
        if reply.status in (401, 403):
            message = f"Google denies access to the calendar ({reason})"
            raise oauth2.Unauthorized(message, details=details)
        if reply.status in (400, 404):
            raise Failure(
                f"Google rejects the request for this calendar ({reason})",
                retry=False,
                details=details,
            )
        raise Failure(f"{reply.host} returned status {reply.status}", details=details)

    def _list_events(self, token: str, query: Mapping[str, Any]) -> Reply:
        from urllib.parse import quote

        calendar = quote(self.config.get("calendar_id") or "primary", safe="")
        headers = {"Authorization": f"Bearer {token}"}
        return self.site.send("GET", f"/calendars/{calendar}/events", query=query, headers=headers)

    def _refresh(self, refresh_token: str) -> oauth2.Grant:
        grant = self.grant(grant_type="refresh_token", refresh_token=refresh_token)
        self.site.insist = grant.refresh_token is not None
        return grant


_CURSORS = {"syncToken", "pageToken"}


def _get_reason(reply: Reply) -> str:
    """The reason in the reply if it is one word, otherwise the status."""
    try:
        reason = reply.json()["error"]["errors"][0]["reason"]
    except (Failure, KeyError, IndexError, TypeError):
        return str(reply.status)
    return reason if isinstance(reason, str) and reason.isalnum() else str(reply.status)


def _read_credentials(config: Mapping[str, Any]) -> dict[str, Any]:
    """The client credentials, from the settings or from a credentials file of Google."""
    path = config.get("credentials_file")
    if path is None:
        oauth2.require_texts(config, "client_id", "client_secret")
        return dict(config)
    import json

    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise ConfigError(f"config.credentials_file cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise ConfigError("config.credentials_file is not valid JSON") from None
    if not isinstance(document, dict) or document.get("type") == "service_account":
        raise ConfigError("config.credentials_file must be that of an OAuth client or a user")
    client = document.get("installed") or document.get("web") or document
    oauth2.require_texts(client, "client_id", "client_secret")
    return {**client, "token_url": config.get("token_url")}


def _get_refresh_token(credentials: Mapping[str, Any]) -> dict[str, Any]:
    token = credentials.get("refresh_token")
    return {"refresh_token": token} if token else {}


def _get_redirect(calendar: Calendar) -> str:
    return str(calendar.config.get("redirect_uri") or REDIRECT)


def poll(request: Request) -> Response:
    wait = oauth2.check_wait(request.state, time.time())
    if wait is not None:
        return wait
    calendar = Calendar(request)
    return oauth2.keep_tokens(calendar.session, lambda: _fetch(request, calendar))


def _fetch(request: Request, calendar: Calendar) -> Response:
    session = calendar.session
    sync = Sync(request.config, session.state, session.now)
    more, restarts = True, 0
    while more:
        try:
            more = sync.add_page(calendar.page(sync.query()))
        except SyncExpired:
            restarts += 1
            if restarts > 1:
                raise Failure("Google rejects the sync token again after a full sync") from None
            sync.restart()
            continue
        if len(sync.changes) >= MAX_CHANGES or request.remaining() < PAGE_RESERVE:
            break
    rest = "; the next run fetches more" if more else ""
    response = Response(f"changes: {len(sync.changes)}{rest}")
    if restarts:
        response.log("info", "Google required a full sync")
    name = request.config.get("calendar_id") or "primary"
    for kind, event in sync.changes:
        key = f"{request.instance}:{event['event_id']}:{event['etag']}:{kind}"
        response.emit(f"calendar.{kind}", {"calendar_id": name, **event}, key=key)
    state = {**session.state, **sync.state()}
    oauth2.clear_wait(state)
    response.state = state if state != request.state else None
    return response


def authorize(request: Request) -> Response:
    from urllib.parse import urlencode

    calendar = Calendar(request)
    query, state = oauth2.start_authorization(request.state, time.time(), pkce=True)
    query |= {
        "client_id": calendar.credentials["client_id"],
        "redirect_uri": _get_redirect(calendar),
        "scope": SCOPE,
        "access_type": "offline",
        "prompt": "consent",
    }
    consent = request.config.get("authorize_url") or CONSENT
    return Response(f"open {consent}?{urlencode(query)}", state=state)


def oauth_callback(request: Request) -> Response:
    code, verifier = oauth2.parse_callback(request.payload, request.state, time.time())
    calendar = Calendar(request)
    try:
        grant = calendar.grant(
            grant_type="authorization_code",
            code=code,
            code_verifier=verifier,
            redirect_uri=_get_redirect(calendar),
        )
    except Failure as failure:
        raise Failure(str(failure), retry=False, details=failure.details) from None
    calendar.session.finish_authorization(grant)
    state = calendar.session.state
    if not state.get("refresh_token"):
        raise Failure("Google returned no refresh token; run `authorize` again", retry=False)
    # The state is merged, so keys that are to be deleted must be set to null.
    return Response("authorized", state={**state, **dict.fromkeys(oauth2.PENDING)})


def init(request: Request) -> Response:
    if not request.config:
        return Response("there is no configuration yet")
    Calendar(request)
    read_past_days(request.config)
    return Response("the configuration is valid")


def report(request: Request) -> Response:
    state = Calendar(request).session.state
    authorization = oauth2.describe_authorization(state)
    if not state.get("synced_at"):
        return Response(f"{authorization}; no sync yet")
    ago = max(0, int(time.time() - state["synced_at"]))
    return Response(f"{authorization}; last change {ago} s ago")


if __name__ == "__main__":
    serve(
        {
            "poll": poll,
            "handle": poll,
            "authorize": authorize,
            "oauth_callback": oauth_callback,
            "init": init,
            "health": report,
        }
    )
