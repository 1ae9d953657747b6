"""`program.py COMMAND...`: run a command that ends with its caller, with all that it has started.

Executed by path, in an isolated interpreter. stdin is one end of a pair of sockets. When the caller
closes the other end, or dies, every process below us is killed. The errno of a command that cannot
be started is sent to the caller.
"""

import os
import select
import signal
import sys

_PATIENCE = 5.0


def main() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(here))))
    from ductile.runner import reaper

    reaper.become_subreaper()
    lifeline = os.dup(0)
    try:
        pid = os.posix_spawnp(
            sys.argv[1],
            sys.argv[1:],
            os.environ,
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            setsid=True,
            # Python ignores these.
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
    except OSError as error:
        os.write(lifeline, b"%d" % (error.errno or 0))
        os._exit(127)
    # The caller reads the output until nothing has it open.
    for stream in (0, 1, 2):
        os.close(stream)
    poller = select.poll()
    poller.register(lifeline, select.POLLIN)
    poller.register(pidfd := os.pidfd_open(pid), select.POLLIN)
    status = None
    if any(fd == pidfd for fd, _ in poller.poll()):
        # Before it is reaped: afterwards its number may be reused.
        reaper.signal_group(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        # An agent that a successful command has started in a session of its own continues.
        reaper.kill_children(patience=_PATIENCE)
    if status is not None and status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(127 if status is None else status)


if __name__ == "__main__":
    main()
