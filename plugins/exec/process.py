"""One child process, from its start to the end of its whole group."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import subprocess
import time

from protocol import Failure
from quoting import BROKEN, beginning, ending, hidden

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

CHUNK = 64 * 1024
LONGEST_ENDING = 24 * 1024
"""Two of them, also with many a short secret hidden, are less than the gateway keeps of stderr."""
TERM_GRACE = 2.0
LINGER = 0.5
"""Seconds that output may still come after the process itself has ended."""


class Stream:
    """What came out of one pipe: its first `cap` bytes, and its last, at most as many."""

    def __init__(self, cap: int) -> None:
        self._cap, self._kept, self._seen = cap, b"", 0
        self._room, self._last = min(cap, LONGEST_ENDING), b""

    def take(self, data: bytes) -> None:
        self._kept += data[: max(0, self._cap - len(self._kept))]
        self._seen += len(data)
        self._last = (self._last + data)[-self._room :] if self._room else b""

    def text(self, secrets: Sequence[str]) -> str:
        """The beginning, as far as it is kept."""
        cut = beginning if self.truncated else hidden
        return cut(self.plain, secrets)

    def ending(self, secrets: Sequence[str]) -> str:
        """The end, where programs say what went wrong."""
        text = self._last.decode("utf-8", "replace")
        text = ending(text, secrets) if self.unseen else hidden(text, secrets)
        # What stands for bytes that are no text would take up three times their room.
        return text.replace(BROKEN, "?")

    @property
    def plain(self) -> str:
        """The beginning with whatever secrets are in it."""
        return self._kept.decode("utf-8", "replace")

    @property
    def truncated(self) -> bool:
        return self._seen > self._cap

    @property
    def unseen(self) -> int:
        """How many bytes came before the end that is kept."""
        return self._seen - len(self._last)


class Ended:
    """How it went."""

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
    fed: bytes,
    env: Mapping[str, str],
    cwd: str | None,
    timeout: float,
    cap: int,
) -> Ended:
    """Run `argv` in a process group of its own, and end all of that group with it."""
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
        passing = error.errno in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ETXTBSY)
        where = f" in {cwd}" if cwd is not None and error.filename == cwd else ""
        raise Failure(
            f"{argv[0]!r} could not be started{where}: {error.strerror}", retry=passing
        ) from None
    try:
        conversation = _Conversation(process, fed, cap)
        timed_out = not conversation.until_it_ends(start + timeout)
        if timed_out:
            _signal(process, signal.SIGTERM)
            conversation.until_it_ends(time.monotonic() + TERM_GRACE)
    finally:
        # Before it is reaped: afterwards its number may be somebody else's.
        _signal(process, signal.SIGKILL)
        code = process.wait()
    conversation.drain(time.monotonic() + LINGER)
    took = time.monotonic() - start
    return Ended(code, timed_out, took, conversation.stdout, conversation.stderr)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


class _Conversation:
    """Feeds stdin and reads both outputs, none of which can block the others."""

    def __init__(self, process: subprocess.Popen[bytes], fed: bytes, cap: int) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self.stdout, self.stderr = Stream(cap), Stream(cap)
        self._fed = memoryview(fed)
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

    def until_it_ends(self, give_up: float) -> bool:
        """Whether the process ended in time."""
        while not self._exited and (left := give_up - time.monotonic()) > 0:
            self._serve(left)
        return self._exited

    def drain(self, give_up: float) -> None:
        """Read what is still in the pipes; somebody outside the group may hold them open."""
        while self._reading() and (left := give_up - time.monotonic()) > 0:
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
            key.data.take(data)
        else:
            self._drop(key.fileobj)

    def _feed(self) -> None:
        try:
            if self._fed:
                self._fed = self._fed[os.write(self._stdin.fileno(), self._fed[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._fed = memoryview(b"")
        if not self._fed:
            self._drop(self._stdin)

    def _drop(self, pipe: object) -> None:
        self._selector.unregister(pipe)  # type: ignore[arg-type]
        if pipe != self._exit:
            pipe.close()  # type: ignore[attr-defined]
