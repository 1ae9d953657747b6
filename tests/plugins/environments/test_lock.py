from __future__ import annotations

import pytest

from ductile.plugins.environments.lock import (
    MAX_LOCK,
    DependencyLock,
    InvalidLock,
    LockedPackage,
    read_lock,
    read_packages,
)

A, B = "a" * 64, "b" * 64
LOCK = DependencyLock(
    "0" * 64,
    (
        LockedPackage("anyio", "4.0", (A, B), "python_version < '3.12'"),
        LockedPackage("h11", "0.16.0", (A,)),
    ),
)


def test_a_lock_is_read_as_it_was_written() -> None:
    assert read_lock(LOCK.render().encode()) == LOCK
    empty = DependencyLock("0" * 64, ())
    assert read_lock(empty.render().encode()) == empty


def test_packages_are_read_as_uv_writes_them() -> None:
    first = "h11==0.16.0 ; python_full_version >= '3.9' \\"
    lines = [first, f"    --hash=sha256:{A} \\", f"    --hash=sha256:{B}", "    # via x"]
    [package] = read_packages(lines)
    assert package == LockedPackage("h11", "0.16.0", (A, B), "python_full_version >= '3.9'")


@pytest.mark.parametrize(
    "line",
    [
        "h11>=0.16",
        "h11==0.16",
        f"--index-url https://example.com --hash=sha256:{A}",
        f"h11 @ https://example.com/h11.whl --hash=sha256:{A}",
        f"-e . --hash=sha256:{A}",
        f"h11==0.16 --hash=md5:{A}",
        f"h11==0.16 --config-settings=x --hash=sha256:{A}",
    ],
)
def test_line_without_version_and_hash_or_with_options_is_refused(line: str) -> None:
    with pytest.raises(InvalidLock):
        read_lock(f"{LOCK.render()}{line}\n".encode())


def test_a_lock_of_another_program_is_refused() -> None:
    with pytest.raises(InvalidLock, match="not written by"):
        read_lock(b'version = 1\nrequires-python = ">=3.11"\n')


def test_a_lock_that_is_too_large_is_refused() -> None:
    with pytest.raises(InvalidLock, match="exceeds"):
        read_lock(b"x" * (MAX_LOCK + 1))
