"""What a zygote prepares for its jobs: imported modules and the compiled entrypoint."""

from __future__ import annotations

import builtins
import importlib
import io
import os
import signal
import sys
import time
import warnings
from importlib.machinery import SourceFileLoader
from types import CodeType, ModuleType

from ductile.runner import isolation, protocol, reaper

IMPORT_SECONDS = 10.0
"""How long the imports may take."""
_RECHECK_SECONDS = 1.0
"""How often the files of modules outside of the plugin's directory are checked."""
_AS_IN_A_JOB = frozenset({signal.SIGPIPE, signal.SIGXFSZ})
"""The signals that an interpreter ignores."""
_LINE_BYTES = 256
_REASON_CHARACTERS = 500


class ColdOnly(Exception):
    """The plugin cannot be started warm; the message says why."""


def _open_streams() -> tuple[io.TextIOWrapper, ...]:
    """Standard streams for jobs, which differ from our own by being pipes."""
    reading, writing = os.pipe()
    own = [os.dup(number) for number in range(3)]
    try:
        os.dup2(reading, 0)
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        found = sys.stdin, sys.stdout, sys.stderr
        return tuple(_open_stream(number, stream) for number, stream in enumerate(found))  # type: ignore[arg-type]
    finally:
        for number, fd in enumerate(own):
            os.dup2(fd, number)
        for fd in (*own, reading, writing):
            os.close(fd)


def _open_stream(number: int, own: io.TextIOWrapper) -> io.TextIOWrapper:
    """A stream as this interpreter has opened its own one."""
    mode, newline = ("r", None) if number == 0 else ("w", "\n")
    is_buffered = not isinstance(own.buffer, io.RawIOBase)
    buffer = open(number, f"{mode}b", -1 if is_buffered else 0, closefd=False)  # noqa: SIM115
    raw = buffer.raw if is_buffered else buffer  # type: ignore[attr-defined]
    raw.name = own.name  # type: ignore[misc]
    stream = io.TextIOWrapper(
        buffer, own.encoding, own.errors, newline, own.line_buffering, own.write_through
    )
    stream.mode = mode  # type: ignore[misc]
    return stream


