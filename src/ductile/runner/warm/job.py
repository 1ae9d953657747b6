"""The process of a warm job: runs the entrypoint as `python ENTRYPOINT` does, from start to end."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import atexit
import builtins
import gc
import io
import os
import signal
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType

from ductile.runner import isolation
from ductile.runner.warm.preload import PreparedProgram

_FLUSH_FAILED = 120
"""As an interpreter ends if it cannot write what is left in its streams."""


def run(program: PreparedProgram, streams: isolation.Streams) -> None:
    """Run the entrypoint in this process, and end the process."""
    isolation.prepare_child(streams, program.handled)
    _signal.signal(_signal.SIGPIPE, _signal.SIG_IGN)
    _signal.signal(_signal.SIGXFSZ, _signal.SIG_IGN)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    sys.stdin, sys.stdout, sys.stderr = program.streams
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = program.streams  # type: ignore[misc]
    _reseed()
    main = _make_main(program.entrypoint)
    status = _run_main(program, vars(main))
    status = _finish(vars(main)) or status
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


def _reseed() -> None:
    """Give NumPy's global generator a seed of its own. `random` does so by itself at a fork."""
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()


def _make_main(entrypoint: str) -> ModuleType:
    main = ModuleType("__main__")
    vars(main).update(
        __file__=entrypoint,
        __builtins__=builtins,
        __cached__=None,
        __loader__=SourceFileLoader("__main__", entrypoint),
    )
    if sys.version_info < (3, 14):
        vars(main)["__annotations__"] = {}
    sys.modules["__main__"] = main
    return main


def _run_main(program: PreparedProgram, namespace: dict[str, object]) -> int:
    """The exit status of the entrypoint, before its exit functions."""
    try:
        exec(program.code or program.compile(), namespace)
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
    except Exception:  # noqa: BLE001, S110 - the exit code tells enough
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
    gc.collect()
    _flush_open_files()
    flushed += [_flush(sys.stdout), _flush(sys.stderr)]
    return 0 if all(flushed) else _FLUSH_FAILED


def _flush_open_files() -> None:
    # Wrappers of text first: they write to the others.
    for kind in (io.TextIOWrapper, (io.BufferedWriter, io.BufferedRandom)):
        for left in gc.get_objects():
            if isinstance(left, kind):
                _flush(left)


def _flush(stream: object) -> bool:
    """Whether all was written; true for what is closed or is not a stream."""
    try:
        if not getattr(stream, "closed", True):
            stream.flush()  # type: ignore[attr-defined]
    except BaseException:  # noqa: BLE001 - of a plugin's own class
        return False
    return True
