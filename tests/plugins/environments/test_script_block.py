"""The `# /// script` block, compared with the reference implementation of PEP 723."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.plugins.environments.script_block import MAX_BLOCK, InvalidBlock, read_block

REFERENCE = r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$"
BLOCK = """\
#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "httpx",
#
#   "rich>=13",
# ]
# ///
import httpx
"""


def read_by_reference(script: str) -> dict[str, Any] | None:
    matches = [m for m in re.finditer(REFERENCE, script) if m["type"] == "script"]
    if len(matches) > 1:
        raise ValueError("Multiple script blocks found")
    if not matches:
        return None
    lines = matches[0]["content"].splitlines(keepends=True)
    return tomllib.loads("".join(x[2:] if x.startswith("# ") else x[1:] for x in lines))


def test_a_block_is_read() -> None:
    expected = {"requires-python": ">=3.11", "dependencies": ["httpx", "rich>=13"]}
    assert read_block(BLOCK) == expected
    assert read_block(BLOCK.replace("\n", "\r\n")) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import json\n",
        "# /// script\n# a = 1\n",
        "# /// other\n# a = 1\n# ///\n",
    ],
)
def test_a_file_without_a_block(text: str) -> None:
    assert read_block(text) is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("# /// script\n# a = 1\n# ///\n\n# /// script\n# a = 2\n# ///\n", "more than one"),
        ("# /// script\n# a = \n# ///\n", "not valid TOML"),
        (f"# /// script\n# a = '{'x' * MAX_BLOCK}'\n# ///\n", "exceeds 64 KiB"),
    ],
)
def test_an_invalid_block_is_refused(text: str, word: str) -> None:
    with pytest.raises(InvalidBlock, match=word):
        read_block(text)


LINES = st.sampled_from(
    ["# /// script", "# ///", "# /// other", "#", "# a = 1", "#b = 2", "", "x = 1", "# /// script "]
)


@given(st.lists(LINES, max_size=12).map("\n".join))
def test_every_file_is_read_as_by_the_reference(text: str) -> None:
    try:
        expected = read_by_reference(text)
    except ValueError:
        with pytest.raises(InvalidBlock):
            read_block(text)
    else:
        assert read_block(text) == expected


def test_many_start_lines_need_no_quadratic_time() -> None:
    """In quadratic time it would exceed the time limit of a test many times over."""
    assert read_block("# /// script\n" * 400_000) is None
