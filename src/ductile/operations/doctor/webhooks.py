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
            f"{_join(reasons)}; the last one at {last}",
            context.command(_show_command(context.settings, endpoint)),
        )


def _join(reasons: Sequence[Mapping[str, Any]]) -> str:
    shown = [f"{row['requests']}: {row['reason']}" for row in reasons[:MAX_REASONS]]
    left = sum(row["requests"] for row in reasons[MAX_REASONS:])
    return "; ".join([*shown, f"{left}: other reasons"] if left else shown)


def _show_command(settings: Settings | None, endpoint: str | None) -> str:
    """The command that shows the endpoint, or all if it is not in the files any more."""
    found = [] if settings is None else settings.webhooks.endpoints
    name = next((item.event_name for item in found if item.path == endpoint), "*")
    return f"config show {quote(f'webhook:{name}')}"
