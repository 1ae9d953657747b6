"""The frames between the gateway and a slot.

A frame is a fixed head, which begins with the frame's length, and raw bytes. Text is sent as the
bytes that system calls take.
"""

from __future__ import annotations

import _socket
import os
import sys
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUN, CANCEL, RECALL = 1, 2, 3
"""What a frame to a slot asks for."""

EXITED, LINGERED, TIMED_OUT, CANCELLED, NOT_SPAWNED, RECALLED, OUTPUT, NOT_WARM = range(8)
ENDINGS = ("exited", "lingered", "timed_out", "cancelled", "not_spawned")
"""`model.Ending` by the numbers above; the runner process does not import the model. A RECALLED
launch did not start and has no ending; OUTPUT carries what a running one has written to stderr;
NOT_WARM, from a slot that starts nothing more, carries the reason in the place of stderr."""

HAS_EXIT_CODE, OVERFLOWED, TRUNCATED = 1, 2, 4
"""The flags of an answer."""

_LENGTH = Struct("<Q")
_HEAD = Struct("<QBQ")
_CANCEL = Struct("<QBQd")
_RUN = Struct("<QBQddQQQqIIIII")
_ANSWER = Struct("<QQBBiidQQ")
_RECEIVE = 64 * 1024
_RECEIVE_LARGE = 1024 * 1024

TRACEPARENT = b"TRACEPARENT"
"""The variable that passes a plugin its span, as programs with OpenTelemetry read it: the only one
that differs between jobs of a plugin."""

if sys.version_info >= (3, 10):  # noqa: UP036
    # Only annotations use it, and Python 3.9, which has no such unions, does not evaluate those.
    Buffer = bytes | bytearray | memoryview


# To a slot


class EncodedLaunch:
    """The part of a RUN frame that does not depend on the sequence number."""

    __slots__ = ("_body", "_lengths", "_numbers")

    def __init__(
        self,
        argv: Sequence[str],
        env: bytes,
        request: bytes,
        numbers: tuple[float, float, int, int, int, int],
        stat: bytes = b"",
        sandbox: bytes = b"",
        traceparent: bytes = b"",
    ) -> None:
        """`env` comes from `encode_environment`. `numbers` are the timeout, the grace, the limit of
        stdout, what is kept of it on overflow, the limit of stderr, and the entry in the started
        log. `stat` comes from `encode_stat`, or is empty where any program may run. `sandbox` comes
        from `Policy.encode`, or is empty where there is none.

        ValueError where argv cannot be passed to a system call.
        """
        arguments = _join_with_nul(argv)
        if not argv[0]:
            raise ValueError("the command line is empty")
        self._lengths = len(arguments), len(env), len(stat), len(sandbox), len(traceparent)
        self._numbers = numbers
        self._body = arguments, env, stat, sandbox, traceparent, request

    def frame(self, seq: int) -> bytes:
        size = _RUN.size + sum(map(len, self._body))
        head = _RUN.pack(size, RUN, seq, *self._numbers, *self._lengths)
        return b"".join((head, *self._body))


def encode_stat(stat: os.stat_result) -> bytes:
    """What changes when a file is written to, replaced, or gets other permissions."""
    numbers = stat.st_dev, stat.st_ino, stat.st_mode, stat.st_uid, stat.st_size
    return " ".join(map(str, (*numbers, stat.st_mtime_ns, stat.st_ctime_ns))).encode()


def encode_environment(env: Mapping[str, str]) -> bytes:
    """ValueError where a variable cannot be passed to a system call."""
    return _join_with_nul([text for pair in env.items() for text in pair]) if env else b""


def _join_with_nul(texts: Sequence[str]) -> bytes:
    if not texts:
        raise ValueError("the command line is empty")
    joined = "\0".join(texts)
    if joined.count("\0") != len(texts) - 1:
        raise ValueError("a NUL character in the command line or the environment")
    return os.fsencode(joined)


