"""A plugin's process, as its slot starts, feeds, reads and ends it."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os
import select
import time

from ductile.runner import isolation, protocol, reaper
from ductile.runner.started_flags import NO_ENTRY, STARTED, StartedFlags

TYPE_CHECKING = False
"""As in `typing`, whose import would take longer than all others of a slot."""
if TYPE_CHECKING:
    from ductile.runner.sandbox.restrict import Confinement

# Python ignores SIGPIPE, and ignored signals stay ignored through exec. All signals are named: the
# C library makes a system call for each that is not.
_RESTORED = tuple(_signal.valid_signals() - {_signal.SIGKILL, _signal.SIGSTOP})
_CHUNK = 64 * 1024
_DRAIN_READS = 64
SIGCHLD_ONLY = frozenset({_signal.SIGCHLD})


class OutputPipe:
    """stdout or stderr of a plugin: read to its end, kept up to a limit."""

    __slots__ = ("cap", "closed", "fd", "kept", "overflowed", "prefix")

    def __init__(self, fd: int, cap: int, prefix: int) -> None:
        """`prefix` is how much is kept of an output that is longer than `cap`."""
        self.fd = fd
        self.cap = cap
        self.prefix = min(prefix, cap)
        self.kept = bytearray()
        self.overflowed = False
        self.closed = False

    def read(self, keep: bool) -> bool:
        """Read one chunk; false when there is nothing more for now."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return False
        if not chunk:
            self.closed = True
            return False
        if keep and not self.overflowed:
            self.kept += chunk
            if len(self.kept) > self.cap:
                self.overflowed = True
                del self.kept[self.prefix :]
        return len(chunk) == _CHUNK


class Spawner:
    """How a slot starts the process of a job. A cold slot executes the plugin's program."""

    def check(self, request: protocol.RunRequest, env: dict[bytes, bytes]) -> None:  # noqa: ARG002
        """OSError where the program is not the one that is to run.

        Called as late as possible: the file may be replaced while the launch waits.
        """
        if request.stat and protocol.encode_stat(os.stat(request.argv[-1])) != request.stat:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    def confine(self, request: protocol.RunRequest) -> Confinement | None:
        """What restricts the process; None if nothing does. OSError where that fails."""
        if not request.sandbox:
            return None
        # Only here: most slots run no sandboxed plugin.
        from ductile.runner.sandbox import restrict

        return restrict.Restrictions(request.sandbox)

    def spawn(
        self,
        request: protocol.RunRequest,
        env: dict[bytes, bytes],
        streams: isolation.Streams,
        confinement: Confinement | None,
    ) -> int:
        """The pid of the process, which leads a group of its own. OSError or ValueError if none
        was started. 0 in a process that was forked for the job: it is to leave the slot's code."""
        if request.traceparent:
            env = {**env, protocol.TRACEPARENT: request.traceparent}
        if confinement is not None:
            from ductile.runner.sandbox import restrict

            return restrict.spawn(request.argv, env, streams, confinement)
        stdin, stdout, stderr = streams
        return os.posix_spawn(
            request.argv[0],
            request.argv,
            env,
            file_actions=(
                (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, stderr, 2),
            ),
            setpgroup=0,
            setsigdef=_RESTORED,
            setsigmask=(),
        )


class PluginProcess:
    """The process that was spawned (the leader of its group), and our ends of its pipes."""

    __slots__ = ("confinement", "pid", "stderr", "stdin", "stdout", "streams", "unsent")

    def __init__(
        self,
        request: protocol.RunRequest,
        env: dict[bytes, bytes],
        started_flags: StartedFlags | None,
        spawner: Spawner,
    ) -> None:
        """Raises OSError or ValueError, and leaves nothing open, where it cannot be spawned."""
        spawner.check(request, env)
        pipes: list[int] = []
        self.confinement = spawner.confine(request)
        try:
            for _ in range(3):
                pipes += os.pipe2(os.O_CLOEXEC)
            in_read, in_write, out_read, out_write, err_read, err_write = pipes
            self.unsent: memoryview = request.request
            if len(self.unsent) > select.PIPE_BUF:
                os.set_blocking(in_write, False)
            # Before the spawn: as a rule it fits into the pipe, and nothing has to wait for it.
            sent = os.write(in_write, self.unsent) if self.unsent else 0
            os.set_blocking(out_read, False)
            os.set_blocking(err_read, False)
            if request.log_entry != NO_ENTRY:
                # Without flags, recovery would take it for unstarted: it must not run.
                assert started_flags is not None
                started_flags[request.log_entry] = STARTED
            self.streams: isolation.Streams = in_read, out_write, err_write
            self.pid = spawner.spawn(request, env, self.streams, self.confinement)
            if not self.pid:
                return
        except (OSError, ValueError):
            for fd in pipes:
                os.close(fd)
            if self.confinement is not None:
                self.confinement.close()
            raise
        os.close(in_read)
        os.close(out_write)
        os.close(err_write)
        self.stdin = in_write
        self.unsent = self.unsent[sent:]
        if not self.unsent:
            self.close_stdin()
        self.stdout = OutputPipe(out_read, request.stdout_cap, request.stdout_prefix)
        self.stderr = OutputPipe(err_read, request.stderr_cap, request.stderr_cap)

    def ends_within(self, seconds: float) -> bool:
        """Wait for the end of the process, by its signal; false when the time is up first."""
        until = time.monotonic() + seconds
        while _signal.sigtimedwait(SIGCHLD_ONLY, seconds) is not None:
            # One signal may stand for several processes, be about another, or be left from one that
            # had the same number before.
            if reaper.has_ended(self.pid):
                return True
            seconds = max(0.0, until - time.monotonic())
        return False

    def feed(self) -> bool:
        """Write to stdin; whether there is more to write."""
        try:
            self.unsent = self.unsent[os.write(self.stdin, self.unsent) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            self.unsent = self.unsent[:0]
        if self.unsent:
            return True
        self.close_stdin()
        return False

    def close_stdin(self) -> None:
        os.close(self.stdin)
        self.stdin = -1

    def signal(self, number: int) -> None:
        """Signal the group, and a leader that has left its group."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            reaper.send_signal(self.pid, number)
        except PermissionError:
            pass

    def kill(self) -> None:
        reaper.signal_group(self.pid, _signal.SIGKILL)
        reaper.send_signal(self.pid, _signal.SIGKILL)

    def raise_oom_score(self) -> None:
        """Have the kernel kill it before us where memory is short.

        Fails in the first moments of a program, while only root may do that: repeat it.
        """
        isolation.set_oom_score(self.pid, isolation.plugin_oom_score())

    def reap(self) -> int:
        """Wait for the leader, which has ended or was killed, kill all that it left behind, and
        return its exit code.

        The group is killed before the leader is reaped: afterwards its number may be reused.
        """
        reaper.signal_group(self.pid, _signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        reaper.kill_children()
        return os.waitstatus_to_exitcode(status)

    def drain(self) -> None:
        """Keep what the pipes contain now. The number of reads is limited: a process that we cannot
        kill may write without end."""
        for pipe in (self.stdout, self.stderr):
            for _ in range(_DRAIN_READS):
                if pipe.closed or not pipe.read(keep=True):
                    break

    def close(self) -> None:
        os.close(self.stdout.fd)
        os.close(self.stderr.fd)
        if self.stdin >= 0:
            self.close_stdin()
        if self.confinement is not None:
            self.confinement.close()
