"""ntfy, Discord, Slack and Telegram."""

from __future__ import annotations

import re

from channel import AGENT, Channel, document_of
from message import as_json, split, utf16
from protocol import Failure, Misconfigured
from web import Site

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from message import Message


class Ntfy(Channel):
    """A topic of ntfy. A repeated sequence id replaces the notification instead of adding one."""

    keys = ("server", "topic", "token", "username", "password", "tags")
    LIMIT = 4000

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        super().__init__(name, settings, remaining)
        self._site = Site(self.text("server", "https://ntfy.sh"), remaining, agent=AGENT)
        self._topic = self.text("topic")
        if not re.fullmatch(r"[-_A-Za-z0-9]{1,64}", self._topic):
            raise Misconfigured(f"channel {name}: that cannot be a topic")
        tags = settings.get("tags") or []
        if not isinstance(tags, list) or sum(len(str(tag).encode()) for tag in tags) > 500:
            raise Misconfigured(f"channel {name}: tags must be a short list of texts")
        self._tags = [str(tag) for tag in tags]

    def units(self, message: Message) -> list[str]:
        return split(message.text, self.LIMIT, as_json)

    def send(self, message: Message, unit: str, key: str) -> None:
        document: dict[str, Any] = {
            "topic": self._topic,
            "title": message.title,
            "message": unit,
            "priority": message.priority,
            "sequence_id": key,
        }
        if self._tags:
            document["tags"] = self._tags
        if message.url:
            document["click"] = message.url
        reply = self._site.send("POST", "/", document=document, headers=self._credentials())
        if reply.status != 200:
            raise self.refused(reply, document_of(reply).get("error"))

    def secrets(self) -> list[str]:
        """Also as they are sent: a proxy may quote its request."""
        sent = self._credentials().values()
        return [*super().secrets(), *(value.rpartition(" ")[2] for value in sent)]

    def _credentials(self) -> dict[str, str]:
        if self.has("token"):
            return {"Authorization": f"Bearer {self.text('token')}"}
        if self.has("username"):
            from base64 import b64encode

            pair = f"{self.text('username')}:{self.text('password')}".encode()
            return {"Authorization": f"Basic {b64encode(pair).decode()}"}
        return {}


class Discord(Channel):
    """A webhook, or a channel that a bot writes to; the bot's messages carry a nonce."""

    keys = ("secret_url", "token", "channel_id", "api")
    LIMIT = 2000
    LONGEST_NONCE = 25
    NOBODY: dict[str, list[str]] = {"parse": []}
    """Mentions in the text are shown, and call nobody."""
    BOT = "DiscordBot (ductile, 1.0)"

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        super().__init__(name, settings, remaining)
        self._bot = self.has("token")
        if self._bot == self.has("secret_url"):
            raise Misconfigured(f"channel {name}: give secret_url, or token and channel_id")
        if not self._bot:
            self._site = Site(self.text("secret_url"), remaining, agent=AGENT)
            return
        self._site = Site(
            self.text("api", "https://discord.com/api/v10"), remaining, agent=self.BOT
        )
        if not self.text("channel_id").isdecimal():
            raise Misconfigured(f"channel {name}: channel_id must be a number")

    def units(self, message: Message) -> list[str]:
        title = f"**{message.title}**\n" if message.title else ""
        return split(f"{title}{message.whole_text}", self.LIMIT, utf16)

    def send(self, message: Message, unit: str, key: str) -> None:  # noqa: ARG002
        document: dict[str, Any] = {"content": unit, "allowed_mentions": self.NOBODY}
        if self._bot:
            document |= {"nonce": key[: self.LONGEST_NONCE], "enforce_nonce": True}
            path = f"/channels/{self.text('channel_id')}/messages"
            headers = {"Authorization": f"Bot {self.text('token')}"}
            reply = self._site.send("POST", path, document=document, headers=headers)
        else:
            # Only then does a message that is not saved come back as an error.
            reply = self._site.send("POST", "", query={"wait": "true"}, document=document)
        if reply.status in (200, 204):
            return
        told = document_of(reply)
        raise self.refused(reply, told.get("message"), _seconds(told.get("retry_after")))


class Slack(Channel):
    """An incoming webhook, or a channel that a bot writes to."""

    keys = ("secret_url", "token", "channel", "api")
    LIMIT = 4000
    PASSING = frozenset(
        {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited"}
    )

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        super().__init__(name, settings, remaining)
        self._bot = self.has("token")
        if self._bot == self.has("secret_url"):
            raise Misconfigured(f"channel {name}: give secret_url, or token and channel")
        if self._bot:
            self.text("channel")
        base = self.text("api", "https://slack.com/api") if self._bot else self.text("secret_url")
        self._site = Site(base, remaining, agent=AGENT)

    def units(self, message: Message) -> list[str]:
        title = f"*{message.title}*\n" if message.title else ""
        parts = split(f"{title}{message.whole_text}", self.LIMIT, lambda text: len(_escaped(text)))
        return [_escaped(part) for part in parts]

    def send(self, message: Message, unit: str, key: str) -> None:  # noqa: ARG002
        if not self._bot:
            reply = self._site.send("POST", "", document={"text": unit})
            if reply.status != 200:
                raise self.refused(reply, None)
            return
        reply = self._site.send(
            "POST",
            "/chat.postMessage",
            document={"channel": self.text("channel"), "text": unit},
            headers={"Authorization": f"Bearer {self.text('token')}"},
        )
        told = document_of(reply)
        if reply.status != 200 or not isinstance(told.get("ok"), bool):
            raise self.refused(reply, told.get("error"))
        if told["ok"] is not True:
            error = self.hidden(told.get("error"))
            raise Failure(f"answered {error}", retry=error in self.PASSING)


class Telegram(Channel):
    """A chat that a bot writes to."""

    keys = ("token", "chat_id", "api")
    LIMIT = 4096

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        super().__init__(name, settings, remaining)
        if not re.fullmatch(r"[0-9]+:[A-Za-z0-9_-]+", self.text("token")):
            raise Misconfigured(f"channel {name}: that cannot be a bot's token")
        self.text("chat_id")
        self._site = Site(self.text("api", "https://api.telegram.org"), remaining, agent=AGENT)

    def units(self, message: Message) -> list[str]:
        return split(message.all, self.LIMIT, utf16)

    def send(self, message: Message, unit: str, key: str) -> None:  # noqa: ARG002
        document = {
            "chat_id": self.text("chat_id"),
            "text": unit,
            "disable_notification": message.priority < 3,
        }
        reply = self._site.send("POST", f"/bot{self.text('token')}/sendMessage", document=document)
        told = document_of(reply)
        if reply.status == 200 and told.get("ok") is True:
            return
        parameters = told.get("parameters")
        wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
        raise self.refused(reply, told.get("description"), _seconds(wait))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _seconds(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6
    return float(value) if usable else None
