"""Settings that need a restart: a reload cannot change the lock, the ledger or the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ductile.config import Loaded, Settings
from ductile.config.redact import redact_problems
from ductile.errors import ConfigError, Path, Problem

Built = TypeVar("Built")

RESTART = "cannot be changed by a reload"
RESTART_COMMAND = "ductile system stop && ductile system start"
_MESSAGE = f"{RESTART}; stop the gateway and start it again"
_LEDGER = (
    f"{_MESSAGE}: the ledger is not moved by that, and the new one begins empty; to keep it, "
    "stop the gateway and move its directory as a whole, or use ductile system backup COPY with "
    "the old setting and ductile system restore COPY with the new one"
)
_DIRECTORY = f"{_MESSAGE}: what the old directory holds is not moved by that"
_MESSAGES: dict[Path, str] = {
    ("state", "path"): _LEDGER,
    ("state", "url"): _LEDGER,
    ("state", "dir"): _DIRECTORY,
    ("state", "workspaces"): _DIRECTORY,
}
LOCATIONS: tuple[Path, ...] = (("state", "path"), ("state", "dir"))
"""Settings that decide where a gateway is found: commands would miss one that runs elsewhere."""
RESTART_KEYS: tuple[Path, ...] = (
    ("state", "path"),
    ("state", "url"),
    ("state", "dir"),
    ("state", "workspaces"),
    ("service", "node"),
)
"""Every setting that a reload refuses to change; `docs/how-to/operations.md` lists them."""


def needs_restart(path: Path) -> bool:
    """Whether a change of the setting at `path` takes effect only after a restart."""
    return any(path == key for key in RESTART_KEYS)


def unreloadable(old: Settings, fresh: Loaded) -> list[Problem]:
    """A problem for each changed setting of `fresh` that needs a restart."""
    new = fresh.settings
    fixed: list[tuple[Path, object, object]] = [
        (("state", "path"), old.state.path, new.state.path),
        (("state", "dir"), old.state_dir, new.state_dir),
        (("state", "workspaces"), old.workspaces_dir, new.workspaces_dir),
        (("service", "node"), old.service.node, new.service.node),
    ]
    if old.state.url != new.state.url:
        # Never the URLs themselves, which hold passwords.
        fixed.append((("state", "url"), "the one that it runs on", "another database"))
    return [
        Problem(
            _MESSAGES.get(path, _MESSAGE),
            path,
            *fresh.locate(path),
            found=str(now),
            allowed=str(was),
        )
        for path, was, now in fixed
        if was != now
    ]


def build_reloadable(old: Settings, fresh: Loaded, build: Callable[[], Built]) -> Built:
    """Return what `build` makes of `fresh`; raise `ConfigError` with all that prevents a reload.

    A restart is never advised alone for a configuration with which the gateway would not start.
    """
    problems = redact_problems(unreloadable(old, fresh), fresh.secrets)
    try:
        built = build()
    except ConfigError as error:
        raise ConfigError([*error.problems, *problems]) from error
    if problems:
        raise ConfigError(problems)
    return built
