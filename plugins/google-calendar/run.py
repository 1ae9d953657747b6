#!/usr/bin/env python3
"""Changes of a Google calendar, told once each. See README.md."""

from __future__ import annotations

import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
import oauth2
from protocol import Answer, Failure, Misconfigured, Request, serve
from quoting import secrets_in
from sync import Sync, past_days
from web import Busy, Reply, Site

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
MOST_CHANGES = 2000
"""In one run; what is left is fetched by the next."""
SLOWEST_PAGE = 25.0
"""Seconds that must be left to ask for another page."""
LIMITS = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded", "dailyLimitExceeded")


class Gone(Exception):
    """Google no longer knows where we were: everything has to be read again."""


class Calendar:
    """One calendar for one run."""

    def __init__(self, request: Request) -> None:
        self.config = request.config
        self.credentials = _credentials(request.config)
        tokens = self.credentials.get("token_url") or TOKENS
        self.tokens = Site(tokens, request.remaining, agent=AGENT)
        self.site = Site(self.config.get("base_url") or API, request.remaining, agent=AGENT)
        seed = {**request.config, **_refresh_token(self.credentials)}
        self.session = oauth2.Session(seed, request.state, time.time(), renew=self._renewed)

    def grant(self, **fields: str) -> oauth2.Grant:
        """Ask for tokens, by code or by refresh token."""
        client = {key: self.credentials[key] for key in ("client_id", "client_secret")}
        reply = self.tokens.send("POST", "", form={**client, **fields})
        if reply.status == 429:
            raise Busy(reply.host, reply.retry_after(oauth2.backoff(self.session.state)))
        said = self._quoted(reply)
        document = reply.json() if reply.status in (200, 400, 401, 403) else {}
        error = document.get("error")
        if error == "invalid_grant":
            raise oauth2.Unauthorized("Google no longer accepts the authorization", said=said)
        if error in ("invalid_client", "unauthorized_client", "redirect_uri_mismatch"):
            raise Misconfigured(f"Google does not accept the client: {error}", said=said)
        if reply.status != 200:
            raise Failure(f"{reply.host} answered {reply.status}", said=said)
        return oauth2.Grant(document, reply.host)

    def _quoted(self, reply: Reply) -> str:
        return reply.quoted(secrets_in(self.credentials, self.session.state))

    def page(self, query: Mapping[str, Any]) -> Reply:
        """One page of events; a token that is refused is renewed once."""
        reply = self._listed(self.session.access_token(), query)
        if reply.status == 401:
            reply = self._listed(self.session.renew(), query)
        if reply.status == 200:
            return reply
        reason = _reason(reply)
        if reply.status == 429 or (reply.status == 403 and reason in LIMITS):
            raise Busy(reply.host, reply.retry_after(oauth2.backoff(self.session.state)))
        if reply.status == 410 or (reply.status == 400 and query.keys() & _CURSORS):
            raise Gone
        said = self._quoted(reply)
        if reply.status in (401, 403):
            why = f"Google does not let us read the calendar ({reason})"
            raise oauth2.Unauthorized(why, said=said)
        if reply.status in (400, 404):
            raise Failure(f"Google cannot read this calendar ({reason})", retry=False, said=said)
        raise Failure(f"{reply.host} answered {reply.status}", said=said)

    def _listed(self, token: str, query: Mapping[str, Any]) -> Reply:
        from urllib.parse import quote

        calendar = quote(self.config.get("calendar_id") or "primary", safe="")
        headers = {"Authorization": f"Bearer {token}"}
        return self.site.send("GET", f"/calendars/{calendar}/events", query=query, headers=headers)

    def _renewed(self, refresh_token: str) -> oauth2.Grant:
        grant = self.grant(grant_type="refresh_token", refresh_token=refresh_token)
        self.site.insist = grant.refresh_token is not None
        return grant


_CURSORS = {"syncToken", "pageToken"}


def _reason(reply: Reply) -> str:
    """The reason that Google gives, where it is one word."""
    try:
        reason = reply.json()["error"]["errors"][0]["reason"]
    except (Failure, KeyError, IndexError, TypeError):
        return str(reply.status)
    return reason if isinstance(reason, str) and reason.isalnum() else str(reply.status)


