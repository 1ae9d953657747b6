"""Durations and sizes of a plugin's config, as the gateway's own config writes them."""

from __future__ import annotations

import re

from protocol import Misconfigured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|w)")
_SIZE = re.compile(r"([0-9]{1,12})\s*([KMG]?)(?:I?B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3}


def seconds(
    config: Mapping[str, Any], key: str, default: float, *, least: float, most: float
) -> float:
    """`30s`, `1h30m`, or a number of seconds. Raises `Misconfigured`."""
    value = config.get(key)
    if value is None:
        return default
    found: float | None = None
    if isinstance(value, str) and re.fullmatch(rf"(?:{_PART.pattern})+", value.strip()):
        found = sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    if found is None:
        raise Misconfigured(f"{key} must be a duration such as 30s or 5m")
    if not least <= found <= most:
        raise Misconfigured(f"{key} must be from {least:g} to {most:g} seconds")
    return found


def size(config: Mapping[str, Any], key: str, default: int, *, least: int, most: int) -> int:
    """`64KB`, `1MB` (K is 1024), or a number of bytes. Raises `Misconfigured`."""
    value = config.get(key)
    if value is None:
        return default
    found: int | None = None
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        found = int(match[1]) * 1024 ** _POWERS[match[2].upper()]
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    if found is None:
        raise Misconfigured(f"{key} must be a size such as 64KB or 1MB")
    if not least <= found <= most:
        raise Misconfigured(f"{key} must be from {least} to {most} bytes")
    return found


def whole(config: Mapping[str, Any], key: str, default: int, *, least: int, most: int) -> int:
    """A whole number. Raises `Misconfigured`."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise Misconfigured(f"{key} must be a whole number from {least} to {most}")
    return value


def texts(config: Mapping[str, Any], key: str, *, most: int = 1000) -> list[str]:
    """A list of texts, or one; none where the key is absent. Raises `Misconfigured`."""
    value = config.get(key)
    found = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise Misconfigured(f"{key} must be text, or a list of texts")
    if len(found) > most:
        raise Misconfigured(f"{key} must hold no more than {most} texts")
    return found


def flag(config: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """True or false. Raises `Misconfigured`."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise Misconfigured(f"{key} must be true or false")
    return value
