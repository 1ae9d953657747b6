#!/usr/bin/env python3
"""Sends notifications, once per channel. See README.md."""

from __future__ import annotations

import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from message import compose, get_rule
from outbox import Outbox, PendingMessage
from protocol import ConfigError, Failure, Request, Response, serve
from settings import read_integer, read_texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from channel import Channel
    from message import Message

TYPES = ("email", "ntfy", "discord", "slack", "telegram")
MAX_CHANNELS = 20
RESERVE = 4.0
"""Seconds before the deadline at which sending stops, to store what was sent."""
RETRIES_PER_EVENT = 3
"""Maximum number of pending messages that are retried with a new one."""
RETRIES_PER_POLL = 50


class Channels:
    """The configured channels; each is created when it is first used."""

    def __init__(self, request: Request) -> None:
        listed = request.config.get("channels")
        if not isinstance(listed, list) or not 0 < len(listed) <= MAX_CHANNELS:
            raise ConfigError(f"channels must be a list of 1 to {MAX_CHANNELS} channels")
        self._request = request
        self._settings: dict[str, dict[str, Any]] = {}
        self._made: dict[str, Channel] = {}
        for settings in listed:
            if not isinstance(settings, dict) or settings.get("type") not in TYPES:
                raise ConfigError(f"each channel must have a type, one of {', '.join(TYPES)}")
            name = settings.get("name") or settings["type"]
            if not isinstance(name, str) or name in self._settings:
                raise ConfigError("channels of the same type must have different names")
            self._settings[name] = settings

    @property
    def names(self) -> list[str]:
        return list(self._settings)

    def __getitem__(self, name: str) -> Channel:
        if name not in self._made:
            settings = self._settings[name]
            kind = _get_class(settings["type"])
            unknown = settings.keys() - {"name", "type", *kind.keys}
            if unknown:
                raise ConfigError(f"channel {name}: unknown setting {min(unknown)!r}")
            self._made[name] = kind(name, settings, self._request.remaining)
        return self._made[name]

    def close(self) -> None:
        for channel in self._made.values():
            channel.close()


def _get_class(word: str) -> type[Channel]:
    if word == "email":
        from mail import Mail

        return Mail
    import chats

    known: dict[str, type[Channel]] = {
        "ntfy": chats.Ntfy,
        "discord": chats.Discord,
        "slack": chats.Slack,
        "telegram": chats.Telegram,
    }
    return known[word]


