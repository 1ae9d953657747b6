"""The one place where errors become exit codes, and text or JSON."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import click

from ductile.cli import output
from ductile.errors import ConfigError, DuctileError

INTERRUPTED = 130
PIPE_CLOSED = 1


class Terminated(KeyboardInterrupt):
    """SIGTERM, taken for what Ctrl-C is."""

    exit_code = 143


def terminate(_signal: int, _frame: FrameType | None) -> None:
    """A handler of signals."""
    raise Terminated


@dataclass
class Ended:
    code: int = 0


@contextmanager
def reported(*, as_json: bool) -> Iterator[Ended]:
    """Run a command line inside; whatever it raises is told and becomes `code`."""
    ended = Ended()
    try:
        yield ended
    except SystemExit as error:
        ended.code = error.code if isinstance(error.code, int) else 1
    except (KeyboardInterrupt, click.Abort) as error:
        ended.code = getattr(error.__context__ or error, "exit_code", INTERRUPTED)
    except BrokenPipeError:
        ended.code = PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - told in full by `_tell`
        ended.code = _tell(error, as_json)
    if not _flushed():
        ended.code = PIPE_CLOSED


def _tell(error: Exception, as_json: bool) -> int:
    code, body = _described(error)
    if as_json:
        output.document(body)
    elif isinstance(error, click.exceptions.NoArgsIsHelpError):
        output.aside(error.format_message())
    elif isinstance(error, ConfigError):
        _show_problems(error)
    else:
        output.aside(f"error: {body['error']}", fg="red")
        if isinstance(error, click.UsageError) and error.ctx is not None:
            output.aside(f"try: {error.ctx.command_path} --help")
    if body["code"] == "internal":
        import traceback

        traceback.print_exception(error)
    return code


def _described(error: Exception) -> tuple[int, dict[str, Any]]:
    """Exit code, and the error as a program reads it."""
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
        return 1, {"error": f"{place}{error.strerror or error}", "code": "os_error"}
    return 1, {"error": f"internal error: {type(error).__name__}: {error}", "code": "internal"}


def _show_problems(error: ConfigError) -> None:
    for problem in error.problems:
        output.aside(f"error: {problem}", fg="red")
    if len(error.problems) > 1:
        output.aside(f"{output.count(len(error.problems), 'problem')} in the configuration")


def _flushed() -> bool:
    """Whether the reader of stdout took everything; if not, nobody hears of it at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
