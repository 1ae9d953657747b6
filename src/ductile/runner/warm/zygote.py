"""The zygote: imports a plugin's modules, and forks warm slots, which fork jobs."""

from __future__ import annotations

import gc
import os
import socket

from ductile.runner import isolation, protocol, supervisor
from ductile.runner.plugin_process import Spawner
from ductile.runner.slot import NotWarm
from ductile.runner.started_flags import map_flags
from ductile.runner.warm import job
from ductile.runner.warm.preload import ColdOnly, PreparedProgram, initial_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from ductile.runner.sandbox.restrict import Confinement

IMPORTING, COLD, READY = b"I", b"C", b"R"
"""How a message to the gateway begins: before the imports; with a reason why the plugin cannot be
started warm; with the zygote's memory in KiB."""


"""The only variable that may differ between the jobs of a zygote: each has a span of its own."""
_TEMPORARY = b"TMPDIR"
"""Set for sandboxed jobs: each has a directory of its own."""
_NAMES_CHARACTERS = 200
_restrict: ModuleType | None = None


def load_restrictions() -> None:
    """Import what restricts jobs, while modules of this name can only be our own."""
    global _restrict
    from ductile.runner.sandbox import restrict

    _restrict = restrict


class JobSpawner(Spawner):
    """Forks jobs from a prepared program."""

    def __init__(self, program: PreparedProgram, *, is_confined: bool) -> None:
        self._program, self._is_confined = program, is_confined
        self._env = program.env
        self._checked_env: dict[bytes, bytes] | None = None

    def check(self, request: protocol.RunRequest, env: dict[bytes, bytes]) -> None:
        program = self._program
        if (changed := program.find_changed_file()) is not None:
            raise NotWarm(f"{changed} has changed")
        if request.stat and request.stat != program.stat:
            super().check(request, env)
        if request.argv[-1] != program.argument:
            raise NotWarm("it was prepared for another entrypoint")
        self._check_environment(env)
        if bool(request.sandbox) != self._is_confined:
            raise NotWarm("it was prepared with or without a sandbox")

    def _check_environment(self, env: dict[bytes, bytes]) -> None:
        # As a rule it is the one of the last job.
        if env is not self._checked_env:
            differing = env.items() ^ self._env.items()
            if differing:
                # A wrapper, as pyenv has them, may choose another interpreter for each job.
                names = sorted({name for name, _ in differing})
                found = b", ".join(names).decode("utf-8", "replace")[:_NAMES_CHARACTERS]
                raise NotWarm(f"a wrapper changes the environment of its interpreter ({found})")
            self._checked_env = env

    def confine(self, request: protocol.RunRequest) -> Confinement | None:
        if not self._is_confined:
            return None
        assert _restrict is not None
        made: Confinement = _restrict.Restrictions(request.sandbox)
        return made

    def spawn(
        self,
        request: protocol.RunRequest,
        env: dict[bytes, bytes],  # noqa: ARG002
        streams: isolation.Streams,  # noqa: ARG002
        confinement: Confinement | None,
    ) -> int:
        pid = os.fork()
        if pid == 0:
            if request.traceparent:
                os.environb[protocol.TRACEPARENT] = request.traceparent
            if confinement is not None and confinement.temporary:
                os.environb[_TEMPORARY] = os.fsencode(confinement.temporary)
            return 0
        if confinement is not None:
            confinement.release()
        try:
            # Also here: a signal to the group may be sent before the job has called it.
            os.setpgid(pid, pid)
        except OSError:
            pass
        return pid


def main(
    descriptors: list[int],
    entrypoint: str,
    first_line: str,
    modules: list[str],
    is_isolated: bool,
    is_confined: bool,
) -> None:
    """Serve the gateway as a runner does; in each process of a job, run the entrypoint.

    `descriptors` are those of `supervisor.main`. `first_line` is how the entrypoint begins. Of a
    plugin whose jobs are confined, nothing is executed here.
    """
    control, started_log, _ = descriptors
    env = initial_environment()
    # Inherited by jobs. The score is computed once: a slot would raise the raised one again.
    isolation.set_oom_score(os.getpid(), isolation.plugin_oom_score())
    supervisor.prepare_process(*descriptors)
    connection = socket.socket(fileno=control)
    # An import may take long or hang, and this process holds the lock of the gateway.
    isolation.end_with_parent(is_wanted=True)
    connection.send(IMPORTING)
    try:
        program = PreparedProgram(
            entrypoint, first_line, env, is_isolated=is_isolated, is_confined=is_confined
        )
        program.import_modules(modules)
        program.install()
    except ColdOnly as error:
        connection.send(COLD + str(error).encode("utf-8", "replace"))
        os._exit(0)
    flags = map_flags(started_log) if started_log >= 0 else None
    gc.collect()
    # Memory that the collector does not walk over stays shared with slots and jobs.
    gc.freeze()
    # From now on it watches the connection.
    isolation.end_with_parent(is_wanted=False)
    connection.send(READY + b"%d" % _memory())
    spawner = JobSpawner(program, is_confined=is_confined)
    started = supervisor.serve(
        supervisor.Supervisor(connection, slots_outlive=True), flags, spawner
    )
    # Only jobs get here. The memory that records the starts of jobs is not theirs.
    if flags is not None:
        flags.close()
    del connection, flags, spawner
    job.run(program, *started)


def _memory() -> int:
    """The proportional size of this process in KiB."""
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            sizes = [line.split()[1] for line in file if line.startswith(b"Pss:")]
        return int(sizes[0])
    except (OSError, IndexError):
        return 0
