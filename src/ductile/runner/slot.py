"""A slot: a process that runs one plugin at a time, and answers with the outcome.

The gateway may send the next launches while one runs; the slot starts them one after the other by
itself, and gives unstarted ones back on request. A slot is a subreaper, so that every process that
is left below it when a job's leader has ended belongs to that job. It answers when none is left.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import errno
import os
import select
import time

from ductile.runner import isolation, protocol, reaper
from ductile.runner.channel import GatewayGone, SlotChannel
from ductile.runner.plugin_process import SIGCHLD_ONLY, OutputPipe, PluginProcess, Spawner
from ductile.runner.started_flags import StartedFlags, is_past_deadline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket

    from ductile.runner.sandbox.restrict import Confinement

LINGER = 5.0
"""Seconds that a process may live after it has closed its stdout."""
SPAWN_PATIENCE = 2.0
"""Seconds for which a spawn that failed for a temporary shortage is retried."""

_SPAWN_PAUSE = 0.02
_TEMPORARY = frozenset({errno.ETXTBSY, errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
_SHORT_JOB = 0.005
"""Seconds for which a slot waits for the end of the process and nothing else."""
_LIVE_AFTER = 0.2
"""Seconds after which the output of a running job is sent: shorter jobs send it at their end."""
_LIVE_INTERVAL = 0.1
_LIVE_CHUNK = 8 * 1024
_NEVER = float("inf")
_REAP_EVERY = 1.0


class JobTimer:
    """What ends a job, and when. The timeout starts with the spawn."""

    __slots__ = (
        "_grace",
        "_process",
        "ending",
        "kill_at",
        "linger_at",
        "reap_at",
        "started",
        "term_at",
    )

    def __init__(self, process: PluginProcess, request: protocol.RunRequest) -> None:
        self._process = process
        self._grace = request.grace
        self.started = time.monotonic()
        self.ending = protocol.EXITED
        self.term_at = self.started + request.timeout
        self.linger_at = _NEVER
        self.kill_at = _NEVER
        self.reap_at = self.started + _REAP_EVERY

    def seconds_to_wait(self) -> float:
        """Seconds until `tick` has something to do."""
        due: float = min(self.reap_at, self.term_at, self.linger_at, self.kill_at)
        return max(0.0, due - time.monotonic())

    def output_complete(self) -> None:
        if self.ending == protocol.EXITED:
            self.linger_at = time.monotonic() + LINGER

    def tick(self) -> None:
        now = time.monotonic()
        if now >= self.reap_at:
            reaper.reap_orphans(self._process.pid)
            self._process.raise_oom_score()
            self.reap_at = now + _REAP_EVERY
        if now >= self.kill_at:
            self._process.kill()
            self.kill_at = _NEVER
        elif now >= self.linger_at:
            self._end(protocol.LINGERED, now, 0.0)
        elif now >= self.term_at:
            self._process.drain()
            # Output that was complete before the timeout counts.
            ending = protocol.LINGERED if self._process.stdout.closed else protocol.TIMED_OUT
            self._end(ending, now, min(self._grace, self.linger_at - now))

    def cancel(self, grace: float) -> None:
        now = time.monotonic()
        if self.ending == protocol.EXITED:
            latest = min(self.linger_at, self.term_at + self._grace)
            self._process.drain()
            self._end(protocol.CANCELLED, now, min(grace, latest - now))
        elif now + grace < self.kill_at < _NEVER:
            self.kill_at = now + grace

    def _end(self, ending: int, now: float, grace: float) -> None:
        self.ending = ending
        self.term_at = self.linger_at = _NEVER
        if grace > 0:
            self._process.signal(_signal.SIGTERM)
            self.kill_at = now + grace
        else:
            self._process.kill()


class LiveOutput:
    """Sends what a running job writes to stderr, a little at a time and as far as it is kept."""

    __slots__ = ("_due", "_sent", "_seq", "_sock", "_stderr")

    def __init__(self, sock: socket, seq: int, stderr: OutputPipe, started: float) -> None:
        self._sock, self._seq, self._stderr = sock, seq, stderr
        self._sent = 0
        self._due = started + _LIVE_AFTER

    def seconds_to_wait(self) -> float:
        """Seconds until `tick` has something to send; infinite if there is nothing."""
        if self._sent >= len(self._stderr.kept):
            return _NEVER
        return max(0.0, self._due - time.monotonic())

    def tick(self) -> None:
        now = time.monotonic()
        if now < self._due or self._sent >= len(self._stderr.kept):
            return
        chunk = self._stderr.kept[self._sent : self._sent + _LIVE_CHUNK]
        if protocol.send_output(self._sock, self._seq, chunk):
            self._sent += len(chunk)
        self._due = now + _LIVE_INTERVAL


class NotWarm(Exception):
    """A warm slot cannot start this launch, nor any other: the gateway starts it cold."""


StartedJob = tuple[isolation.Streams, "Confinement | None"]
"""What a process that was forked for a job continues with."""


def serve(
    sock: socket, lifeline: int, started_flags: StartedFlags | None, spawner: Spawner
) -> StartedJob | None:
    """Run what the gateway sends, until the gateway or the runner has ended; then None.

    Returns in each process that the spawner forks, without what the slot knows of others.
    `started_flags` are for launches that have an entry in the started log.
    """
    reaper.become_subreaper()
    # `PluginProcess.ends_within` waits for it. Plugins are spawned with an empty mask.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, SIGCHLD_ONLY)
    channel = SlotChannel(sock, lifeline)
    encoded_env = b""
    env: dict[bytes, bytes] = {}
    try:
        while True:
            frame = channel.take()
            if frame is None:
                channel.receive_next()
            # A recall that arrives here is too late: once a job is answered for, the gateway takes
            # the next one for started. A cancelled job has ended.
            elif is_past_deadline(started_flags):
                return None
            elif protocol.frame_kind(frame) == protocol.RUN:
                request = protocol.RunRequest(frame)
                if request.env != encoded_env:
                    env, encoded_env = protocol.decode_environment(request.env), request.env
                process = _start(channel, request, env, started_flags, spawner)
                if process is not None and not process.pid:
                    return process.streams, process.confinement
                if process is not None:
                    _run(channel, request, process, started_flags)
                # Nothing of a large job is kept while the slot is idle.
                del frame, request, process
    except (GatewayGone, ConnectionError):
        return None


def _start(
    channel: SlotChannel,
    request: protocol.RunRequest,
    env: dict[bytes, bytes],
    started_flags: StartedFlags | None,
    spawner: Spawner,
) -> PluginProcess | None:
    """The process; None, once answered, where it cannot be spawned or is cancelled first."""
    started = time.monotonic()
    while True:
        try:
            return PluginProcess(request, env, started_flags, spawner)
        except NotWarm as refusal:
            reason = str(refusal).encode("utf-8", "replace")
            answer = channel.sock, request.seq, protocol.NOT_WARM, None, 0, 0, 0.0, b"", reason
            protocol.send_answer(*answer)
            raise GatewayGone from None
        except ValueError:
            ending, code = protocol.NOT_SPAWNED, errno.EINVAL
        except OSError as error:
            ending, code = protocol.NOT_SPAWNED, error.errno or errno.EINVAL
            if code in _TEMPORARY and time.monotonic() - started < SPAWN_PATIENCE:
                channel.wait(_SPAWN_PAUSE)
                if channel.handle_frames(request.seq) is None:
                    continue
                ending, code = protocol.CANCELLED, 0
        duration = time.monotonic() - started
        protocol.send_answer(channel.sock, request.seq, ending, None, code, 0, duration, b"", b"")
        return None


def _run(
    channel: SlotChannel,
    request: protocol.RunRequest,
    process: PluginProcess,
    started_flags: StartedFlags | None,
) -> None:
    """Run a process to its end, and answer with the outcome."""
    timer = JobTimer(process, request)
    try:
        _wait_for_end(channel, request, process, timer, started_flags)
    except BaseException:
        process.kill()
        raise
    finally:
        duration = time.monotonic() - timer.started
        exit_code = process.reap()
    if timer.ending == protocol.EXITED:
        process.drain()
    process.close()
    stdout, stderr = process.stdout, process.stderr
    flags = protocol.OVERFLOWED if stdout.overflowed else 0
    if stderr.overflowed:
        flags |= protocol.TRUNCATED
    own_exit_code = exit_code if timer.ending == protocol.EXITED else None
    protocol.send_answer(
        channel.sock,
        request.seq,
        timer.ending,
        own_exit_code,
        0,
        flags,
        duration,
        stdout.kept,
        stderr.kept,
    )


def _wait_for_end(
    channel: SlotChannel,
    request: protocol.RunRequest,
    process: PluginProcess,
    timer: JobTimer,
    started_flags: StartedFlags | None,
) -> None:
    """Feed, read and time a job until its leader has ended."""
    # Fast path: a short job ends before its pipes are full or a frame arrives.
    if process.stdin < 0 and process.ends_within(min(timer.seconds_to_wait(), _SHORT_JOB)):
        return
    process.raise_oom_score()
    pidfd = os.pidfd_open(process.pid)
    try:
        _poll_until_end(channel, request, process, timer, pidfd, started_flags)
    finally:
        os.close(pidfd)


def _poll_until_end(
    channel: SlotChannel,
    request: protocol.RunRequest,
    process: PluginProcess,
    timer: JobTimer,
    pidfd: int,
    started_flags: StartedFlags | None,
) -> None:
    poller = select.poll()
    channel.register(poller)
    poller.register(pidfd, select.POLLIN)
    if process.stdin >= 0:
        poller.register(process.stdin, select.POLLOUT)
    pipes = {process.stdout.fd: process.stdout, process.stderr.fd: process.stderr}
    for fd in pipes:
        poller.register(fd, select.POLLIN)
    live = LiveOutput(channel.sock, request.seq, process.stderr, timer.started)
    ended = False
    while not ended:
        # Before the wait: a frame may have been received together with the launch.
        grace = channel.handle_frames(request.seq)
        if grace is not None:
            timer.cancel(grace)
        timer.tick()
        if is_past_deadline(started_flags):
            raise GatewayGone
        live.tick()
        wait = min(timer.seconds_to_wait(), live.seconds_to_wait())
        for fd, events in poller.poll(wait * 1000):
            if fd == pidfd:
                ended = True
            elif fd in pipes:
                pipe = pipes[fd]
                if events & select.POLLIN:
                    pipe.read(timer.ending == protocol.EXITED)
                else:
                    pipe.closed = True
                if pipe.closed:
                    poller.unregister(fd)
                    if pipe is process.stdout:
                        timer.output_complete()
            elif fd == process.stdin:
                if not process.feed():
                    poller.unregister(fd)
            elif fd == channel.lifeline:
                raise GatewayGone
            else:
                channel.receive()
