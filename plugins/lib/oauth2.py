"""OAuth 2 for plugins: tokens in the plugin's state, refreshed in time and never lost.

`client_id` and `client_secret` are in the configuration; `access_token`, `refresh_token` and
`token_expiry` (Unix seconds) are in the plugin's state. The gateway redacts them by their names.

A provider that rotates refresh tokens invalidates the old one when it issues a new one, and the
gateway stores the state of a job only if the job succeeds. So after a rotation the job must
succeed, whatever fails: `keep_tokens` ensures that, and reports the failure in the result and in
an error log line. A run that did not rotate its refresh token fails like any other job.

For the same reason the first run whose refresh token is rejected, after earlier ones were accepted,
succeeds: it stores `rejected_at`, so that `describe_authorization`, which sends no request, reports
it. Later runs try again, and fail.
"""

from __future__ import annotations

from http_api import MAX_RETRY_AFTER, RateLimited
from protocol import ConfigError, Failure, Response, describe_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

SKEW = 120
"""Seconds before its expiry at which a token counts as expired, because clocks differ."""
DEFAULT_LIFETIME = 3600
MAX_LIFETIME = 366 * 86_400
PENDING = ("pending_state", "pending_verifier_secret", "pending_until")
AUTHORIZE_WITHIN = 3600


class Unauthorized(Failure):
    """The provider rejects the tokens; an operator has to authorize the plugin again."""

    def __init__(self, reason: str, *, details: str = "") -> None:
        message = f"{reason}; authorize the plugin as described in its README.md"
        super().__init__(message, retry=False, details=details)


class Grant:
    """The tokens of a token response. Raises `Failure` if there is no valid token."""

    def __init__(self, document: Mapping[str, Any], host: str) -> None:
        self.access_token = _read_token(document, "access_token", host)
        has_refresh = document.get("refresh_token") is not None
        self.refresh_token = _read_token(document, "refresh_token", host) if has_refresh else None
        self.lifetime = _read_lifetime(document.get("expires_in"))


class Session:
    """The tokens of one run. `state` is the whole new state of the plugin."""

    def __init__(
        self,
        config: Mapping[str, Any],
        state: Mapping[str, Any],
        now: float,
        *,
        renew: Callable[[str], Grant],
    ) -> None:
        self.state: dict[str, Any] = dict(state)
        self.rotated = False
        """Whether this run has a refresh token that is not stored yet."""
        self.newly_rejected = False
        """Whether the provider rejects a refresh token for the first time since it worked."""
        self._renewed = False
        self.now = now
        self._renew = renew
        self._adopt(config)

    def access_token(self) -> str:
        """A valid access token, refreshed if necessary."""
        held, expiry = self.state.get("access_token"), self.state.get("token_expiry")
        ended = expiry is not None and self.now >= expiry - SKEW
        return held if held and (self._renewed or not ended) else self.renew()

    def renew(self) -> str:
        """A new access token; at most one per run."""
        refresh_token = self.state.get("refresh_token")
        if not refresh_token:
            raise Unauthorized("the plugin is not authorized yet")
        if self._renewed:
            raise Unauthorized("the provider rejects a token that it has just issued")
        try:
            grant = self._renew(refresh_token)
        except Unauthorized:
            worked = self.state.get("token_expiry") is not None
            self.newly_rejected = worked and not self.state.get("rejected_at")
            if self.newly_rejected:
                self.state["rejected_at"] = int(self.now)
            raise
        self.accept(grant)
        return str(self.state["access_token"])

    def accept(self, grant: Grant) -> None:
        """Put the tokens of a grant into the state."""
        self.state["access_token"] = grant.access_token
        self.state["token_expiry"] = int(self.now + grant.lifetime)
        if grant.refresh_token is not None:
            self.rotated = grant.refresh_token != self.state.get("refresh_token")
            self.state["refresh_token"] = grant.refresh_token
        self._forget_rejection()
        self._renewed = True

    def finish_authorization(self, grant: Grant) -> None:
        """Put the tokens of an authorization into the state and remove its temporary values."""
        self.accept(grant)
        for key in PENDING:
            self.state.pop(key, None)

    def _adopt(self, config: Mapping[str, Any]) -> None:
        """Use tokens of the configuration once; later ones are in the state."""
        given = {key: config[key] for key in ("access_token", "refresh_token") if config.get(key)}
        if not given:
            return
        adopted = _fingerprint(given)
        if self.state.get("adopted") != adopted:
            self.state.update({"access_token": None, "token_expiry": None, **given})
            self.state["adopted"] = adopted
            self._forget_rejection()

    def _forget_rejection(self) -> None:
        if "rejected_at" in self.state:
            # The state is merged: a key that is missing would keep its value.
            self.state["rejected_at"] = None


def keep_tokens(session: Session, work: Callable[[], Response]) -> Response:
    """Run `work`; if it fails after the tokens were rotated, succeed in order to store them.

    A rate limit is not a failure either: the time to wait is stored, and `check_wait` skips the
    runs until then.
    """
    try:
        response = work()
        if session.rotated:
            response.encode()
        return response
    except RateLimited as limited:
        retry_at = int(session.now + limited.seconds) + 1
        state = {
            **session.state,
            "retry_at": retry_at,
            "busy": _count_rate_limits(session.state) + 1,
        }
        response = Response(f"{limited}; nothing is fetched until then", state=state)
        response.log("warn", str(limited))
    except Exception as error:
        if session.newly_rejected:
            return _report_rejection(session, error)
        if not session.rotated:
            raise
        known = isinstance(error, Failure)
        reason = str(error) if known else f"unexpected error: {describe_error(error)}"
        response = Response(
            f"the tokens were refreshed and stored, but the run failed: {reason}",
            state=session.state,
        )
        response.log("error", f"{reason}; the next run tries again")
        if isinstance(error, Failure) and error.details:
            response.log("error", error.details)
    return response


