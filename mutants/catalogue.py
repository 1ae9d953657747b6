"""The catalogue: small edits of the source, each with the tests that must notice it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

CATALOGUE = Path(__file__).parent / "catalogue"


@dataclass(frozen=True)
class Mutant:
    name: str
    file: str
    """Relative to the root of the repository."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    breaks: str
    """The guarantee that the edit breaks."""
    tests: tuple[str, ...]
    """The pytest node ids of which at least one must fail."""

    def edit(self, text: str) -> str | None:
        """The edited text; None if the entry does not fit the text any more."""
        if text.count(self.old) != 1 or self.old == self.new:
            return None
        return text.replace(self.old, self.new)


def load(directory: Path = CATALOGUE) -> list[Mutant]:
    """All entries, in the order of the files. Raises `ValueError` for a name that is used twice."""
    found: dict[str, Mutant] = {}
    for path in sorted(directory.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mutant"]:
            mutant = Mutant(**{**entry, "tests": tuple(entry["tests"])})
            if mutant.name in found:
                raise ValueError(f"two mutants have the name {mutant.name}")
            found[mutant.name] = mutant
    return list(found.values())
