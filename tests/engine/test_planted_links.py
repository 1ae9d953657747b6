"""Links that a plugin puts into the state directory do not redirect what the gateway writes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ductile.engine.config.fingerprint_key import fingerprint_key
from ductile.engine.dispatch.started_log import StartedLog
from ductile.engine.recovery.boot_record import write_last_boot

PLUGIN_USER = 12345


def write_started_log(state_dir: Path) -> None:
    StartedLog(state_dir, "boot", 1).close()


WRITERS: dict[str, Callable[[Path], object]] = {
    "fingerprint.new": fingerprint_key,
    "last.new": lambda state_dir: write_last_boot(state_dir, "boot"),
    "started_log.new": write_started_log,
}


@pytest.mark.parametrize("name", WRITERS)
def test_target_of_a_planted_link_keeps_content_and_owner(tmp_path: Path, name: str) -> None:
    victim, state_dir = tmp_path / "victim", tmp_path / "state"
    victim.write_text("kept")
    state_dir.mkdir()
    if os.geteuid() == 0:
        os.chown(state_dir, PLUGIN_USER, PLUGIN_USER)
    (state_dir / name).symlink_to(victim)
    WRITERS[name](state_dir)
    assert victim.read_text() == "kept"
    assert victim.stat().st_uid == os.geteuid()
