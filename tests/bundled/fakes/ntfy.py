"""A fake of ntfy, by the documentation of publishing.

- https://docs.ntfy.sh/publish/#publish-as-json: POST of a JSON object to the server's root;
  `topic` is required, `message title tags priority click sequence_id` are optional.
- https://docs.ntfy.sh/publish/#limitations: messages of up to 4,096 bytes (longer ones become
  attachments, which this server does not keep), 429 for more than the allowed requests.
- https://docs.ntfy.sh/publish/#authentication: `Authorization: Bearer tk_...` or Basic; 401
  for a bad one, 403 for a topic that the user may not write to.
- https://docs.ntfy.sh/publish/#updating-deleting-notifications: a message with the sequence id
  of an earlier one replaces it on the subscribers' devices.
- https://github.com/binwiederhier/ntfy (docs/releases.md v2.28.0, server/errors.go): errors
  are `{"code", "http", "error", "link"}`; titles of up to 1 KB, tags of up to 512 bytes.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from tests.bundled.fakes.server import FakeReply, FakeServer, ReceivedRequest

TOKEN = "tk_canary_ntfy_token_1234567890"
USER, PASSWORD = "phil", "canary-ntfy-password"
TOPIC = "canary-topic"
NAME = re.compile(r"[-_A-Za-z0-9]{1,64}")
LONGEST = 4096
LONGEST_JSON = 2 * LONGEST
LONGEST_TITLE = 1024
LONGEST_TAGS = 512


class Ntfy(FakeServer):
    def __init__(self) -> None:
        super().__init__()
        self.published: list[dict[str, Any]] = []
        """Every message in order, including replaced ones."""

    @property
    def shown(self) -> list[str]:
        """The visible notifications: one per sequence."""
        screen: dict[str, str] = {}
        for number, message in enumerate(self.published):
            screen[message.get("sequence_id") or str(number)] = message["message"]
        return list(screen.values())

    def reply_to(self, request: ReceivedRequest) -> FakeReply:
        if request.method not in ("POST", "PUT") or request.path != "/":
            return self._no(404, 40401, "page not found")
        if not self._known(request):
            return self._no(401, 40101, "unauthorized")
        if len(request.body) > LONGEST_JSON:
            return self._no(413, 41303, "limit reached: JSON body too large")
        try:
            message = json.loads(request.body)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            return self._no(400, 40024, "invalid request: request body must be valid JSON")
        return self._publish(message)

    def _publish(self, message: dict[str, Any]) -> FakeReply:
        topic = message.get("topic")
        if not isinstance(topic, str) or not NAME.fullmatch(topic):
            return self._no(400, 40009, "invalid request: topic invalid")
        if topic != TOPIC:
            return self._no(403, 40301, "forbidden")
        if len(str(message.get("message", "")).encode()) > LONGEST:
            return self._no(400, 40014, "invalid request: attachments not allowed")
        if len(str(message.get("title", "")).encode()) > LONGEST_TITLE:
            return self._no(400, 40057, "invalid request: title too long")
        if sum(len(str(tag).encode()) for tag in message.get("tags", [])) > LONGEST_TAGS:
            return self._no(400, 40058, "invalid request: tags too long")
        priority = message.get("priority", 3)
        if type(priority) is not int or not 1 <= priority <= 5:
            return self._no(400, 40007, "invalid request: priority invalid")
        sequence = message.get("sequence_id")
        if sequence is not None and not NAME.fullmatch(sequence):
            return self._no(400, 40049, "invalid request: sequence ID invalid")
        self.published.append({"message": "triggered", **message})
        return FakeReply({"id": f"m{len(self.published)}", "event": "message", "topic": topic})

    def _known(self, request: ReceivedRequest) -> bool:
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        given = request.headers.get("authorization")
        return request.bearer == TOKEN or given == f"Basic {basic}"

    def _no(self, status: int, code: int, error: str) -> FakeReply:
        return self.refuse(error, FakeReply({"code": code, "http": status, "error": error}, status))
