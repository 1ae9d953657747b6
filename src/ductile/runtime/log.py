"""Structured logs (002 §11.4): JSON lines, or a readable form for a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import orjson
import structlog

from ductile.core.redact import Redactor

_LEVELS = {"debug": 10, "info": 20, "warn": 30, "warning": 30, "error": 40}
_ORDER = ("timestamp", "level", "component", "plugin", "job_id", "message")
_redactor = Redactor()


def logger(component: str) -> Any:
    return structlog.get_logger(component=component)


def configure(level: str, form: str, redactor: Redactor | None = None) -> None:
    """Send logs to stdout, as `json` or `text`; secrets that the redactor knows never appear."""
    global _redactor
    if redactor is not None:
        _redactor = redactor
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="%Y-%m-%dT%H:%M:%S.%fZ", utc=True),
            structlog.processors.EventRenamer("message"),
            structlog.processors.ExceptionRenderer(),
            _as_json if form == "json" else _as_text,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS.get(level, 20)),
        logger_factory=structlog.BytesLoggerFactory(sys.stdout.buffer),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, force=True)


def _as_json(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> bytes:
    ordered = {name: fields.pop(name) for name in _ORDER if name in fields}
    line = orjson.dumps({**ordered, **fields}, default=str).decode()
    return _redactor.text(line).encode()


_COLOURS = {"error": "31", "warning": "33", "info": "32", "debug": "2"}


def _as_text(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> bytes:
    at = fields.pop("timestamp")[11:23]
    level = fields.pop("level")
    component, message = fields.pop("component", ""), fields.pop("message")
    rest = " ".join(f"{name}={value}" for name, value in fields.items() if value is not None)
    if sys.stdout.isatty():
        level = f"\x1b[{_COLOURS.get(level, '0')}m{level:<7}\x1b[0m"
    else:
        level = f"{level:<7}"
    return _redactor.text(f"{at} {level} {component:<9} {message}  {rest}".rstrip()).encode()
