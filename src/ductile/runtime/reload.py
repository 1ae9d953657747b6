"""What a reload cannot change: it would need another lock, ledger or listener."""

from __future__ import annotations

from ductile.config import Settings
from ductile.errors import Path, Problem


def unreloadable(old: Settings, new: Settings) -> list[Problem]:
    """A problem for each setting that takes a restart."""
    fixed: list[tuple[Path, object, object]] = [
        (("state", "path"), old.state.path, new.state.path),
        (("state", "url"), bool(old.state.url), bool(new.state.url)),
        (("state", "dir"), old.state_dir, new.state_dir),
        (("service", "max_workers"), old.service.max_workers, new.service.max_workers),
        (("api", "enabled"), old.api.enabled, new.api.enabled),
        (("api", "listen"), old.api.listen, new.api.listen),
        (("webhooks",), old.webhooks_enabled, new.webhooks_enabled),
        (("webhooks", "listen"), old.webhooks.listen, new.webhooks.listen),
    ]
    problems = [
        Problem(
            "cannot be changed by a reload; stop the gateway and start it again",
            path=path,
            found=str(now),
            allowed=str(was),
        )
        for path, was, now in fixed
        if was != now
    ]
    if old.state.url and new.state.url and old.state.url != new.state.url:
        message = "names another database; stop the gateway and start it again"
        problems.append(Problem(message, path=("state", "url")))
    return problems
