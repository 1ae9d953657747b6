"""Every error that reaches a user.

    DuctileError                 code, exit_code, http_status
    ├── UsageError               2    400  the call is malformed
    ├── NotFound                 1    404  no such job, plugin, pipeline, ...
    ├── Refused                  1    409  understood, but not in this state
    ├── ConfigError              78   409  carries every Problem found
    ├── Locked                   1    409  another gateway owns the state directory
    ├── NotRunning               1    503  no gateway answers
    └── LedgerError              1    503  the ledger cannot take a write now
        ├── LedgerFull           1    507  no space: definite, nothing was written
        ├── LedgerBusy           1    503  another process holds the write lock
        ├── LedgerMoved          1    503  the open file is not at its path: nothing was written
        └── LedgerBroken         1    500  it is unknown whether a commit took effect: stop

Expected failures of a plugin are values (`model.Outcome`), never exceptions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from ductile._fast_dataclass import dataclass

Path = tuple[str | int, ...]


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem in a configuration, with its place and what is allowed there.

    `path` is the key's path in the merged configuration (`("plugins", "echo", "retry")`);
    `file`, `line` and `column` (both from 1) are its place in the file, when known.
    """

    message: str
    path: Path = ()
    file: str | None = None
    line: int | None = None
    column: int | None = None
    found: str | None = None
    allowed: str | None = None
    nearest: str | None = None
    severity: Severity = Severity.ERROR
    fix: tuple[Path, str] | None = None
    """A setting elsewhere, and its value without this problem."""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        key = dotted(self.path)
        parts = [f"{place}: " if place else "", f"{key}: " if key else "", self.message]
        if self.found is not None:
            parts.append(f"; found {self.found}")
        if self.allowed is not None:
            parts.append(f"; allowed: {self.allowed}")
        if self.nearest is not None:
            parts.append(f"; did you mean {self.nearest!r}?")
        return "".join(parts)

    def document(self) -> dict[str, str | int | None]:
        """The problem as a JSON object."""
        return {
            "severity": self.severity.value,
            "message": self.message,
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "path": dotted(self.path) or None,
            "found": self.found,
            "allowed": self.allowed,
            "nearest": self.nearest,
        }


def errors_of(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that prevent the configuration from running."""
    return [problem for problem in problems if problem.severity is Severity.ERROR]


def dotted(path: Path) -> str:
    """`("plugins", "a", "schedules", 0)` as `plugins.a.schedules[0]`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


class DuctileError(Exception):
    """An error with a message for operators, a code for programs, an exit code and a status."""

    code = "error"
    exit_code = 1
    http_status = 500

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.message = message
        self.details = details


class UsageError(DuctileError):
    code = "usage"
    exit_code = 2
    http_status = 400


class NotFound(DuctileError):
    code = "not_found"
    http_status = 404


class Refused(DuctileError):
    code = "refused"
    http_status = 409


class ConfigError(DuctileError):
    code = "config_invalid"
    exit_code = 78
    http_status = 409

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        super().__init__(
            "\n".join(str(problem) for problem in self.problems)
            or "the configuration is not valid",
            problems=[problem.document() for problem in self.problems],
            count=count,
        )


class Locked(DuctileError):
    code = "locked"
    http_status = 409


class NotRunning(DuctileError):
    code = "not_running"
    http_status = 503


class LedgerError(DuctileError):
    code = "ledger"
    http_status = 503


class LedgerFull(LedgerError):
    code = "ledger_full"
    http_status = 507


class LedgerBusy(LedgerError):
    code = "ledger_busy"


class LedgerMoved(LedgerError):
    code = "ledger_moved"


class LedgerBroken(LedgerError):
    code = "ledger_broken"
    http_status = 500
