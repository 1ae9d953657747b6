"""OAuth 2 for plugins: tokens in the state, renewed in time, and never lost.

`client_id` and `client_secret` stand in the configuration; `access_token`, `refresh_token`
and `token_expiry` (Unix seconds) in the plugin's state, whose names have the gateway hide
them wherever it shows a state.

A provider that rotates refresh tokens forgets the old one when it gives out a new one. The
gateway keeps a job's state only if the job succeeded. So whatever fails after a refresh
token was replaced, the job must succeed: `kept` makes it do so, saying in its result and in
an error line what failed. A run whose refresh token stayed the same fails as any job does.
"""

from __future__ import annotations

from protocol import Answer, Failure, Misconfigured, place_of
from web import LONGEST_RETRY, Busy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

SKEW = 120
"""Seconds before its end from which a token counts as ended: clocks differ."""
DEFAULT_LIFE = 3600
LONGEST_LIFE = 366 * 86_400
PENDING = ("pending_state", "pending_verifier_secret", "pending_until")
AUTHORIZE_WITHIN = 3600


class Unauthorized(Failure):
    """The provider no longer knows our tokens: a person has to authorize us again."""

    def __init__(self, why: str, *, said: str = "") -> None:
        why = f"{why}; a person has to authorize us, see README.md"
        super().__init__(why, retry=False, said=said)


class Grant:
    """What a token endpoint gave out. Raises `Failure` where that is no token."""

    def __init__(self, document: Mapping[str, Any], host: str) -> None:
        self.access_token = _token(document, "access_token", host)
        has_refresh = document.get("refresh_token") is not None
        self.refresh_token = _token(document, "refresh_token", host) if has_refresh else None
        self.life = _life(document.get("expires_in"))


class Session:
    """The tokens of one run. `state` is the plugin's whole state as it should become."""

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
        """Whether this run holds a refresh token that the ledger does not have yet."""
        self._renewed = False
        self.now = now
        self._renew = renew
        self._adopt(config)

    def access_token(self) -> str:
        """A token that is good for a while yet, renewed where it is not."""
        held, expiry = self.state.get("access_token"), self.state.get("token_expiry")
        ended = expiry is not None and self.now >= expiry - SKEW
        return held if held and (self._renewed or not ended) else self.renew()

    def renew(self) -> str:
        """A new token, whatever the old one's age; at most once a run."""
        refresh_token = self.state.get("refresh_token")
        if not refresh_token:
            raise Unauthorized("there is no authorization yet")
        if self._renewed:
            raise Unauthorized("a token that was given out just now is refused")
        self.accept(self._renew(refresh_token))
        return str(self.state["access_token"])

    def accept(self, grant: Grant) -> None:
        """Take a grant's tokens over into the state."""
        self.state["access_token"] = grant.access_token
        self.state["token_expiry"] = int(self.now + grant.life)
        if grant.refresh_token is not None:
            self.rotated = grant.refresh_token != self.state.get("refresh_token")
            self.state["refresh_token"] = grant.refresh_token
        self._renewed = True

    def authorized(self, grant: Grant) -> None:
        """The same for a grant that ends an authorization: what it was known by is forgotten."""
        self.accept(grant)
        for key in PENDING:
            self.state.pop(key, None)

    def _adopt(self, config: Mapping[str, Any]) -> None:
        """Take tokens over from the configuration, once: what follows them is in the state."""
        given = {key: config[key] for key in ("access_token", "refresh_token") if config.get(key)}
        if not given:
            return
        adopted = _fingerprint(given)
        if self.state.get("adopted") != adopted:
            self.state.update({"access_token": None, "token_expiry": None, **given})
            self.state["adopted"] = adopted


def kept(session: Session, work: Callable[[], Answer]) -> Answer:
    """Run `work`; where it fails after the tokens were rotated, succeed with the tokens.

    A provider that asks us to wait is no failure either: the wait is remembered, and
    `waiting` tells the runs until then to leave it alone.
    """
    try:
        answer = work()
        if session.rotated:
            answer.encoded()
        return answer
    except Busy as busy:
        retry_at = int(session.now + busy.seconds) + 1
        state = {**session.state, "retry_at": retry_at, "busy": _times_busy(session.state) + 1}
        answer = Answer(f"{busy}; until then nothing is fetched", state=state)
        answer.log("warn", str(busy))
    except Exception as error:
        if not session.rotated:
            raise
        why = str(error) if isinstance(error, Failure) else f"a bug: {place_of(error)}"
        answer = Answer(
            f"the tokens were renewed and are kept; nothing else was done: {why}",
            state=session.state,
        )
        answer.log("error", f"{why}; the next run tries again")
        if isinstance(error, Failure) and error.said:
            answer.log("error", error.said)
    return answer


