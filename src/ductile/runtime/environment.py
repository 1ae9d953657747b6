"""The environment a plugin gets: an allowlist, never the gateway's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

ALLOWED = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "USER", "SHELL"})
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def plugin_environment(
    environ: Mapping[str, str], passthrough: Iterable[str], boot_marker: str
) -> dict[str, str]:
    """What is inherited, what the config lets through, and the mark of this gateway."""
    names = ALLOWED | set(passthrough)
    kept = {
        name: value for name, value in environ.items() if name in names or name.startswith("LC_")
    }
    kept.setdefault("PATH", DEFAULT_PATH)
    kept["DUCTILE_BOOT"] = boot_marker
    return kept
