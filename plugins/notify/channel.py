"""What every channel is: a name, settings, and a way to send one message in units.

A unit is what is sent at once, and remembered as sent: a part of a long text, or a mail to
one recipient.
"""

from __future__ import annotations

from protocol import Failure, Misconfigured
from quoting import beginning, hidden
from web import Busy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from message import Message
    from web import Reply

AGENT = "ductile-notify/1.0"
LONGEST_EXPLANATION = 150
MOST_READ = 4096
SHORTEST_SECRET = 4
DEFAULT_WAIT = 60.0
SECRET_KEYS = ("token", "password", "secret_url")
REFUSED = (400, 401, 403, 404, 405, 410, 413, 415, 422)
"""Statuses that sending again would not change."""


class Channel:
    ordered = True
    """Whether a unit that fails keeps the later ones back: parts of a text belong in order."""
    keys: tuple[str, ...] = ()
    """The settings that it has, beside `name` and `type`."""

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        self.name, self.settings, self.remaining = name, settings, remaining

    def units(self, message: Message) -> list[str]:
        """What is sent, one after the other."""
        raise NotImplementedError

    def send(self, message: Message, unit: str, key: str) -> None:
        """Send one unit, marked by `key` where the provider takes such a mark.

        Raises `Failure`: with `retry=False` the provider has refused it for good, and
        `Busy` says when to come back.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Nothing more will be sent."""

    def text(self, key: str, default: str | None = None) -> str:
        """A setting that must be printable text. Raises `Misconfigured`."""
        value = self.settings.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise Misconfigured(f"channel {self.name}: {key} must be text")
        return value

    def has(self, key: str) -> bool:
        return self.settings.get(key) is not None

    def refused(self, reply: Reply, explanation: Any, wait: float | None = None) -> Failure:
        """The failure that a reply means."""
        told = self.hidden(explanation) or self.hidden(reply.body.decode("utf-8", "replace"))
        if reply.status == 429:
            return Busy(self.name, wait or reply.retry_after(DEFAULT_WAIT))
        what = f"answered {reply.status}{f' ({told})' if told else ''}"
        return Failure(what, retry=reply.status not in REFUSED)

    def hidden(self, text: Any) -> str:
        """What a provider says, in one short line and without any secret of ours."""
        if not isinstance(text, str):
            return ""
        cut = beginning if len(text) > MOST_READ else hidden
        text = cut(text[:MOST_READ], self.secrets())
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return line[:LONGEST_EXPLANATION]

    def secrets(self) -> list[str]:
        """Credentials, and the parts of a URL that is one."""
        found: set[str] = set()
        for key in SECRET_KEYS:
            value = self.settings.get(key)
            if isinstance(value, str):
                found |= {value, *(value.split("/")[3:] if "://" in value else ())}
        return [one for one in found if len(one) >= SHORTEST_SECRET]


def document_of(reply: Reply) -> dict[str, Any]:
    """The reply's JSON object; empty where it has none."""
    try:
        return reply.json()
    except Failure:
        return {}
