"""From a path in the configuration to the place where it was written."""

from __future__ import annotations

from collections.abc import Mapping

from ductile.config.loader.nodes import Place
from ductile.errors import Path
from ductile.record import dataclass


@dataclass(frozen=True, slots=True)
class Places:
    """Every path of the merged configuration; `()` is the file it began with."""

    known: Mapping[Path, Place]
    keys: Mapping[Path, Place]
    """Of the keys themselves, where `known` has the scalars that they hold."""

    def locate(self, path: Path) -> Place:
        """Where `path` stands, or the nearest of its parents that was written at all."""
        while path not in self.known:
            path = path[:-1]
        return self.known[path]

    def key(self, path: Path) -> Place:
        """Where the last key of `path` stands."""
        return self.keys.get(path) or self.locate(path)
