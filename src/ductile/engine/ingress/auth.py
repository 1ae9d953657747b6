"""Who knocks: tokens of the configuration and of the ledger, by hash, in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable

from ductile.clock import Clock, to_text
from ductile.core.values.scopes import ALL, normalize
from ductile.engine.config.compiled import CompiledConfig
from ductile.record import dataclass
from ductile.store import tokens
from ductile.store.engines.api import Ledger

PREFIX = "dtk_"
"""Of the tokens that the ledger knows; another text never asks the ledger."""
FRESH = 1.0
"""Seconds after which the ledger's tokens are read again: another node may have revoked."""


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody who was let in."""

    id: str
    name: str
    scopes: frozenset[str]


LOCAL = Principal("local", "local socket", frozenset({ALL}))
"""Whoever can open the local socket."""


def digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(32)


@dataclass(frozen=True, slots=True)
class _Key:
    hash: str
    principal: Principal
    expires_at: str | None = None


class Authenticator:
    """Knows the tokens of the configuration in force. Thread-safe."""

    def __init__(
        self, compiled: Callable[[], CompiledConfig], ledger: Ledger, clock: Clock
    ) -> None:
        self._compiled, self._ledger, self._clock = compiled, ledger, clock
        self._lock = threading.Lock()
        self._of: CompiledConfig | None = None
        self._configured: tuple[_Key, ...] = ()
        self._stored: tuple[_Key, ...] = ()
        self._read_at: float | None = None
        self._changes = 0
        """How often the ledger's tokens were said to have changed."""

    def is_stale(self, token: str) -> bool:
        """Whether `refresh` has to be called before `who` can judge this token."""
        if not token.startswith(PREFIX):
            return False
        return self._read_at is None or self._clock.monotonic() - self._read_at > FRESH

    def refresh(self) -> None:
        """Read the ledger's tokens; blocks."""
        with self._lock:
            at, now, changes = self._clock.monotonic(), self._clock.now(), self._changes
            self._stored = tuple(
                _Key(t.hash, Principal(t.id, t.name, normalize(t.scopes)), t.expires_at)
                for t in self._ledger.read(lambda tx: tokens.good(tx, now))
            )
            # What changed meanwhile may not be in what was read.
            self._read_at = at if changes == self._changes else None

    def forget(self) -> None:
        """The ledger's tokens have changed."""
        self._changes += 1
        self._read_at = None

    def who(self, token: str) -> Principal | None:
        """Whose token it is; every known one is compared, so that time tells nothing."""
        given, found = digest(token), None
        now = to_text(self._clock.now())
        for key in (*self._keys(), *self._stored):
            same = hmac.compare_digest(key.hash, given)
            if same and found is None and (key.expires_at is None or now < key.expires_at):
                found = key.principal
        return found

    def _keys(self) -> tuple[_Key, ...]:
        compiled = self._compiled()
        if compiled is not self._of:
            self._configured = tuple(
                _Key(hash, Principal(hash[:32], token.name, normalize(token.scopes)))
                for token in compiled.settings.all_tokens
                for hash in (digest(token.key),)
            )
            self._of = compiled
        return self._configured
