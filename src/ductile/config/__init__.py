"""Files to one frozen `Settings`, or every `Problem` at once with file, line and column.

    find -> read (bounded, hashed, held against the seal) -> YAML 1.2 with places
         -> one shape -> merge -> expand -> schema -> check as a whole -> Loaded

Nothing else of the package reads a configuration file.
"""

from __future__ import annotations

from ductile.config.load import Flawed, Loaded, find, load, state_of
from ductile.config.lock import measure
from ductile.config.models.settings import Settings
from ductile.config.redact import show

__all__ = [
    "Flawed",
    "Loaded",
    "Settings",
    "find",
    "load",
    "measure",
    "show",
    "state_of",
]
