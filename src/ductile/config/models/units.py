"""Durations and sizes as people write them."""

from __future__ import annotations

import re

DURATION = "a duration such as 500ms, 30s, 5m, 2h, 30d, 1w or 1h30m"
SIZE = "a size such as 64KB, 1MB or 10MiB (K is 1024)"
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d|w))+$"
SIZE_PATTERN = r"^[0-9]+(\.[0-9]+)?\s*([KMGTkmgt]?[iI]?[bB]?)$"

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_WHOLE = re.compile(rf"(?:{_PART.pattern})+\Z")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:I?B)?\Z", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_LONGEST = 100 * 366 * 86_400.0
_LARGEST = 2**63


def duration(text: str) -> float:
    """Seconds; raises `ValueError` for anything else, or for more than a hundred years."""
    text = text.strip()
    if len(text) > 64 or not _WHOLE.match(text):
        raise ValueError("must be a duration")
    # In milliseconds, so that 1h30m is the same number as 90m.
    millis = sum(float(count) * (_UNITS[unit] * 1000) for count, unit in _PART.findall(text))
    seconds = millis / 1000
    if seconds > _LONGEST:
        raise ValueError("must not be longer than a hundred years")
    return seconds


def size(text: str) -> int:
    """Bytes; a number alone is bytes. Raises `ValueError` for anything else."""
    match = _SIZE.match(text.strip()) if len(text) <= 64 else None
    if match is None:
        raise ValueError("must be a size")
    scale = 1024 ** _POWERS[match[2].upper()]
    count = int(match[1]) * scale if match[1].isdigit() else int(float(match[1]) * scale)
    if count >= _LARGEST:
        raise ValueError("must be smaller than that")
    return count


def duration_text(seconds: float) -> str:
    """Seconds as a configuration would have them: `1h30m`."""
    millis = round(seconds * 1000, 6)
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, millis = divmod(millis, _UNITS[unit] * 1000)
        if count:
            parts.append(f"{count:.0f}{unit}")
    if millis:
        rest = f"{millis:.6f}".rstrip("0").rstrip(".")
        parts.append(f"{rest}ms")
    return "".join(parts) or "0s"


def size_text(count: int) -> str:
    """Bytes as a configuration would have them, in the largest unit that they fill: `64KB`."""
    for unit in ("T", "G", "M", "K"):
        whole, rest = divmod(count, 1024 ** _POWERS[unit])
        if whole and not rest:
            return f"{whole}{unit}B"
    return f"{count}B"
