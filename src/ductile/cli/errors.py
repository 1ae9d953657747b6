"""Turn errors into exit codes, and into text or JSON, with the command that follows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.errors import (
    ConfigError,
    DuctileError,
    Locked,
    NotFound,
    NotRunning,
    Problem,
    Refused,
    UsageError,
)

if TYPE_CHECKING:
    from ductile.cli.command import CommandContext

INTERRUPTED = 130
PIPE_CLOSED = 1
LISTS = {
    "agent": "agent list",
    "alert rule": "alert list",
    "approval": "approval list",
    "delivery": "webhook deliveries",
    "job": "job list",
    "node": "node list",
    "pipeline": "pipeline list",
    "pipeline instance": "pipeline runs",
    "pipeline run": "pipeline runs",
    "plugin": "plugin list",
    "relay": "relay list",
    "reminder": "agent reminders",
    "schedule": "schedule list",
    "setting": "config show",
    "snapshot": "config history",
    "token": "token list",
    "webhook": "webhook config list",
}
"""Of what a message does not find, the command that lists what there is."""
ABOUT = {
    "approval": "approval show {}",
    "delivery": "webhook deliveries",
    "job": "job why {}",
    "node": "node list",
    "pipeline run": "pipeline runs {}",
    "plugin": "plugin validate {}",
    "relay": "relay list",
    "token": "token list",
}
"""Of what a refusal is about, the command that shows its state and the cause."""
REPEATED_FLAGS = frozenset({"--json", "-v", "--verbose", "--dry-run"})
MAX_WORDS = 2
_COMMAND_WORD = re.compile("[a-z-]+")
_ABOUT = re.compile(rf"({'|'.join(ABOUT)}) (\S+) ")
_DENIED = re.compile(r"cannot (?:read|write) (\S.*): Permission denied")
_ABSENT = re.compile(rf"(?:there is no|unknown) ({'|'.join(LISTS)})\b(?! run| instance)")


class Terminated(KeyboardInterrupt):
    """SIGTERM, handled like Ctrl-C."""

    exit_code = 143


def terminate(_signal: int, _frame: FrameType | None) -> None:
    """Raise `Terminated`; a signal handler."""
    raise Terminated


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise an exception on SIGTERM in the block, as on Ctrl-C."""
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass
class ExitStatus:
    code: int = 0


@contextmanager
def report_errors(*, as_json: bool) -> Iterator[ExitStatus]:
    """Print each error that the block raises, and set `code` to its exit code."""
    status = ExitStatus()
    try:
        yield status
    except SystemExit as error:
        status.code = error.code if isinstance(error.code, int) else 1
    except (KeyboardInterrupt, click.Abort) as error:
        status.code = getattr(error.__context__ or error, "exit_code", INTERRUPTED)
    except BrokenPipeError:
        status.code = PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - `_print_error` prints it in full
        status.code = _print_error(error, as_json)
    if not _flush_stdout():
        status.code = PIPE_CLOSED


def _print_error(error: Exception, as_json: bool) -> int:
    """Print the error and return its exit code."""
    code, body = _describe(error)
    if as_json:
        output.print_json(body)
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        output.print_text(error.format_message(), err=True)
    elif isinstance(error, ConfigError):
        _print_problems(error)
        _print_repair(body)
    else:
        output.print_error(f"error: {body['error']}", err=True)
        if isinstance(error, click.UsageError) and error.ctx is not None:
            output.print_stderr(f"try: {error.ctx.command_path} --help")
        _print_repair(body)
    if body["code"] == "internal" and isinstance(error, DuctileError):
        # The traceback of this process would hide where the error was.
        output.print_stderr("the log of the gateway has the cause")
    elif body["code"] == "internal":
        import traceback

        output.print_text("".join(traceback.format_exception(error)).rstrip(), err=True)
    return code


