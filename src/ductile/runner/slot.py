"""A slot: a process that runs one plugin at a time and answers with what it saw.

It may be told what to run next while it runs another, and then goes on without waiting for
anybody; what has not begun it gives back to who recalls it. It is a subreaper, so that whatever is
left below it when a job's leader has ended belongs to that job. It answers only when nothing is
left.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import time

from ductile.runner import protocol, reaper
from ductile.runner.channel import Gone, Line
from ductile.runner.started_flags import BEGUN, NOWHERE, Cells

LINGER = 5.0
"""How long a process may live on after it has closed its stdout."""
SPAWN_PATIENCE = 2.0
"""How long a spawn that met a passing shortage is tried again."""

_SPAWN_PAUSE = 0.02
_PASSING = frozenset({errno.ETXTBSY, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
# What is ignored stays so through exec, and Python ignores SIGPIPE. All of them by number: the C
# library asks after every signal that it is not told of, a system call each.
_RESTORED = tuple(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
_CHUNK = 64 * 1024
_DRAIN_ROUNDS = 64
_HEAD_START = 0.005
_CHILDREN = frozenset({signal.SIGCHLD})
_NEVER = float("inf")
_REAP_EVERY = 1.0


class Stream:
    """A pipe out of the plugin, kept up to a cap and read to its end."""

    __slots__ = ("cap", "closed", "fd", "kept", "overflowed", "prefix")

    def __init__(self, fd: int, cap: int, prefix: int) -> None:
        self.fd = fd
        self.cap = cap
        self.prefix = min(prefix, cap)
        self.kept = bytearray()
        self.overflowed = False
        self.closed = False

    def read(self, keep: bool) -> bool:
        """Take one chunk; false when that was all there is for now."""
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


class Child:
    """A plugin process that was spawned: its leader and our ends of its pipes."""

    __slots__ = ("pid", "stderr", "stdin", "stdout", "unsent")

    def __init__(self, order: protocol.Order, env: dict[bytes, bytes], cells: Cells | None) -> None:
        """Raises OSError or ValueError, having left nothing open, where it cannot start."""
        pipes: list[int] = []
        try:
            for _ in range(3):
                pipes += os.pipe2(os.O_CLOEXEC)
            in_read, in_write, out_read, out_write, err_read, err_write = pipes
            self.unsent: memoryview = order.request
            if len(self.unsent) > select.PIPE_BUF:
                os.set_blocking(in_write, False)
            # Before the spawn: it fits as a rule, and then nobody has to wait for it.
            sent = os.write(in_write, self.unsent) if self.unsent else 0
            os.set_blocking(out_read, False)
            os.set_blocking(err_read, False)
            if order.place != NOWHERE:
                # Without them it would run unseen: better not at all.
                assert cells is not None
                cells[order.place] = BEGUN
            self.pid = os.posix_spawn(
                order.argv[0],
                order.argv,
                env,
                file_actions=(
                    (os.POSIX_SPAWN_DUP2, in_read, 0),
                    (os.POSIX_SPAWN_DUP2, out_write, 1),
                    (os.POSIX_SPAWN_DUP2, err_write, 2),
                ),
                setpgroup=0,
                setsigdef=_RESTORED,
                setsigmask=(),
            )
        except (OSError, ValueError):
            for fd in pipes:
                os.close(fd)
            raise
        os.close(in_read)
        os.close(out_write)
        os.close(err_write)
        self.stdin = in_write
        self.unsent = self.unsent[sent:]
        if not self.unsent:
            self.hang_up()
        self.stdout = Stream(out_read, order.stdout_cap, order.stdout_prefix)
        self.stderr = Stream(err_read, order.stderr_cap, order.stderr_cap)

    def ends_within(self, seconds: float) -> bool:
        """Whether the leader ends that soon; returns when it has."""
        until = time.monotonic() + seconds
        while signal.sigtimedwait(_CHILDREN, seconds) is not None:
            # One signal may stand for several processes, be about another, or be left of one that
            # had the same number before.
            if reaper.has_ended(self.pid):
                return True
            seconds = max(0.0, until - time.monotonic())
        return False

    def feed(self) -> bool:
        """Whether there is more to feed."""
        try:
            self.unsent = self.unsent[os.write(self.stdin, self.unsent) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            self.unsent = self.unsent[:0]
        if self.unsent:
            return True
        self.hang_up()
        return False

    def hang_up(self) -> None:
        os.close(self.stdin)
        self.stdin = -1

    def signal(self, number: int) -> None:
        """To the group, and to a leader that has left its group."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            reaper.send(self.pid, number)
        except PermissionError:
            pass

    def kill(self) -> None:
        reaper.send_group(self.pid, signal.SIGKILL)
        reaper.send(self.pid, signal.SIGKILL)

    def bury(self) -> int:
        """The exit code of a leader that has ended, or was killed, once it and all that it left
        behind are gone.

        The group goes before the leader is reaped: its number is free for others then.
        """
        reaper.send_group(self.pid, signal.SIGKILL)
        status = os.waitpid(self.pid, 0)[1]
        reaper.clear()
        return os.waitstatus_to_exitcode(status)

    def drain(self) -> None:
        """Keep what the pipes hold now. A writer out of our reach may never let them rest."""
        for stream in (self.stdout, self.stderr):
            for _ in range(_DRAIN_ROUNDS):
                if stream.closed or not stream.read(keep=True):
                    break

    def close(self) -> None:
        os.close(self.stdout.fd)
        os.close(self.stderr.fd)
        if self.stdin >= 0:
            self.hang_up()