def _report_rejection(session: Session, error: Exception) -> Response:
    response = Response(str(error), state=session.state)
    response.log("error", str(error))
    if isinstance(error, Failure) and error.details:
        response.log("error", error.details)
    return response


def describe_authorization(state: Mapping[str, Any]) -> str:
    """What the state says about the authorization, for `health`.

    Raises `Unauthorized` if there are no tokens, or if the provider has rejected them.
    """
    if not state.get("refresh_token") and not state.get("access_token"):
        raise Unauthorized("the plugin is not authorized yet")
    if state.get("rejected_at"):
        from datetime import UTC, datetime

        moment = datetime.fromtimestamp(state["rejected_at"], UTC).isoformat(timespec="seconds")
        raise Unauthorized(f"the provider has rejected the refresh token since {moment}")
    worked = state.get("token_expiry") is not None
    return "authorized" if worked else "tokens are configured, but have not been accepted yet"


def check_wait(state: Mapping[str, Any], now: float) -> Response | None:
    """A response for a run before the time that the provider asked to wait for; else None."""
    retry_at = state.get("retry_at")
    if not isinstance(retry_at, int) or not now < retry_at <= now + MAX_RETRY_AFTER + 1:
        return None
    return Response(f"rate limited by the provider; {retry_at - int(now)} s left to wait")


def get_backoff(state: Mapping[str, Any]) -> float:
    """Seconds to wait if the provider does not say; doubles with each rate limit in a row."""
    return float(min(60 * 2 ** min(_count_rate_limits(state), 6), 3600))


def clear_wait(state: dict[str, Any]) -> None:
    """Remove the stored rate limit after a successful request."""
    for key in ("retry_at", "busy"):
        state.pop(key, None)


def _count_rate_limits(state: Mapping[str, Any]) -> int:
    times = state.get("busy")
    return times if isinstance(times, int) else 0


def start_authorization(
    session_state: Mapping[str, Any], now: float, *, pkce: bool
) -> tuple[dict[str, str], dict[str, Any]]:
    """The query of a link to the provider's consent page, and the state to store for it."""
    import secrets

    verifier = secrets.token_urlsafe(64)
    nonce = secrets.token_urlsafe(24)
    query = {"response_type": "code", "state": nonce}
    if pkce:
        query |= {"code_challenge": make_challenge(verifier), "code_challenge_method": "S256"}
    remembered = (nonce, verifier, int(now) + AUTHORIZE_WITHIN)
    return query, {**session_state, **dict(zip(PENDING, remembered, strict=True))}


def make_challenge(verifier: str) -> str:
    """The S256 code challenge of RFC 7636: BASE64URL(SHA256(verifier)) without padding."""
    import base64
    import hashlib

    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def parse_callback(payload: Any, state: Mapping[str, Any], now: float) -> tuple[str, str]:
    """The code and the verifier, from `{url}` or `{code, state}` and the stored state."""
    from hmac import compare_digest
    from urllib.parse import parse_qs, urlsplit

    given = payload if isinstance(payload, dict) else {}
    if isinstance(given.get("url"), str):
        query = parse_qs(urlsplit(given["url"]).query)
        given = {key: values[0] for key, values in query.items()}
    nonce, verifier, until = (state.get(key) for key in PENDING)
    if not nonce or not verifier or now > (until or 0):
        raise Failure(
            "no authorization is in progress; run the command `authorize` first", retry=False
        )
    if given.get("error"):
        raise Failure("the provider reports that access was not granted", retry=False)
    code, echoed = given.get("code"), given.get("state")
    if not isinstance(code, str) or not code or not isinstance(echoed, str):
        raise Failure(
            "the payload needs the URL that the browser was redirected to, as `url`", retry=False
        )
    if not compare_digest(echoed.encode(), nonce.encode()):
        raise Failure(
            "the URL belongs to another authorization; run `authorize` again", retry=False
        )
    return code, verifier


def require_texts(config: Mapping[str, Any], *keys: str) -> None:
    """Raise `ConfigError` if one of these keys is absent or not text."""
    for key in keys:
        if not isinstance(config.get(key), str) or not config[key]:
            raise ConfigError(f"config.{key} must be text")


def _read_token(document: Mapping[str, Any], key: str, host: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise Failure(f"{host} returned no valid {key}")
    return value


def _read_lifetime(value: Any) -> int:
    try:
        life = DEFAULT_LIFETIME if value is None or isinstance(value, bool) else int(value)
    except (ValueError, TypeError, OverflowError):
        life = DEFAULT_LIFETIME
    return min(max(life, 0), MAX_LIFETIME)


def _fingerprint(given: Mapping[str, str]) -> str:
    import hashlib

    text = "\0".join(f"{key}={value}" for key, value in sorted(given.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