def waiting(state: Mapping[str, Any], now: float) -> Answer | None:
    """An answer for a run that comes before the provider wants to hear from us again."""
    retry_at = state.get("retry_at")
    if not isinstance(retry_at, int) or not now < retry_at <= now + LONGEST_RETRY + 1:
        return None
    return Answer(f"we were asked to wait; {retry_at - int(now)} s are left")


def backoff(state: Mapping[str, Any]) -> float:
    """Seconds to wait where the provider does not say: longer each time in a row."""
    return float(min(60 * 2 ** min(_times_busy(state), 6), 3600))


def rested(state: dict[str, Any]) -> None:
    """The provider has answered: forget that it once asked us to wait."""
    for key in ("retry_at", "busy"):
        state.pop(key, None)


def _times_busy(state: Mapping[str, Any]) -> int:
    times = state.get("busy")
    return times if isinstance(times, int) else 0


def authorization(
    session_state: Mapping[str, Any], now: float, *, pkce: bool
) -> tuple[dict[str, str], dict[str, Any]]:
    """What a link to the provider's consent page needs, and the state to remember it by."""
    import secrets

    verifier = secrets.token_urlsafe(64)
    nonce = secrets.token_urlsafe(24)
    query = {"response_type": "code", "state": nonce}
    if pkce:
        query |= {"code_challenge": challenge(verifier), "code_challenge_method": "S256"}
    remembered = (nonce, verifier, int(now) + AUTHORIZE_WITHIN)
    return query, {**session_state, **dict(zip(PENDING, remembered, strict=True))}


def challenge(verifier: str) -> str:
    """RFC 7636's S256: BASE64URL(SHA256(verifier)), without padding."""
    import base64
    import hashlib

    digest = hashlib.sha256(verifier.encode("ascii")).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def callback(payload: Any, state: Mapping[str, Any], now: float) -> tuple[str, str]:
    """The code and the verifier, out of `{url}` or `{code, state}` and what we remember."""
    from hmac import compare_digest
    from urllib.parse import parse_qs, urlsplit

    given = payload if isinstance(payload, dict) else {}
    if isinstance(given.get("url"), str):
        query = parse_qs(urlsplit(given["url"]).query)
        given = {key: values[0] for key, values in query.items()}
    nonce, verifier, until = (state.get(key) for key in PENDING)
    if not nonce or not verifier or now > (until or 0):
        raise Failure("no authorization is under way; run `authorize` first", retry=False)
    if given.get("error"):
        raise Failure("the provider says that access was not granted", retry=False)
    code, echoed = given.get("code"), given.get("state")
    if not isinstance(code, str) or not code or not isinstance(echoed, str):
        raise Failure("give the URL that the browser was sent to as `url`", retry=False)
    if not compare_digest(echoed.encode(), nonce.encode()):
        raise Failure("the answer belongs to another authorization; start again", retry=False)
    return code, verifier


def required(config: Mapping[str, Any], *keys: str) -> None:
    """Raise `Misconfigured` where one of these is absent, or no text."""
    for key in keys:
        if not isinstance(config.get(key), str) or not config[key]:
            raise Misconfigured(f"config.{key} must be text")


def _token(document: Mapping[str, Any], key: str, host: str) -> str:
    value = document.get(key)
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise Failure(f"{host} gave out no usable {key}")
    return value


def _life(value: Any) -> int:
    try:
        life = DEFAULT_LIFE if value is None or isinstance(value, bool) else int(value)
    except (ValueError, TypeError, OverflowError):
        life = DEFAULT_LIFE
    return min(max(life, 0), LONGEST_LIFE)


def _fingerprint(given: Mapping[str, str]) -> str:
    import hashlib

    text = "\0".join(f"{key}={value}" for key, value in sorted(given.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
