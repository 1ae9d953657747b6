"""The log of a running attempt: the part that is safe to show, and the progress that it reports."""

from __future__ import annotations

import codecs
import re

from ductile._fast_dataclass import dataclass
from ductile.core.values.redact import Redactor

LONGEST_MESSAGE = 200
_PROGRESS = re.compile(r"^::progress[ \t]+(\d{1,3}(?:\.\d{1,6})?)%?(?:[ \t]+(.*?))?[ \t\r]*$", re.M)


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
    return redactor.growing(text.replace("\0", "\ufffd"))


def find_progress(text: str) -> Progress | None:
    """The last progress that the text reports in a whole line; values above 100 are ignored."""
    whole = text[: text.rfind("\n") + 1]
    found = None
    for match in _PROGRESS.finditer(whole):
        if float(match[1]) <= 100:
            found = Progress(float(match[1]), (match[2] or "")[:LONGEST_MESSAGE])
    return found
