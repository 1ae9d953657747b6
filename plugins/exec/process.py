"""Run a child process, and terminate its process group afterwards."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import time

from protocol import Failure
from redact import BROKEN, redact, redact_end, redact_start

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHUNK = 64 * 1024
MAX_END = 24 * 1024
"""Two of them, even with redacted secrets, are less than the gateway keeps of stderr."""
TERM_GRACE = 2.0
LINGER = 0.5
"""Seconds to wait for more output after the process has ended."""


class Stream:
    """The output of a pipe: its first `cap` bytes, and at most as many last ones."""

    def __init__(self, cap: int) -> None:
        self._cap, self._kept, self._seen = cap, b"", 0
        self._room, self._last = min(cap, MAX_END), b""

    def append(self, data: bytes) -> None:
        self._kept += data[: max(0, self._cap - len(self._kept))]
        self._seen += len(data)
        self._last = (self._last + data)[-self._room :] if self._room else b""

    def text(self, secrets: Sequence[str]) -> str:
        """The stored start of the output, without secrets."""
        hide = redact_start if self.truncated else redact
        return hide(self.plain, secrets)

    def end(self, secrets: Sequence[str]) -> str:
        """The end of the output, which usually has the error message, without secrets."""
        text = self._last.decode("utf-8", "replace")
        text = redact_end(text, secrets) if self.omitted else redact(text, secrets)
        # A replacement character has three bytes, so it could exceed the limit.
        return text.replace(BROKEN, "?")

    @property
    def plain(self) -> str:
        """The stored start of the output, secrets included."""
        return self._kept.decode("utf-8", "replace")

    @property
    def truncated(self) -> bool:
        return self._seen > self._cap

    @property
    def omitted(self) -> int:
        """The number of bytes before the stored end."""
        return self._seen - len(self._last)


class ProcessResult:
    """The result of a process."""

    def __init__(
        self, code: int, timed_out: bool, seconds: float, stdout: Stream, stderr: Stream
    ) -> None:
        self.exit_code = code if code >= 0 else None
        self.signal = _name(-code) if code < 0 else None
        self.timed_out, self.seconds = timed_out, seconds
        self.stdout, self.stderr = stdout, stderr

    @property
    def summary(self) -> str:
        if self.timed_out:
            return f"timed out after {self.seconds:.1f} s"
        if self.signal:
            return f"killed by {self.signal}"
        return f"exit code {self.exit_code}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def launch(
    argv: Sequence[str],
    stdin: bytes,
    env: Mapping[str, str],
    cwd: str | None,
    timeout: float,
    cap: int,
) -> ProcessResult:
    """Run `argv` in its own process group, and kill the whole group when it ends."""
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=dict(env),
            process_group=0,
        )
    except OSError as error:
        transient = error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ETXTBSY)
        where = f" in {cwd}" if cwd is not None and error.filename == cwd else ""
        raise Failure(
            f"{argv[0]!r} could not be started{where}: {error.strerror}", retry=transient
        ) from None
    try:
        pipes = _Pipes(process, stdin, cap)
        timed_out = not pipes.wait_for_exit(start + timeout)
        if timed_out:
            _signal(process, signal.SIGTERM)
            pipes.wait_for_exit(time.monotonic() + TERM_GRACE)
    finally:
        # Before the process is reaped: afterwards its pid may be reused.
        _signal(process, signal.SIGKILL)
        code = process.wait()
    pipes.drain(time.monotonic() + LINGER)
    took = time.monotonic() - start
    return ProcessResult(code, timed_out, took, pipes.stdout, pipes.stderr)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


class _Pipes:
    """Writes stdin and reads both outputs without blocking."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, cap: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdout, self.stderr = Stream(cap), Stream(cap)
        self._input = memoryview(stdin)
        self._selector = selectors.DefaultSelector()
        self._exit = os.pidfd_open(process.pid)
        self._selector.register(self._exit, selectors.EVENT_READ, None)
        for pipe, stream in ((process.stdout, self.stdout), (process.stderr, self.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, stream)
        self._stdin = process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._selector.register(self._stdin, selectors.EVENT_WRITE, None)
        self._exited = False

    def wait_for_exit(self, deadline: float) -> bool:
        """Serve the pipes; whether the process ended in time."""
        while not self._exited and (left := deadline - time.monotonic()) > 0:
            self._serve(left)
        return self._exited

    def drain(self, deadline: float) -> None:
        """Read the rest of the output; a process outside the group may keep a pipe open."""
        while self._reading() and (left := deadline - time.monotonic()) > 0:
            self._serve(left)
        for key in list(self._selector.get_map().values()):
            self._drop(key.fileobj)
        self._selector.close()
        os.close(self._exit)

    def _reading(self) -> bool:
        return any(isinstance(key.data, Stream) for key in self._selector.get_map().values())

    def _serve(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if key.fileobj == self._exit:
                self._exited = True
                self._selector.unregister(self._exit)
            elif isinstance(key.data, Stream):
                self._read(key)
            else:
                self._feed()

    def _read(self, key: selectors.SelectorKey) -> None:
        try:
            data = os.read(key.fd, CHUNK)
        except BlockingIOError:
            return
        if data:
            key.data.append(data)
        else:
            self._drop(key.fileobj)

    def _feed(self) -> None:
        try:
            if self._input:
                self._input = self._input[os.write(self._stdin.fileno(), self._input[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._input = memoryview(b"")
        if not self._input:
            self._drop(self._stdin)

    def _drop(self, pipe: object) -> None:
        self._selector.unregister(pipe)  # type: ignore[arg-type]
        if pipe != self._exit:
            pipe.close()  # type: ignore[attr-defined]
