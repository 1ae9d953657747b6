"""Pages of the documentation: their code blocks, and the commands in console blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RECORDS = sorted((DOCS / "adr").glob("0*.md"))
PAGES = sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "adr")
"""Every page for users; decision records are not among them."""

_FENCE = re.compile(
    r"(?:<!-- not run: (?P<reason>[^>]+?) -->\n+)?"
    r"^```(?P<language>[\w-]*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")
_EXIT = re.compile(r"\s+# exits (\d+)$")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    not_run: str | None
    """Why the tests cannot run it."""


@dataclass
class Command:
    """A command line, and the output that the page shows for it."""

    line: int
    text: str
    code: int = 0
    printed: list[str] = field(default_factory=list)

    @property
    def is_background(self) -> bool:
        return self.text.rstrip().endswith("&")


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read_blocks(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    return [
        Block(
            match["language"],
            match["text"],
            text.count("\n", 0, match.start("text")) + 1,
            match["reason"],
        )
        for match in _FENCE.finditer(text)
    ]


def executable_blocks(path: Path) -> list[Block]:
    """The console blocks that are not marked with a reason against running them."""
    return [
        block for block in read_blocks(path) if block.language == "console" and not block.not_run
    ]


def parse_commands(block: Block) -> Iterator[Command]:
    """The lines after `$ `, with their continuation lines and heredocs."""
    lines = block.text.split("\n")[:-1]
    current: Command | None = None
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("$ "):
            if current is not None:
                yield current
            start, text = at, line[2:]
            while text.endswith("\\"):
                at += 1
                text += "\n" + lines[at]
            heredoc = _HEREDOC.search(text)
            while heredoc and lines[at] != heredoc[2]:
                at += 1
                text += "\n" + lines[at]
            exits = _EXIT.search(text)
            code = int(exits[1]) if exits else 0
            current = Command(block.line + start, _EXIT.sub("", text), code)
        else:
            assert current is not None, f"line {block.line + at}: output before any command"
            current.printed.append(line)
        at += 1
    if current is not None:
        yield current


def output_matches(expected: list[str], printed: str) -> bool:
    """Whether the output is as the page shows it; `...` matches anything."""
    if not expected:
        return True
    wanted = "\n".join(line.rstrip() for line in expected).strip("\n")
    found = "\n".join(line.rstrip() for line in printed.split("\n")).strip("\n")
    pattern = "".join(
        ".*" if part == "..." else re.escape(part) for part in re.split(r"(\.\.\.)", wanted)
    )
    return re.fullmatch(pattern, found, re.DOTALL) is not None
