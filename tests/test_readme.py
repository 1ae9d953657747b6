"""The README's own commands, as a newcomer types them."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.docs.page import Command, blocks, commands, matches
from tests.docs.session import Session
from tests.waiting import until

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def session() -> Iterator[Session]:
    # A socket's path may have no more than 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="dt-")).resolve()
    session = Session(folder)
    yield session
    session.end()
    shutil.rmtree(folder, ignore_errors=True)


def test_the_five_minutes_do_as_written(session: Session) -> None:
    shown = [block for block in blocks(ROOT / "README.md") if block.language == "console"]
    *typed, last = [command for block in shown for command in commands(block)]
    for command in typed:
        code, printed = session.run(command)
        assert code == 0, f"README.md:{command.line}: {command.text}\n{printed}"
        assert matches(command.printed, printed), f"README.md:{command.line}\n{printed}"
    assert last.text.startswith("ductile system start ")
    code, printed = session.run(replace(last, text=f"{last.text} &"))
    assert code == 0, printed
    routed = Command(0, "ductile job list --plugin echo --status succeeded --config ./gateway")
    until(lambda: "echo    handle   succeeded" in session.run(routed)[1])


def test_yaml_in_the_readme_stands_in_files_that_a_command_writes() -> None:
    languages = {block.language for block in blocks(ROOT / "README.md")}
    assert not languages & {"yaml", "yml", "sh", "bash"}


def test_the_two_commands_at_the_top_are_make_targets() -> None:
    [block] = re.findall(r"```\n(make run.*?)```", README, re.DOTALL)
    targets = re.findall(r"^make (\w+)", block, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == ["run", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_ci_calls_the_readmes_test_command() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_every_file_that_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert [link for link in links if not (ROOT / link).exists()] == []
