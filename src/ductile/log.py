"""Structured logs: JSON lines on stdout, or a readable form for a terminal."""

from __future__ import annotations

import json
import logging
import select
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from textwrap import indent

import orjson

from ductile.clock import to_text
from ductile.core.jobs.limits import fitting
from ductile.core.values.redact import Redactor
from ductile.core.values.terminal import escape_controls, escape_json, escape_line

LEVELS = {"debug": 10, "info": 20, "warn": 30, "error": 40}
MAX_BLOCKED = 1.0
"""Seconds that a write may block before log lines are dropped."""
_AT_ONCE = select.PIPE_BUF
"""Bytes that a write accepts without blocking if it accepts any."""
LIBRARIES = {"psycopg": "ledger", "psycopg_pool": "ledger"}
"""Libraries that use Python's logging, and the component under which they are logged."""
BETWEEN_REPEATS = 10.0
"""Seconds for which a repeated message of a library is suppressed."""
_JSON = orjson.OPT_NON_STR_KEYS | orjson.OPT_APPEND_NEWLINE
_COLOURS = {"debug": "2", "info": "32", "warn": "33", "error": "31"}


class _Sink:
    """Where lines go. One for the process: reload swaps its redactor and level."""

    def __init__(self) -> None:
        self.level = LEVELS["info"]
        self.json = True
        self.redactor = Redactor()
        self.wanted = False
        """Whether logging is configured; otherwise stdout belongs to a command's output."""
        self.lost = 0
        """Lines dropped since the last successful write."""
        self._lock = threading.Lock()
        self._cut = False
        """Whether the last line was written partially."""
        self._poll, self._fd = select.poll(), -1
        self._kept = threading.local()

    def write(self, level: str, fields: Mapping[str, object]) -> None:
        encoded = self._encoded(level, fields)
        kept: list[bytes] | None = getattr(self._kept, "lines", None)
        if kept is None:
            self._write([encoded])
        else:
            kept.append(encoded)

    @contextmanager
    def batch_lines(self) -> Iterator[None]:
        lines: list[bytes] = []
        self._kept.lines = lines
        try:
            yield
        finally:
            self._kept.lines = None
            while lines:
                count = fitting(map(len, lines), _AT_ONCE)
                self._write(lines[:count])
                del lines[:count]

    def _write(self, lines: list[bytes]) -> None:
        encoded = b"".join(lines)
        with self._lock:
            try:
                if self.lost:
                    encoded = self._loss_line() + encoded
                self._put(encoded)
                self.lost = 0
            except (OSError, ValueError, AttributeError):
                # A blocked log must not stop the gateway; the next line reports the dropped ones.
                self.lost += len(lines)

    def _encoded(self, level: str, fields: Mapping[str, object]) -> bytes:
        if not self.json:
            return f"{_readable(level, dict(fields), self.redactor)}\n".encode()
        encoded = self.redactor.json(_as_json(fields).decode()).encode()
        if not encoded.isascii() or b"\x7f" in encoded:
            encoded = escape_json(encoded.decode()).encode()
        return encoded

    def _loss_line(self) -> bytes:
        message = f"{self.lost} log lines could not be written"
        line = self._encoded("warn", _line("warn", "log", message))
        return b"\n" + line if self._cut else line

    def _put(self, encoded: bytes) -> None:
        for start in range(0, len(encoded), _AT_ONCE):
            self._wait_until_writable()
            sys.stdout.buffer.write(encoded[start : start + _AT_ONCE])
            sys.stdout.buffer.flush()
            self._cut = start + _AT_ONCE < len(encoded)

    def _wait_until_writable(self) -> None:
        """Wait until a write does not block; `TimeoutError` if it keeps blocking."""
        try:
            fd = sys.stdout.fileno()
        except (OSError, ValueError, AttributeError):
            return
        if fd != self._fd:
            self._poll, self._fd = select.poll(), fd
            self._poll.register(fd, select.POLLOUT)
        if not self._poll.poll(0 if self.lost else MAX_BLOCKED * 1000):
            raise TimeoutError


_sink = _Sink()


