"""Errors as exit codes, text and JSON."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from ductile.cli import errors
from ductile.cli.client import ApiError
from ductile.cli.command import CommandContext
from ductile.cli.errors import Terminated
from ductile.errors import ConfigError, Locked, NotFound, Problem, Refused, UsageError
from tests.cli.runner import COMMAND

Report = Callable[..., tuple[int, str, str]]


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    def raise_error(error: BaseException, *, as_json: bool = False) -> tuple[int, str, str]:
        with errors.report_errors(as_json=as_json) as status:
            raise error
        return status.code, *capsys.readouterr()

    return raise_error


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
def test_errors_have_exit_codes_and_json_codes(
    error: Exception, code: int, slug: str, report: Report
) -> None:
    ended, out, err = report(error)
    assert (ended, out) == (code, "")
    assert err.startswith("error: ")
    ended, out, err = report(error, as_json=True)
    assert (ended, err) == (code, "")
    assert json.loads(out)["code"] == slug
    assert json.loads(out)["error"]


def test_details_are_part_of_the_json(report: Report) -> None:
    _, out, _ = report(Locked("taken", pid=7), as_json=True)
    assert json.loads(out) == {"error": "taken", "code": "locked", "pid": 7}


def test_every_problem_is_printed_with_its_place(report: Report) -> None:
    problems = [
        Problem("unknown key", ("servce",), "/c.yaml", 3, 1, nearest="service"),
        Problem("wrong", ("a", 0), "/c.yaml", 9, 5),
    ]
    _, _, err = report(ConfigError(problems))
    assert "/c.yaml:3:1: servce: unknown key; did you mean 'service'?" in err
    assert "2 problems" in err
    _, out, _ = report(ConfigError(problems), as_json=True)
    first, second = json.loads(out)["problems"]
    assert (first["file"], first["line"], first["nearest"]) == ("/c.yaml", 3, "service")
    assert second["path"] == "a[0]"


def test_an_internal_error_prints_a_traceback(report: Report) -> None:
    code, out, err = report(ZeroDivisionError("x"), as_json=True)
    assert code == 1
    assert json.loads(out)["code"] == "internal"
    assert "Traceback" in err


def test_internal_error_of_the_gateway_refers_to_its_log(report: Report) -> None:
    code, _, err = report(ApiError({"error": "internal error", "code": "internal"}))
    assert code == 1
    assert err == "error: internal error\nthe log of the gateway has the cause\n"


@pytest.mark.parametrize(("error", "code"), [(KeyboardInterrupt(), 130), (Terminated(), 143)])
def test_an_interrupt_prints_nothing(error: BaseException, code: int, report: Report) -> None:
    assert report(error) == (code, "", "")


def test_a_closed_pipe_prints_nothing() -> None:
    process = subprocess.Popen(
        [*COMMAND, "config", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 1


def test_a_missing_file_exits_1(tmp_path: Path, report: Report) -> None:
    with errors.report_errors(as_json=False) as status:
        (tmp_path / "nothing").read_text()
    assert status.code == 1


def test_a_file_that_the_user_may_not_use_names_the_command_that_helps(
    tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["ductile", "job", "list", "--json", "--config", "a b"])
    owner = tmp_path.stat().st_uid
    denied = PermissionError(13, "Permission denied", str(tmp_path / "secret" / "state.db"))
    assert f"\n  run: chmod u+rwX {tmp_path}\n" in report(denied)[2]
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    assert (
        f"\n  run: sudo -u '#{owner}' ductile job list --json --config 'a b'\n" in report(denied)[2]
    )
    assert "run:" not in report(FileNotFoundError(2, "No such file", str(tmp_path)))[2]


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "--api-key", "secret"),
        ("status", "--api-key=secret"),
        ("config", "set", "tokens[0].key", "secret"),
        ("--json", "config", "set", "secret"),
        ("api", "/events?token=secret"),
    ],
)
def test_arguments_that_may_be_secrets_are_not_repeated(
    arguments: tuple[str, ...], tmp_path: Path, report: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["ductile", *arguments])
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: owner + 1)
    _, _, text = report(PermissionError(13, "Permission denied", str(tmp_path)))
    assert "secret" not in text
    assert f"\n  run: sudo -u '#{owner}' -s\n" in text


def test_refusal_because_of_a_forbidden_file_names_the_command_that_helps(
    tmp_path: Path, report: Report
) -> None:
    context = CommandContext(None, verbose=False, as_json=False, dry_run=False)
    text = f"cannot write {tmp_path}/config.yaml: Permission denied"
    for error in (Refused(text), ConfigError([Problem(text)])):
        errors.add_repair(error, context)
        assert report(error)[2] == f"error: {text}\n  run: chmod u+rwX {tmp_path}\n"
