"""One problem that a check found."""

from __future__ import annotations

from ductile._fast_dataclass import dataclass
from ductile.errors import Severity

__all__ = ["Finding", "Severity"]


@dataclass(frozen=True, slots=True)
class Finding:
    severity: Severity
    topic: str
    what: str
    why: str
    run: str | None
    """The command that fixes it or shows more."""


def error(topic: str, what: str, why: str, run: str | None) -> Finding:
    """Something does not work, or will stop working."""
    return Finding(Severity.ERROR, topic, what, why, run)


def warning(topic: str, what: str, why: str, run: str | None) -> Finding:
    """Something works, but needs attention."""
    return Finding(Severity.WARNING, topic, what, why, run)
