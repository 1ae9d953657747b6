"""The command that corrects a problem of the configuration, where one value is probably meant."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import quote

from ductile.errors import Problem, dotted


def find_fix(problem: Problem) -> str | None:
    """A command line without `ductile`, or None.

    A wrong key has no command: `config set` would leave it in the file. Neither has a part of a
    value, such as a name in a list or a template: `config set` would replace the rest as well.
    """
    if problem.nearest is None or problem.found is None or not problem.path:
        return None
    found = problem.found.strip("\"'")
    is_name = "{" not in found and found != str(problem.path[-1])
    if not is_name or not _is_whole_value(found, problem):
        return None
    return f"config set {quote(dotted(problem.path))} {quote(problem.nearest)}"


def _is_whole_value(found: str, problem: Problem) -> bool:
    if problem.file is None or problem.line is None or problem.column is None:
        return False
    try:
        lines = Path(problem.file).read_text().split("\n")
    except (OSError, UnicodeDecodeError):
        return False
    value = "".join(lines[problem.line - 1 : problem.line])[problem.column - 1 :]
    pattern = rf"(?P<quote>[\"']?){re.escape(found)}(?P=quote)\s*([,\]}}]|#|$)"
    return re.match(pattern, value) is not None