def batch_lines() -> AbstractContextManager[None]:
    """Collect the lines of this thread and write them together at the end."""
    return _sink.batch_lines()


def configure(level: str, form: str, redactor: Redactor | None = None) -> None:
    """Set what is logged and how (`json` or `text`); known secrets never appear."""
    _sink.level = LEVELS.get({"warning": "warn"}.get(level, level), LEVELS["info"])
    _sink.json = form == "json"
    _sink.wanted = True
    if redactor is not None:
        _sink.redactor = redactor


class Logger:
    def __init__(self, component: str) -> None:
        self._component = component

    def log(self, level: str, message: str, **fields: object) -> None:
        if LEVELS[level] < _sink.level:
            return
        _sink.write(level, _line(level, self._component, message, **fields))

    def debug(self, message: str, **fields: object) -> None:
        self.log("debug", message, **fields)

    def info(self, message: str, **fields: object) -> None:
        self.log("info", message, **fields)

    def warning(self, message: str, **fields: object) -> None:
        self.log("warn", message, **fields)

    def error(self, message: str, **fields: object) -> None:
        self.log("error", message, **fields)

    def crash(self, message: str, error: BaseException, **fields: object) -> None:
        """An error that is a bug: with its trace."""
        trace = "".join(traceback.format_exception(error))
        self.log("error", message, trace=trace, **fields)


def logger(component: str) -> Logger:
    return Logger(component)


class _LibraryLogHandler(logging.Handler):
    """Receives the messages of a library that uses Python's logging."""

    def __init__(self, component: str) -> None:
        super().__init__(logging.WARNING)
        self._logger = Logger(component)
        self._suppressed_until: dict[str, float] = {}
        """Keyed by the message template, of which there are few."""

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if not _sink.wanted or now < self._suppressed_until.get(record.msg, now):
            return
        self._suppressed_until[record.msg] = now + BETWEEN_REPEATS
        level = "error" if record.levelno >= logging.ERROR else "warn"
        self._logger.log(level, record.getMessage())


def adopt(library: str, component: str) -> None:
    """Log the warnings of this library as lines of `component`, rate limited."""
    theirs = logging.getLogger(library)
    if not any(isinstance(handler, _LibraryLogHandler) for handler in theirs.handlers):
        theirs.addHandler(_LibraryLogHandler(component))
        theirs.propagate = False


for _library, _component in LIBRARIES.items():
    adopt(_library, _component)


def _line(level: str, component: str, message: str, **fields: object) -> dict[str, object]:
    """The fields of a line, in their order."""
    line: dict[str, object] = {
        "timestamp": to_text(datetime.now(UTC)),
        "level": level,
        "component": component,
    }
    for name in ("plugin", "job_id"):
        value = fields.pop(name, None)
        if value is not None:
            line[name] = value
    line["message"] = message
    for name, value in fields.items():
        if value is not None:
            line[name] = value
    return line


def _as_json(fields: Mapping[str, object]) -> bytes:
    try:
        return orjson.dumps(fields, default=str, option=_JSON)
    except (TypeError, ValueError):
        # A lone surrogate or an integer beyond 64 bits: slower, but accepts any value.
        return json.dumps(fields, default=str).encode() + b"\n"


def _readable(level: str, fields: dict[str, object], redactor: Redactor) -> str:
    """One line, and an indented trace: no value can look like a line of its own."""

    def show(value: object) -> str:
        # Redacted first: a secret with control characters is not known in its escaped form.
        return escape_line(redactor.text(str(value)))

    at = str(fields.pop("timestamp"))[11:23]
    fields.pop("level")
    component, message = fields.pop("component"), show(fields.pop("message"))
    trace = fields.pop("trace", None)
    rest = " ".join(f"{show(name)}={show(value)}" for name, value in fields.items())
    shown = f"{level:<5}"
    if sys.stdout.isatty():
        shown = f"\x1b[{_COLOURS[level]}m{shown}\x1b[0m"
    line = f"{at} {shown} {component:<9} {message}  {rest}".rstrip()
    if not trace:
        return line
    return f"{line}\n{indent(escape_controls(redactor.text(str(trace))).rstrip(), '  ')}"
