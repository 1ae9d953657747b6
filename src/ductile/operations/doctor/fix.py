"""`system doctor --fix`: applies the commands of findings that cannot lose or reveal anything."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

from ductile.errors import DuctileError
from ductile.operations.doctor.finding import Finding

RELOAD = ["ductile", "system", "reload"]


def is_safe(run: str | None) -> bool:
    """Whether the command only takes access rights away, or loads files that a check accepted."""
    words = shlex.split(run) if run else []
    if words[:1] == ["chmod"] and len(words) == 3:
        return words[1] == "o-w" or words[1] in ("600", "700")
    return words[:3] == RELOAD and words[3:4] in ([], ["--config"]) and len(words) <= 5


def apply_fix(finding: Finding, reload: Callable[[], object] | None) -> str | None:
    """Apply the command of a finding that is safe; returns why it failed, or None."""
    words = shlex.split(finding.run or "")
    try:
        if words[0] == "chmod":
            _restrict(Path(words[2]), words[1])
        elif reload is None:
            return "no gateway is running"
        else:
            reload()
    except OSError as error:
        return error.strerror or str(error)
    except DuctileError as error:
        return error.message
    return None


def _restrict(path: Path, change: str) -> None:
    """Remove rights; none is added."""
    # Opened first, so that another process cannot put a link in its place.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = stat.S_IMODE(os.fstat(handle).st_mode)
        kept = ~stat.S_IWOTH if change == "o-w" else int(change, 8)
        os.fchmod(handle, mode & kept)
    finally:
        os.close(handle)
