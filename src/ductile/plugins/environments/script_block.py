"""The `# /// script` block of a Python file (PEP 723)."""

from __future__ import annotations

import re

from ductile.model import Json

MAX_BLOCK = 64 * 1024
_START = re.compile(r"# /// ([a-zA-Z0-9-]+)")
_END = "# ///"


class InvalidBlock(ValueError):
    """The block is not valid; the message says why."""


def read_block(text: str) -> dict[str, Json] | None:
    """The table in the `script` block of a file's text; None if there is no such block.

    The grammar is that of the PEP's reference implementation, in time that is linear in the size
    of the file: its regular expression needs quadratic time for repeated start lines.
    """
    found = [content for kind, content in _find_blocks(text) if kind == "script"]
    if not found:
        return None
    if len(found) > 1:
        raise InvalidBlock("there is more than one `# /// script` block; keep one of them")
    if len(found[0]) > MAX_BLOCK:
        raise InvalidBlock(f"its `# /// script` block exceeds {MAX_BLOCK // 1024} KiB")
    import tomllib  # Most plugins have no block, and a start of the gateway imports no more.

    try:
        return tomllib.loads(found[0])
    except tomllib.TOMLDecodeError as error:
        raise InvalidBlock(f"its `# /// script` block is not valid TOML: {error}") from None


def _find_blocks(text: str) -> list[tuple[str, str]]:
    """The kind and the content of each block. A block ends with the last end line of its run of
    comment lines, so that the content may contain end lines."""
    lines = text.replace("\r\n", "\n").split("\n")
    ends = _find_ends(lines)
    blocks, at = [], 0
    while at < len(lines):
        start, end = _START.fullmatch(lines[at]), ends[at + 1]
        if start is not None and end is not None and end > at + 1:
            content = "".join(f"{line}\n" for line in lines[at + 1 : end])
            blocks.append((start[1], _uncomment(content)))
            at = end
        at += 1
    return blocks


def _find_ends(lines: list[str]) -> list[int | None]:
    """For each line, the last end line of the run of comment lines that begins there."""
    ends: list[int | None] = [None] * (len(lines) + 1)
    for at in range(len(lines) - 1, -1, -1):
        line = lines[at]
        if line == "#" or line.startswith("# "):
            later = ends[at + 1]
            ends[at] = at if later is None and line == _END else later
    return ends


def _uncomment(content: str) -> str:
    return "".join(
        line[2:] if line.startswith("# ") else line[1:]
        for line in content.splitlines(keepends=True)
    )
