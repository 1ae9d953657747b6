"""API tokens of the configuration and of the ledger, compared by hash in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable

from ductile._fast_dataclass import dataclass
from ductile.clock import Clock, to_text
from ductile.core.values.scopes import ALL, normalize
from ductile.engine.config.compiled import CompiledConfig
from ductile.store import tokens
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


LOCAL = Principal("local", "local socket", frozenset({ALL}))
"""Every caller that can open the local socket."""


def hash_token(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def make_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class _TokenEntry:
    hash: str
    principal: Principal
    expires_at: str | None = None


class Authenticator:
    """Maps tokens to principals. Thread-safe."""

    def __init__(
        self, compiled: Callable[[], CompiledConfig], ledger: Ledger, clock: Clock
    ) -> None:
        self._compiled, self._ledger, self._clock = compiled, ledger, clock
        self._lock = threading.Lock()
        self._read_from: CompiledConfig | None = None
        self._configured: tuple[_TokenEntry, ...] = ()
        self._stored: tuple[_TokenEntry, ...] = ()
        self._read_at: float | None = None
        self._changes = 0
        """Number of `invalidate` calls."""

    def is_stale(self, token: str) -> bool:
        """Whether `refresh` must be called before `identify` can decide on this token."""
        if not token.startswith(PREFIX):
            return False
        return self._read_at is None or self._clock.monotonic() - self._read_at > REFRESH_AFTER

    def refresh(self) -> None:
        """Read the ledger's tokens; blocks."""
        with self._lock:
            at, now, changes = self._clock.monotonic(), self._clock.now(), self._changes
            self._stored = tuple(
                _TokenEntry(t.hash, Principal(t.id, t.name, normalize(t.scopes)), t.expires_at)
                for t in self._ledger.read(lambda tx: tokens.list_valid(tx, now))
            )
            # A change during the read may be missing from its result.
            self._read_at = at if changes == self._changes else None

    def invalidate(self) -> None:
        """Have the ledger's tokens read again: they have changed."""
        self._changes += 1
        self._read_at = None

    def identify(self, token: str) -> Principal | None:
        """The owner of the token. All tokens are compared, so that the duration reveals nothing."""
        given, found = hash_token(token), None
        now = to_text(self._clock.now())
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
                for hash in (hash_token(token.key),)
            )
            self._read_from = compiled
        return self._configured
