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
REMOVED = {"o-w": stat.S_IWOTH, "o-rwx": stat.S_IRWXO}
"""The rights that a change of `chmod` takes away."""


def is_safe(run: str | None) -> bool:
    """Whether the command only takes access rights away, or loads files that a check accepted."""
    words = shlex.split(run) if run else []
    if words[:1] == ["chmod"] and len(words) == 3:
        return words[1] in REMOVED
    return words[:3] == RELOAD and words[3:4] in ([], ["--config"]) and len(words) <= 5


def apply_fix(
    finding: Finding, reload: Callable[[], object] | None, state_dir: Path | None
) -> str | None:
    """Apply the command of a finding that is safe; returns why it failed, or None.

    The owner of `state_dir` is the user of the gateway.
    """
    words = shlex.split(finding.run or "")
    try:
        if words[0] == "chmod":
            return _restrict(Path(words[2]), words[1], state_dir)
        if reload is None:
            return "no gateway is running"
        reload()
    except OSError as error:
        return error.strerror or str(error)
    except DuctileError as error:
        return error.message
    return None


def _restrict(path: Path, change: str, state_dir: Path | None) -> str | None:
    """Remove the rights of other users, none is added; returns why nothing was done, or None.

    The rights of the group stay, since the gateway may have access only by them. A file of another
    user than the gateway's is left alone: the gateway may read it with the rights of others.
    """
    user = state_dir.stat().st_uid if state_dir is not None and state_dir.exists() else None
    # Opened first, so that another process cannot put a link in its place.
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if found.st_uid != user:
            return "it does not belong to the owner of the state directory, who may need this right"
        os.fchmod(handle, stat.S_IMODE(found.st_mode) & ~REMOVED[change])
    finally:
        os.close(handle)
    return None
