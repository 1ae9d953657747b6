"""The code of an earlier revision, so that it can be measured in the same run as this one."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import tarfile
from functools import cache
from pathlib import Path

from bench.programs import scratch

ROOT = Path(__file__).parent.parent
VARIABLE = "DUCTILE_BENCH_AGAINST"
"""Names the revision; set by `python -m bench --against REVISION`."""


def chosen() -> str | None:
    """The revision to compare with: the given one, or else the last release."""
    return os.environ.get(VARIABLE) or _last_release()


@cache
def _last_release() -> str | None:
    command = ["git", "-C", str(ROOT), "describe", "--tags", "--abbrev=0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


@cache
def tree(revision: str) -> Path:
    """A directory with the sources of the revision; the dependencies are those of this one."""
    command = ["git", "-C", str(ROOT), "archive", revision, "src", "bench"]
    done = subprocess.run(command, capture_output=True, check=True)
    target = scratch() / f"revision-{hashlib.sha256(revision.encode()).hexdigest()[:8]}"
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(target, filter="data")
    return target


def use(tree: Path | None, environment: dict[str, str]) -> dict[str, str]:
    """The environment of a program that imports the sources of this tree."""
    return environment if tree is None else {**environment, "PYTHONPATH": str(tree / "src")}
