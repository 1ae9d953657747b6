"""Frames between the gateway and a slot: a fixed head that begins with the frame's length,
then raw bytes. Text travels as the bytes that the system calls take."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from struct import Struct

RUN, CANCEL, RECALL = 1, 2, 3

EXITED, LINGERED, TIMED_OUT, CANCELLED, NOT_SPAWNED, RECALLED = range(6)
ENDINGS = ("exited", "lingered", "timed_out", "cancelled", "not_spawned")
"""`model.Ending` by the numbers above; the runner process does not load the model. What is recalled
has not even begun."""

HAS_EXIT_CODE, OVERFLOWED, TRUNCATED = 1, 2, 4

_LENGTH = Struct("<Q")
_HEAD = Struct("<QBQ")
_CANCEL = Struct("<QBQd")
_RUN = Struct("<QBQddQQQqII")
_ANSWER = Struct("<QQBBiidQQ")
_RECEIVE = 64 * 1024
_RECEIVE_LARGE = 1024 * 1024

Buffer = bytes | bytearray | memoryview


class Order:
    """A run, as a slot takes it off the wire."""

    __slots__ = (
        "argv",
        "env",
        "grace",
        "place",
        "request",
        "seq",
        "stderr_cap",
        "stdout_cap",
        "stdout_prefix",
        "timeout",
    )

    def __init__(self, frame: Buffer) -> None:
        _, _, self.seq, self.timeout, self.grace, *rest, argv, env = _RUN.unpack_from(frame)
        self.stdout_cap, self.stdout_prefix, self.stderr_cap, self.place = rest
        body = memoryview(frame)
        start = _RUN.size
        self.argv: list[bytes] = bytes(body[start : start + argv]).split(b"\0")
        self.env: bytes = bytes(body[start + argv : start + argv + env])
        self.request: memoryview = body[start + argv + env :]


class Launchable:
    """The part of a run that does not depend on the slot's sequence number."""

    __slots__ = ("_body", "_lengths", "_numbers")

    def __init__(
        self,
        argv: Sequence[str],
        env: bytes,
        request: bytes,
        numbers: tuple[float, float, int, int, int, int],
    ) -> None:
        """`env` is what `variables` made of it; `numbers`: timeout, grace, stdout's cap, what
        stays of it on overflow, stderr's cap, and its place among the `cells`.

        ValueError where argv cannot be handed to a system call.
        """
        arguments = _joined(argv)
        if not argv[0]:
            raise ValueError("the command line is empty")
        self._lengths = len(arguments), len(env)
        self._numbers = numbers
        self._body = arguments, env, request

    def frame(self, seq: int) -> bytes:
        argv, env, request = self._body
        size = _RUN.size + len(argv) + len(env) + len(request)
        head = _RUN.pack(size, RUN, seq, *self._numbers, *self._lengths)
        return b"".join((head, argv, env, request))


def _joined(texts: Sequence[str]) -> bytes:
    if not texts:
        raise ValueError("the command line is empty")
    joined = "\0".join(texts)
    if joined.count("\0") != len(texts) - 1:
        raise ValueError("a NUL character in the command line or the environment")
    return os.fsencode(joined)


def variables(env: Mapping[str, str]) -> bytes:
    """ValueError where one cannot be handed to a system call."""
    return _joined([text for pair in env.items() for text in pair]) if env else b""


def environment(blob: bytes) -> dict[bytes, bytes]:
    """What `Order.env` says."""
    if not blob:
        return {}
    texts = iter(blob.split(b"\0"))
    return dict(zip(texts, texts, strict=True))


def cancel_frame(seq: int, grace: float) -> bytes:
    return _CANCEL.pack(_CANCEL.size, CANCEL, seq, grace)


def recall_frame(seq: int) -> bytes:
    return _CANCEL.pack(_CANCEL.size, RECALL, seq, 0.0)


def kind(frame: Buffer) -> int:
    return frame[_LENGTH.size]


def seq(frame: Buffer) -> int:
    """Of the launch that it is, or is about."""
    return int(_HEAD.unpack_from(frame)[2])


def grace(frame: Buffer) -> float:
    """Of a cancel."""
    return float(_CANCEL.unpack_from(frame)[3])


def send_answer(
    sock: socket.socket,
    seq: int,
    ending: int,
    exit_code: int | None,
    errno: int,
    flags: int,
    duration: float,
    stdout: Buffer,
    stderr: Buffer,
) -> None:
    if exit_code is not None:
        flags |= HAS_EXIT_CODE
    size = _ANSWER.size + len(stdout) + len(stderr)
    head = _ANSWER.pack(
        size, seq, ending, flags, exit_code or 0, errno, duration, len(stdout), len(stderr)
    )
    if size <= _RECEIVE:
        sock.sendall(b"".join((head, stdout, stderr)))
    else:
        for part in (head, stdout, stderr):
            sock.sendall(part)


Answer = tuple[int, int, int, int, int, float, bytes, bytes]


def answer(frame: Buffer) -> Answer:
    """Sequence number, ending, flags, exit code, errno, duration, stdout, stderr."""
    _, seq, ending, flags, exit_code, errno, duration, out, _ = _ANSWER.unpack_from(frame)
    body = memoryview(frame)
    start = _ANSWER.size
    stdout, stderr = bytes(body[start : start + out]), bytes(body[start + out :])
    return seq, ending, flags, exit_code, errno, duration, stdout, stderr


class Inbox:
    """Whole frames out of a stream socket."""

    __slots__ = ("_data", "_sock", "_wanted")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._data: bytes | bytearray = b""
        self._wanted = _LENGTH.size

    @property
    def ready(self) -> bool:
        """Whether `take` has a frame to give."""
        data = self._data
        return len(data) >= _LENGTH.size and len(data) >= _LENGTH.unpack_from(data)[0]

    def fill(self, flags: int = 0) -> bool:
        """One `recv`; false at the end of the stream. Raises what the socket raises."""
        missing = self._wanted - len(self._data)
        chunk = self._sock.recv(_RECEIVE if missing <= _RECEIVE else _RECEIVE_LARGE, flags)
        if not chunk:
            return False
        if not self._data:
            self._data = chunk
        else:
            if isinstance(self._data, bytes):
                self._data = bytearray(self._data)
            self._data += chunk
        return True

    def take(self) -> bytes | bytearray | None:
        """The next frame, if all of it is here."""
        data = self._data
        if len(data) < _LENGTH.size:
            self._wanted = _LENGTH.size
            return None
        self._wanted = _LENGTH.unpack_from(data)[0]
        if len(data) < self._wanted:
            return None
        if len(data) == self._wanted:
            self._data = b""
            return data
        self._data = data[self._wanted :]
        return data[: self._wanted]
