"""The texts of the sealed files, kept in the state directory to show what changed since the seal.

A copy is named after the hash in the seal and ignored if it does not have that hash, so a change
of the copy hides no change of the file. Copies contain whatever the files contain, and are private.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from blake3 import blake3

from ductile.config.checksums import Seal
from ductile.errors import Problem
from ductile.files import as_owner, create, open_new

DIRECTORY = "sealed"
MAX_BYTES = 1024 * 1024
"""Size of the largest text that is kept."""
MAX_RANGES = 8
MAX_COMPARISONS = 1_000_000
"""Of lines: above it, everything between the first and the last change counts as changed. Comparing
takes the square of the lines at worst, and a gateway does it at its start."""


def keep_texts(state_dir: Path, seal: Seal) -> None:
    """Keep the text of each file that is as the seal has it, and delete copies of no use.

    Raises `OSError` if the state directory cannot be written.
    """
    folder, texts = state_dir / DIRECTORY, {}
    sealed = {**seal.plugin_hashes, **seal.hashes}
    wanted = set(sealed.values())
    for name, digest in sealed.items():
        data = (
            None if not digest.isalnum() or (folder / digest).exists() else _read_file(Path(name))
        )
        if data is not None and blake3(data).hexdigest() == digest:
            texts[digest] = zlib.compress(data)
    create(state_dir)
    # As root, with the rights of the owner only: `sealed` may be a link to files of others.
    with as_owner(state_dir):
        create(folder)
        for digest, text in texts.items():
            _write(folder / digest, text)
        for copy in folder.iterdir():
            if copy.name not in wanted:
                copy.unlink()


def _write(path: Path, data: bytes) -> None:
    fresh = path.with_suffix(".new")
    with os.fdopen(open_new(fresh), "wb") as file:
        file.write(data)
    fresh.replace(path)


def read_text(state_dir: Path, digest: str) -> bytes | None:
    """Return the text with this hash; None if there is no valid copy."""
    if not digest.isalnum():
        return None
    data = _read_file(state_dir / DIRECTORY / digest)
    if data is None:
        return None
    unpacker = zlib.decompressobj()
    try:
        text = unpacker.decompress(data, MAX_BYTES)
    except zlib.error:
        return None
    return text if blake3(text).hexdigest() == digest else None


def _read_file(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        try:
            data = file.read(MAX_BYTES + 1)
        except OSError:
            return None
    return data if len(data) <= MAX_BYTES else None


def find_changed_lines(before: bytes, after: bytes) -> list[tuple[int, int]]:
    """Return the first and last line, in `after`, of each change; a removal is at its next line."""
    # Here, because only a configuration that has changed needs it.
    from difflib import SequenceMatcher

    old, new = before.splitlines(), after.splitlines()
    first = _count_equal(old, new)
    last = _count_equal(old[first:][::-1], new[first:][::-1])
    old, new = old[first : len(old) - last], new[first : len(new) - last]
    if len(old) * len(new) > MAX_COMPARISONS:
        return [(first + 1, first + len(new))]
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return [
        (first + begin + 1, first + max(begin + 1, end))
        for tag, _, _, begin, end in matcher.get_opcodes()
        if tag != "equal"
    ]


def _count_equal(old: list[bytes], new: list[bytes]) -> int:
    """Return the number of equal lines at the beginning."""
    shorter = min(len(old), len(new))
    return next((n for n in range(shorter) if old[n] != new[n]), shorter)


def add_changed_lines(
    problems: Iterable[Problem], hashes: Mapping[str, str], state_dir: Path
) -> list[Problem]:
    """Return the differences from a seal with the lines that changed, where a copy shows them."""
    return [_add_lines(problem, hashes, state_dir) for problem in problems]


def _add_lines(problem: Problem, hashes: Mapping[str, str], state_dir: Path) -> Problem:
    sealed = hashes.get(problem.file or "")
    if sealed is None or problem.line is None:
        return problem
    before, after = read_text(state_dir, sealed), _read_file(Path(problem.file or ""))
    changes = [] if before is None or after is None else find_changed_lines(before, after)
    if not changes:
        return problem
    return replace(
        problem, line=changes[0][0], found=f"changes in {describe_lines(changes)}", allowed=None
    )


def describe_lines(changes: list[tuple[int, int]]) -> str:
    """`line 3`, or `lines 3-5, 9`."""
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in changes[:MAX_RANGES]]
    more = f" and {len(changes) - MAX_RANGES} more places" if len(changes) > MAX_RANGES else ""
    is_one = len(changes) == 1 and changes[0][0] == changes[0][1]
    return f"{'line' if is_one else 'lines'} {', '.join(shown)}{more}"
