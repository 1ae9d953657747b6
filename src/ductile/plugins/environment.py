"""The environment variables of a plugin: an allowlist, never all of the gateway's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

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


def local_zone(environ: Mapping[str, str]) -> ZoneInfo:
    """The machine's time zone by its IANA name; UTC if it has none."""
    names = [environ.get("TZ", "").lstrip(":")]
    with contextlib.suppress(OSError):
        names.append(Path("/etc/timezone").read_text(encoding="utf-8").strip())
    with contextlib.suppress(OSError):
        _, _, name = str(Path("/etc/localtime").resolve()).partition("/zoneinfo/")
        names.append(name)
    for name in names:
        with contextlib.suppress(ValueError, OSError, KeyError):
            if name:
                return ZoneInfo(name)
    return ZoneInfo("UTC")
