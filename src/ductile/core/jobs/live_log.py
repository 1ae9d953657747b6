"""The log of a running attempt: the part that is safe to show, and the progress that it reports."""

from __future__ import annotations

import codecs
import re

from ductile._fast_dataclass import dataclass
from ductile.core.values.redact import Redactor

LONGEST_MESSAGE = 200
MARK = "::progress"
_PERCENT = re.compile(r"\d{1,3}(\.\d{1,6})?%?")


@dataclass(frozen=True, slots=True)
class Progress:
    """What a line `::progress 40 copying` of stderr reports."""

    percent: float
    message: str

    def seconds_left(self, elapsed: float) -> float | None:
        """An estimate from the time that was taken so far; None before the first percent."""
        if self.percent < 1 or self.percent >= 100:
            return None
        return elapsed * (100 - self.percent) / self.percent


def readable_beginning(stderr: bytes, redactor: Redactor) -> str:
    """The text of an output that is still growing, without secrets.

    A longer output never changes what was returned for a shorter one: an incomplete character and
    what may become a secret are left out.
    """
    text = codecs.getincrementaldecoder("utf-8")("replace").decode(stderr)
    return redactor.partial_text(text.replace("\0", "\ufffd"))


def find_progress(text: str) -> Progress | None:
    """The last progress that the text reports in a whole line; values above 100 are ignored."""
    end = text.rfind("\n")
    while end >= 0:
        start = text.rfind("\n", 0, end) + 1
        # Most lines report nothing, and are not copied.
        found = _parse_line(text[start:end]) if text.startswith(MARK, start) else None
        if found is not None:
            return found
        end = start - 1
    return None


def _parse_line(line: str) -> Progress | None:
    words = line.split(None, 2)
    if words[0] != MARK or len(words) < 2 or not _PERCENT.fullmatch(words[1]):
        return None
    percent = float(words[1].rstrip("%"))
    message = words[2].strip()[:LONGEST_MESSAGE] if len(words) > 2 else ""
    return Progress(percent, message) if percent <= 100 else None
