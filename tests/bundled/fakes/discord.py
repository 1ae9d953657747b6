"""A fake of Discord, by its documentation of messages.

- https://docs.discord.com/developers/resources/webhook#execute-webhook: POST
  /webhooks/{id}/{token}; JSON with one of `content` (up to 2,000 characters), `embeds`, ...;
  204, or with `?wait=true` 200 and the message. Without `wait` a message that was not saved
  is not an error. There is no `nonce`.
- https://docs.discord.com/developers/resources/message#create-message: POST
  /channels/{id}/messages with `Authorization: Bot <token>`; `nonce` of up to 25 characters,
  and with `enforce_nonce` a second message with the same nonce in the past few minutes is the
  first one, returned again.
- https://docs.discord.com/developers/reference: a User-Agent is required, for bots in the form
  `DiscordBot (url, version)`; errors are `{"code", "message", "errors"}`.
- https://docs.discord.com/developers/topics/rate-limits: 429 with `Retry-After` and
  `{"message", "retry_after", "global"}`.
"""

from __future__ import annotations

import json
from typing import Any

from tests.bundled.fakes.server import FakeReply, FakeServer, ReceivedRequest

API = "/api/v10"
WEBHOOK_TOKEN = "canary-discord-webhook-token"
WEBHOOK = f"{API}/webhooks/223704706495545344/{WEBHOOK_TOKEN}"
BOT_TOKEN = "canary.discord.bot-token"
CHANNEL = "199737254929760256"
MESSAGES = f"{API}/channels/{CHANNEL}/messages"
LONGEST = 2000
LONGEST_NONCE = 25


class Discord(FakeServer):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []

    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        if not request.headers.get("user-agent"):
            return self._no(403, 40333, "internal network error")
        if request.path == WEBHOOK:
            return self._webhook(request)
        if request.path == MESSAGES:
            return self._message(request)
        if request.path.startswith(f"{API}/webhooks/"):
            return self._no(404, 10015, "Unknown Webhook")
        if request.path.startswith(f"{API}/channels/"):
            return self._no(404, 10003, "Unknown Channel")
        return self._no(404, 0, "404: Not Found")

    def _webhook(self, request: ReceivedRequest) -> FakeReply:
        if request.method != "POST":
            return self._no(405, 0, "405: Method Not Allowed")
        message = self._read(request)
        if isinstance(message, FakeReply):
            return message
        if request.query.get("wait") != "true":
            self.refusals.append("without wait a message that is not saved is no error")
        self.messages.append(message)
        return FakeReply({"id": str(len(self.messages)), "content": message["content"]})

    def _message(self, request: ReceivedRequest) -> FakeReply:
        if request.method != "POST":
            return self._no(405, 0, "405: Method Not Allowed")
        if request.headers.get("authorization") != f"Bot {BOT_TOKEN}":
            return self._no(401, 0, "401: Unauthorized")
        if not request.headers["user-agent"].startswith("DiscordBot ("):
            return self._no(403, 40333, "internal network error")
        message = self._read(request)
        if isinstance(message, FakeReply):
            return message
        nonce = message.get("nonce")
        if nonce is not None and len(str(nonce)) > LONGEST_NONCE:
            return self._invalid("nonce", "Must be 25 or fewer in length.")
        for index, earlier in enumerate(self.messages):
            if message.get("enforce_nonce") and nonce and earlier.get("nonce") == nonce:
                return FakeReply({"id": str(index + 1), "content": earlier["content"]})
        self.messages.append(message)
        return FakeReply({"id": str(len(self.messages)), "content": message["content"]})

    def _read(self, request: ReceivedRequest) -> dict[str, Any] | FakeReply:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return self._no(400, 50006, "Cannot send an empty message")
        try:
            message = json.loads(request.body)
        except ValueError:
            return self._no(400, 50109, "The request body contains invalid JSON.")
        content = message.get("content") if isinstance(message, dict) else None
        if not isinstance(content, str) or not content.strip():
            return self._no(400, 50006, "Cannot send an empty message")
        if len(content.encode("utf-16-le")) // 2 > LONGEST:
            return self._invalid("content", "Must be 2000 or fewer in length.")
        return dict(message)

    def _invalid(self, field: str, why: str) -> FakeReply:
        errors = {field: {"_errors": [{"code": "BASE_TYPE_MAX_LENGTH", "message": why}]}}
        body = {"code": 50035, "message": "Invalid Form Body", "errors": errors}
        return self.refuse(why, FakeReply(body, 400))

    def _no(self, status: int, code: int, message: str) -> FakeReply:
        return self.refuse(message, FakeReply({"code": code, "message": message}, status))


def limited(seconds: float) -> FakeReply:
    body = {"message": "You are being rate limited.", "retry_after": seconds, "global": False}
    return FakeReply(
        body, 429, {"Retry-After": str(int(seconds) or 1), "X-RateLimit-Remaining": "0"}
    )
