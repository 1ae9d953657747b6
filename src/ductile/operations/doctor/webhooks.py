"""Checks of webhook endpoints: requests that the running gateway refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from shlex import quote
from typing import Any

from ductile.operations.config.fixes import open_in_editor
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, warning

STATUS = "/system/status?health=last"
MAX_REASONS = 5
MISMATCH = "the signature does not match"
OUT_OF_TIME = "the timestamp is too far from this gateway's clock"
MISSING = "missing header "


def refused(context: DoctorContext) -> Iterator[Finding]:
    """Endpoints that refused requests within the last hour, how many and why."""
    if context.ask is None:
        return
    rows = context.ask(STATUS).get("refused_webhooks", ())
    rows = sorted(rows, key=lambda row: (row["endpoint"] or "", -row["requests"]))
    for endpoint, group in groupby(rows, key=lambda row: row["endpoint"]):
        reasons = list(group)
        kind = "webhook" if _find_peer(context, endpoint) is None else "relay"
        subject = "the webhook listener" if endpoint is None else f"{kind} endpoint {endpoint}"
        count = sum(row["requests"] for row in reasons)
        last = max(row["last_at"] for row in reasons)
        place = _find_place(context, endpoint, reasons)
        shown = f"; its {place[0]}: {place[1]}:{place[2]}" if place else ""
        yield warning(
            "webhooks",
            f"{subject} refused {count} {'request' if count == 1 else 'requests'} in the last hour",
            f"{_join(reasons)}; the last one at {last}{shown}",
            _find_command(context, endpoint, reasons, place),
        )


def _join(reasons: Sequence[Mapping[str, Any]]) -> str:
    shown = [f"{row['requests']}: {row['reason']}" for row in reasons[:MAX_REASONS]]
    left = sum(row["requests"] for row in reasons[MAX_REASONS:])
    return "; ".join([*shown, f"{left}: other reasons"] if left else shown)


def _find_place(
    context: DoctorContext, endpoint: str | None, reasons: Sequence[Mapping[str, Any]]
) -> tuple[str, str, int] | None:
    """What to compare with the sender, and its place: the secret, or the header."""
    keys = {row["reason"] for row in reasons}
    key = "secret" if MISMATCH in keys else "signature_header"
    is_header = any(reason.startswith(MISSING) for reason in keys)
    if context.loaded is None or not (key == "secret" or is_header):
        return None
    peer = _find_peer(context, endpoint)
    if peer is not None and peer >= 0 and key == "secret":
        file, line, _ = context.loaded.locate(("remote_ingress", "peers", peer, key))
        return key, file, line
    for index, item in enumerate(context.loaded.settings.webhooks.endpoints):
        if item.path == endpoint:
            file, line, _ = context.loaded.locate(("webhooks", "endpoints", index, key))
            return key, file, line
    return None


def _find_peer(context: DoctorContext, endpoint: str | None) -> int | None:
    """The position of the peer that sends to this path; -1 for the path of all of them."""
    if context.settings is None or endpoint is None:
        return None
    ingress = context.settings.remote_ingress
    prefix, _, name = endpoint.rpartition("/")
    if not ingress.peers or prefix != ingress.listen_path.rstrip("/"):
        return None
    return next((at for at, peer in enumerate(ingress.peers) if peer.name == name), -1)


def _find_command(
    context: DoctorContext,
    endpoint: str | None,
    reasons: Sequence[Mapping[str, Any]],
    place: tuple[str, str, int] | None,
) -> str:
    """The command that reads the sender's secret if signatures do not match, or opens the header
    that is not the sender's; else it shows the endpoint, all if it is not in the files any more."""
    if all(row["reason"] == OUT_OF_TIME for row in reasons):
        return "timedatectl status"
    is_relay = _find_peer(context, endpoint) is not None
    if place is not None and (is_relay or place[0] != "secret"):
        return context.add_options(f"{open_in_editor(*place[1:])} && ductile system reload")
    if is_relay:
        return context.command("config show remote_ingress")
    found = [] if context.settings is None else context.settings.webhooks.endpoints
    name = next((item.event_name for item in found if item.path == endpoint), "*")
    if name != "*" and place is not None:
        return context.command(f"config set {quote(f'webhook:{name}.secret')} -")
    return context.command(f"config show {quote(f'webhook:{name}')}")
