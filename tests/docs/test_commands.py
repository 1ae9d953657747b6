"""The test suite executes every command that the documentation shows."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.page import (
    PAGES,
    executable_blocks,
    name_of,
    parse_commands,
    read_blocks,
)
from tests.docs.session import Session

TOOLS = ("curl", "openssl", "cc", "node")
"""Programs that pages use and that not every system has."""


def missing_tools(text: str) -> list[str]:
    used = [tool for tool in TOOLS if re.search(rf"(^|[\s(|]){tool}\s", text)]
    return [tool for tool in used if shutil.which(tool) is None]


def list_cases() -> list[Any]:
    """The executable pages; only the tutorial starts `ductile` from nothing each time."""
    return [
        pytest.param(page, page.parent.name != "tutorial", id=name_of(page))
        for page in PAGES
        if executable_blocks(page)
    ]


@pytest.mark.parametrize(("path", "session"), list_cases(), indirect=["session"])
def test_commands_print_what_the_page_shows(path: Path, session: Session) -> None:
    for block in executable_blocks(path):
        for command in parse_commands(block):
            for tool in missing_tools(command.text):
                pytest.skip(f"{path.name}:{command.line} needs {tool}, which is not installed")
            session.check(command, path.name)


def test_yaml_blocks_are_valid_yaml() -> None:
    for path in PAGES:
        for block in read_blocks(path):
            if block.language in ("yaml", "yml"):
                yaml.safe_load(block.text)


def test_shell_commands_are_in_console_blocks() -> None:
    """The tests do not run `sh` and `bash` blocks, so each of these needs a reason."""
    loose = [
        f"{name_of(path)}:{block.line}"
        for path in PAGES
        for block in read_blocks(path)
        if block.language in ("sh", "bash", "shell") and not block.not_run
    ]
    assert loose == []
