"""API tokens of the configuration and of the ledger, and the dashboard's sessions.

Tokens are compared by hash in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.clock import Clock, to_text
from ductile.core.values.scopes import ALL, normalize
from ductile.engine.config.compiled import CompiledConfig
from ductile.store.access import tokens, ui_sessions
from ductile.store.access.ui_sessions import StoredSession
from ductile.store.engines.api import Ledger

PREFIX = "dtk_"
"""Prefix of tokens that are stored in the ledger; no other token is looked up there."""
REFRESH_AFTER = 1.0
"""Seconds after which the ledger's tokens are read again: another node may revoke one."""


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller."""

    id: str
    name: str
    scopes: frozenset[str]
    is_lease: bool = False
    """Whether what it starts is counted against its budget and recorded in the audit log."""


LOCAL = Principal("local", "local socket", frozenset({ALL}))
"""Every caller that can open the local socket."""
TOUCH_AFTER = timedelta(minutes=5)
"""The ledger learns of a session's use at most this often."""


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def make_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class _TokenEntry:
    hash: str
    principal: Principal
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """An open session of the dashboard."""

    stored: StoredSession
    principal: Principal
    needs_touch: bool
    """Whether its use has to be recorded."""


class LoginCodes:
    """One-use codes that open a session without a token. Used in the event loop."""

    LIFETIME = timedelta(seconds=60)
    MAX_CODES = 16

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._codes: dict[str, datetime] = {}

    def create(self) -> str:
        """Return a new code; the oldest is void if there are too many."""
        code = secrets.token_urlsafe(32)
        while len(self._codes) >= self.MAX_CODES:
            del self._codes[next(iter(self._codes))]
        self._codes[hash_token(code)] = self._clock.now() + self.LIFETIME
        return code

    def redeem(self, code: str) -> bool:
        """Whether the code is valid; it is void afterwards."""
        end = self._codes.pop(hash_token(code), None)
        return end is not None and self._clock.now() < end


class Authenticator:
    """Maps tokens and session cookies to principals. Thread-safe."""

    def __init__(
        self, compiled: Callable[[], CompiledConfig], ledger: Ledger, clock: Clock
    ) -> None:
        self._compiled, self._ledger, self._clock = compiled, ledger, clock
        self._lock = threading.Lock()
        self._read_from: CompiledConfig | None = None
        self._configured: tuple[_TokenEntry, ...] = ()
        self._stored: tuple[_TokenEntry, ...] = ()
        self._sessions: dict[str, StoredSession] = {}
        self._read_at: float | None = None
        self._changes = 0
        """Number of `invalidate` calls."""

    def is_stale(self, token: str) -> bool:
        """Whether `refresh` must be called before `identify` can decide on this token."""
        return token.startswith(PREFIX) and self.has_expired_copy()

    def has_expired_copy(self) -> bool:
        """Whether `refresh` must be called before `identify_session` can decide."""
        return self._read_at is None or self._clock.monotonic() - self._read_at > REFRESH_AFTER

    def refresh(self) -> None:
        """Read the ledger's tokens and sessions; blocks."""
        with self._lock:
            at, now, changes = self._clock.monotonic(), self._clock.now(), self._changes
            valid, open_sessions = self._ledger.read(
                lambda tx: (tokens.list_valid(tx, now), ui_sessions.list_open(tx, now))
            )
            self._stored = tuple(
                _TokenEntry(
                    t.hash, Principal(t.id, t.name, normalize(t.scopes), t.is_lease), t.expires_at
                )
                for t in valid
            )
            self._sessions = {session.hash: session for session in open_sessions}
            # A change during the read may be missing from its result.
            self._read_at = at if changes == self._changes else None

    def invalidate(self) -> None:
        """Have the ledger's tokens and sessions read again: they have changed."""
        self._changes += 1
        self._read_at = None

    def identify(self, token: str) -> Principal | None:
        """The owner of the token. All tokens are compared, so that the duration reveals nothing."""
        return self._owner_of(hash_token(token))

    def identify_session(self, cookie: str) -> Session | None:
        """The open session of this cookie, if its token is still valid."""
        stored, now = self._sessions.get(hash_token(cookie)), self._clock.now()
        if stored is None or stored.expires_at() <= now:
            return None
        principal = LOCAL if stored.token_hash is None else self._owner_of(stored.token_hash)
        if principal is None:
            return None
        return Session(stored, principal, needs_touch=now - stored.seen_at > TOUCH_AFTER)

    def _owner_of(self, given: str) -> Principal | None:
        found, now = None, to_text(self._clock.now())
        for key in (*self._configured_entries(), *self._stored):
            same = hmac.compare_digest(key.hash, given)
            if same and found is None and (key.expires_at is None or now < key.expires_at):
                found = key.principal
        return found

    def _configured_entries(self) -> tuple[_TokenEntry, ...]:
        compiled = self._compiled()
        if compiled is not self._read_from:
            self._configured = tuple(
                _TokenEntry(hash, Principal(hash[:32], token.name, normalize(token.scopes)))
                for token in compiled.settings.all_tokens
                # Without scopes it is the secret of a webhook or of a relay, not a token.
                if token.scopes
                for hash in (hash_token(token.key),)
            )
            self._read_from = compiled
        return self._configured
