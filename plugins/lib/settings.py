"""Read and check the settings of a plugin, in the notation of the gateway's configuration."""

from __future__ import annotations

import re

from protocol import ConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h|d|w)")
_SIZE = re.compile(r"([0-9]{1,12})\s*([KMG]?)(?:I?B)?", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3}


def read_seconds(
    config: Mapping[str, Any], key: str, default: float, *, minimum: float, maximum: float
) -> float:
    """The seconds of `30s`, `1h30m` or a number. Raises `ConfigError`."""
    value = config.get(key)
    if value is None:
        return default
    found: float | None = None
    if isinstance(value, str) and re.fullmatch(rf"(?:{_PART.pattern})+", value.strip()):
        found = sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(value))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    if found is None:
        raise ConfigError(f"{key} must be a duration such as 30s or 5m")
    if not minimum <= found <= maximum:
        raise ConfigError(f"{key} must be from {minimum:g} to {maximum:g} seconds")
    return found


def read_size(
    config: Mapping[str, Any], key: str, default: int, *, minimum: int, maximum: int
) -> int:
    """The bytes of `64KB`, `1MB` (K is 1024) or a number. Raises `ConfigError`."""
    value = config.get(key)
    if value is None:
        return default
    found: int | None = None
    if isinstance(value, str) and (match := _SIZE.fullmatch(value.strip())):
        found = int(match[1]) * 1024 ** _POWERS[match[2].upper()]
    elif isinstance(value, int) and not isinstance(value, bool):
        found = value
    if found is None:
        raise ConfigError(f"{key} must be a size such as 64KB or 1MB")
    if not minimum <= found <= maximum:
        raise ConfigError(f"{key} must be from {minimum} to {maximum} bytes")
    return found


def read_integer(
    config: Mapping[str, Any], key: str, default: int, *, minimum: int, maximum: int
) -> int:
    """A whole number. Raises `ConfigError`."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise ConfigError(f"{key} must be a whole number from {minimum} to {maximum}")
    return value


def read_texts(config: Mapping[str, Any], key: str, *, maximum: int = 1000) -> list[str]:
    """A list of texts, also if one text is given; empty if absent. Raises `ConfigError`."""
    value = config.get(key)
    found = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
        raise ConfigError(f"{key} must be text or a list of texts")
    if len(found) > maximum:
        raise ConfigError(f"{key} must have at most {maximum} entries")
    return found


def read_flag(config: Mapping[str, Any], key: str, default: bool = False) -> bool:
    """True or false. Raises `ConfigError`."""
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ConfigError(f"{key} must be true or false")
    return value
