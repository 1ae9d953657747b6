"""Which advised commands `--fix` applies, and how."""

from __future__ import annotations

from pathlib import Path

import pytest

from ductile.operations.doctor.finding import warning
from ductile.operations.doctor.fix import apply_fix, is_safe


@pytest.mark.parametrize(
    ("run", "safe"),
    [
        ("chmod 600 /etc/ductile/config.yaml", True),
        ("chmod o-w '/a b'", True),
        ("chmod 777 /a", False),
        ("chmod 600 /a && rm /b", False),
        ("ductile system reload --config /a", True),
        ("ductile system reload && rm /a", False),
        ("ductile config lock /a", False),
        ("ductile plugin reset-breaker shop", False),
        (None, False),
    ],
)
def test_only_commands_that_cannot_lose_anything_are_safe(run: str | None, safe: bool) -> None:
    assert is_safe(run) is safe


def test_rights_are_removed_and_none_is_added(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.touch()
    file.chmod(0o444)
    assert apply_fix(warning("files", "w", "y", f"chmod 600 {file}"), None) is None
    assert file.stat().st_mode & 0o777 == 0o400
    link = tmp_path / "link"
    link.symlink_to(file)
    assert apply_fix(warning("files", "w", "y", f"chmod o-w {link}"), None) is not None


def test_a_reload_needs_a_gateway() -> None:
    reloads: list[int] = []
    finding = warning("config", "w", "y", "ductile system reload")
    assert apply_fix(finding, None) == "no gateway is running"
    assert apply_fix(finding, lambda: reloads.append(1)) is None
    assert reloads == [1]