class Watch:
    """One job's clock: what ends it, and when. The deadline runs from the spawn."""

    __slots__ = (
        "_child",
        "_grace",
        "ending",
        "kill_at",
        "linger_at",
        "reap_at",
        "started",
        "term_at",
    )

    def __init__(self, child: Child, order: protocol.Order) -> None:
        self._child = child
        self._grace = order.grace
        self.started = time.monotonic()
        self.ending = protocol.EXITED
        self.term_at = self.started + order.timeout
        self.linger_at = _NEVER
        self.kill_at = _NEVER
        self.reap_at = self.started + _REAP_EVERY

    def wait(self) -> float:
        """Seconds until `tick` has something to do."""
        due: float = min(self.reap_at, self.term_at, self.linger_at, self.kill_at)
        return max(0.0, due - time.monotonic())

    def output_complete(self) -> None:
        if self.ending == protocol.EXITED:
            self.linger_at = time.monotonic() + LINGER

    def tick(self) -> None:
        now = time.monotonic()
        if now >= self.reap_at:
            reaper.reap_orphans(self._child.pid)
            self.reap_at = now + _REAP_EVERY
        if now >= self.kill_at:
            self._child.kill()
            self.kill_at = _NEVER
        elif now >= self.linger_at:
            self._end(protocol.LINGERED, now, 0.0)
        elif now >= self.term_at:
            self._child.drain()
            # Output that was complete before the deadline wins.
            ending = protocol.LINGERED if self._child.stdout.closed else protocol.TIMED_OUT
            self._end(ending, now, min(self._grace, self.linger_at - now))

    def cancel(self, grace: float) -> None:
        now = time.monotonic()
        if self.ending == protocol.EXITED:
            latest = min(self.linger_at, self.term_at + self._grace)
            self._child.drain()
            self._end(protocol.CANCELLED, now, min(grace, latest - now))
        elif now + grace < self.kill_at < _NEVER:
            self.kill_at = now + grace

    def _end(self, ending: int, now: float, grace: float) -> None:
        self.ending = ending
        self.term_at = self.linger_at = _NEVER
        if grace > 0:
            self._child.signal(signal.SIGTERM)
            self.kill_at = now + grace
        else:
            self._child.kill()


def _follow(line: Line, order: protocol.Order, child: Child, watch: Watch) -> None:
    """Feed, read and time a job until its leader has ended."""
    # A short job is over before its pipes are full or anybody has a word for it.
    if child.stdin < 0 and child.ends_within(min(watch.wait(), _HEAD_START)):
        return
    pidfd = os.pidfd_open(child.pid)
    try:
        _attend(line, order, child, watch, pidfd)
    finally:
        os.close(pidfd)


