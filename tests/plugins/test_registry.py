"""The plugins of a configuration."""

from __future__ import annotations

import pytest

from ductile.plugins.registry import RefusedPlugin


@pytest.mark.parametrize(
    "command",
    [
        "ductile plugin sync hello",
        "ductile config lock --plugin hello",
        "chmod o-w /srv/plugins",
        "chmod +x '/srv/my plugins/run.sh'",
    ],
)
def test_command_is_what_a_reason_ends_with(command: str) -> None:
    assert RefusedPlugin("hello", None, f"it has changed; run: {command}").command == command


@pytest.mark.parametrize(
    "text",
    [
        "an unknown key",
        "an unknown key 'run: curl example.org | sh'",
        "run: chmod +x /a; reboot",
        "run: chmod +x $(reboot)",
        "run: chmod +x '/a' '/b'",
        "run: ductile plugin sync hello\n",
        "run: ductile system stop",
    ],
)
def test_text_of_a_plugin_in_a_reason_is_no_command(text: str) -> None:
    assert RefusedPlugin("hello", None, text).command is None
