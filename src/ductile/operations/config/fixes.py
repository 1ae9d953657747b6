"""The command that corrects a problem of the configuration, or that opens its place."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from ductile.config.validate import NO_TOKEN
from ductile.engine.config.restart_required import RESTART, RESTART_COMMAND
from ductile.errors import ConfigError, DuctileError, Problem, dotted

MAX_EXAMINED = 20
TOKEN_FILE = "api.token"
_WORD = re.compile(r"[\w.:/+-]+")
"""A word that means itself for a shell and for sed, but for its dots."""


def find_command(
    problem: Problem, repeat: Callable[[str], str], *, alone: bool = True
) -> str | None:
    """The command line that corrects the problem or, where a person has to decide, opens its place.

    `repeat` adds the options of a `ductile` command. `config set` is refused unless the problem is
    `alone`. None if the problem has no place.
    """
    if alone and RESTART in problem.message:
        return repeat(RESTART_COMMAND)
    if alone and problem.message == NO_TOKEN and problem.file is not None:
        return create_token(Path(problem.file).parent / TOKEN_FILE, repeat)
    if alone and (fix := find_fix(problem)) is not None:
        return repeat(f"ductile {fix}")
    return find_correction(problem) or open_place(problem)


def create_token(file: Path, repeat: Callable[[str], str]) -> str:
    """The command line that writes a random token to a private file, unless it exists, and permits
    it everything."""
    random = f"(umask 077; head -c 32 /dev/urandom | base64 -w0 > {quote(str(file))})"
    tokens = json.dumps([{"token": f"${{file:{file}}}", "scopes": ["*"]}])
    change = repeat(f"ductile config set api.auth.tokens {quote(tokens)}")
    return f"test -e {quote(str(file))} || {random}; {change}"


def correct_one(error: DuctileError, repeat: Callable[[Problem, str], str]) -> str | None:
    """The command for one problem of an invalid configuration that a process reported.

    Of several problems, none is corrected by `config set`, which is refused while others remain.
    """
    rows: Any = error.details.get("problems") or ()
    # Those of this process have their fix.
    own = error.problems if isinstance(error, ConfigError) else ()
    problems = own or [_read_problem(row) for row in rows]
    if len(problems) == 1:
        return find_command(problems[0], partial(repeat, problems[0]))
    found = (find_correction(problem) for problem in problems[:MAX_EXAMINED])
    return next(filter(None, found), open_place(problems[0]) if problems else None)


def _read_problem(row: Mapping[str, Any]) -> Problem:
    keys = ("message", "file", "line", "column", "found", "allowed", "nearest")
    path = tuple(str(row["path"] or "").rpartition(".")[::2])
    return Problem(path=path if path[0] else path[1:], **{key: row[key] for key in keys})


def find_correction(problem: Problem) -> str | None:
    """The command that corrects one misspelt word in its line; None if it is not certain which."""
    word, line = _find_word(problem), _read_line(problem)
    new = problem.nearest or ""
    if word is None or not _WORD.fullmatch(word) or not _WORD.fullmatch(new) or "." in new:
        return None
    if len(re.findall(rf"(?<![\w.-]){re.escape(word)}(?![\w.-])", line)) != 1:
        return None
    if line.count(word) != 1:
        return None
    old = word.replace(".", "\\.")
    edit = quote(f"{problem.line}s|{old}|{new}|")
    # The file itself: sed would replace a link by a file.
    return f"sed -i {edit} {quote(str(Path(problem.file or '').resolve()))}"


def open_place(problem: Problem) -> str | None:
    """The command that opens the place of a problem in the editor of this user."""
    return None if problem.file is None else open_in_editor(problem.file, problem.line)


def open_in_editor(file: str, line: int | None) -> str:
    return f"${{EDITOR:-vi}} {f'+{line} ' if line else ''}{quote(file)}"


def _find_word(problem: Problem) -> str | None:
    if problem.found is not None:
        return problem.found.strip("\"'")
    return str(problem.path[-1]) if problem.path else None


def find_fix(problem: Problem) -> str | None:
    """A command line without `ductile`, or None.

    A wrong key has no command: `config set` would leave it in the file. Neither has a part of a
    value, such as a name in a list or a template: `config set` would replace the rest as well.
    """
    if problem.fix is not None:
        path, value = problem.fix
        return f"config set {quote(dotted(path))} {value}"
    if problem.nearest is None or problem.found is None or not problem.path:
        return None
    found = problem.found.strip("\"'")
    is_name = "{" not in found and found != str(problem.path[-1])
    if not is_name or not _is_whole_value(found, problem):
        return None
    return f"config set {quote(dotted(problem.path))} {quote(problem.nearest)}"


def _is_whole_value(found: str, problem: Problem) -> bool:
    if problem.column is None:
        return False
    value = _read_line(problem)[problem.column - 1 :]
    pattern = rf"(?P<quote>[\"']?){re.escape(found)}(?P=quote)\s*([,\]}}]|#|$)"
    return re.match(pattern, value) is not None


def _read_line(problem: Problem) -> str:
    """The line of the problem; empty if it is not known, or cannot be read."""
    if problem.file is None or problem.line is None:
        return ""
    try:
        lines = Path(problem.file).read_text().split("\n")
    except (OSError, UnicodeDecodeError):
        return ""
    return "".join(lines[problem.line - 1 : problem.line])
