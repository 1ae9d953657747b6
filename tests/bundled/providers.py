"""The fake providers of `notify`, and settings for them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from ductile.store.jobs import plugin_state
from tests.bundled.fakes import discord, ntfy, slack, smtp, telegram
from tests.bundled.fakes.discord import Discord
from tests.bundled.fakes.ntfy import Ntfy
from tests.bundled.fakes.slack import Slack
from tests.bundled.fakes.smtp import MailServer
from tests.bundled.fakes.telegram import Telegram
from tests.engine.receiver import CertificateAuthority
from tests.engine.site import Running

SOON = {"max_attempts": 4, "backoff_base": "10ms"}
HELLO = {"title": "Weight", "text": "82 kg <is> more & more"}


@dataclass
class Providers:
    """Fake providers, each started when it is first used."""

    stack: ExitStack
    authority: CertificateAuthority
    opened: dict[str, Any] = field(default_factory=dict)

    def _open(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self.opened:
            self.opened[name] = self.stack.enter_context(make())
        return self.opened[name]

    @property
    def ntfy(self) -> Ntfy:
        found: Ntfy = self._open("ntfy", Ntfy)
        return found

    @property
    def discord(self) -> Discord:
        found: Discord = self._open("discord", Discord)
        return found

    @property
    def slack(self) -> Slack:
        found: Slack = self._open("slack", Slack)
        return found

    @property
    def telegram(self) -> Telegram:
        found: Telegram = self._open("telegram", Telegram)
        return found

    @property
    def mail(self) -> MailServer:
        found: MailServer = self._open("mail", lambda: MailServer(self.authority.server()))
        return found

    def settings(self, channel: str, **more: Any) -> dict[str, Any]:
        """Valid settings of a channel."""
        made: dict[str, Callable[[], dict[str, Any]]] = {
            "email": lambda: mail_settings(self.mail, self.authority),
            "ntfy": lambda: {"server": self.ntfy.url, "topic": ntfy.TOPIC, "token": ntfy.TOKEN},
            "discord": lambda: {"secret_url": f"{self.discord.url}{discord.WEBHOOK}"},
            "discord-bot": lambda: {
                "type": "discord",
                "api": f"{self.discord.url}{discord.API}",
                "token": discord.BOT_TOKEN,
                "channel_id": discord.CHANNEL,
            },
            "slack": lambda: {"secret_url": f"{self.slack.url}{slack.HOOK}"},
            "slack-bot": lambda: {
                "type": "slack",
                "api": f"{self.slack.url}/api",
                "token": slack.BOT_TOKEN,
                "channel": slack.CHANNEL,
            },
            "telegram": lambda: {
                "api": self.telegram.url,
                "token": telegram.TOKEN,
                "chat_id": telegram.CHAT,
            },
        }
        return {"type": channel, **made[channel](), **more}

    def provider(self, channel: str) -> Any:
        name = "mail" if channel == "email" else channel.partition("-")[0]
        return getattr(self, name)

    def received(self, channel: str) -> list[str]:
        """The texts that the provider received."""
        provider = self.provider(channel)
        if isinstance(provider, MailServer):
            return [f"{mail.message['Subject']}\n{mail.text}" for mail in provider.mails]
        if isinstance(provider, Ntfy):
            return [f"{one.get('title')}\n{one['message']}" for one in provider.published]
        if isinstance(provider, Discord):
            return [one["content"] for one in provider.messages]
        return list(provider.messages)


CHANNELS = ("email", "ntfy", "discord", "discord-bot", "slack", "slack-bot", "telegram")
CHATS = CHANNELS[1:]
PATHS = {
    "ntfy": "/",
    "discord": discord.WEBHOOK,
    "discord-bot": discord.MESSAGES,
    "slack": slack.HOOK,
    "slack-bot": slack.METHOD,
    "telegram": telegram.SEND,
}


def mail_settings(
    server: MailServer, authority: CertificateAuthority, **more: Any
) -> dict[str, Any]:
    settings = {
        "type": "email",
        "host": "localhost",
        "port": server.port,
        "username": smtp.USER,
        "password": smtp.PASSWORD,
        "from": "Gateway <gateway@example.org>",
        "to": ["me@example.org"],
        "ca_file": str(authority.certificate),
        **more,
    }
    return {key: value for key, value in settings.items() if value is not None}


def get_state(running: Running, plugin: str = "notify") -> dict[str, Any]:
    return running.gateway.ledger.read(lambda tx: plugin_state.load_state(tx, plugin))


def send_notification(running: Running, payload: dict[str, Any]) -> dict[str, Any]:
    """Send an event to the plugin and return its finished job."""
    return running.run("notify", "handle", payload)
