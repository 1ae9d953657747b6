"""Pages agree with the code and with each other: generated pages, links, the index, headings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from ductile.cli import reference as commands
from ductile.cli.main import root
from ductile.config import reference as config
from ductile.config.schema import json_schema
from tests.docs.page import DOCS, PAGES, RECORDS, ROOT, name_of

GROUPS = ("tutorial", "how-to", "reference", "explanation")
LINKED = [
    *PAGES,
    *(DOCS / "adr").glob("*.md"),
    *ROOT.glob("*.md"),
    *(ROOT / "plugins").rglob("*.md"),
    ROOT / "bench" / "NOTES.md",
]


@pytest.mark.parametrize(
    ("name", "generate"),
    [("config-reference.md", config.markdown), ("commands.md", commands.markdown)],
    ids=["config", "commands"],
)
def test_generated_page_is_up_to_date(name: str, generate: Callable[[], str]) -> None:
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == generate(), "run: make docs"


def test_configuration_reference_has_every_section() -> None:
    sections = set(json_schema("config")["$defs"]) - {"Variable"}
    assert set(config.TITLES.values()) == sections


def test_links_lead_to_existing_files_and_headings() -> None:
    broken = [
        f"{name_of(path)}: {link}"
        for path in LINKED
        for link in local_links(path)
        if not target_exists(path, link)
    ]
    assert broken == []


def local_links(path: Path) -> list[str]:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    return [link for link in links if "://" not in link and not link.startswith("mailto:")]


def target_exists(path: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    file = (path.parent / target).resolve() if target else path
    if not file.exists():
        return False
    return not anchor or file.is_dir() or anchor in anchors(file)


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        "".join(c for c in heading.lower() if c.isalnum() or c in " _-").replace(" ", "-")
        for heading in headings
    }


@pytest.mark.parametrize(
    ("index", "pages"),
    [(DOCS / "README.md", PAGES), (DOCS / "adr" / "README.md", RECORDS)],
    ids=["docs", "adr"],
)
def test_index_lists_every_page(index: Path, pages: list[Path]) -> None:
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in local_links(index)}
    assert {page for page in pages if page != index} <= listed


def test_index_has_the_four_groups_of_the_folders() -> None:
    headings = re.findall(r"^## (.+)$", (DOCS / "README.md").read_text(encoding="utf-8"), re.M)
    assert [heading.lower() for heading in headings] == list(GROUPS)
    assert {folder.name for folder in DOCS.iterdir() if folder.is_dir()} == {
        *GROUPS,
        "adr",
        "images",
    }


def test_decision_records_have_the_usual_headings() -> None:
    for path in RECORDS:
        headings = re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), re.M)
        assert headings == ["Context", "Decision", "Consequences"], name_of(path)


def test_pages_start_with_whom_they_are_for() -> None:
    for path in PAGES:
        title, blank, first, *_ = path.read_text(encoding="utf-8").split("\n")
        assert title.startswith("# "), name_of(path)
        assert blank == "", name_of(path)
        assert first.startswith("For "), name_of(path)


def test_modules_that_architecture_and_records_name_exist() -> None:
    package = ROOT / "src" / "ductile"
    missing = [
        f"{name_of(path)}: {module}"
        for path in [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *RECORDS]
        for module in re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", path.read_text(encoding="utf-8"))
        if not (ROOT / module).exists() and not any(package.rglob(module))
    ]
    assert missing == []


def test_changelog_has_each_heading_once_per_version() -> None:
    for version in re.split(
        r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M
    ):
        headings = re.findall(r"^### (.+)$", version, re.MULTILINE)
        assert len(headings) == len(set(headings)), version.split("\n")[0]


def test_results_of_the_benchmarks_fit_one_screen() -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert len(page.splitlines()) <= 60, "conditions and experiments are in bench/NOTES.md"


CITING = ("src", "tests", "bench", "deploy", "plugins")
PAGE = re.compile(r"docs/(?:adr|specification|performance|tutorial|how-to|reference)[\w/-]*\.md")
SECTION = re.compile(r'docs/specification\.md,\s+"([^"]+)"')
OUTSIDE = re.compile(r"\b00\d §|\bSPEC §|\bFR-\d")
"""Citations of documents that are not part of the repository."""


def source_texts() -> Iterator[tuple[str, str]]:
    for folder in CITING:
        for path in (ROOT / folder).rglob("*"):
            is_source = path.is_file() and path.suffix in {".py", ".sql", ".yaml", ".service", ""}
            if is_source and path != Path(__file__):
                yield name_of(path), path.read_text(encoding="utf-8", errors="ignore")


def test_pages_and_sections_that_source_files_cite_exist() -> None:
    specification = (DOCS / "specification.md").read_text(encoding="utf-8")
    sections = set(re.findall(r"^#+ (.+)$", specification, re.MULTILINE))
    broken = [
        f"{name}: {cited}"
        for name, text in source_texts()
        for cited in [
            *(page for page in PAGE.findall(text) if not (ROOT / page).exists()),
            *(section for section in SECTION.findall(text) if section not in sections),
            *OUTSIDE.findall(text),
        ]
    ]
    assert broken == []


COMMAND = re.compile(r"(?<![\w./-])ductile ([a-z][a-z-]*(?: [a-z][a-z-]*)+)")
OTHER_PROGRAMS = "src/ductile/cli/go_words.py"


def test_commands_that_texts_name_exist() -> None:
    """Those of a noun: an error or an alert must not name a command that is refused."""
    pages = [(name_of(path), path.read_text(encoding="utf-8")) for path in LINKED]
    web = [(name_of(path), path.read_text()) for path in (ROOT / "web" / "src").rglob("*.tsx")]
    missing = [
        f"{name}: ductile {words}"
        for name, text in [*pages, *web, *source_texts()]
        for words in COMMAND.findall(text)
        if name != OTHER_PROGRAMS and not is_command(words.split())
    ]
    assert missing == []


def is_command(words: list[str]) -> bool:
    """Whether each word of a noun's commands exists; prose has other words after `ductile`."""
    group = root.get_command(click.Context(root), words[0])
    for word in words[1:]:
        if not isinstance(group, click.Group):
            return True
        group = group.get_command(click.Context(group), word)
        if group is None:
            return False
    return True
