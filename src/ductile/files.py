"""Creates directories and files that only their owner can access.

What root creates belongs to the owner of the directory around it: an operator who runs a command as
root must not lock the service out of its own state.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TypedDict

PRIVATE = 0o700


def create(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700, whatever the umask.

    An existing directory is not changed.
    """
    for step in (*reversed(path.parents), path):
        if step.is_dir():
            continue
        try:
            step.mkdir(PRIVATE)
        except FileExistsError:
            if not step.is_dir():
                raise
        else:
            step.chmod(PRIVATE)
            give_to_owner(step)


def open_or_create(path: Path) -> int:
    """Open a file for reading and writing, creating it with mode 0600; follows no link."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, PRIVATE & ~0o100)
    except FileExistsError:
        return os.open(path, flags)
    give_to_owner(path, descriptor)
    return descriptor


def open_new(path: Path) -> int:
    """Open a new file for reading and writing with mode 0600, instead of what has this name.

    Others may write to the directory: a link that they put there is removed and never followed, and
    `FileExistsError` is raised if they put another one there meanwhile.
    """
    path.unlink(missing_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE & ~0o100)
    give_to_owner(path, descriptor)
    return descriptor


def give_to_owner(path: Path, descriptor: int | None = None) -> None:
    """As root, give a file that was just created to the owner of its directory."""
    if os.geteuid() != 0:
        return
    owner = path.parent.stat()
    if (owner.st_uid, owner.st_gid) == (0, 0):
        return
    if descriptor is None:
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
    else:
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


@contextmanager
def as_owner(directory: Path) -> Iterator[None]:
    """As root, work with the rights of the owner of a directory.

    Who owns it can replace its files by links at any time; with the rights of root, a link would
    lead to files of others. Programs have to be started with `child_identity`.
    """
    owner = directory.stat()
    if os.geteuid() != 0 or owner.st_uid == 0:
        yield
        return
    group, groups = os.getegid(), os.getgroups()
    os.setgroups([])
    try:
        os.setegid(owner.st_gid)
        os.seteuid(owner.st_uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


class ChildIdentity(TypedDict, total=False):
    """Arguments of `subprocess.Popen`."""

    user: int
    group: int


def child_identity() -> ChildIdentity:
    """Within `as_owner`, the user of a new process, which cannot become root again."""
    if os.getuid() == os.geteuid():
        return {}
    return {"user": os.geteuid(), "group": os.getegid()}


def child_home() -> dict[str, str]:
    """Within `as_owner`, the variable HOME of a new process."""
    if os.getuid() == os.geteuid():
        return {}
    try:
        return {"HOME": pwd.getpwuid(os.geteuid()).pw_dir}
    except KeyError:
        return {"HOME": "/"}


def describe_access(path: Path) -> str:
    """Why this user cannot use a file, and the command that fixes it."""
    owner, user = path.stat().st_uid, os.geteuid()
    if owner == user:
        mode = stat.S_IMODE(path.stat().st_mode)
        return f"{path} has mode {mode:04o}; its owner needs access: chmod u+rw {quote(str(path))}"
    directory = quote(str(path.parent))
    return (
        f"{path} belongs to {user_name(owner)}, and this process runs as {user_name(user)}; give "
        f"the files to the owner of the directory: chown -R --reference={directory} {directory}"
    )


def user_name(uid: int) -> str:
    """`user NAME`, or `user ID` if it has none."""
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


def write_new(path: Path, data: bytes, *, executable: bool = False) -> None:
    """Write a new file; `FileExistsError` if it exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE if executable else PRIVATE & ~0o100)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
