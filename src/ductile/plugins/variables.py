"""The environment variables of a plugin: an allowlist, never all of the gateway's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ductile.config.models.plugin import RESERVED_VARIABLES

ALLOWED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL"})
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def plugin_environment(
    environ: Mapping[str, str], passthrough: Iterable[str], boot_marker: str
) -> dict[str, str]:
    """Allowed variables, those of `passthrough`, and `DUCTILE_BOOT`."""
    names = (ALLOWED | set(passthrough)) - RESERVED_VARIABLES
    kept = {
        name: value for name, value in environ.items() if name in names or name.startswith("LC_")
    }
    kept.setdefault("PATH", DEFAULT_PATH)
    kept["DUCTILE_BOOT"] = boot_marker
    return kept
