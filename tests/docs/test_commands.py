"""Every command that the documentation shows, typed as it stands."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.page import ROOT, blocks, commands, matches
from tests.docs.session import Session

DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "adr")


TOOLS = ("curl", "openssl", "cc", "node")


def missing(text: str) -> list[str]:
    """Programs beyond those of every system that a command needs and that are not here."""
    used = [tool for tool in TOOLS if re.search(rf"(^|[\s(|]){tool}\s", text)]
    return [tool for tool in used if shutil.which(tool) is None]


@pytest.fixture
def session() -> Iterator[Session]:
    # A socket's path may have no more than 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="dt-")).resolve()
    session = Session(folder)
    yield session
    session.end()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_the_commands_of_a_page_do_what_it_says(path: Path, session: Session) -> None:
    for block in blocks(path):
        if block.language != "console" or block.not_run:
            continue
        for command in commands(block):
            for tool in missing(command.text):
                pytest.skip(f"{path.name}:{command.line} needs {tool}, which is not installed")
            code, printed = session.run(command)
            where = f"{path.name}:{command.line}: {command.text}"
            assert code == command.code, f"{where}\nexit code {code}, and:\n{printed}"
            expected = "\n".join(command.printed)
            assert matches(command.printed, printed), (
                f"{where}\nprinted:\n{printed}\ninstead of:\n{expected}"
            )


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_the_yaml_of_a_page_is_yaml(path: Path) -> None:
    for block in blocks(path):
        if block.language in ("yaml", "yml"):
            yaml.safe_load(block.text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(DOCS)))
def test_shell_commands_stand_in_blocks_that_are_run(path: Path) -> None:
    """`sh` and `bash` blocks would be run by nobody: console, or marked with the reason."""
    loose = [
        block.line
        for block in blocks(path)
        if block.language in ("sh", "bash", "shell") and not block.not_run
    ]
    assert loose == []
