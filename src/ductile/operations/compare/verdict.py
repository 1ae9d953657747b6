"""How a repeated attempt differs from the recorded one, and what that means for a reviewer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Any

import orjson

from ductile.core.values.differences import ABSENT, Difference, IgnoredPaths, find_differences
from ductile.model import JobStatus, Json

Document = dict[str, Any]
MAX_DIFFERENCES = 30
LONGEST_VALUE = 300
"""Characters of a value in a difference."""


class Verdict(StrEnum):
    IDENTICAL = "identical"
    IGNORED = "ignored"
    """Different in ignored fields only."""
    DIFFERENT = "different"
    FAILED = "failed"
    """It fails where the recorded attempt succeeded."""
    NOT_COMPARED = "not_compared"


def judge_attempt(
    recorded: Document, repeated: Document, ignored: IgnoredPaths
) -> tuple[Verdict, Document]:
    """The verdict, and the differences that it is based on."""
    found = [
        each
        for part in ("status", "error", "result", "events", "state")
        for each in find_differences(recorded[part], repeated[part], part)
    ]
    counted = [each for each in found if not ignored.matches(each.path)]
    succeeded = JobStatus.SUCCEEDED.value
    if counted and recorded["status"] == succeeded != repeated["status"]:
        verdict = Verdict.FAILED
    elif counted:
        verdict = Verdict.DIFFERENT
    else:
        verdict = Verdict.IGNORED if found else Verdict.IDENTICAL
    return verdict, {
        "differences": [describe_difference(each) for each in counted[:MAX_DIFFERENCES]],
        "differences_left_out": max(len(counted) - MAX_DIFFERENCES, 0),
        "ignored": sorted({each.path for each in found if ignored.matches(each.path)})[
            :MAX_DIFFERENCES
        ],
    }


def describe_difference(difference: Difference) -> Document:
    """The path, with the shortened value of each side that has it."""
    shown: Document = {"path": difference.path}
    for side, value in (("before", difference.before), ("after", difference.after)):
        if value is not ABSENT:
            shown[side] = shorten_value(value)
    return shown


def shorten_value(value: Json) -> Json:
    """The value or, if it is long, the beginning of its JSON text."""
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return value if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}… ({len(text)})"


def summarize(rows: Sequence[Mapping[str, Any]]) -> Document:
    """The number of jobs per verdict, the fields that differ most, and the durations."""
    counts = Counter(row["verdict"] for row in rows)
    fields = Counter(field for row in rows for field in _fields_of(row))
    timed = [row for row in rows if row.get("duration_ms") and row.get("recorded_duration_ms")]
    return {
        **{verdict.value: counts[verdict.value] for verdict in Verdict},
        "inexact": sum(bool(row.get("notes")) for row in rows),
        "fields": [{"path": path, "jobs": jobs} for path, jobs in fields.most_common(10)],
        "duration_ms": _median(row["duration_ms"] for row in timed),
        "recorded_duration_ms": _median(row["recorded_duration_ms"] for row in timed),
    }


def _fields_of(row: Mapping[str, Any]) -> set[str]:
    """The paths that differ, with `*` for indexes, so that items of a list count together."""
    return {
        ".".join("*" if part.isdecimal() else part for part in each["path"].split("."))
        for each in row.get("differences", ())
    }


def _median(values: Iterable[float]) -> float | None:
    found = list(values)
    return round(median(found), 1) if found else None


def has_difference(summary: Mapping[str, Any]) -> bool:
    """Whether a change must not pass unread: something differs, or nothing was compared."""
    if summary[Verdict.DIFFERENT] or summary[Verdict.FAILED]:
        return True
    return not (summary[Verdict.IDENTICAL] or summary[Verdict.IGNORED])
