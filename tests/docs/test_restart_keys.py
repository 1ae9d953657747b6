"""The keys that need a restart are listed on the operations page and in the reference."""

from __future__ import annotations

from pathlib import Path

from ductile.config.reference import markdown
from ductile.engine.config.restart_required import RESTART_KEYS

PAGE = Path(__file__).parents[2] / "docs/how-to/operations.md"


def test_every_key_that_needs_a_restart_is_documented() -> None:
    text = PAGE.read_text()
    listed = text[text.index("keys need a restart") :].partition("\n\n")[0]
    for path in RESTART_KEYS:
        assert f"`{'.'.join(map(str, path))}`" in listed


def test_reference_marks_exactly_the_keys_that_need_a_restart() -> None:
    marked, section = set(), ""
    for line in markdown().splitlines():
        if line.startswith("## "):
            section = line.strip("# `")
        elif line.startswith("| `") and "A change needs a restart." in line:
            marked.add((section, line.split("`")[1]))
    assert marked == set(RESTART_KEYS)
