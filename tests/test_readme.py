"""The commands, links and promises of the README."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from tests.docs.page import Command, parse_commands, read_blocks
from tests.docs.session import Session
from tests.docs.session import session as session
from tests.waiting import until

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "README.md"
README = PAGE.read_text(encoding="utf-8")


def test_commands_print_what_the_readme_shows(session: Session) -> None:
    console = [block for block in read_blocks(PAGE) if block.language == "console"]
    *commands, last = [command for block in console for command in parse_commands(block)]
    for command in commands:
        session.check(command, PAGE.name)
    assert last.text.startswith("ductile system start ")
    session.check(replace(last, text=f"{last.text} &"), PAGE.name)
    listing = Command(0, "ductile job list --plugin echo --status succeeded --config ./gateway")
    until(lambda: "echo    handle   succeeded" in session.run(listing)[1])


def test_yaml_and_shell_are_in_files_that_a_command_writes() -> None:
    languages = {block.language for block in read_blocks(PAGE)}
    assert not languages & {"yaml", "yml", "sh", "bash"}


def test_first_two_commands_are_make_targets() -> None:
    [block] = re.findall(r"```\n(make run.*?)```", README, re.DOTALL)
    targets = re.findall(r"^make (\w+)", block, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets == ["run", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


def test_ci_runs_the_test_command_of_the_readme() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
