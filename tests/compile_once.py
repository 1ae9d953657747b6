"""Compile the tests once: each worker of a run in a new clone would do it, at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent
MIN_STALE = 40
"""Fewer modules are compiled in less time than it takes to start processes for them."""


def _is_compiled(path: Path) -> bool:
    cached = (path.parent / "__pycache__").glob(
        f"{path.stem}.{sys.implementation.cache_tag}-pytest*"
    )
    return any(one.stat().st_mtime >= path.stat().st_mtime for one in cached)


def compile_tests(arguments: Sequence[str]) -> None:
    """Compile the test modules that these arguments of pytest select, and what they import."""
    if sys.dont_write_bytecode:
        return
    roots = [Path(argument.partition("::")[0]).resolve() for argument in arguments]
    selected = [path for path in TESTS.rglob("test_*.py") if {path, *path.parents} & {*roots}]
    stale = [str(path) for path in selected if not _is_compiled(path)]
    if len(stale) < MIN_STALE:
        return
    count = os.cpu_count() or 1
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq"]
    parts = [
        subprocess.Popen(
            [*command, *stale[part::count]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for part in range(count)
    ]
    # An error shows again when the workers collect.
    for part in parts:
        part.wait()
