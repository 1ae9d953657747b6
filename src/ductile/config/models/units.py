"""Durations and sizes in the notation of configuration files."""

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


def parse_duration(text: str) -> float:
    """The seconds of a duration; raises `ValueError` if it is invalid or over 100 years."""
    text = text.strip()
    if len(text) > 64 or not _WHOLE.match(text):
        raise ValueError("must be a duration")
    # In milliseconds, so that 1h30m and 90m give equal numbers.
    millis = sum(float(count) * (_UNITS[unit] * 1000) for count, unit in _PART.findall(text))
    seconds = millis / 1000
    if seconds > _LONGEST:
        raise ValueError("must not be longer than 100 years")
    return seconds


def parse_size(text: str) -> int:
    """The bytes of a size; a plain number is bytes. Raises `ValueError` if it is invalid."""
    match = _SIZE.match(text.strip()) if len(text) <= 64 else None
    if match is None:
        raise ValueError("must be a size")
    scale = 1024 ** _POWERS[match[2].upper()]
    count = int(match[1]) * scale if match[1].isdigit() else int(float(match[1]) * scale)
    if count >= _LARGEST:
        raise ValueError("is too large")
    return count


def format_duration(seconds: float) -> str:
    """Seconds in the notation of the files: `1h30m`."""
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


def format_size(count: int) -> str:
    """Bytes in the notation of the files, in the largest exact unit: `64KB`."""
    for unit in ("T", "G", "M", "K"):
        whole, rest = divmod(count, 1024 ** _POWERS[unit])
        if whole and not rest:
            return f"{whole}{unit}B"
    return f"{count}B"
