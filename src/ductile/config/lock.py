"""`config lock`: sealing a configuration as it is now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ductile.config import checksums
from ductile.config.checksums import Seal
from ductile.config.load import find
from ductile.config.loader.include import gather_readable


def measure(config: Path, *, plugin_fingerprints: Iterable[Mapping[str, Any]] = ()) -> Seal:
    """The seal of a configuration as it is now, given by its directory or file; not yet written.

    It covers all that is read, high-security files that nobody includes as well. What the files
    say is not judged, but they must be readable, be YAML and lead somewhere; else `ConfigError`.
    """
    config = find(config, {})
    read = gather_readable(config).reader.hashes
    hashes = {str(path): digest for path, digest in read.items()}
    return Seal(config.parent / checksums.FILE, hashes, tuple(plugin_fingerprints))
