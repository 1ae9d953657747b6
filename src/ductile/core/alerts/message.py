"""What an alert reports: the payload of its notification job, with a text for a person."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from ductile.clock import to_text
from ductile.core.alerts.causes import Cause, Causes
from ductile.core.alerts.conditions import MEANINGS, Condition
from ductile.core.alerts.state_machine import AlertState, News

MAX_LISTED = 10
"""Causes that a message lists."""
_PRIORITIES = {News.FIRING: "high", News.REMINDER: "high", News.FLAPPING: "high"}


def compose(
    *,
    gateway: str,
    rule: str,
    group: str,
    news: News,
    state: AlertState,
    since: datetime | None,
    causes: Causes,
    now: datetime,
    ended_at: datetime | None = None,
    dashboard: str | None = None,
) -> dict[str, Any]:
    """The payload. `causes` are those that fail, or with `resolved` those that failed last.

    `dashboard` is its address, if people can reach it.
    """
    first, last = causes.first, causes.last
    end = now if ended_at is None else ended_at
    duration = round(max((end - since).total_seconds(), 0.0)) if since is not None else 0
    commands = list(_commands(rule, causes))
    title = _title(gateway, group, news, first)
    return {
        "rule": rule,
        "group": group,
        "state": state.value,
        "news": news.value,
        "gateway": gateway,
        "since": None if since is None else to_text(since),
        "at": to_text(now),
        "duration_seconds": duration,
        "count": causes.count,
        "first_error": (first.first_error or None) if first else None,
        "last_error": (last.last_error or None) if last else None,
        "conditions": sorted({cause.condition.value for cause in causes.items}),
        "causes": [_describe(cause) for cause in causes.items[:MAX_LISTED]],
        "commands": commands,
        "links": list(_links(rule, causes)),
        "url": None if dashboard is None else f"{dashboard}#{_screen(rule, first)}",
        "priority": _PRIORITIES.get(news, "default"),
        "title": title,
        "message": _text(title, news, since, duration, causes, commands),
    }


def describe_duration(seconds: float) -> str:
    """For people, in at most two units: `2 h 5 min`."""
    left = int(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count and len(parts) < 2:
            parts.append(f"{count} {unit}")
        elif parts:
            break
    return " ".join(parts) or "0 s"


def _describe(cause: Cause) -> dict[str, Any]:
    return {
        "condition": cause.condition.value,
        "subject": cause.subject,
        "command": cause.command or None,
        "since": to_text(cause.since),
        "last_at": to_text(cause.last_at),
        "count": cause.count,
        "first_error": cause.first_error or None,
        "last_error": cause.last_error or None,
        "job_id": cause.job_id,
    }


def _title(gateway: str, group: str, news: News, first: Cause | None) -> str:
    what = group if first is None else _name(first)
    verb = {
        News.FIRING: "fails" if first is None else _WORDS[first.condition],
        News.REMINDER: "still fails" if first is None else f"still {_WORDS[first.condition]}",
        News.RESOLVED: "works again",
        News.FLAPPING: "keeps failing and recovering",
        News.TEST: "test alert",
    }[news]
    if news is News.TEST:
        return f"[{gateway}] test of an alert"
    return f"[{gateway}] {what}: {verb}"


_WORDS = {
    Condition.JOB_DEAD: "failed",
    Condition.RUN_FAILED: "failed",
    Condition.BREAKER_OPEN: "breaker open",
    Condition.SCHEDULE_MISSED: "did not run",
    Condition.SCHEDULE_SILENT: "silent",
    Condition.PLUGIN_SILENT: "silent",
    Condition.AGENT_SILENT: "silent",
    Condition.WEBHOOK_SILENT: "silent",
    Condition.DELIVERY_DEAD: "not delivered",
    Condition.AUTHORIZATION_ENDED: "authorization ended",
    Condition.QUEUE_AGE: "queue too old",
    Condition.DISK_FREE: "disk almost full",
    Condition.HEALTH: "unhealthy",
}


def _name(cause: Cause) -> str:
    kind, _, name = cause.subject.partition(":")
    return f"{kind} {name}" if name else kind


def _text(
    title: str,
    news: News,
    since: datetime | None,
    duration: int,
    causes: Causes,
    commands: list[str],
) -> str:
    lines = [title]
    if news is News.TEST:
        lines.append("Nothing is wrong: an operator tests whether this message arrives.")
        return "\n".join(lines)
    if since is not None:
        local = since.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        span = describe_duration(duration)
        if news is News.RESOLVED:
            lines.append(f"It failed since {local}, for {span}; failures: {causes.count}.")
        else:
            lines.append(f"Since {local} ({span}); failures: {causes.count}.")
    for cause in causes.items[:MAX_LISTED]:
        lines.append(f"- {_name(cause)}: {MEANINGS[cause.condition]} ({cause.count})")
    hidden = len(causes.items) - MAX_LISTED
    if hidden > 0 or causes.more:
        lines.append(f"- and others: {max(hidden, 0) + causes.more}")
    first, last = causes.first, causes.last
    if first is not None and first.first_error:
        lines.append(f"First error: {first.first_error}")
    if last is not None and last.last_error and first and last.last_error != first.first_error:
        lines.append(f"Last error: {last.last_error}")
    lines += [f"Look: {command}" for command in commands[:3]]
    return "\n".join(lines)


def _commands(rule: str, causes: Causes) -> list[str]:
    """The commands that show more, the most specific one first."""
    found: dict[str, None] = {}
    for cause in causes.items[:MAX_LISTED]:
        found[_command(cause)] = None
    found[f"ductile alert show {rule}"] = None
    return list(found)


def _command(cause: Cause) -> str:
    name = cause.subject.partition(":")[2]
    match cause.condition:
        case Condition.JOB_DEAD if cause.job_id:
            return f"ductile job why {cause.job_id}"
        case Condition.RUN_FAILED if cause.job_id:
            return f"ductile pipeline runs {cause.job_id}"
        case Condition.BREAKER_OPEN:
            return f"ductile system breaker {name}"
        case Condition.SCHEDULE_MISSED | Condition.SCHEDULE_SILENT:
            return f"ductile schedule explain {name}"
        case Condition.PLUGIN_SILENT | Condition.AUTHORIZATION_ENDED | Condition.JOB_DEAD:
            return f"ductile job list --plugin {name}"
        case Condition.AGENT_SILENT:
            return "ductile agent list"
        case Condition.WEBHOOK_SILENT if not name.startswith("/"):
            return "ductile webhook config list"
        case Condition.DELIVERY_DEAD if cause.subject.startswith("relay:"):
            return "ductile relay list --status dead"
        case Condition.DELIVERY_DEAD:
            return "ductile webhook deliveries --status dead"
        case Condition.QUEUE_AGE:
            return "ductile queue list"
        case _:
            return "ductile system doctor"


def _links(rule: str, causes: Causes) -> list[str]:
    """Paths of the API that show more."""
    jobs = [
        f"/job/{cause.job_id}/why"
        for cause in causes.items[:MAX_LISTED]
        if cause.job_id and cause.condition is Condition.JOB_DEAD
    ]
    return [f"/alerts/{rule}", *jobs]


def _screen(rule: str, cause: Cause | None) -> str:
    """The screen of the dashboard that shows the first cause, or else the rule."""
    if cause is not None and cause.job_id and cause.condition is Condition.JOB_DEAD:
        return f"/jobs/{cause.job_id}"
    if cause is not None and cause.job_id and cause.condition is Condition.RUN_FAILED:
        return f"/runs/{cause.job_id}"
    return f"/alerts?name={quote(rule, safe='')}"
