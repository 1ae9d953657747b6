"""Showing the target of a webhook: receivers such as Slack and Discord put the credential in it."""

from __future__ import annotations

from urllib.parse import urlsplit

from ductile.core.delivery.retry_policy import INTERNAL
from ductile.core.values.redact import REDACTED


def redact_target(url: str | None) -> str | None:
    """The URL without its path, query and credentials; targets inside the gateway are unchanged."""
    if url is None or url.startswith(INTERNAL):
        return url
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return REDACTED
    if not parts.scheme or not host:
        return REDACTED
    origin = f"{parts.scheme}://{host}/"
    return origin if url in (origin, origin.rstrip("/")) else f"{origin}{REDACTED}"
