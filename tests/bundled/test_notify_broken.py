"""`notify`, broken in one place each: the stand-ins refuse it, as the providers would."""

from __future__ import annotations

import pytest

from tests.bundled.house import BundledSite
from tests.bundled.town import HELLO, Town

MUTATIONS = [
    ("email", "notify/mail.py", 'mail["Date"] = formatdate(localtime=True)', "pass", "one Date"),
    ("email", "notify/mail.py", 'mail["From"] = self.settings["from"]', "pass", "one From"),
    ("email", "notify/mail.py", "server.starttls(context=self._context())", "pass", "STARTTLS"),
    (
        "email",
        "notify/mail.py",
        'server.login(self.text("username"), self.text("password"))',
        "pass",
        "530",
    ),
    (
        "email",
        "notify/mail.py",
        'mail.set_content(message.whole_text + "\\n", cte="quoted-printable")',
        'mail.set_payload("x" * 200_000)',
        "552",
    ),
    (
        "ntfy",
        "notify/chats.py",
        'self._site.send("POST", "/", document',
        'self._site.send("GET", "/", document',
        "not found",
    ),
    ("ntfy", "notify/chats.py", '"topic": self._topic,', "", "topic invalid"),
    (
        "ntfy",
        "notify/chats.py",
        "split(message.text, self.LIMIT, as_json)",
        "[message.text[:5000]]",
        "attachments",
    ),
    ("ntfy", "notify/chats.py", '"sequence_id": key,', '"sequence_id": key + "!",', "sequence ID"),
    ("ntfy", "notify/chats.py", '"priority": message.priority,', '"priority": "high",', "priority"),
    ("ntfy", "notify/chats.py", "headers=self._credentials()", "headers={}", "unauthorized"),
    (
        "ntfy",
        "lib/web.py",
        ".dumps(document).encode()",
        ".dumps(document).encode()[1:]",
        "valid JSON",
    ),
    (
        "discord",
        "notify/chats.py",
        'split(f"{title}{message.whole_text}", self.LIMIT, utf16)',
        "[title + message.whole_text]",
        "2000 or fewer",
    ),
    (
        "discord",
        "notify/chats.py",
        '{"content": unit, "allowed',
        '{"contents": unit, "allowed',
        "empty message",
    ),
    (
        "discord",
        "notify/chats.py",
        '"POST", "", query={"wait": "true"}, document',
        '"PUT", "", query={"wait": "true"}, document',
        "Method Not Allowed",
    ),
    ("discord", "notify/chats.py", 'query={"wait": "true"}, ', "", "without wait"),
    ("discord", "lib/web.py", '"application/json; charset=utf-8"', '"text/plain"', "empty message"),
    (
        "discord",
        "lib/web.py",
        '"User-Agent": self._agent, ',
        '"User-Agent": "", ',
        "internal network",
    ),
    (
        "discord",
        "lib/web.py",
        ".dumps(document).encode()",
        ".dumps(document).encode()[1:]",
        "invalid JSON",
    ),
    ("discord-bot", "notify/chats.py", "key[: self.LONGEST_NONCE]", "key", "25 or fewer"),
    ("discord-bot", "notify/chats.py", "agent=self.BOT", "agent=AGENT", "internal network"),
    ("discord-bot", "notify/chats.py", 'f"Bot {self.text', 'f"Bearer {self.text', "Unauthorized"),
    ("slack", "notify/chats.py", 'document={"text": unit}', 'document={"txt": unit}', "no_text"),
    (
        "slack",
        "notify/chats.py",
        'send("POST", "", document={"text"',
        'send("GET", "", document={"text"',
        "method_not_allowed",
    ),
    (
        "slack",
        "notify/chats.py",
        "return [_escaped(part) for part in parts]",
        "return parts",
        "not escaped",
    ),
    (
        "slack",
        "notify/chats.py",
        'keys = ("secret_url", "token", "channel", "api")\n    LIMIT = 4000',
        'keys = ("secret_url", "token", "channel", "api")\n    LIMIT = 40_000',
        "too_long",
    ),
    ("slack", "lib/web.py", '"application/json; charset=utf-8"', '"text/plain"', "invalid_payload"),
    (
        "slack-bot",
        "notify/chats.py",
        '{"channel": self.text("channel"), "text": unit}',
        '{"text": unit}',
        "channel_not_found",
    ),
    (
        "slack-bot",
        "notify/chats.py",
        "f\"Bearer {self.text('token')}\"},\n        )",
        '""},\n        )',
        "not_authed",
    ),
    (
        "slack-bot",
        "lib/web.py",
        ".dumps(document).encode()",
        ".dumps(document).encode()[1:]",
        "invalid_json",
    ),
    (
        "telegram",
        "notify/chats.py",
        '"text": unit,\n            "disable',
        '"txt": unit,\n            "disable',
        "text is empty",
    ),
    ("telegram", "notify/chats.py", "LIMIT = 4096", "LIMIT = 40_960", "too long"),
    ("telegram", "notify/chats.py", '"chat_id": self.text("chat_id"),', "", "chat_id is empty"),
    ("telegram", "notify/chats.py", "/sendMessage", "/sendMassage", "method not found"),
    (
        "telegram",
        "lib/web.py",
        ".dumps(document).encode()",
        ".dumps(document).encode()[1:]",
        "can't parse",
    ),
]


@pytest.mark.parametrize(("channel", "file", "old", "new", "why"), MUTATIONS)
def test_a_broken_plugin_is_refused(
    site: BundledSite, town: Town, channel: str, file: str, old: str, new: str, why: str
) -> None:
    site.mutate(file, old, new)
    settings = town.settings(channel)
    if "starttls" in old:
        # Without TLS this server offers no AUTH, and smtplib would not get further than that.
        del settings["username"]
    site.use("notify", {"channels": [settings]})
    text = HELLO["text"] + " word" * 3000
    site.direct("notify", "handle", payload={**HELLO, "text": text})
    assert any(why in refusal for refusal in town.provider(channel).refusals)
