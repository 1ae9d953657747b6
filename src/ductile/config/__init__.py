"""Files to one frozen `Settings`, or every `Problem` at once with file, line and column.

    find -> read (bounded, hashed, held against the seal) -> YAML 1.2 with places
         -> one shape -> merge -> expand -> schema -> check as a whole -> Loaded

Nothing else of the package reads a configuration file.
"""

from __future__ import annotations

from ductile.config.integrity import Seal
from ductile.config.load import Flawed, Loaded, find, load
from ductile.config.lock import lock, measure
from ductile.config.redact import REDACTED, fingerprints, show
from ductile.config.settings import Settings

__all__ = [
    "REDACTED",
    "Flawed",
    "Loaded",
    "Seal",
    "Settings",
    "find",
    "fingerprints",
    "init",
    "json_schema",
    "load",
    "lock",
    "measure",
    "show",
]


def __getattr__(name: str) -> object:
    # Only `config init` and `config schema` want these; a start does not wait for them.
    if name == "init":
        from ductile.config.starter import init

        return init
    if name == "json_schema":
        from ductile.config.schema import json_schema

        return json_schema
    raise AttributeError(name)
