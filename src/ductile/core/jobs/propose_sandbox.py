"""The narrowest sandbox that would have sufficed for one observed run. Pure."""

from __future__ import annotations

import math
import posixpath
from collections import defaultdict
from collections.abc import Collection, Iterable

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.sandbox import NO_NETWORK, WHOLE_NETWORK, SandboxSpec, is_inside

READ, LIST, WRITE, CHANGE = "read", "list", "write", "change"
"""How a path was used: a file was read or executed; a directory was listed; a file that existed was
written; entries of a directory were created or removed."""
MEBIBYTE = 1 << 20
_SAME_DIRECTORY = 3
"""So many files of one directory are replaced by the directory."""
_BROAD = frozenset(
    {
        *("/", "/boot", "/dev", "/etc", "/home", "/media", "/mnt", "/opt", "/proc", "/root"),
        *("/run", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/lib", "/var/log", "/var/tmp"),
    }
)
"""Directories that contain files of many owners: never granted for a few files in them."""
_MEMORY_STEP = 32 * MEBIBYTE
_FEWEST_PROCESSES = 8
_PORTS = range(1, 65_536)


@dataclass(frozen=True, slots=True)
class ObservedRun:
    """What a run touched, and how much it used."""

    paths: Collection[tuple[str, str]]
    """How, and a real path."""
    tcp: Collection[int] = ()
    """Ports that it connected to."""
    udp: Collection[int] = ()
    needs_all: Collection[str] = ()
    """Why a list of ports would not be enough."""
    unix: Collection[str] = ()
    families: Collection[int] = ()
    memory: int = 0
    cpu_time: float = 0.0
    file_size: int = 0
    tasks: int = 1


@dataclass(frozen=True, slots=True)
class Grants:
    """What every sandbox of the plugin grants, and what none does; real paths."""

    read: Collection[str]
    write: Collection[str]
    hidden: Collection[str]
    """Directories of the gateway."""
    broad: Collection[str] = ()
    """More directories that are too broad to be proposed, such as the user's home."""


@dataclass(frozen=True, slots=True)
class Proposal:
    spec: SandboxSpec
    notes: tuple[str, ...]
    """What cannot be granted, or what the operator should look at."""


def propose(run: ObservedRun, grants: Grants, *, limits_processes: bool) -> Proposal:
    """Without `limits_processes` there is no limit of processes: it would not hold."""
    notes: list[str] = []
    broad = _BROAD | frozenset(grants.broad)
    needed = [(how, path) for how, path in run.paths if not _is_granted(how, path, grants)]
    needed = list(_without_unreachable(needed, grants, notes))
    if not limits_processes:
        notes.append("processes: not proposed, because root's processes are not limited")
    write = _propose_write(needed, broad, notes)
    read = _propose_read(needed, write, broad, notes)
    notes += sorted(run.needs_all)
    notes += [f"it connects to the Unix socket {name}: {_REFUSED}" for name in sorted(run.unix)]
    notes += [f"it opens sockets of family {family}: {_REFUSED}" for family in sorted(run.families)]
    return Proposal(
        SandboxSpec(
            read=read,
            write=write,
            network=_propose_network(run),
            memory=_round_up(run.memory * 5 // 4, _MEMORY_STEP),
            processes=max(_FEWEST_PROCESSES, 2 * run.tasks) if limits_processes else None,
            cpu_time=float(max(1, math.ceil(2 * run.cpu_time))),
            file_size=_round_up(2 * run.file_size, MEBIBYTE),
        ),
        tuple(notes),
    )


_REFUSED = "every sandbox refuses that"


def _is_granted(how: str, path: str, grants: Grants) -> bool:
    if path == "/proc/self" or path.startswith("/proc/self/"):
        return how in (READ, LIST)
    folders = (*grants.read, *grants.write) if how in (READ, LIST) else grants.write
    return _is_in_any(path, folders)


def _without_unreachable(
    needed: Iterable[tuple[str, str]], grants: Grants, notes: list[str]
) -> Iterable[tuple[str, str]]:
    refused: set[str] = set()
    for how, path in needed:
        if _is_in_any(path, grants.hidden):
            refused.add(f"it uses {path}: state and configuration of the gateway are never granted")
        elif _is_in_any(path, ("/proc/PID", "/proc/self")):
            refused.add(f"it uses {path}, of another process or to change its own: {_REFUSED}")
        elif how == LIST and path == "/":
            refused.add("it lists /: not proposed, because that would grant every file")
        else:
            yield how, path
    notes += sorted(refused)


def _propose_write(
    needed: list[tuple[str, str]], broad: Collection[str], notes: list[str]
) -> tuple[str, ...]:
    folders = {path for how, path in needed if how == CHANGE}
    for path in sorted(folders & set(broad)):
        advice = "; use $TMPDIR, which is private" if path in ("/tmp", "/var/tmp") else ""
        notes.append(f"it creates or removes files in {path}, which is a broad grant{advice}")
    files = {path for how, path in needed if how == WRITE and not _is_in_any(path, folders)}
    return _outermost({*folders, *_group(files, broad)})


def _propose_read(
    needed: list[tuple[str, str]],
    write: Collection[str],
    broad: Collection[str],
    notes: list[str],
) -> tuple[str, ...]:
    listed = {path for how, path in needed if how == LIST and not _is_in_any(path, write)}
    for path in sorted(listed & set(broad)):
        notes.append(f"it lists {path}: not proposed, because that would grant all files below it")
    folders = listed - set(broad)
    files = {path for how, path in needed if how == READ}
    files = {path for path in files if not _is_in_any(path, (*write, *folders))}
    return _outermost({*folders, *_group(files, broad)})


def _group(files: Collection[str], broad: Collection[str]) -> set[str]:
    """The files, or their directory where several are in the same one."""
    by_folder: dict[str, set[str]] = defaultdict(set)
    for path in files:
        by_folder[posixpath.dirname(path)].add(path)
    found: set[str] = set()
    for folder, inner in by_folder.items():
        if len(inner) >= _SAME_DIRECTORY and folder not in broad:
            found.add(folder)
        else:
            found |= inner
    return found


def _outermost(paths: Collection[str]) -> tuple[str, ...]:
    return tuple(
        sorted(
            path
            for path in paths
            if not any(is_inside(path, other) for other in paths if other != path)
        )
    )


def _is_in_any(path: str, folders: Iterable[str]) -> bool:
    return any(is_inside(path, folder) for folder in folders)


def _propose_network(run: ObservedRun) -> str | tuple[int, ...]:
    if run.needs_all:
        return WHOLE_NETWORK
    # A list of ports leaves UDP open.
    ports = tuple(sorted(port for port in (run.tcp or run.udp) if port in _PORTS))
    if ports:
        return ports
    return WHOLE_NETWORK if run.tcp or run.udp else NO_NETWORK


def _round_up(number: int, step: int) -> int:
    return max(1, math.ceil(number / step)) * step
