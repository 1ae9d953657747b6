"""Which advised commands `--fix` applies, and how."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ductile.operations.doctor.finding import warning
from ductile.operations.doctor.fix import apply_fix, is_safe


@pytest.mark.parametrize(
    ("run", "safe"),
    [
        ("chmod o-rwx /etc/ductile/config.yaml", True),
        ("chmod 600 /etc/ductile/config.yaml", False),
        ("chmod o-w '/a b'", True),
        ("chmod 777 /a", False),
        ("chmod o-w /a && rm /b", False),
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
    assert apply_fix(warning("files", "w", "y", f"chmod o-rwx {file}"), None, tmp_path) is None
    # The gateway's user may have access by the group only.
    assert file.stat().st_mode & 0o777 == 0o440
    link = tmp_path / "link"
    link.symlink_to(file)
    assert apply_fix(warning("files", "w", "y", f"chmod o-w {link}"), None, tmp_path) is not None


def test_file_readable_only_by_the_rights_of_others_is_left_alone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "config.yaml"
    file.touch()
    file.chmod(0o644)
    finding = warning("files", "w", "y", f"chmod o-rwx {file}")
    foreign = Path("/")
    if os.geteuid() == 0:
        foreign = tmp_path / "state"
        foreign.mkdir()
        os.chown(foreign, 65534, -1)
    for state_dir in (foreign, tmp_path / "missing", None):
        assert "owner of the state directory" in (apply_fix(finding, None, state_dir) or "")
        assert file.stat().st_mode & 0o777 == 0o644


def test_a_reload_needs_a_gateway() -> None:
    reloads: list[int] = []
    finding = warning("config", "w", "y", "ductile system reload")
    assert apply_fix(finding, None, None) == "no gateway is running"
    assert apply_fix(finding, lambda: reloads.append(1), None) is None
    assert reloads == [1]
