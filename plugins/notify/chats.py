"""The channels ntfy, Discord, Slack and Telegram."""

from __future__ import annotations

import re

from channel import AGENT, Channel, get_document
from http_api import ApiClient
from message import count_json, count_utf16, split
from protocol import ConfigError, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from message import Message


class Ntfy(Channel):
    """A topic of ntfy. A repeated sequence id replaces the earlier notification."""

    keys = ("server", "topic", "token", "username", "password", "tags")
    LIMIT = 4000

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        super().__init__(name, settings, remaining)
        self._client = ApiClient(self.text("server", "https://ntfy.sh"), remaining, agent=AGENT)
        self._topic = self.text("topic")
        if not re.fullmatch(r"[-_A-Za-z0-9]{1,64}", self._topic):
            raise ConfigError(f"channel {name}: topic must have 1 to 64 letters, digits, - or _")
        tags = settings.get("tags") or []
        if not isinstance(tags, list) or sum(len(str(tag).encode()) for tag in tags) > 500:
            raise ConfigError(
                f"channel {name}: tags must be a list of texts with at most 500 bytes"
            )
        self._tags = [str(tag) for tag in tags]

    def split_units(self, message: Message) -> list[str]:
        return split(message.text, self.LIMIT, count_json)

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
        reply = self._client.send("POST", "/", document=document, headers=self._credentials())
        if reply.status != 200:
            raise self.make_failure(reply, get_document(reply).get("error"))

    def secrets(self) -> list[str]:
        """Also the encoded credentials, because a proxy may quote the request."""
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
    """A webhook, or a channel of a bot, whose messages have a nonce."""

    keys = ("secret_url", "token", "channel_id", "api")
    LIMIT = 2000
    MAX_NONCE = 25
    NO_MENTIONS: dict[str, list[str]] = {"parse": []}
    """Mentions in the text notify no user."""
    BOT = "DiscordBot (ductile, 1.0)"

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        super().__init__(name, settings, remaining)
        self._bot = self.has("token")
        if self._bot == self.has("secret_url"):
            raise ConfigError(f"channel {name}: set either secret_url, or token and channel_id")
        if not self._bot:
            self._client = ApiClient(self.text("secret_url"), remaining, agent=AGENT)
            return
        self._client = ApiClient(
            self.text("api", "https://discord.com/api/v10"), remaining, agent=self.BOT
        )
        if not self.text("channel_id").isdecimal():
            raise ConfigError(f"channel {name}: channel_id must be a number")

    def split_units(self, message: Message) -> list[str]:
        title = f"**{message.title}**\n" if message.title else ""
        return split(f"{title}{message.text_with_link}", self.LIMIT, count_utf16)

    def send(self, message: Message, unit: str, key: str) -> None:  # noqa: ARG002
        document: dict[str, Any] = {"content": unit, "allowed_mentions": self.NO_MENTIONS}
        if self._bot:
            document |= {"nonce": key[: self.MAX_NONCE], "enforce_nonce": True}
            path = f"/channels/{self.text('channel_id')}/messages"
            headers = {"Authorization": f"Bot {self.text('token')}"}
            reply = self._client.send("POST", path, document=document, headers=headers)
        else:
            # Without `wait`, a message that is not stored causes no error.
            reply = self._client.send("POST", "", query={"wait": "true"}, document=document)
        if reply.status in (200, 204):
            return
        answer = get_document(reply)
        raise self.make_failure(
            reply, answer.get("message"), _to_seconds(answer.get("retry_after"))
        )


class Slack(Channel):
    """An incoming webhook, or a channel of a bot."""

    keys = ("secret_url", "token", "channel", "api")
    LIMIT = 4000
    TRANSIENT = frozenset(
        {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "ratelimited"}
    )

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        super().__init__(name, settings, remaining)
        self._bot = self.has("token")
        if self._bot == self.has("secret_url"):
            raise ConfigError(f"channel {name}: set either secret_url, or token and channel")
        if self._bot:
            self.text("channel")
        base = self.text("api", "https://slack.com/api") if self._bot else self.text("secret_url")
        self._client = ApiClient(base, remaining, agent=AGENT)

    def split_units(self, message: Message) -> list[str]:
        title = f"*{message.title}*\n" if message.title else ""
        parts = split(
            f"{title}{message.text_with_link}", self.LIMIT, lambda text: len(_escape(text))
        )
        return [_escape(part) for part in parts]

    def send(self, message: Message, unit: str, key: str) -> None:  # noqa: ARG002
        if not self._bot:
            reply = self._client.send("POST", "", document={"text": unit})
            if reply.status != 200:
                raise self.make_failure(reply, None)
            return
        reply = self._client.send(
            "POST",
            "/chat.postMessage",
            document={"channel": self.text("channel"), "text": unit},
            headers={"Authorization": f"Bearer {self.text('token')}"},
        )
        answer = get_document(reply)
        if reply.status != 200 or not isinstance(answer.get("ok"), bool):
            raise self.make_failure(reply, answer.get("error"))
        if answer["ok"] is not True:
            error = self.redact(answer.get("error"))
            raise Failure(f"returned the error {error}", retry=error in self.TRANSIENT)


class Telegram(Channel):
    """A chat of a bot."""

    keys = ("token", "chat_id", "api")
    LIMIT = 4096

    def __init__(
        self, name: str, settings: Mapping[str, Any], remaining: Callable[[], float]
    ) -> None:
        super().__init__(name, settings, remaining)
        if not re.fullmatch(r"[0-9]+:[A-Za-z0-9_-]+", self.text("token")):
            raise ConfigError(f"channel {name}: token must have the form 123456:ABC-DEF")
        self.text("chat_id")
        self._client = ApiClient(
            self.text("api", "https://api.telegram.org"), remaining, agent=AGENT
        )

    def split_units(self, message: Message) -> list[str]:
        return split(message.full_text, self.LIMIT, count_utf16)

    def send(self, message: Message, unit: str, key: str) -> None:  # noqa: ARG002
        document = {
            "chat_id": self.text("chat_id"),
            "text": unit,
            "disable_notification": message.priority < 3,
        }
        reply = self._client.send(
            "POST", f"/bot{self.text('token')}/sendMessage", document=document
        )
        answer = get_document(reply)
        if reply.status == 200 and answer.get("ok") is True:
            return
        parameters = answer.get("parameters")
        wait = parameters.get("retry_after") if isinstance(parameters, dict) else None
        raise self.make_failure(reply, answer.get("description"), _to_seconds(wait))


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _to_seconds(value: Any) -> float | None:
    usable = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e6
    return float(value) if usable else None