def _credentials(config: Mapping[str, Any]) -> dict[str, Any]:
    """The client, and what else a file of Google's own holds."""
    path = config.get("credentials_file")
    if path is None:
        oauth2.required(config, "client_id", "client_secret")
        return dict(config)
    import json

    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
    except OSError as error:
        raise Misconfigured(f"config.credentials_file cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise Misconfigured("config.credentials_file cannot be read as JSON") from None
    if not isinstance(document, dict) or document.get("type") == "service_account":
        raise Misconfigured("config.credentials_file must be of an OAuth client, or a user's")
    client = document.get("installed") or document.get("web") or document
    oauth2.required(client, "client_id", "client_secret")
    return {**client, "token_url": config.get("token_url")}


def _refresh_token(credentials: Mapping[str, Any]) -> dict[str, Any]:
    token = credentials.get("refresh_token")
    return {"refresh_token": token} if token else {}


def _redirect(calendar: Calendar) -> str:
    return str(calendar.config.get("redirect_uri") or REDIRECT)


def poll(request: Request) -> Answer:
    told_to_wait = oauth2.waiting(request.state, time.time())
    if told_to_wait is not None:
        return told_to_wait
    calendar = Calendar(request)
    return oauth2.kept(calendar.session, lambda: _fetched(request, calendar))


def _fetched(request: Request, calendar: Calendar) -> Answer:
    session = calendar.session
    sync = Sync(request.config, session.state, session.now)
    more, restarts = True, 0
    while more:
        try:
            more = sync.take(calendar.page(sync.query()))
        except Gone:
            restarts += 1
            if restarts > 1:
                raise Failure("Google wants a full sync, and then does not") from None
            sync.restart()
            continue
        if len(sync.changes) >= MOST_CHANGES or request.remaining() < SLOWEST_PAGE:
            break
    left = "; more is left for the next run" if more else ""
    answer = Answer(f"changes: {len(sync.changes)}{left}")
    if restarts:
        answer.log("info", "Google wanted a full sync")
    name = request.config.get("calendar_id") or "primary"
    for kind, told in sync.changes:
        key = f"{request.instance}:{told['event_id']}:{told['etag']}:{kind}"
        answer.emit(f"calendar.{kind}", {"calendar_id": name, **told}, key=key)
    state = {**session.state, **sync.state()}
    oauth2.rested(state)
    answer.state = state if state != request.state else None
    return answer


def authorize(request: Request) -> Answer:
    from urllib.parse import urlencode

    calendar = Calendar(request)
    query, state = oauth2.authorization(request.state, time.time(), pkce=True)
    query |= {
        "client_id": calendar.credentials["client_id"],
        "redirect_uri": _redirect(calendar),
        "scope": SCOPE,
        "access_type": "offline",
        "prompt": "consent",
    }
    consent = request.config.get("authorize_url") or CONSENT
    return Answer(f"open {consent}?{urlencode(query)}", state=state)


def oauth_callback(request: Request) -> Answer:
    code, verifier = oauth2.callback(request.payload, request.state, time.time())
    calendar = Calendar(request)
    try:
        grant = calendar.grant(
            grant_type="authorization_code",
            code=code,
            code_verifier=verifier,
            redirect_uri=_redirect(calendar),
        )
    except Failure as failure:
        raise Failure(str(failure), retry=False, said=failure.said) from None
    calendar.session.authorized(grant)
    state = calendar.session.state
    if not state.get("refresh_token"):
        raise Failure("Google gave out no refresh token; authorize again", retry=False)
    # State that is merged keeps what is left out: what is to go must be said.
    return Answer("authorized", state={**state, **dict.fromkeys(oauth2.PENDING)})


def init(request: Request) -> Answer:
    if not request.config:
        return Answer("there is no configuration yet")
    Calendar(request)
    past_days(request.config)
    return Answer("the configuration is good")


def report(request: Request) -> Answer:
    state = Calendar(request).session.state
    if not state.get("refresh_token") and not state.get("access_token"):
        raise oauth2.Unauthorized("there is no authorization yet")
    if not state.get("synced_at"):
        return Answer("authorized; the calendar was not read yet")
    ago = max(0, int(time.time() - state["synced_at"]))
    return Answer(f"authorized; the last change was read {ago} s ago")


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
