#!/usr/bin/env python3
"""Sends notifications, each once by each channel. README.md says what that means for each."""

from __future__ import annotations

import sys
import time

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from message import compose, rule_of
from outbox import Outbox, Waiting
from protocol import Answer, Failure, Misconfigured, Request, serve
from quantities import texts, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from channel import Channel
    from message import Message

TYPES = ("email", "ntfy", "discord", "slack", "telegram")
MOST_CHANNELS = 20
RESERVE = 4.0
"""Seconds before the deadline at which no more is begun: what was sent must be remembered."""
BESIDE = 3
"""How many waiting messages a new one takes along."""
AT_ONCE = 50


class Channels:
    """The channels of the config; one is made when it is first used."""

    def __init__(self, request: Request) -> None:
        listed = request.config.get("channels")
        if not isinstance(listed, list) or not 0 < len(listed) <= MOST_CHANNELS:
            raise Misconfigured(f"channels must be a list of 1 to {MOST_CHANNELS}")
        self._request = request
        self._settings: dict[str, dict[str, Any]] = {}
        self._made: dict[str, Channel] = {}
        for settings in listed:
            if not isinstance(settings, dict) or settings.get("type") not in TYPES:
                raise Misconfigured(f"each channel must have a type: {', '.join(TYPES)}")
            name = settings.get("name") or settings["type"]
            if not isinstance(name, str) or name in self._settings:
                raise Misconfigured("channels of one type need names of their own")
            self._settings[name] = settings

    @property
    def names(self) -> list[str]:
        return list(self._settings)

    def __getitem__(self, name: str) -> Channel:
        if name not in self._made:
            settings = self._settings[name]
            kind = _class(settings["type"])
            unknown = settings.keys() - {"name", "type", *kind.keys}
            if unknown:
                raise Misconfigured(f"channel {name}: unknown setting {min(unknown)!r}")
            self._made[name] = kind(name, settings, self._request.remaining)
        return self._made[name]

    def close(self) -> None:
        for channel in self._made.values():
            channel.close()


def _class(word: str) -> type[Channel]:
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
    """One run: what it sends, and what it has to say afterwards."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.channels = Channels(request)
        self.outbox = Outbox(request.state)
        self.max_tries = whole(request.config, "max_tries", 10, least=1, most=100)
        self.sent: list[str] = []
        self.sent_before: list[str] = []
        self.failures: list[tuple[Waiting, Failure]] = []

    def prepare(self, waiting: list[Waiting]) -> None:
        """Have every channel that is meant: a bad one must show before any has sent."""
        for one in waiting:
            self.channels[one.channel]

    def send(self, waiting: Waiting) -> None:
        """Send what of this message the channel has not sent yet."""
        channel = self.channels[waiting.channel]
        failure: Failure | None = None
        fresh = self.outbox.fresh
        for unit in channel.units(waiting.message):
            key = key_of(waiting.message, channel.name, unit)
            if self.outbox.was_sent(key):
                continue
            try:
                if self.request.remaining() < RESERVE:
                    raise Failure("no time was left")
                channel.send(waiting.message, unit, key)
                self.outbox.remember(key)
            except Failure as found:
                # One that may pass counts for more: it is the one to try again for.
                failure = found if failure is None or found.retry else failure
                if channel.ordered:
                    break
        if failure is not None:
            self.failures.append((waiting, failure))
        elif self.outbox.fresh > fresh:
            self.sent.append(waiting.channel)
        else:
            self.sent_before.append(waiting.channel)

    def postpone(self, waiting: Waiting, failure: Failure) -> None:
        """Keep for later what failed, or only the news of it where there is no later."""
        waiting.postpone(str(failure), time.time(), getattr(failure, "seconds", 0.0))
        waiting.failed = not failure.retry or waiting.tries >= self.max_tries
        self.outbox.keep(waiting)


def key_of(message: Message, channel: str, unit: str) -> str:
    """The same for every try of the same unit, and for nothing else."""
    import hashlib

    parts = (message.id, channel, message.title, message.text, unit)
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode("utf-8", "replace")
        digest.update(len(raw).to_bytes(8, "big") + raw)
    return digest.hexdigest()[:32]


def handle(request: Request) -> Answer:
    run = Run(request)
    message = compose(request)
    own = [Waiting(message, name) for name in meant(request, run.channels)]
    before = [one for one in run.outbox.due(time.time(), BESIDE) if not gone(run, one)]
    run.prepare([*own, *before])
    try:
        for waiting in own:
            run.send(waiting)
        failed = [(waiting, failure) for waiting, failure in run.failures if waiting in own]
        if failed and not run.outbox.fresh:
            # Nothing was sent, so nothing is forgotten: the gateway may try it all again.
            reasons = "; ".join(f"{waiting.channel} {failure}" for waiting, failure in failed)
            raise Failure(reasons, retry=any(failure.retry for _, failure in failed))
        for waiting in before:
            run.send(waiting)
    finally:
        run.channels.close()
    return settled(run, own, before)


def meant(request: Request, channels: Channels) -> list[str]:
    """The channels for this event: its own choice, its type's, or all."""
    payload = request.payload if isinstance(request.payload, dict) else {}
    rule = rule_of(request.config, request.event.get("type") or "")
    if payload.get("channels") is not None:
        try:
            chosen = texts(payload, "channels")
        except Misconfigured as error:
            raise Failure(f"the event's {error}", retry=False) from None
    else:
        chosen = texts(rule, "channels") or channels.names
    unknown = [name for name in chosen if name not in channels.names]
    if unknown:
        known = ", ".join(channels.names)
        raise Failure(f"there is no channel {unknown[0]!r}; there are: {known}", retry=False)
    return list(dict.fromkeys(chosen))


