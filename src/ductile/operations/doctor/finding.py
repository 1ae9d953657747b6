"""One thing that is wrong."""

from __future__ import annotations

from ductile.errors import Severity
from ductile.record import dataclass

__all__ = ["Finding", "Severity"]


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    topic: str
    what: str
    why: str
    run: str | None
    """The command that mends it, or shows more of it."""


def error(topic: str, what: str, why: str, run: str | None) -> Finding:
    """Something does not work, or will not."""
    return Finding(Severity.ERROR, topic, what, why, run)


def warning(topic: str, what: str, why: str, run: str | None) -> Finding:
    """Something works, and should not be left so."""
    return Finding(Severity.WARNING, topic, what, why, run)