class PreparedProgram:
    """The entrypoint of a plugin, and all that jobs inherit when they are forked."""

    def __init__(
        self,
        entrypoint: str,
        first_line: str,
        env: dict[bytes, bytes],
        *,
        is_isolated: bool,
        is_confined: bool = False,
    ) -> None:
        """`env` is from `initial_environment`. ColdOnly where the entrypoint cannot be read, or is
        started in another way by now."""
        self.entrypoint = entrypoint
        self.argument = os.fsencode(entrypoint)
        self.directory = os.path.dirname(entrypoint)
        self.env = env
        self.streams = _open_streams()
        self.unused = sys.__stdin__, sys.__stdout__, sys.__stderr__
        """Kept, so that no job takes the time to close them."""
        try:
            with open(entrypoint, "rb") as file:
                self.stat = protocol.encode_stat(os.fstat(file.fileno()))
                self.source = file.read()
        except OSError as error:
            raise ColdOnly(f"its entrypoint cannot be read: {error}") from None
        if self.source[:_LINE_BYTES].partition(b"\n")[0] != os.fsencode(first_line):
            raise ColdOnly("its first line has changed since it was loaded; reload the gateway")
        self.code = self._compile_quietly()
        sys.argv = [entrypoint]
        if hasattr(sys, "orig_argv"):
            program = sys.orig_argv.index(os.path.join(os.path.dirname(__file__), "program.py"))
            sys.orig_argv[program:] = [entrypoint]
        self._main = _make_main(entrypoint)
        self.namespace = vars(self._main)
        self._is_confined = is_confined
        self._own_path = [] if is_isolated else [self.directory]
        if not is_isolated:
            # Modules of a confined plugin are found, and executed, by its jobs only.
            sys.path[:1] = [] if is_confined else self._own_path
        self._own_files: dict[str, object] = {}
        self._other_files: dict[str, object] = {}
        self._recheck_at = 0.0

    def _compile_quietly(self) -> CodeType | None:
        """None where the compiler has something to report: then each job compiles it, so that the
        report is in the log of the job."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                return self.compile()
            except Exception:  # noqa: BLE001 - whatever it is, the job reports it
                return None

    def open_own_modules(self) -> None:
        """In a confined job: also find the modules in the plugin's directory."""
        sys.path[:0] = self._own_path

    def install(self) -> None:
        """Put the module and the streams of jobs in place, so that a job has less to write to
        inherited memory."""
        handled = tuple(n for n in isolation.handled_signals() if n not in _AS_IN_A_JOB)
        kept = isolation.find_code_descriptors()
        self.prepare_child = isolation.make_child_preparation(handled, kept)
        sys.modules["__main__"] = self._main
        sys.stdin, sys.stdout, sys.stderr = self.streams
        sys.__stdin__, sys.__stdout__, sys.__stderr__ = self.streams  # type: ignore[misc]

    def compile(self) -> CodeType:
        return compile(self.source, self.entrypoint, "exec", dont_inherit=True)

    def import_modules(self, names: list[str]) -> None:
        """ColdOnly where an import fails, takes too long, or leaves what a fork does not copy."""
        before = _ProcessState()
        started = time.monotonic()
        for name in names:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                # The plugin's own module, as a rule: a confined job imports it.
                if not self._is_confined:
                    raise _import_failure(name, error) from None
            except BaseException as error:  # noqa: BLE001 - SystemExit too
                raise _import_failure(name, error) from None
        if (seconds := time.monotonic() - started) > IMPORT_SECONDS:
            raise ColdOnly(f"its imports took {seconds:.0f} s, more than {IMPORT_SECONDS:.0f} s")
        if (change := before.find_change()) is not None:
            raise ColdOnly(f"importing {', '.join(names)} {change}")
        # A job lists the directory anew: files may be added.
        sys.path_importer_cache.pop(self.directory, None)
        self._record_files()

    def _record_files(self) -> None:
        own = os.path.join(self.directory, "")
        modules = [vars(module).get("__file__") for module in list(sys.modules.values())]
        for path in {sys.executable, *(path for path in modules if isinstance(path, str))}:
            files = self._own_files if path.startswith(own) else self._other_files
            files[path] = _identify(path)

    def find_changed_file(self) -> str | None:
        """The entrypoint, or the file of a module, that has changed since it was loaded.

        Modules outside of the plugin's directory are checked once per second.
        """
        try:
            if protocol.encode_stat(os.stat(self.entrypoint)) != self.stat:
                return self.entrypoint
        except OSError:
            return self.entrypoint
        changed = _find_changed(self._own_files)
        if changed is None and (now := time.monotonic()) >= self._recheck_at:
            changed = _find_changed(self._other_files)
            self._recheck_at = now + _RECHECK_SECONDS
        return changed


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
    return main


def _import_failure(name: str, error: BaseException) -> ColdOnly:
    text = f"importing {name} failed: {type(error).__name__}: {error}"
    return ColdOnly(text[:_REASON_CHARACTERS])


class _ProcessState:
    """What an import must not change: a fork has no threads and no children, and jobs start with
    default signals, no files of the plugin, and the directory of the gateway."""

    def __init__(self) -> None:
        self._directory, self._mask = os.getcwd(), _umask()
        self._descriptors = _descriptors()
        self._signals = _signals()

    def find_change(self) -> str | None:
        if len(os.listdir("/proc/self/task")) > 1:
            return "starts threads"
        if reaper.has_children():
            reaper.kill_children()
            return "starts processes"
        if opened := _descriptors() - self._descriptors:
            return f"leaves open: {', '.join(sorted(opened))}"
        if _signals() != self._signals:
            return "changes the handling of signals"
        if (os.getcwd(), _umask()) != (self._directory, self._mask):
            return "changes the working directory or the umask"
        return None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _descriptors() -> set[str]:
    """Without those that jobs inherit."""
    found, kept = set(), isolation.find_code_descriptors()
    for name in os.listdir("/proc/self/fd"):
        if int(name) in kept:
            continue
        try:
            found.add(f"{name} ({os.readlink(f'/proc/self/fd/{name}')})")
        except OSError:
            continue
    return found


def _signals() -> list[object]:
    return [signal.getsignal(number) for number in sorted(signal.valid_signals())]


def initial_environment() -> dict[bytes, bytes]:
    """The variables that this process was started with; Python may have added some.

    Only root can read them after `isolation.forbid_inspection`.
    """
    with open("/proc/self/environ", "rb") as file:
        entries = file.read().split(b"\0")
    return {name: value for name, equals, value in (e.partition(b"=") for e in entries) if equals}


def _identify(path: str) -> object:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _find_changed(files: dict[str, object]) -> str | None:
    return next((path for path, known in files.items() if _identify(path) != known), None)
