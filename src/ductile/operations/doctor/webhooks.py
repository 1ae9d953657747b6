"""Checks of webhook endpoints: requests that the running gateway refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from shlex import quote
from typing import Any

from ductile.config import Settings
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, warning

STATUS = "/system/status?health=last"
MAX_REASONS = 5
MISMATCH = "the signature does not match"


def refused(context: DoctorContext) -> Iterator[Finding]:
    """Endpoints that refused requests within the last hour, how many and why."""
    if context.ask is None:
        return
    rows = context.ask(STATUS).get("refused_webhooks", ())
    rows = sorted(rows, key=lambda row: (row["endpoint"] or "", -row["requests"]))
    for endpoint, group in groupby(rows, key=lambda row: row["endpoint"]):
        reasons = list(group)
        subject = "the webhook listener" if endpoint is None else f"webhook endpoint {endpoint}"
        count = sum(row["requests"] for row in reasons)
        last = max(row["last_at"] for row in reasons)
        yield warning(
            "webhooks",
            f"{subject} refused {count} {'request' if count == 1 else 'requests'} in the last hour",
            f"{_join(reasons)}; the last one at {last}"
            f"{_describe_secret(context, endpoint, reasons)}",
            context.command(_find_command(context.settings, endpoint, reasons)),
        )


def _join(reasons: Sequence[Mapping[str, Any]]) -> str:
    shown = [f"{row['requests']}: {row['reason']}" for row in reasons[:MAX_REASONS]]
    left = sum(row["requests"] for row in reasons[MAX_REASONS:])
    return "; ".join([*shown, f"{left}: other reasons"] if left else shown)


def _describe_secret(
    context: DoctorContext, endpoint: str | None, reasons: Sequence[Mapping[str, Any]]
) -> str:
    """Where the secret is, if signatures do not match."""
    if context.loaded is None or all(row["reason"] != MISMATCH for row in reasons):
        return ""
    for index, item in enumerate(context.loaded.settings.webhooks.endpoints):
        if item.path == endpoint:
            file, line, _ = context.loaded.locate(("webhooks", "endpoints", index, "secret"))
            return f"; its secret: {file}:{line}"
    return ""


def _find_command(
    settings: Settings | None, endpoint: str | None, reasons: Sequence[Mapping[str, Any]]
) -> str:
    """The command that reads the sender's secret if signatures do not match, or shows the endpoint;
    all endpoints if it is not in the files any more."""
    found = [] if settings is None else settings.webhooks.endpoints
    name = next((item.event_name for item in found if item.path == endpoint), "*")
    if name != "*" and any(row["reason"] == MISMATCH for row in reasons):
        return f"config set {quote(f'webhook:{name}.secret')} -"
    return f"config show {quote(f'webhook:{name}')}"
