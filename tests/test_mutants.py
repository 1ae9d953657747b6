"""The runner of the mutants: its verdicts on a small program, and the form of the catalogue."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from mutants import __main__ as program
from mutants.catalogue import Mutant, load
from mutants.workspace import Verdict, Workspace

MIN_MUTANTS = 60
PROGRAM = "def is_full(count):\n    return count >= 3\n"
TESTS = """\
import subprocess, sys, threading
from room import is_full

def test_full():
    assert is_full(3)

def test_overfull():
    assert is_full(4)

def test_in_another_process():
    code = "import room; raise SystemExit(not room.is_full(3))"
    assert subprocess.run([sys.executable, "-I", "-c", code], env={}).returncode == 0

def test_until_full():
    if not is_full(3):
        threading.Event().wait()
"""
OFF_BY_ONE = Mutant(
    name="off-by-one",
    file="src/room.py",
    old="count >= 3",
    new="count > 3",
    breaks="Three are enough.",
    tests=("tests/test_room.py::test_full",),
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    root = tmp_path_factory.mktemp("repository")
    for name, text in {"src/room.py": PROGRAM, "tests/test_room.py": TESTS}.items():
        (root / name).parent.mkdir()
        (root / name).write_text(text)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    return Workspace(root, tmp_path_factory.mktemp("copy"))


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.CAUGHT),
        ({"tests": ("tests/test_room.py::test_in_another_process",)}, Verdict.CAUGHT),
        ({"tests": ("tests/test_room.py::test_overfull",)}, Verdict.SURVIVED),
        ({"tests": ("tests/test_room.py::test_until_full",)}, Verdict.HUNG),
        ({"tests": ("tests/test_room.py::test_gone",)}, Verdict.STALE),
        ({"new": "count >"}, Verdict.BROKEN),
        ({"old": "def is_full", "new": "def is_empty"}, Verdict.BROKEN),
        ({"old": "count > 3"}, Verdict.STALE),
        ({"old": "count", "new": "number"}, Verdict.STALE),
        ({"new": "count >= 3"}, Verdict.STALE),
        ({"file": "src/gone.py"}, Verdict.STALE),
    ],
)
def test_verdict_of_a_mutant(
    workspace: Workspace, changes: dict[str, object], verdict: Verdict
) -> None:
    seconds = 5.0 if verdict is Verdict.HUNG else 100.0
    found, output = workspace.judge(replace(OFF_BY_ONE, **changes), seconds)  # type: ignore[arg-type]
    assert found is verdict, output
    assert (workspace.tree / "src/room.py").read_text() == PROGRAM


def test_exit_code_is_0_only_if_all_mutants_are_caught(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.run(workspace, [OFF_BY_ONE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r" +1/1  caught +\d+\.\d s  off-by-one", lines[1])
    assert re.fullmatch(r"1 mutants in \d+ s: 1 caught", lines[-1])
    survivor = replace(OFF_BY_ONE, name="gone", tests=("tests/test_room.py::test_overfull",))
    assert program.run(workspace, [OFF_BY_ONE, survivor]) == 1
    assert "2 mutants" in capsys.readouterr().out


def test_tests_that_fail_without_an_edit_are_an_error(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    path = workspace.tree / "src/room.py"
    path.write_text(PROGRAM.replace("3", "2"))
    try:
        wrong = replace(OFF_BY_ONE, tests=("tests/test_room.py::test_gone",))
        assert program.run(workspace, [wrong]) == 1
    finally:
        path.write_text(PROGRAM)
    assert "the tests must pass without an edit" in capsys.readouterr().out


def test_check_reports_texts_and_tests_that_are_gone(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "ROOT", workspace.tree)
    assert program.check([OFF_BY_ONE]) == 0
    gone = "tests/test_room.py::test_gone[sqlite]"
    stale = [
        replace(OFF_BY_ONE, old="count > 3"),
        replace(OFF_BY_ONE, name="other", tests=(gone, "tests/gone.py::test_full")),
    ]
    capsys.readouterr()
    assert program.check(stale) == 1
    assert capsys.readouterr().out.splitlines() == [
        "stale  off-by-one: src/room.py",
        f"stale  other: {gone}",
        "stale  other: tests/gone.py::test_full",
        "2 mutants, 2 stale",
    ]


def test_catalogue_names_texts_and_tests_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.check(load()) == 0, capsys.readouterr().out


def test_mutants_are_selected_by_name_and_pattern() -> None:
    names = ["settle-one", "settle-two", "claim-one"]
    catalogue = [replace(OFF_BY_ONE, name=name) for name in names]
    assert program.select(catalogue, []) == catalogue
    assert [one.name for one in program.select(catalogue, ["settle-*"])] == names[:2]
    assert [one.name for one in program.select(catalogue, ["claim-one", "no"])] == names[2:]


def test_catalogue_is_complete() -> None:
    catalogue = load()
    assert len(catalogue) >= MIN_MUTANTS
    for mutant in catalogue:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", mutant.name)
        assert mutant.breaks.endswith("."), mutant.name
        assert mutant.file.startswith("src/"), mutant.name
        assert mutant.tests, mutant.name
        for test in mutant.tests:
            path, _, name = test.partition("::")
            assert name, f"{mutant.name}: {path} must name a test"


def test_name_is_used_once(tmp_path: Path) -> None:
    entry = '[[mutant]]\nname = "a-b"\nfile = ""\nold = ""\nnew = ""\nbreaks = ""\ntests = []\n'
    (tmp_path / "one.toml").write_text(entry)
    (tmp_path / "two.toml").write_text(entry)
    with pytest.raises(ValueError, match="two mutants have the name a-b"):
        load(tmp_path)
