"""The zygote: imports a plugin's modules, and forks warm slots, which fork jobs."""

from __future__ import annotations

import gc
import os
import socket

from ductile.runner import isolation, protocol, supervisor
from ductile.runner.plugin_process import JobStarted, Spawner
from ductile.runner.slot import NotWarm
from ductile.runner.started_flags import map_flags
from ductile.runner.warm import job
from ductile.runner.warm.preload import ColdOnly, PreparedProgram

IMPORTING, COLD, READY = b"I", b"C", b"R"
"""How a message to the gateway begins: before the imports; with a reason why the plugin cannot be
started warm; with the zygote's memory in KiB."""


_TRACEPARENT = b"TRACEPARENT"
"""The only variable that may differ between the jobs of a zygote: each has a span of its own."""


class JobSpawner(Spawner):
    """Forks jobs from a prepared program."""

    def __init__(self, program: PreparedProgram) -> None:
        self._program = program
        self._env = _without_trace(program.env)

    def check(self, request: protocol.RunRequest, env: dict[bytes, bytes]) -> None:
        program = self._program
        if (changed := program.find_changed_file()) is not None:
            raise NotWarm(f"{changed} has changed")
        if request.stat and request.stat != program.stat:
            super().check(request, env)
        if request.argv[-1] != program.argument or _without_trace(env) != self._env:
            raise NotWarm("it was prepared for another entrypoint or environment")

    def spawn(
        self,
        request: protocol.RunRequest,  # noqa: ARG002
        env: dict[bytes, bytes],
        streams: isolation.Streams,
    ) -> int:
        pid = os.fork()
        if pid == 0:
            os.environb.pop(_TRACEPARENT, None)
            if _TRACEPARENT in env:
                os.environb[_TRACEPARENT] = env[_TRACEPARENT]
            raise JobStarted(streams)
        try:
            # Also here: a signal to the group may be sent before the job has called it.
            os.setpgid(pid, pid)
        except OSError:
            pass
        return pid


def _without_trace(env: dict[bytes, bytes]) -> dict[bytes, bytes]:
    return {name: value for name, value in env.items() if name != _TRACEPARENT}


def main(
    descriptors: list[int],
    entrypoint: str,
    first_line: str,
    modules: list[str],
    is_isolated: bool,
) -> None:
    """Serve the gateway as a runner does; in each process of a job, run the entrypoint.

    `descriptors` are those of `supervisor.main`. `first_line` is how the entrypoint begins.
    """
    control, started_log, _ = descriptors
    supervisor.prepare_process(*descriptors)
    connection = socket.socket(fileno=control)
    connection.send(IMPORTING)
    try:
        program = PreparedProgram(entrypoint, first_line, is_isolated=is_isolated)
        program.import_modules(modules)
    except ColdOnly as error:
        connection.send(COLD + str(error).encode("utf-8", "replace"))
        os._exit(0)
    flags = map_flags(started_log) if started_log >= 0 else None
    gc.collect()
    # Memory that the collector does not walk over stays shared with slots and jobs.
    gc.freeze()
    connection.send(READY + b"%d" % _memory())
    streams = _serve(
        supervisor.Supervisor(connection, flags, JobSpawner(program), slots_outlive=True)
    )
    # Only jobs get here. The memory that records the starts of jobs is not theirs.
    if flags is not None:
        flags.close()
    connection.close()
    del connection, flags
    job.run(program, streams)


def _serve(served: supervisor.Supervisor) -> isolation.Streams:
    """Returns in the processes of jobs, without what slots know of others."""
    try:
        served.serve()
    except JobStarted as started:
        return started.streams
    # Without the exit functions of the imported modules: those are for jobs.
    os._exit(0)


def _memory() -> int:
    """The proportional size of this process in KiB."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            sizes = [line.split()[1] for line in file if line.startswith(b"Pss:")]
        return int(sizes[0])
    except (OSError, IndexError):
        return 0
