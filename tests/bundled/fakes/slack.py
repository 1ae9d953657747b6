"""A fake of Slack, by its documentation of incoming webhooks and chat.postMessage.

- https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks: POST of JSON (or a
  form's `payload`) with `text`; 200 and the text `ok`.
- https://api.slack.com/changelog/2016-05-17-changes-to-errors-for-incoming-webhooks and the
  page above: plain texts, 400 `invalid_payload` `no_text`, 403 `action_prohibited`
  `invalid_token`, 404 `no_service` `channel_not_found`, 410 `channel_is_archived`,
  500 `rollup_error`.
- https://docs.slack.dev/reference/methods/chat.postMessage: POST, JSON with a Bearer token or a
  form; always 200, the outcome in `ok` and `error` (`not_authed invalid_auth channel_not_found
  no_text msg_too_long ...`). Texts should have at most 4,000 characters, and are cut at 40,000;
  here already 4,000 are the most.
- https://docs.slack.dev/apis/web-api/rate-limits: 429 with Retry-After, in seconds.
- https://docs.slack.dev/messaging/formatting-message-text: `&`, `<` and `>` are escaped.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.bundled.fakes.server import FakeReply, FakeServer, ReceivedRequest

HOOK_TOKEN = "canaryslackhooktoken0123"
HOOK = f"/services/T0000/B0000/{HOOK_TOKEN}"
BOT_TOKEN = "xoxb-canary-slack-bot-token"
CHANNEL = "C0123456789"
METHOD = "/api/chat.postMessage"
LONGEST = 4000
_BARE = re.compile(r"[<>]|&(?!(?:amp|lt|gt);)")


class Slack(FakeServer):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        if request.path == METHOD:
            return self._method(request)
        if not request.path.startswith("/services/"):
            return self._no(404, "not_found")
        if request.path != HOOK:
            return self._no(404, "no_service")
        if request.method != "POST":
            return self._no(405, "method_not_allowed")
        document = _read(request)
        if document is None:
            return self._no(400, "invalid_payload")
        text = document.get("text")
        if not isinstance(text, str) or not text:
            return self._no(400, "no_text")
        if len(text) > LONGEST:
            return self._no(400, "msg_too_long")
        self._take(text)
        return FakeReply(b"ok", headers={"Content-Type": "text/plain"})

    def _method(self, request: ReceivedRequest) -> FakeReply:
        if request.method != "POST":
            return self._fail("invalid_http_method")
        if request.bearer is None:
            return self._fail("not_authed")
        if request.bearer != BOT_TOKEN:
            return self._fail("invalid_auth")
        document = _read(request)
        if document is None:
            return self._fail("invalid_json")
        if document.get("channel") != CHANNEL:
            return self._fail("channel_not_found")
        text = document.get("text")
        if not isinstance(text, str) or not text:
            return self._fail("no_text")
        if len(text) > LONGEST:
            return self._fail("msg_too_long")
        self._take(text)
        return FakeReply({"ok": True, "channel": CHANNEL, "ts": f"{len(self.messages)}.000100"})

    def _take(self, text: str) -> None:
        if _BARE.search(text):
            self.refusals.append("control characters of the text are not escaped")
        self.messages.append(text)

    def _fail(self, error: str) -> FakeReply:
        return self.refuse(error, FakeReply({"ok": False, "error": error}))

    def _no(self, status: int, error: str) -> FakeReply:
        reply = FakeReply(error.encode(), status, {"Content-Type": "text/plain"})
        return self.refuse(error, reply)


def _read(request: ReceivedRequest) -> dict[str, Any] | None:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        return None
    try:
        document = json.loads(request.body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def limited(seconds: int) -> FakeReply:
    return FakeReply({"ok": False, "error": "ratelimited"}, 429, {"Retry-After": str(seconds)})
