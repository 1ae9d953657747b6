"""A fake of Telegram's Bot API, by https://core.telegram.org/bots/api.

- #making-requests: /bot<token>/METHOD, GET or POST, JSON or forms; the answer always has `ok`,
  a refusal `error_code` and `description`, and may have `parameters`.
- #responseparameters: `retry_after`, the seconds to wait, where the flood control is exceeded.
- #sendmessage: `chat_id` and `text` are required; the text has 1 to 4,096 characters after
  entities parsing.
- https://github.com/tdlib/telegram-bot-api: 401 "Unauthorized" for a wrong token, 404 for what
  is not a token, 400 "Bad Request: chat not found", 403 "Forbidden: bot was blocked ...".
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.bundled.fakes.server import FakeReply, FakeServer, ReceivedRequest

TOKEN = "123456789:canary_telegram-bot-token-ABCDEFGHI"
CHAT = 987654321
BLOCKED = 666
LONGEST = 4096
SEND = f"/bot{TOKEN}/sendMessage"
_PATH = re.compile(r"/bot([0-9]+:[A-Za-z0-9_-]{35})/(\w+)")


class Telegram(FakeServer):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        found = _PATH.fullmatch(request.path)
        if found is None:
            return self._no(404, "Not Found")
        if found[1] != TOKEN:
            return self._no(401, "Unauthorized")
        if request.method not in ("GET", "POST") or found[2].lower() != "sendmessage":
            return self._no(404, "Not Found: method not found")
        document = _read(request)
        if document is None:
            return self._no(400, "Bad Request: can't parse JSON object")
        if document.get("chat_id") is None:
            return self._no(400, "Bad Request: chat_id is empty")
        if str(document["chat_id"]) == str(BLOCKED):
            return self._no(403, "Forbidden: bot was blocked by the user")
        if str(document["chat_id"]) != str(CHAT):
            return self._no(400, "Bad Request: chat not found")
        text = document.get("text")
        if not isinstance(text, str) or not text.strip():
            return self._no(400, "Bad Request: message text is empty")
        if len(text.encode("utf-16-le")) // 2 > LONGEST:
            return self._no(400, "Bad Request: message is too long")
        self.messages.append(text)
        return FakeReply({"ok": True, "result": {"message_id": len(self.messages), "text": text}})

    def _no(self, code: int, description: str) -> FakeReply:
        body = {"ok": False, "error_code": code, "description": description}
        return self.refuse(description, FakeReply(body, code))


def _read(request: ReceivedRequest) -> dict[str, Any] | None:
    if request.form:
        return dict(request.form)
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return {}
    try:
        document = json.loads(request.body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def limited(seconds: int) -> FakeReply:
    description = f"Too Many Requests: retry after {seconds}"
    body = {
        "ok": False,
        "error_code": 429,
        "description": description,
        "parameters": {"retry_after": seconds},
    }
    return FakeReply(body, 429)
