"""From files to one frozen `Settings`, or every `Problem` with file, line and column.

    find -> read (size limit, hash, seal) -> parse YAML 1.2 with locations -> normalize
         -> merge -> expand variables -> validate by schema -> validate as a whole -> Loaded

No other package reads a configuration file.
"""

from __future__ import annotations

from ductile.config.checksums import create_seal
from ductile.config.load import InvalidConfig, Loaded, find, find_state, load
from ductile.config.models.settings import Settings
from ductile.config.redact import redact_settings

__all__ = [
    "InvalidConfig",
    "Loaded",
    "Settings",
    "create_seal",
    "find",
    "find_state",
    "load",
    "redact_settings",
]
