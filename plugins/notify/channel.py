"""The base class of channels, which send a message in one or more units.

A unit is sent in one request and remembered as sent: a part of a long text, or a mail to one
recipient.
"""

from __future__ import annotations

from http_api import RateLimited
from protocol import ConfigError, Failure
from redact import redact, redact_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from http_api import Reply
    from message import Message

AGENT = "ductile-notify/1.0"
MAX_EXPLANATION = 150
MAX_READ = 4096
SHORTEST_SECRET = 4
DEFAULT_WAIT = 60.0
SECRET_KEYS = ("token", "password", "secret_url")
PERMANENT = (400, 401, 403, 404, 405, 410, 413, 415, 422)
"""Statuses that a retry would not change."""


class Channel:
    ordered = True
    """Whether a failed unit stops the later ones, because parts of a text need their order."""
    keys: tuple[str, ...] = ()
    """Its settings, in addition to `name` and `type`."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        self.name, self.settings, self.remaining = name, settings, remaining

    def split_units(self, message: Message) -> list[str]:
        """The units of a message, in order."""
        raise NotImplementedError

    def send(self, message: Message, unit: str, key: str) -> None:
        """Send one unit, with `key` as its idempotency key if the provider has such.

        Raises `Failure`, with `retry=False` if the provider rejects it permanently, or
        `RateLimited`.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection."""

    def text(self, key: str, default: str | None = None) -> str:
        """A setting that must be printable text. Raises `ConfigError`."""
        value = self.settings.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ConfigError(f"channel {self.name}: {key} must be text")
        return value

    def has(self, key: str) -> bool:
        return self.settings.get(key) is not None

    def make_failure(self, reply: Reply, explanation: Any, wait: float | None = None) -> Failure:
        """The failure for an error reply."""
        reason = self.redact(explanation) or self.redact(reply.body.decode("utf-8", "replace"))
        if reply.status == 429:
            return RateLimited(self.name, wait or reply.retry_after(DEFAULT_WAIT))
        message = f"returned status {reply.status}{f' ({reason})' if reason else ''}"
        return Failure(message, retry=reply.status not in PERMANENT)

    def redact(self, text: Any) -> str:
        """Text of a provider as one short line without secrets."""
        if not isinstance(text, str):
            return ""
        hide = redact_start if len(text) > MAX_READ else redact
        text = hide(text[:MAX_READ], self.secrets())
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line[:MAX_EXPLANATION]

    def secrets(self) -> list[str]:
        """The credentials, and the parts of a secret URL."""
        found: set[str] = set()
        for key in SECRET_KEYS:
            value = self.settings.get(key)
            if isinstance(value, str):
                found |= {value, *(value.split("/")[3:] if "://" in value else ())}
        return [one for one in found if len(one) >= SHORTEST_SECRET]


def get_document(reply: Reply) -> dict[str, Any]:
    """The JSON object in a reply; empty if there is none."""
    try:
        return reply.json()
    except Failure:
        return {}
