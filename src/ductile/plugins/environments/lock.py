"""`<entrypoint>.lock`: the exact packages of a plugin, by version and hash.

The file is a requirements file with hashes, so that pip and uv can install it. It contains no
addresses: which index or wheelhouse has the files is the business of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ductile._fast_dataclass import dataclass

SUFFIX = ".lock"
MAX_LOCK = 1024 * 1024
_FIRST_LINE = "# Written by `ductile plugin sync`: the locked dependencies of a plugin. Version 1."
_DIGEST = re.compile(r"# requirements: ([0-9a-f]{64})")
_PACKAGE = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)==(?P<version>[A-Za-z0-9.!+_-]+)"
    r"(?:\s*;\s*(?P<marker>[A-Za-z0-9_.<>=!~'\"()\s-]+?))?"
    r"(?P<hashes>(?:\s+--hash=sha256:[0-9a-f]{64})+)\s*"
)
_HASH = re.compile(r"[0-9a-f]{64}")


class InvalidLock(ValueError):
    """The file is not a lock; the message says why."""


@dataclass(frozen=True, slots=True)
class LockedPackage:
    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256, in hex, of the files that are accepted."""
    marker: str = ""
    """An environment marker; empty if the package is always installed."""

    def render(self) -> str:
        condition = f" ; {self.marker}" if self.marker else ""
        lines = [f"{self.name}=={self.version}{condition}"]
        lines += [f"    --hash=sha256:{digest}" for digest in self.hashes]
        return " \\\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class DependencyLock:
    requirements: str
    """The digest of the requirements that were resolved."""
    packages: tuple[LockedPackage, ...]

    def render(self) -> str:
        ordered = sorted(self.packages, key=lambda package: (package.name, package.version))
        head = f"{_FIRST_LINE}\n# requirements: {self.requirements}\n"
        return head + "".join(package.render() for package in ordered)


def read_lock(data: bytes) -> DependencyLock:
    """The lock in a file's bytes. Raises `InvalidLock`."""
    if len(data) > MAX_LOCK:
        raise InvalidLock(f"it exceeds {MAX_LOCK // 1024} KiB")
    text = data.decode("utf-8", "replace")
    first, _, rest = text.partition("\n")
    digest, _, packages = rest.partition("\n")
    found = _DIGEST.fullmatch(digest)
    if first != _FIRST_LINE or found is None:
        raise InvalidLock("it was not written by `ductile plugin sync`")
    return DependencyLock(found[1], tuple(read_packages(packages.split("\n"))))


def read_packages(lines: Iterable[str]) -> list[LockedPackage]:
    """The packages in lines as pip and uv write them. Raises `InvalidLock` for other lines."""
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    packages = []
    for entry in text.replace("\\\n", " ").split("\n"):
        if not entry.strip():
            continue
        found = _PACKAGE.fullmatch(entry.strip())
        if found is None:
            raise InvalidLock(f"{entry.strip()[:80]!r} is not a package with a version and hashes")
        hashes = tuple(sorted(set(_HASH.findall(found["hashes"]))))
        marker = (found["marker"] or "").strip()
        packages.append(LockedPackage(found["name"], found["version"], hashes, marker))
    return packages