def cancel_frame(seq: int, grace: float) -> bytes:
    return _CANCEL.pack(_CANCEL.size, CANCEL, seq, grace)


def recall_frame(seq: int) -> bytes:
    return _CANCEL.pack(_CANCEL.size, RECALL, seq, 0.0)


# In a slot


class RunRequest:
    """A RUN frame, decoded."""

    __slots__ = (
        "argv",
        "env",
        "grace",
        "log_entry",
        "request",
        "sandbox",
        "seq",
        "stat",
        "stderr_cap",
        "stdout_cap",
        "stdout_prefix",
        "timeout",
        "traceparent",
    )

    def __init__(self, frame: Buffer) -> None:
        _, _, self.seq, self.timeout, self.grace, *rest = _RUN.unpack_from(frame)
        self.stdout_cap, self.stdout_prefix, self.stderr_cap, self.log_entry, *lengths = rest
        argv, env, stat, sandbox, traceparent = lengths
        body = memoryview(frame)
        start = _RUN.size
        self.argv: list[bytes] = bytes(body[start : start + argv]).split(b"\0")
        start += argv
        self.env: bytes = bytes(body[start : start + env])
        start += env
        self.stat: bytes = bytes(body[start : start + stat])
        start += stat
        self.sandbox: bytes = bytes(body[start : start + sandbox])
        start += sandbox
        self.traceparent: bytes = bytes(body[start : start + traceparent])
        self.request: memoryview = body[start + traceparent :]


def decode_environment(encoded: bytes) -> dict[bytes, bytes]:
    """The variables in `RunRequest.env`."""
    if not encoded:
        return {}
    texts = iter(encoded.split(b"\0"))
    return dict(zip(texts, texts))  # noqa: B905 - also read by Python 3.9


def frame_kind(frame: Buffer) -> int:
    """RUN, CANCEL or RECALL."""
    return frame[_LENGTH.size]


def frame_seq(frame: Buffer) -> int:
    """The sequence number of the launch that a frame contains or is about."""
    return int(_HEAD.unpack_from(frame)[2])


def cancel_grace(frame: Buffer) -> float:
    """The grace of a CANCEL frame, in seconds."""
    return float(_CANCEL.unpack_from(frame)[3])


def send_answer(
    sock: _socket.socket,
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


def send_output(sock: _socket.socket, seq: int, stderr: Buffer) -> bool:
    """Send output of a running launch, without blocking; whether it was sent.

    The socket takes a frame of this size whole or not at all.
    """
    head = _ANSWER.pack(_ANSWER.size + len(stderr), seq, OUTPUT, 0, 0, 0, 0.0, 0, len(stderr))
    try:
        sock.send(head + stderr, _socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    return True


# From a slot

Answer = tuple[int, int, int, int, int, float, bytes, bytes]
"""Sequence number, ending, flags, exit code, errno, duration, stdout, stderr."""


def decode_answer(frame: Buffer) -> Answer:
    _, seq, ending, flags, exit_code, errno, duration, out, _ = _ANSWER.unpack_from(frame)
    body = memoryview(frame)
    start = _ANSWER.size
    stdout, stderr = bytes(body[start : start + out]), bytes(body[start + out :])
    return seq, ending, flags, exit_code, errno, duration, stdout, stderr


# Both ways


class FrameReader:
    """Reads whole frames from a stream socket."""

    __slots__ = ("_data", "_sock", "_wanted")

    def __init__(self, sock: _socket.socket) -> None:
        self._sock = sock
        self._data: bytes | bytearray = b""
        self._wanted = _LENGTH.size

    @property
    def has_frame(self) -> bool:
        """Whether `take` returns a frame."""
        data = self._data
        return len(data) >= _LENGTH.size and len(data) >= _LENGTH.unpack_from(data)[0]

    def receive(self, flags: int = 0) -> bool:
        """Make one `recv` call; false at the end of the stream. Raises what the socket raises."""
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
        """The next frame, if all of it was received."""
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
