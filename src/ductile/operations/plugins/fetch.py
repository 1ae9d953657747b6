"""Copy the files of a plugin from a directory or a git repository; nothing of them is executed.

Only regular files, directories and links that stay inside are copied, within limits. From git, the
files come from `git archive`, so neither hooks nor filters of a checkout run.
"""

from __future__ import annotations

import os
import re
import resource
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from shutil import which
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO
from urllib.parse import urlsplit

from ductile import files
from ductile._fast_dataclass import dataclass
from ductile.errors import Refused, UsageError

MAX_FILES = 5000
"""Files and directories."""
MAX_DEPTH = 30
MAX_SIZE = 64 * 1024 * 1024
MAX_DOWNLOAD = 512 * 1024 * 1024
GIT_SECONDS = 600
IGNORED = frozenset({".git", "__pycache__", ".venv", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
_PROTOCOLS = ("https", "ssh", "file")
_SCP = re.compile(r"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:(?!:)[^\s]+")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,199}")
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PluginSource:
    """Where a plugin comes from."""

    location: str
    """An absolute path, or the address of a git repository."""
    revision: str | None = None
    """A tag, a branch or a commit; None for the default branch, or for plain files."""
    is_git: bool = False

    def __str__(self) -> str:
        return self.location if self.revision is None else f"{self.location}@{self.revision}"


def parse_source(text: str) -> PluginSource:
    """Read `PATH`, `URL` or either with `@REVISION`. Raises `UsageError`."""
    if Path(text).is_dir():
        return PluginSource(str(Path(text).resolve()))
    location, revision = _split_revision(text)
    if revision is not None and Path(location).is_dir():
        return PluginSource(Path(location).resolve().as_uri(), revision, is_git=True)
    protocol, divided, _ = location.partition("://")
    if divided:
        if protocol not in _PROTOCOLS:
            raise UsageError(f"{protocol}:// is not allowed; use https:// or ssh://")
        if urlsplit(location).password is not None:
            raise UsageError("the address contains a password; use a credential helper of git")
    elif not _SCP.fullmatch(location):
        raise UsageError(f"{text!r} is neither a directory nor the address of a git repository")
    return PluginSource(location, revision, is_git=True)


def _split_revision(text: str) -> tuple[str, str | None]:
    """An `@` after the last `/` begins the revision; the one of `git@host:` does not."""
    head, slash, tail = text.rpartition("/")
    name, marked, revision = tail.rpartition("@")
    if not marked or (not slash and ":" in revision):
        return text, None
    return f"{head}{slash}{name}", check_revision(revision)


def check_revision(revision: str) -> str:
    """The revision, if git cannot take it for an option. Raises `UsageError`."""
    if not _REVISION.fullmatch(revision):
        raise UsageError(f"{revision!r} is not a valid revision: a tag, a branch or a commit")
    return revision


def fetch_source(source: PluginSource, target: Path) -> str | None:
    """Copy the files of a source to a new directory; the commit, if it is a git repository."""
    target.mkdir(0o700)
    copied = _Copy(target)
    if not source.is_git:
        copied.add_directory(Path(source.location), PurePosixPath())
        copied.create_links()
        return None
    with TemporaryDirectory(prefix="ductile-git-") as repository, TemporaryFile() as archive:
        commit = _archive(source, repository, archive)
        archive.seek(0)
        with tarfile.open(fileobj=archive) as tar:
            copied.add_archive(tar)
    copied.create_links()
    return commit


def _archive(source: PluginSource, repository: str, archive: IO[bytes]) -> str:
    """Fetch one commit and write its files to a tar file; the id of the commit."""
    if which("git") is None:
        raise Refused("git is not installed; install it, or name a directory")
    _git(repository, "init", "--quiet")
    wanted = source.revision or "HEAD"
    words = ("fetch", "--quiet", "--depth", "1", "--no-tags", "--no-recurse-submodules")
    _git(repository, *words, "--", source.location, wanted)
    _git(repository, "archive", "--format", "tar", "FETCH_HEAD", output=archive)
    return _git(repository, "rev-parse", "FETCH_HEAD").strip()


def _git(repository: str, *words: str, output: IO[bytes] | None = None) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    environment |= {"GIT_ALLOW_PROTOCOL": ":".join(_PROTOCOLS), "GIT_TERMINAL_PROMPT": "0"}
    environment |= files.child_home()
    try:
        done = subprocess.run(
            ["git", "-c", "core.hooksPath=/dev/null", "-C", repository, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.PIPE,
            env=environment,
            timeout=GIT_SECONDS,
            preexec_fn=_limit_files,
            check=False,
            **files.child_identity(),
        )
    except subprocess.TimeoutExpired:
        raise Refused(f"git {words[0]} did not finish within {GIT_SECONDS} s") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()[-1000:]
        raise Refused(f"git {words[0]} failed: {said or f'exit code {done.returncode}'}")
    return "" if output is not None else done.stdout.decode("utf-8", "replace")


def _limit_files() -> None:
    """Runs in git: a repository cannot fill the disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_DOWNLOAD, MAX_DOWNLOAD))


class _Copy:
    """A copy of a tree. Links are created last, so that no file is written through one."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._links: dict[PurePosixPath, str] = {}
        self._files = 0
        self._size = 0

    def add_directory(self, directory: Path, place: PurePosixPath) -> None:
        for entry in sorted(os.scandir(directory), key=lambda entry: entry.name):
            if entry.name in IGNORED:
                continue
            path = place / entry.name
            if entry.is_symlink():
                self._add_link(path, str(Path(entry.path).readlink()))
            elif entry.is_dir():
                self._make_directory(path)
                self.add_directory(Path(entry.path), path)
            elif entry.is_file():
                # A file that is replaced by a FIFO meanwhile must not block.
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                with os.fdopen(os.open(entry.path, flags), "rb") as file:
                    mode = os.fstat(file.fileno()).st_mode
                    self._add_file(path, file, executable=bool(mode & stat.S_IXUSR))
            else:
                raise Refused(f"{entry.path} is not a regular file; remove it from the plugin")

    def add_archive(self, tar: tarfile.TarFile) -> None:
        for member in tar:
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                raise Refused(f"{member.name!r} in the archive is outside of the plugin")
            if any(part in IGNORED for part in path.parts):
                continue
            if member.isdir():
                self._make_directory(path)
            elif member.issym():
                self._add_link(path, member.linkname)
            elif member.isreg():
                file = tar.extractfile(member)
                assert file is not None
                self._add_file(path, file, executable=bool(member.mode & stat.S_IXUSR))
            else:
                raise Refused(f"{member.name!r} is not a regular file; remove it from the plugin")

    def _make_directory(self, path: PurePosixPath) -> None:
        self._count()
        if len(path.parts) > MAX_DEPTH:
            raise Refused(f"the plugin has directories nested more than {MAX_DEPTH} levels deep")
        (self._target / path).mkdir(0o755, exist_ok=True)

    def _add_file(self, path: PurePosixPath, source: IO[bytes], *, executable: bool) -> None:
        self._count()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self._target / path, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            while chunk := source.read(_CHUNK):
                self._size += len(chunk)
                if self._size > MAX_SIZE:
                    limit = f"{MAX_SIZE // 1024**2} MiB"
                    raise Refused(f"the plugin is larger than the limit of {limit}")
                file.write(chunk)
            # Readable by the user of the gateway, who may be another one.
            os.fchmod(file.fileno(), 0o755 if executable else 0o644)

    def _add_link(self, path: PurePosixPath, to: str) -> None:
        self._count()
        self._links[path] = to

    def _count(self) -> None:
        self._files += 1
        if self._files > MAX_FILES:
            raise Refused(f"the plugin has more than {MAX_FILES:,} files and directories")

    def create_links(self) -> None:
        for path, to in self._links.items():
            (self._target / path).symlink_to(to)
        refuse_outside_links(self._target)


def refuse_outside_links(directory: Path) -> None:
    """Raise `Refused` if a link below a directory leads out of it."""
    top = directory.resolve()
    for path in walk_files(directory):
        full = directory / path
        if not full.is_symlink():
            continue
        to = full.readlink()
        if to.is_absolute() or not Path(os.path.realpath(full)).is_relative_to(top):
            raise Refused(f"{path} is a symbolic link to {to}, which is outside of the plugin")


def walk_files(directory: Path) -> Iterator[Path]:
    """The files and links below a directory, relative to it, without ignored ones, sorted."""
    for parent, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if name not in IGNORED)
        links = [name for name in folders if (Path(parent) / name).is_symlink()]
        for name in sorted([*names, *links]):
            yield (Path(parent) / name).relative_to(directory)
