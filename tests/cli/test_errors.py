"""Errors to exit codes, and to text or JSON; what is nobody's error stays quiet."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from ductile.cli import errors
from ductile.cli.errors import Terminated
from ductile.errors import ConfigError, Locked, NotFound, Problem, UsageError
from tests.cli.running import COMMAND

Told = Callable[..., tuple[int, str, str]]


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str]) -> Told:
    def tell(error: BaseException, *, as_json: bool = False) -> tuple[int, str, str]:
        with errors.report_errors(as_json=as_json) as ended:
            raise error
        return ended.code, *capsys.readouterr()

    return tell


@pytest.mark.parametrize(
    ("error", "code", "slug"),
    [
        (NotFound("there is no job x"), 1, "not_found"),
        (Locked("taken", pid=7), 1, "locked"),
        (UsageError("no"), 2, "usage"),
        (click.UsageError("No such option: --x"), 2, "usage"),
        (ConfigError([Problem("wrong")]), 78, "config_invalid"),
        (PermissionError(13, "Permission denied", "/x"), 1, "os_error"),
    ],
)
def test_a_refusal_has_its_code(error: Exception, code: int, slug: str, told: Told) -> None:
    ended, out, err = told(error)
    assert (ended, out) == (code, "")
    assert err.startswith("error: ")
    ended, out, err = told(error, as_json=True)
    assert (ended, err) == (code, "")
    assert json.loads(out)["code"] == slug
    assert json.loads(out)["error"]


def test_details_travel_with_the_error(told: Told) -> None:
    _, out, _ = told(Locked("taken", pid=7), as_json=True)
    assert json.loads(out) == {"error": "taken", "code": "locked", "pid": 7}


def test_every_problem_is_told_with_its_place(told: Told) -> None:
    problems = [
        Problem("unknown key", ("servce",), "/c.yaml", 3, 1, nearest="service"),
        Problem("wrong", ("a", 0), "/c.yaml", 9, 5),
    ]
    _, _, err = told(ConfigError(problems))
    assert "/c.yaml:3:1: servce: unknown key; did you mean 'service'?" in err
    assert "2 problems" in err
    _, out, _ = told(ConfigError(problems), as_json=True)
    first, second = json.loads(out)["problems"]
    assert (first["file"], first["line"], first["nearest"]) == ("/c.yaml", 3, "service")
    assert second["path"] == "a[0]"


def test_a_bug_shows_its_trace(told: Told) -> None:
    code, out, err = told(ZeroDivisionError("x"), as_json=True)
    assert code == 1
    assert json.loads(out)["code"] == "internal"
    assert "Traceback" in err


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (Terminated(), 143)])
def test_an_interrupt_is_quiet(error: BaseException, code: int, told: Told) -> None:
    assert told(error) == (code, "", "")


def test_a_reader_that_leaves_is_no_error() -> None:
    process = subprocess.Popen(
        [*COMMAND, "config", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


def test_a_file_that_is_not_there_is_told_without_a_trace(tmp_path: Path, told: Told) -> None:
    with errors.report_errors(as_json=False) as ended:
        (tmp_path / "nothing").read_text()
    assert ended.code == 1
