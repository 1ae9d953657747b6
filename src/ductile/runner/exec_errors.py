"""Why a plugin could not be executed, in words for the operator who has to fix it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import struct
from collections.abc import Sequence
from typing import BinaryIO

_LINE_BYTES = 256
_MAX_INTERPRETERS = 5
_PT_INTERP = 3
"""The type of the ELF segment that names the dynamic loader."""
_MAX_SEGMENTS = 256
_PATH_BYTES = 4096


def spawn_failure(argv: Sequence[str], code: int) -> str:
    """A sentence that names the entrypoint or, where that is the cause, its interpreter.

    The last word of `argv` is the entrypoint; an interpreter may be before it.
    """
    entrypoint = argv[-1]
    if code == errno.ESTALE:
        return (
            f"entrypoint {entrypoint!r} has changed since it was loaded, and strict_mode is set; "
            "the command that accepts the change is shown by: ductile config check"
        )
    if code not in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
        return f"{argv[0]}: {os.strerror(code)}"
    if len(argv) > 1:
        return (
            f"{argv[0]!r}, the Python of {entrypoint!r}, cannot be executed: {os.strerror(code)}; "
            "run: ductile plugin sync; ductile system reload"
        )
    blamed = entrypoint
    what = "entrypoint"
    for _ in range(_MAX_INTERPRETERS):
        problem = _problem(blamed)
        if problem is not None:
            return f"{what} {blamed!r} {problem}" + _needed_by(entrypoint, blamed)
        line = first_line(blamed)
        if line is None or not line.startswith(b"#!"):
            if code == errno.ENOENT and line is not None and _missing_loader(blamed) is None:
                # All that it needs exists now: it was being replaced.
                return f"entrypoint {entrypoint!r} did not exist when it was started"
            problem = _format_problem(blamed, line, code)
            return f"{what} {blamed!r} {problem}" + _needed_by(entrypoint, blamed)
        interpreter = line[2:].lstrip(b" \t").replace(b"\t", b" ").partition(b" ")[0]
        if not interpreter:
            return f"{what} {blamed!r} has a shebang line without an interpreter"
        if interpreter.endswith(b"\r"):
            return (
                f"{what} {blamed!r} has CRLF line endings: its shebang line names the "
                f"interpreter {os.fsdecode(interpreter)!r}; save it with LF line endings"
            )
        blamed, what = os.fsdecode(interpreter), "interpreter"
    return f"{entrypoint}: {os.strerror(code)}"


def has_crlf_shebang(entrypoint: str) -> bool:
    """Whether the first line is a shebang line that ends in CRLF."""
    line = first_line(entrypoint)
    return line is not None and line.startswith(b"#!") and line.endswith(b"\r")


def missing_interpreter(line: bytes, search_path: str) -> str | None:
    """The interpreter that a shebang line names and that cannot be executed.

    Behind `env`, it is the program that `env` looks up in `search_path`.
    """
    if not line.startswith(b"#!"):
        return None
    words = os.fsdecode(line[2:]).split()
    if not words:
        return None
    if not os.access(words[0], os.X_OK):
        return words[0]
    if words[0].rpartition("/")[2] != "env":
        return None
    options = [word.removeprefix("-S") for word in words[1:]]
    named = [word for word in options if word and not word.startswith("-") and "=" not in word]
    return named[0] if named and shutil.which(named[0], path=search_path) is None else None


def exit_failure(entrypoint: str, search_path: str) -> str | None:
    """Why `env` in a shebang line ended with 126 or 127; None if the program itself did."""
    if has_crlf_shebang(entrypoint):
        return f"{entrypoint!r} has a shebang line that ends in CRLF"
    missing = missing_interpreter(first_line(entrypoint) or b"", search_path)
    if missing is None:
        return None
    return (
        f"`{missing}` is not installed: the first line of {entrypoint} names it, and it is not in "
        f"the PATH of plugins ({search_path}); install it, or name another interpreter"
    )


def first_line(path: str) -> bytes | None:
    """The part of it that the kernel reads, without the newline; None if unreadable."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return os.read(fd, _LINE_BYTES).partition(b"\n")[0]
    finally:
        os.close(fd)


def _problem(path: str) -> str | None:
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        dangling = os.path.islink(path)
        return "is a symbolic link to a file that does not exist" if dangling else "does not exist"
    except OSError as error:
        return f"cannot be reached: {os.strerror(error.errno or 0)}"
    if stat.S_ISDIR(mode):
        return "is a directory"
    if not stat.S_ISREG(mode):
        return "is not a regular file"
    if not os.access(path, os.X_OK):
        return "is not executable (chmod +x)"
    return None


def _missing_loader(path: str) -> str | None:
    """The dynamic loader that an ELF program needs, where that does not exist."""
    try:
        with open(path, "rb") as file:
            loader = _loader(file)
    except (OSError, OverflowError, struct.error):
        return None
    return loader if loader is not None and not os.path.exists(loader) else None


def _loader(file: BinaryIO) -> str | None:
    head = file.read(64).ljust(64, b"\0")
    if head[:4] != b"\x7fELF":
        return None
    wide, order = head[4] == 2, ">" if head[5] == 2 else "<"
    (start,) = struct.unpack_from(order + ("Q" if wide else "I"), head, 32 if wide else 28)
    size, count = struct.unpack_from(order + "HH", head, 54 if wide else 42)
    file.seek(start)
    table = file.read(size * min(count, _MAX_SEGMENTS))
    for at in range(0, len(table), max(size, 1)):
        kind, *where = struct.unpack_from(order + ("I4xQ16xQ" if wide else "II8xI"), table, at)
        if kind == _PT_INTERP:
            offset, length = where
            file.seek(offset)
            return os.fsdecode(file.read(min(length, _PATH_BYTES)).partition(b"\0")[0])
    return None


def _format_problem(path: str, line: bytes | None, code: int) -> str:
    """What is wrong with an executable file that has no shebang line."""
    if line is None:
        return "cannot be executed: " + os.strerror(code)
    if line.startswith(b"\x7fELF"):
        if code == errno.ENOENT:
            return f"is a program whose dynamic loader {_missing_loader(path)!r} does not exist"
        if code == errno.ENOEXEC:
            return "is a program for another processor architecture"
        return "cannot be executed: " + os.strerror(code)
    if code == errno.EACCES:
        return "cannot be executed: its file system may be mounted noexec"
    if line.startswith(b"\xef\xbb\xbf#!"):
        return "has no shebang line: it begins with a byte order mark"
    return "has no shebang line and is not a program"


def _needed_by(entrypoint: str, blamed: str) -> str:
    return "" if blamed == entrypoint else f", which {entrypoint!r} names in its shebang line"
