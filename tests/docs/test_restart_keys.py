"""The keys that need a restart are listed on the operations page."""

from __future__ import annotations

from pathlib import Path

from ductile.engine.config.restart_required import RESTART_KEYS

PAGE = Path(__file__).parents[2] / "docs/how-to/operations.md"


def test_every_key_that_needs_a_restart_is_documented() -> None:
    text = PAGE.read_text()
    listed = text[text.index("keys need a restart") :].partition("\n\n")[0].partition("SIGTERM")[0]
    for path in RESTART_KEYS:
        assert f"`{'.'.join(map(str, path))}`" in listed