def _describe(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the exit code, and the error as a JSON object."""
    body: dict[str, Any]
    if isinstance(error, DuctileError):
        body = {"error": error.message, "code": error.code, **error.details}
        return error.exit_code, body
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        return error.exit_code, {"error": "missing command", "code": "usage"}
    if isinstance(error, click.ClickException):
        message = error.format_message()
        return error.exit_code, {"error": message[:1].lower() + message[1:], "code": "usage"}
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        body = {"error": f"{place}{error.strerror or error}", "code": "os_error"}
        if isinstance(error, PermissionError) and error.filename:
            body["run"] = _grant_access(os.fsdecode(error.filename))
        return 1, body
    return 1, {"error": f"internal error: {type(error).__name__}: {error}", "code": "internal"}


def _print_problems(error: ConfigError) -> None:
    for problem in error.problems:
        output.print_stderr(f"error: {problem}", fg="red")
    if len(error.problems) > 1:
        problems = output.format_count(len(error.problems), "problem")
        output.print_stderr(f"{problems} in the configuration")


def add_repair(error: DuctileError, context: CommandContext) -> None:
    """Add `run` to the details of an error, unless its message names a command."""
    if (given := error.details.get("run")) is not None:
        # One of the gateway is for its machine; with its URL it would be for that URL.
        error.details["run"] = given if context.api_url else context.repeat_options(str(given))
        return
    if error.code == ConfigError.code:
        run = None if context.api_url else _correct(error, context)
    else:
        run = None if "ductile " in error.message else _find_next(error, context)
    if run is not None:
        error.details["run"] = run


def _find_next(error: DuctileError, context: CommandContext) -> str | None:
    absent = _ABSENT.search(error.message)
    is_absent = error.code.endswith(NotFound.code) or error.code == UsageError.code
    if is_absent and absent is not None:
        return context.repeat_options(f"ductile {LISTS[absent[1]]}")
    about = _ABOUT.match(error.message)
    if error.code == Refused.code and about is not None:
        name = quote(about[2].strip("'"))
        return context.repeat_options(f"ductile {ABOUT[about[1]].format(name)}")
    if context.api_url is not None:
        return None
    if (denied := _DENIED.search(error.message)) is not None:
        return _grant_access(denied[1])
    if error.code == NotRunning.code:
        return context.repeat_options("ductile system start")
    if error.code == Locked.code:
        return context.repeat_options("ductile system status")
    is_broken = error.code.startswith("ledger") or error.code == "internal"
    return context.repeat_options("ductile system doctor") if is_broken else None


def _grant_access(file: str) -> str:
    """The command for a file that this user may not use: the same as its owner, or other rights."""
    path = Path(file).absolute()
    place = next(one for one in (path, *path.parents) if _is_visible(one))
    owner = place.lstat().st_uid
    if owner == os.geteuid():
        return f"chmod u+rwX {quote(str(place))}"
    # Another argument may be a secret: then it is a shell of the owner.
    command = ["ductile", *sys.argv[1:]] if _is_repeatable(sys.argv[1:]) else ["-s"]
    return shlex.join(["sudo", "-u", f"#{owner}", *command])


def _is_repeatable(arguments: list[str]) -> bool:
    """Whether they are a noun, a verb and options that have no secrets."""
    words, options = [], iter(arguments)
    for argument in options:
        if argument == "--config":
            next(options, None)
        elif not argument.startswith("-"):
            words.append(argument)
        elif argument not in REPEATED_FLAGS:
            return False
    return len(words) <= MAX_WORDS and all(map(_COMMAND_WORD.fullmatch, words))


def _is_visible(path: Path) -> bool:
    try:
        path.lstat()
    except OSError:
        return False
    return True


def _correct(error: DuctileError, context: CommandContext) -> str | None:
    from ductile.operations.config.fixes import correct_one

    problems: Any = error.details.get("problems") or ()
    for problem in problems:
        if (denied := _DENIED.search(str(problem["message"]))) is not None:
            return _grant_access(denied[1])
    return correct_one(error, partial(_repeat_for, context))


def _repeat_for(context: CommandContext, problem: Problem, line: str) -> str:
    """The command line for the configuration that the file belongs to: not always the usual one."""
    from ductile.config import find

    file = Path(problem.file or "")
    if find(context.config, os.environ).parent in file.parents:
        return context.repeat_options(line)
    return f"{line} --config {quote(str(file.parent))}"


def _print_repair(body: dict[str, Any]) -> None:
    if body.get("run"):
        output.print_stderr(f"  run: {body['run']}")


def _flush_stdout() -> bool:
    """Return whether the reader of stdout took everything; if not, the interpreter's own flush
    at exit is redirected, so that it reports nothing."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
