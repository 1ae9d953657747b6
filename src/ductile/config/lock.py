"""`config lock`: sealing a configuration as it is now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ductile.config import integrity
from ductile.config.include import gather
from ductile.config.integrity import Seal
from ductile.config.load import find
from ductile.errors import ConfigError, Severity


def lock(
    config: Path, *, moment: datetime, plugin_fingerprints: Iterable[Mapping[str, Any]] = ()
) -> Path:
    """Write the seal of a configuration, given by its directory or file; the seal's path."""
    seal = measure(config, plugin_fingerprints=plugin_fingerprints)
    seal.write(moment)
    return seal.path


def measure(config: Path, *, plugin_fingerprints: Iterable[Mapping[str, Any]] = ()) -> Seal:
    """The seal that `lock` would write.

    It covers all that is read, high-security files that nobody includes as well. What the files
    say is not judged, but they must be readable, be YAML and lead somewhere; else `ConfigError`.
    """
    config = find(config, {})
    sources = gather(config, None)
    if errors := [problem for problem in sources.problems if problem.severity is Severity.ERROR]:
        raise ConfigError(errors)
    hashes = {str(path): digest for path, digest in sources.reader.hashes.items()}
    return Seal(config.parent / integrity.FILE, hashes, tuple(plugin_fingerprints))
