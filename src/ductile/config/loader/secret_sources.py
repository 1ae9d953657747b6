"""`${file:PATH}`, `${credential:NAME}` and `${command:PROGRAM ...}`: secrets kept elsewhere."""

from __future__ import annotations

import errno
import os
import re
import selectors
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import ductile
from ductile._fast_dataclass import dataclass
from ductile.config.loader.files import absolute

KINDS = ("file", "credential", "command")
MAX_BYTES = 64 * 1024
COMMAND_TIMEOUT = 10.0
CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""Where systemd puts what the unit's `LoadCredential=` names."""
_CREDENTIAL_NAME = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,255}\Z")
_PROGRAM = str(Path(ductile.__file__).parent / "runner" / "lifeline" / "program.py")
"""Runs the command, and ends it with us."""
_MAX_REASON = 200
_POLL_INTERVAL = 0.005


@dataclass(frozen=True, slots=True)
class UnavailableSecret:
    """Why a secret cannot be read; `absent` if it is known not to exist."""

    reason: str
    absent: bool = False


def is_secret_source(name: str) -> bool:
    """Whether a reference names a file, credential or command rather than a variable."""
    return ":" in name


class SecretSources:
    """Reads each secret at most once. Rotation needs a new instance, which a reload creates."""

    def __init__(self, root: Path, environ: Mapping[str, str]) -> None:
        """`root` is the directory of config.yaml, which relative paths start from."""
        self._root = root
        self._environ = environ
        self._found: dict[str, str | UnavailableSecret] = {}

    def read(self, name: str) -> str | UnavailableSecret:
        """The text of a secret without the newline at its end; `name` is `KIND:ARGUMENT`."""
        if name not in self._found:
            kind, _, argument = name.partition(":")
            data = getattr(self, f"_read_{kind}")(argument.strip())
            self._found[name] = data if isinstance(data, UnavailableSecret) else _decode(data)
        return self._found[name]

    def _read_file(self, argument: str) -> bytes | UnavailableSecret:
        home = self._environ.get("HOME")
        if home and argument.startswith("~/"):
            return _read_bytes(absolute(Path(home), argument[2:]))
        return _read_bytes(absolute(self._root, argument))

    def _read_credential(self, argument: str) -> bytes | UnavailableSecret:
        if not _CREDENTIAL_NAME.match(argument):
            return UnavailableSecret("a credential's name has letters, digits, '.', '_' and '-'")
        directory = self._environ.get(CREDENTIALS)
        if not directory:
            return UnavailableSecret(
                f"{CREDENTIALS} is not set; start the gateway by systemd with "
                f"LoadCredential={argument}:/path in its unit",
                absent=True,
            )
        return _read_bytes(Path(directory, argument))

    def _read_command(self, argument: str) -> bytes | UnavailableSecret:
        try:
            command = shlex.split(argument)
        except ValueError as error:
            return UnavailableSecret(f"the command line cannot be split: {error}")
        if not command:
            return UnavailableSecret("the command is empty")
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with theirs:
                    process = subprocess.Popen(
                        [sys.executable, "-I", "-S", _PROGRAM, *command],
                        cwd=self._root,
                        env=dict(self._environ),
                        stdin=theirs.fileno(),
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        start_new_session=True,
                    )
            except (OSError, ValueError) as error:
                return UnavailableSecret(f"cannot start {command[0]}: {_reason_of(error)}")
            with process:
                output = _finish(process, ours)
            if code := ours.recv(16, socket.MSG_DONTWAIT):
                return UnavailableSecret(f"cannot start {command[0]}: {os.strerror(int(code))}")
            return output


def _finish(process: subprocess.Popen[bytes], lifeline: socket.socket) -> bytes | UnavailableSecret:
    """The output of a command that succeeds within the limits; it has ended afterwards."""
    assert process.stdout is not None
    assert process.stderr is not None
    output = {process.stdout: bytearray(), process.stderr: bytearray()}
    deadline = time.monotonic() + COMMAND_TIMEOUT
    status = None
    try:
        with selectors.DefaultSelector() as selector:
            for stream in output:
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(deadline - time.monotonic())
                if not ready:
                    return UnavailableSecret(f"it took longer than {COMMAND_TIMEOUT:.0f} s")
                for key, _ in ready:
                    chunk = os.read(key.fd, MAX_BYTES)
                    if not chunk:
                        selector.unregister(key.fileobj)
                    elif len(output[key.fileobj]) <= MAX_BYTES:  # type: ignore[index]
                        output[key.fileobj] += chunk  # type: ignore[index]
        status = _wait(process, deadline)
    finally:
        if status is None:
            # Ends the command and all that it has started.
            lifeline.shutdown(socket.SHUT_WR)
    if status is None:
        return UnavailableSecret(f"it took longer than {COMMAND_TIMEOUT:.0f} s")
    if status:
        how = f"signal {-status}" if status < 0 else f"exit code {status}"
        return UnavailableSecret(f"{how}{_last_words(bytes(output[process.stderr]))}")
    return bytes(output[process.stdout])


def _wait(process: subprocess.Popen[bytes], deadline: float) -> int | None:
    """The exit status; None at the deadline."""
    while True:
        try:
            ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # `Popen` would report success if another thread has killed and reaped the process.
            return -signal.SIGKILL
        if ended is not None:
            return process.wait()
        if time.monotonic() > deadline:
            return None
        time.sleep(_POLL_INTERVAL)


def _last_words(errors: bytes) -> str:
    """The last line of stderr, which is usually the reason."""
    lines = errors.decode(errors="replace").strip().splitlines()
    shown = "".join(c for c in lines[-1] if c.isprintable())[:_MAX_REASON] if lines else ""
    return f": {shown}" if shown else ""


def _read_bytes(path: Path) -> bytes | UnavailableSecret:
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return UnavailableSecret(f"there is no file {path}", absent=True)
    except (OSError, ValueError) as error:
        return UnavailableSecret(f"cannot read {path}: {_reason_of(error)}")
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return UnavailableSecret(f"{path} is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        return UnavailableSecret(f"cannot read {path}: {_reason_of(error)}")
    finally:
        os.close(descriptor)


def _decode(data: bytes) -> str | UnavailableSecret:
    if len(data) > MAX_BYTES:
        return UnavailableSecret(f"it has more than {MAX_BYTES // 1024} KiB")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return UnavailableSecret("it is not UTF-8 text")
    if "\0" in text:
        return UnavailableSecret("it contains a NUL character")
    return text.removesuffix("\n").removesuffix("\r")


def _reason_of(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return os.strerror(error.errno or errno.EIO)
    return "the path contains a NUL character"