def settled(run: Run, own: list[Waiting], before: list[Waiting]) -> Answer:
    """The answer of a run that has sent something, or had nothing to send."""
    for waiting, failure in run.failures:
        run.postpone(waiting, failure)
    unsent = [waiting for waiting, _ in run.failures]
    run.outbox.waiting = [one for one in run.outbox.waiting if one not in before or one in unsent]
    said = [f"sent by {', '.join(run.sent)}"] if run.sent else []
    if run.sent_before:
        said.append(f"sent before by {', '.join(run.sent_before)}")
    for waiting, failure in run.failures:
        what = "was given up" if waiting.failed else "waits"
        said.append(f"{waiting.channel} {what}: {failure}")
    answer = Answer("; ".join(said) or "nothing to send", state=run.outbox.state())
    for waiting, failure in run.failures:
        level = "error" if waiting.failed else "warn"
        answer.log(level, f"{waiting.channel}: {failure}")
    for waiting in run.outbox.dropped:
        answer.log("error", f"{waiting.channel}: too much waits, {waiting.message.title!r} is lost")
    if not own and not before:
        answer.state = None
    return answer


def poll(request: Request) -> Answer:
    run = Run(request)
    due = [one for one in run.outbox.due(time.time(), AT_ONCE) if not gone(run, one)]
    run.prepare(due)
    try:
        for waiting in due:
            run.send(waiting)
    finally:
        run.channels.close()
    answer = settled(run, [], due)
    for waiting in [one for one in run.outbox.waiting if one.failed or gone(run, one)]:
        run.outbox.waiting.remove(waiting)
        tell_failure(answer, waiting)
        answer.state = run.outbox.state()
    return answer


def gone(run: Run, waiting: Waiting) -> bool:
    """Whether the config has no such channel any more."""
    return waiting.channel not in run.channels.names


def tell_failure(answer: Answer, waiting: Waiting) -> None:
    message, error = waiting.message, waiting.error or "the channel is gone"
    answer.emit(
        "notify.failed",
        {
            "id": message.id,
            "channel": waiting.channel,
            "type": message.type,
            "title": message.title,
            "error": error,
            "tries": waiting.tries,
            "message": f"{waiting.channel} did not get {message.title!r}: {error}",
        },
        key=f"notify.failed:{message.id}:{waiting.channel}",
    )


def health(request: Request) -> Answer:
    run = Run(request)
    for name in run.channels.names:
        run.channels[name]
    long = [one for one in run.outbox.waiting if one.failed or one.tries > 1]
    if long:
        worst = long[0]
        raise Failure(
            f"{len(long)} notifications could not be sent; {worst.channel}: {worst.error} "
            "(a schedule for poll tries again)"
        )
    return Answer(f"{len(run.channels.names)} channels, {len(run.outbox.waiting)} wait")


if __name__ == "__main__":
    serve({"handle": handle, "poll": poll, "health": health})