class Run:
    """The sent and failed messages of one run."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.channels = Channels(request)
        self.outbox = Outbox(request.state)
        self.max_tries = read_integer(request.config, "max_tries", 10, minimum=1, maximum=100)
        self.sent: list[str] = []
        self.sent_before: list[str] = []
        self.failures: list[tuple[PendingMessage, Failure]] = []

    def prepare(self, waiting: list[PendingMessage]) -> None:
        """Create the channels, so that an invalid one is reported before any message is sent."""
        for one in waiting:
            self.channels[one.channel]

    def send(self, waiting: PendingMessage) -> None:
        """Send the units of a message that the channel has not sent yet."""
        channel = self.channels[waiting.channel]
        failure: Failure | None = None
        fresh = self.outbox.fresh
        units = channel.split_units(waiting.message)
        for index, unit in enumerate(units):
            key = make_key(waiting.message, channel.name, unit, units[:index].count(unit))
            if self.outbox.was_sent(key):
                continue
            try:
                if self.request.remaining() < RESERVE:
                    raise Failure("there was no time left")
                channel.send(waiting.message, unit, key)
                self.outbox.remember(key)
            except Failure as found:
                # A transient failure has precedence, because it can be retried.
                failure = found if failure is None or found.retry else failure
                if channel.ordered:
                    break
        if failure is not None:
            self.failures.append((waiting, failure))
        elif self.outbox.fresh > fresh:
            self.sent.append(waiting.channel)
        else:
            self.sent_before.append(waiting.channel)

    def postpone(self, waiting: PendingMessage, failure: Failure) -> None:
        """Keep a failed message for a retry, or for the report that it is given up."""
        waiting.postpone(str(failure), time.time(), getattr(failure, "seconds", 0.0))
        waiting.failed = not failure.retry or waiting.tries >= self.max_tries
        self.outbox.keep(waiting)


def make_key(message: Message, channel: str, unit: str, repetition: int) -> str:
    """The idempotency key of a unit, equal for all its retries.

    `repetition` counts the equal units before it, because a long text may repeat a part.
    """
    import hashlib

    parts = [message.id, channel, message.title, message.text, unit]
    if repetition:
        parts.append(str(repetition))
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "replace")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()[:32]


def handle(request: Request) -> Response:
    run = Run(request)
    message = compose(request)
    own = [PendingMessage(message, name) for name in choose_channels(request, run.channels)]
    before = [
        one
        for one in run.outbox.list_due(time.time(), RETRIES_PER_EVENT)
        if not is_removed(run, one)
    ]
    run.prepare([*own, *before])
    try:
        for waiting in own:
            run.send(waiting)
        failed = [(waiting, failure) for waiting, failure in run.failures if waiting in own]
        if failed and not run.outbox.fresh:
            # Nothing was sent, so the gateway can retry the whole job.
            reasons = "; ".join(f"{waiting.channel} {failure}" for waiting, failure in failed)
            raise Failure(reasons, retry=any(failure.retry for _, failure in failed))
        for waiting in before:
            run.send(waiting)
    finally:
        run.channels.close()
    return build_response(run, own, before)


def choose_channels(request: Request, channels: Channels) -> list[str]:
    """The channels for an event: those of its payload, of its type, or all."""
    payload = request.payload if isinstance(request.payload, dict) else {}
    rule = get_rule(request.config, request.event.get("type") or "")
    if payload.get("channels") is not None:
        try:
            chosen = read_texts(payload, "channels")
        except ConfigError as error:
            raise Failure(f"in the event, {error}", retry=False) from None
    else:
        chosen = read_texts(rule, "channels") or channels.names
    unknown = [name for name in chosen if name not in channels.names]
    if unknown:
        known = ", ".join(channels.names)
        raise Failure(f"there is no channel {unknown[0]!r}; known: {known}", retry=False)
    return list(dict.fromkeys(chosen))


def build_response(run: Run, own: list[PendingMessage], before: list[PendingMessage]) -> Response:
    """The response of a run that sent something, or had nothing to send."""
    for waiting, failure in run.failures:
        run.postpone(waiting, failure)
    unsent = [waiting for waiting, _ in run.failures]
    run.outbox.waiting = [one for one in run.outbox.waiting if one not in before or one in unsent]
    results = [f"sent by {', '.join(run.sent)}"] if run.sent else []
    if run.sent_before:
        results.append(f"already sent by {', '.join(run.sent_before)}")
    for waiting, failure in run.failures:
        outcome = "failed" if waiting.failed else "will be retried"
        results.append(f"{waiting.channel} {outcome}: {failure}")
    response = Response("; ".join(results) or "nothing to send", state=run.outbox.state())
    for waiting, failure in run.failures:
        level = "error" if waiting.failed else "warn"
        response.log(level, f"{waiting.channel}: {failure}")
    for waiting in run.outbox.dropped:
        response.log(
            "error",
            f"{waiting.channel}: too many pending messages; {waiting.message.title!r} was dropped",
        )
    if not own and not before:
        response.state = None
    return response


def poll(request: Request) -> Response:
    run = Run(request)
    due = [
        one
        for one in run.outbox.list_due(time.time(), RETRIES_PER_POLL)
        if not is_removed(run, one)
    ]
    run.prepare(due)
    try:
        for waiting in due:
            run.send(waiting)
    finally:
        run.channels.close()
    response = build_response(run, [], due)
    for waiting in [one for one in run.outbox.waiting if one.failed or is_removed(run, one)]:
        run.outbox.waiting.remove(waiting)
        emit_failure(response, waiting)
        response.state = run.outbox.state()
    return response


def is_removed(run: Run, waiting: PendingMessage) -> bool:
    """Whether the channel is no longer configured."""
    return waiting.channel not in run.channels.names


def emit_failure(response: Response, waiting: PendingMessage) -> None:
    message, error = waiting.message, waiting.error or "the channel is no longer configured"
    response.emit(
        "notify.failed",
        {
            "id": message.id,
            "channel": waiting.channel,
            "type": message.type,
            "title": message.title,
            "error": error,
            "tries": waiting.tries,
            "message": f"{waiting.channel} did not send {message.title!r}: {error}",
        },
        key=f"notify.failed:{message.id}:{waiting.channel}",
    )


def health(request: Request) -> Response:
    run = Run(request)
    for name in run.channels.names:
        run.channels[name]
    long = [one for one in run.outbox.waiting if one.failed or one.tries > 1]
    if long:
        worst = long[0]
        raise Failure(
            f"{len(long)} notifications could not be sent; {worst.channel}: {worst.error} "
            "(schedule `poll` to retry them)"
        )
    return Response(
        f"{len(run.channels.names)} channels, {len(run.outbox.waiting)} pending messages"
    )


if __name__ == "__main__":
    serve({"handle": handle, "poll": poll, "health": health})
