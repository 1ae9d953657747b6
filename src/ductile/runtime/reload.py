"""What a reload cannot change: it would need another lock, ledger or listener."""

from __future__ import annotations

from ductile.config import Loaded, Settings
from ductile.errors import Path, Problem

_MESSAGE = "cannot be changed by a reload; stop the gateway and start it again"


def unreloadable(old: Settings, fresh: Loaded) -> list[Problem]:
    """A problem for each setting of `fresh` that takes a restart."""
    new = fresh.settings
    fixed: list[tuple[Path, object, object]] = [
        (("state", "path"), old.state.path, new.state.path),
        (("state", "dir"), old.state_dir, new.state_dir),
        (("service", "max_workers"), old.service.max_workers, new.service.max_workers),
        (("api", "enabled"), old.api.enabled, new.api.enabled),
        (("api", "listen"), old.api.listen, new.api.listen),
        (("webhooks",), old.webhooks_enabled, new.webhooks_enabled),
        (("webhooks", "listen"), old.webhooks.listen, new.webhooks.listen),
    ]
    if old.state.url != new.state.url:
        # Never the URLs themselves, which hold passwords.
        fixed.append((("state", "url"), "the one that it runs on", "another database"))
    return [
        Problem(_MESSAGE, path, *fresh.locate(path), found=str(now), allowed=str(was))
        for path, was, now in fixed
        if was != now
    ]
