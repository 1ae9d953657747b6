"""Regular expressions of conditions: an adapter over RE2, which defines Go's `regexp` as well.

RE2 never backtracks: a match takes time in proportion to the size of the pattern times the size
of the text. The limits here bound that product, and with it the time of one match.
"""

from __future__ import annotations

import re
from dataclasses import field
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.core.values.json_values import Failure

MAX_TEXT = 1024 * 1024
MAX_WORK = 200_000_000
"""Instructions of the pattern times bytes of the text: about 3 s in RE2's slowest mode."""
MAX_MEMORY = 2 * 1024 * 1024
"""Per pattern, for its program and for the states that RE2 caches while matching."""

_UNSUPPORTED = (
    (re.compile(r"\(\?[=!]\Z"), "look-ahead assertions"),
    (re.compile(r"\(\?<[=!]\Z"), "look-behind assertions"),
    (re.compile(r"\(\?P\Z|\\[1-9]\Z"), "backreferences"),
    (re.compile(r"\(\?>\Z"), "atomic groups"),
    (re.compile(r"\(\?\(\Z"), "conditional groups"),
    (re.compile(r"\(\?#\Z"), "comments"),
    (re.compile(r"[*+?}]\+\Z"), "possessive quantifiers"),
)
"""What other engines have and RE2 does not, by the fragment that RE2 rejects."""


@dataclass(frozen=True, slots=True)
class Regex:
    """A compiled pattern. Two are equal if their patterns are; threads may share one."""

    pattern: str
    program: Any = field(compare=False, repr=False)

    def fullmatch(self, text: str) -> bool | Failure:
        """Whether the whole text matches, or a `Failure` if the match could take too long."""
        if len(text) > MAX_TEXT:
            return Failure(f"the text is longer than {MAX_TEXT} characters: too long for regex")
        # A lone surrogate has no encoding; it is matched as a question mark.
        encoded = text.encode(errors="replace")
        if len(encoded) * self.program.programsize > MAX_WORK:
            return Failure(
                f"regex {self.pattern!r} is too large to match a text of {len(encoded)} bytes; "
                "use smaller repetition counts or a shorter text"
            )
        return self.program.fullmatch(encoded) is not None


def compile_regex(pattern: str) -> Regex | Failure:
    """Compile a pattern, or say which part of it RE2 rejects."""
    # Loading RE2 takes a few milliseconds, and few configurations need it.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_MEMORY
    try:
        return Regex(pattern, re2.compile(pattern, options))
    except UnicodeEncodeError:
        return Failure("the pattern is not a valid regular expression: it is not Unicode text")
    except re2.error as error:
        return Failure(f"the pattern is not a valid regular expression: {_explain(error)}")


def _explain(error: Exception) -> str:
    """RE2's message, which ends with the rejected fragment; by name if it is a known feature."""
    reason = error.args[0]
    text = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
    _, _, fragment = text.rpartition(": ")
    for rejected, feature in _UNSUPPORTED:
        if rejected.search(fragment):
            return f"{feature} are not supported by RE2: {fragment}"
    return text
