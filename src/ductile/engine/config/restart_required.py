"""Settings that need a restart: a reload cannot change the lock, the ledger or the listeners."""

from __future__ import annotations

from ductile.config import Loaded, Settings
from ductile.errors import Path, Problem

RESTART = "cannot be changed by a reload"
_MESSAGE = f"{RESTART}; stop the gateway and start it again"
_LEDGER = (
    f"{_MESSAGE}: the ledger is not moved by that, and the new one begins empty; to take all of "
    "it along, while no gateway runs: ductile system backup COPY with the old setting, then "
    "ductile system restore COPY with the new one"
)
_WEBHOOKS = f"{_MESSAGE}: the first `webhooks` section opens a listener, and its removal closes it"
_DIRECTORY = f"{_MESSAGE}: what the old directory holds is not moved by that"
_MESSAGES: dict[Path, str] = {
    ("state", "path"): _LEDGER,
    ("state", "url"): _LEDGER,
    ("state", "dir"): _DIRECTORY,
    ("state", "workspaces"): _DIRECTORY,
    ("webhooks",): _WEBHOOKS,
}
RESTART_KEYS: tuple[Path, ...] = (
    ("state", "path"),
    ("state", "url"),
    ("state", "dir"),
    ("state", "workspaces"),
    ("service", "node"),
    ("api", "enabled"),
    ("api", "listen"),
    ("webhooks",),
    ("webhooks", "listen"),
)
"""Every setting that a reload refuses to change; `docs/how-to/operations.md` lists them."""


def needs_restart(path: Path) -> bool:
    """Whether a change of the setting at `path` takes effect only after a restart.

    A change below an existing `webhooks` section is reloaded.
    """
    return any(path == key for key in RESTART_KEYS)


def unreloadable(old: Settings, fresh: Loaded) -> list[Problem]:
    """A problem for each changed setting of `fresh` that needs a restart."""
    new = fresh.settings
    fixed: list[tuple[Path, object, object]] = [
        (("state", "path"), old.state.path, new.state.path),
        (("state", "dir"), old.state_dir, new.state_dir),
        (("state", "workspaces"), old.workspaces_dir, new.workspaces_dir),
        (("service", "node"), old.service.node, new.service.node),
        (("api", "enabled"), old.api.enabled, new.api.enabled),
        (("api", "listen"), old.api.listen, new.api.listen),
        (("webhooks",), _present(old), _present(new)),
        (("webhooks", "listen"), old.webhooks.listen, new.webhooks.listen),
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


def _present(settings: Settings) -> str:
    return "a webhooks section" if settings.webhooks_enabled else "no webhooks section"
