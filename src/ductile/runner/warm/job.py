"""The process of a warm job: runs the entrypoint as `python ENTRYPOINT` does, from start to end."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import atexit
import gc
import io
import os
import signal
import sys

from ductile.runner import isolation
from ductile.runner.warm.preload import PreparedProgram

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ductile.runner.sandbox.restrict import Confinement

_KINDS = io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom
"""What may have unwritten data."""
_FLUSH_FAILED = 120
"""As an interpreter ends if it cannot write what is left in its streams."""


def run(
    program: PreparedProgram, streams: isolation.Streams, confinement: Confinement | None
) -> None:
    """Run the entrypoint in this process, and end the process."""
    # The collector leaves alone what the slot has made.
    gc.freeze()
    if confinement is None:
        program.prepare_child(streams, None)
    else:
        _confine(program, streams, confinement)
    confinement = None
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    _reseed()
    status = _run_main(program)
    status = _finish(program.namespace) or status
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


def _confine(
    program: PreparedProgram, streams: isolation.Streams, confinement: Confinement
) -> None:
    """As `prepare_child`, in a sandbox. Nothing of the plugin has run before; if the sandbox cannot
    be applied, nothing of it runs."""
    try:
        program.prepare_child(streams, confinement.apply)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the job must not continue
        os.write(2, f"the sandbox cannot be applied: {error}\n".encode("utf-8", "replace"))
        os._exit(127)
    program.open_own_modules()


def _reseed() -> None:
    """Give NumPy's global generator a seed of its own. `random` does so by itself at a fork."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def _run_main(program: PreparedProgram) -> int:
    """The exit status of the entrypoint, before its exit functions."""
    try:
        exec(program.code or program.compile(), program.namespace)
    except SystemExit as error:
        return _exit_status(error.code)
    except BaseException as error:  # noqa: BLE001 - what ends an interpreter
        # Without the frame of this function.
        traceback = error.__traceback__ and error.__traceback__.tb_next
        error.__traceback__ = traceback
        _report(error)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_status(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return int(code) if -(2**63) <= code < 2**63 else -1
    _flush(sys.stdout)
    try:
        print(code, file=sys.stderr)  # noqa: T201
    except Exception:  # noqa: BLE001, S110 - the exit code is enough
        pass
    return 1


def _report(error: BaseException) -> None:
    _flush(sys.stdout)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit:
        pass
    except BaseException:  # noqa: BLE001 - the hook is the plugin's
        sys.__excepthook__(*sys.exc_info())
        sys.__excepthook__(type(error), error, error.__traceback__)


def _finish(namespace: dict[str, object]) -> int:
    """Do what an interpreter does at its end, except for freeing all memory; the exit status if
    that fails, else 0."""
    threading = sys.modules.get("threading")
    try:
        if threading is not None:
            threading._shutdown()
    except BaseException as error:  # noqa: BLE001
        _report(error)
    try:
        atexit._run_exitfuncs()
    except BaseException:  # noqa: BLE001, S110 - Python 3.9 raises what it has printed
        pass
    flushed = [_flush(sys.stdout), _flush(sys.stderr)]
    _flush_open_files()
    # Finalizers run when the last reference goes.
    for name in [name for name in namespace if name != "__builtins__"]:
        namespace[name] = None
    gc.collect(2 if gc.get_objects(2) else 1)
    _flush_open_files()
    flushed += [_flush(sys.stdout), _flush(sys.stderr)]
    return 0 if all(flushed) else _FLUSH_FAILED


def _flush_open_files() -> None:
    # Wrappers of text first: they write to the others.
    found = [one for one in gc.get_objects() if issubclass(type(one), _KINDS)]
    for text_first in (True, False):
        for left in found:
            if isinstance(left, io.TextIOWrapper) is text_first:
                _flush(left)


def _flush(stream: object) -> bool:
    """Whether all was written; true for what is closed or is not a stream."""
    try:
        if not getattr(stream, "closed", True):
            stream.flush()  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001 - of a plugin's own class
        return False
    return True
