"""Applies a policy to the process of one job."""

from __future__ import annotations

import errno
import os
import resource
from typing import Protocol

from ductile.runner import isolation
from ductile.runner.sandbox import landlock, seccomp
from ductile.runner.sandbox.capabilities import drop_capabilities
from ductile.runner.sandbox.policy import Policy, Support, decode
from ductile.runner.sandbox.system_calls import PR_SET_NO_NEW_PRIVS, libc, prctl
from ductile.runner.sandbox.temporary import make_directory, remove_directory


def probe() -> Support:
    """What the kernel of this machine can enforce for this process."""
    return Support(landlock.find_abi(), seccomp.has_seccomp(), os.geteuid() == 0)


class Confinement(Protocol):
    """What `spawn` applies to a process, and `PluginProcess` closes after the end of the job."""

    temporary: str
    """The private directory of the job; empty if it has none."""

    def apply(self) -> None:
        """In the fork that then executes the plugin."""

    def release(self) -> None:
        """The process has started."""

    def close(self) -> None:
        """No process of the job is left."""


class Restrictions:
    """A policy that is ready to be applied to one job, with its private temporary directory."""

    def __init__(self, encoded: bytes) -> None:
        """Raises OSError, and leaves nothing behind, where something cannot be prepared."""
        policy = decode(encoded)
        self.temporary = ""
        self._ruleset = -1
        self._filter = (
            seccomp.build_filter(os.uname().machine, policy.network) if policy.seccomp else b""
        )
        self._limits = _limits(policy)
        libc()
        try:
            if policy.temporary:
                self.temporary = make_directory(policy.temporary)
                policy = policy._replace(own=(*policy.own, self.temporary))
            if policy.abi:
                self._ruleset = landlock.create_ruleset(policy)
        except BaseException:
            self.close()
            raise

    def apply(self) -> None:
        """Restrict this process, permanently: for a fork that then executes the plugin."""
        for kind, limits in self._limits:
            resource.setrlimit(kind, limits)
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        drop_capabilities()
        if self._ruleset >= 0:
            landlock.add_path(self._ruleset, "/proc/self", landlock.READ, follows=True)
            landlock.apply_ruleset(self._ruleset)
        if self._filter:
            seccomp.apply_filter(self._filter)

    def release(self) -> None:
        """The process has started: only its temporary directory is still needed."""
        if self._ruleset >= 0:
            os.close(self._ruleset)
            self._ruleset = -1

    def close(self) -> None:
        """Remove the temporary directory: no process of the job is left."""
        self.release()
        if self.temporary:
            remove_directory(self.temporary)
            self.temporary = ""


def spawn(
    argv: list[bytes],
    env: dict[bytes, bytes],
    streams: isolation.Streams,
    restrictions: Confinement,
) -> int:
    """Start a program as `Spawner.spawn` does, with restrictions. OSError if it was not started."""
    if restrictions.temporary:
        env = {**env, b"TMPDIR": os.fsencode(restrictions.temporary)}
    handled = isolation.handled_signals()
    failed, failure = os.pipe2(os.O_CLOEXEC)
    pid = 0
    try:
        pid = os.fork()
        if pid == 0:
            _execute(argv, env, streams, restrictions, handled, failure)
    finally:
        os.close(failure)
        if pid == 0:
            os.close(failed)
    # The end of the pipe: the program is executed, or the process is dead.
    answer = os.read(failed, 4)
    os.close(failed)
    if answer:
        os.waitpid(pid, 0)
        code = int.from_bytes(answer, "little")
        raise OSError(code, os.strerror(code))
    restrictions.release()
    return pid


def _execute(
    argv: list[bytes],
    env: dict[bytes, bytes],
    streams: isolation.Streams,
    restrictions: Confinement,
    handled: tuple[int, ...],
    failure: int,
) -> None:
    """In the fork: never returns."""
    code = errno.EINVAL
    try:
        isolation.reset_process(streams, handled)
        restrictions.apply()
        os.execve(argv[0], argv, env)
    except OSError as error:
        code = error.errno or code
    finally:
        os.write(failure, code.to_bytes(4, "little"))
        os._exit(127)


def _limits(policy: Policy) -> list[tuple[int, tuple[int, int]]]:
    wanted = []
    if policy.memory:
        # Not the address space, of which Go, Java and Node reserve much more than they use.
        wanted.append((resource.RLIMIT_DATA, policy.memory))
    if policy.processes:
        wanted.append((resource.RLIMIT_NPROC, _count_tasks() + policy.processes))
    if policy.cpu_time:
        wanted.append((resource.RLIMIT_CPU, policy.cpu_time))
    if policy.file_size:
        wanted.append((resource.RLIMIT_FSIZE, policy.file_size))
    limits = []
    for kind, value in wanted:
        hard = resource.getrlimit(kind)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        # One second more, so that the program can handle the signal before it is killed.
        grown = value + 1 if kind == resource.RLIMIT_CPU else value
        limits.append(
            (kind, (value, grown if hard == resource.RLIM_INFINITY else min(grown, hard)))
        )
    return limits


def _count_tasks() -> int:
    """The tasks of the machine: the kernel compares the limit with all tasks of the user, which
    are at most these."""
    with open("/proc/loadavg", "rb", buffering=0) as file:
        return int(file.read().split()[3].partition(b"/")[2])