def _attend(line: Line, order: protocol.Order, child: Child, watch: Watch, pidfd: int) -> None:
    poller = select.poll()
    line.attach(poller)
    poller.register(pidfd, select.POLLIN)
    if child.stdin >= 0:
        poller.register(child.stdin, select.POLLOUT)
    streams = {child.stdout.fd: child.stdout, child.stderr.fd: child.stderr}
    for fd in streams:
        poller.register(fd, select.POLLIN)
    while True:
        # First of all: a word may have come together with the launch.
        grace = line.told(order.seq)
        if grace is not None:
            watch.cancel(grace)
        watch.tick()
        ended = False
        for fd, events in poller.poll(watch.wait() * 1000):
            if fd == pidfd:
                ended = True
            elif fd in streams:
                stream = streams[fd]
                if events & select.POLLIN:
                    stream.read(watch.ending == protocol.EXITED)
                else:
                    stream.closed = True
                if stream.closed:
                    poller.unregister(fd)
                    if stream is child.stdout:
                        watch.output_complete()
            elif fd == child.stdin:
                if not child.feed():
                    poller.unregister(fd)
            elif fd == line.lifeline:
                raise Gone
            else:
                line.listen()
        if ended:
            return


def _run(line: Line, order: protocol.Order, child: Child) -> None:
    watch = Watch(child, order)
    try:
        _follow(line, order, child, watch)
    except BaseException:
        child.kill()
        raise
    finally:
        duration = time.monotonic() - watch.started
        exit_code = child.bury()
    if watch.ending == protocol.EXITED:
        child.drain()
    child.close()
    stdout, stderr = child.stdout, child.stderr
    flags = protocol.OVERFLOWED if stdout.overflowed else 0
    if stderr.overflowed:
        flags |= protocol.TRUNCATED
    own = exit_code if watch.ending == protocol.EXITED else None
    protocol.send_answer(
        line.sock, order.seq, watch.ending, own, 0, flags, duration, stdout.kept, stderr.kept
    )


def _spawn(
    line: Line, order: protocol.Order, env: dict[bytes, bytes], cells: Cells | None
) -> Child | None:
    """The child; or none, where it cannot start or was cancelled first, having said so."""
    started = time.monotonic()
    while True:
        try:
            return Child(order, env, cells)
        except ValueError:
            ending, code = protocol.NOT_SPAWNED, errno.EINVAL
        except OSError as error:
            ending, code = protocol.NOT_SPAWNED, error.errno or errno.EINVAL
            if code in _PASSING and time.monotonic() - started < SPAWN_PATIENCE:
                line.wait(_SPAWN_PAUSE)
                if line.told(order.seq) is None:
                    continue
                ending, code = protocol.CANCELLED, 0
        duration = time.monotonic() - started
        protocol.send_answer(line.sock, order.seq, ending, None, code, 0, duration, b"", b"")
        return None


def serve(sock: socket.socket, lifeline: int, cells: Cells | None) -> None:
    """Run what the gateway sends, until it or the runner is gone.

    `cells` are the started_log's, for launches that have a place there.
    """
    reaper.become_subreaper()
    # Nobody handles it; it is waited for, and a plugin gets none of this.
    signal.pthread_sigmask(signal.SIG_BLOCK, _CHILDREN)
    line = Line(sock, lifeline)
    known = b""
    env: dict[bytes, bytes] = {}
    try:
        while True:
            frame = line.take()
            if frame is None:
                line.next_word()
            # A recall that arrives here comes too late: once a job is answered for, the gateway
            # takes the next for begun. A cancel has found its job gone.
            elif protocol.kind(frame) == protocol.RUN:
                order = protocol.Order(frame)
                if order.env != known:
                    env, known = protocol.environment(order.env), order.env
                child = _spawn(line, order, env, cells)
                if child is not None:
                    _run(line, order, child)
                # Nothing of a large job is kept while the slot is idle.
                del frame, order, child
    except (Gone, ConnectionError):
        return
