"""What is documented is what there is: pages made from the code, and links that lead somewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ductile.cli import reference as commands
from ductile.config import reference as config
from ductile.config.schema import json_schema
from tests.docs.page import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md"), ROOT / "bench" / "NOTES.md"])
RECORDS = sorted((DOCS / "adr").glob("0*.md"))
PAGES_OF_DOCS = sorted(page for page in DOCS.rglob("*.md") if page.parent.name != "adr")


@pytest.mark.parametrize(
    ("name", "generate"),
    [("config-reference.md", config.markdown), ("commands.md", commands.markdown)],
    ids=["config", "commands"],
)
def test_generated_page_is_up_to_date(name: str, generate: Callable[[], str]) -> None:
    assert (DOCS / "reference" / name).read_text(encoding="utf-8") == generate(), "run: make docs"


def test_every_section_of_the_configuration_has_its_place() -> None:
    sections = set(json_schema("config")["$defs"]) - {"Variable"}
    assert set(config.TITLES.values()) == sections


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    links = re.findall(r"\]\(([^)\s]+)\)", text)
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not leads(path, link)] == []


def leads(path: Path, link: str) -> bool:
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


GROUPS = ("tutorial", "how-to", "reference", "explanation")


@pytest.mark.parametrize("folder", [DOCS, DOCS / "adr"], ids=["docs", "adr"])
def test_index_lists_every_page(folder: Path) -> None:
    index = folder / "README.md"
    links = set(re.findall(r"\]\(([^)#]+)", index.read_text(encoding="utf-8")))
    listed = {(folder / link).resolve() for link in links}
    found = folder.rglob("*.md") if folder != DOCS else PAGES_OF_DOCS
    assert {page for page in found if page != index} <= listed


def test_index_groups_pages_by_what_the_reader_wants() -> None:
    headings = re.findall(r"^## (.+)$", (DOCS / "README.md").read_text(encoding="utf-8"), re.M)
    assert [heading.lower() for heading in headings] == list(GROUPS)
    assert {folder.name for folder in DOCS.iterdir() if folder.is_dir()} == {*GROUPS, "adr"}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_decision_record_has_the_usual_headings(path: Path) -> None:
    headings = re.findall(r"^## (.+)$", path.read_text(encoding="utf-8"), re.M)
    assert headings == ["Context", "Decision", "Consequences"]


@pytest.mark.parametrize("path", PAGES_OF_DOCS, ids=lambda path: str(path.relative_to(DOCS)))
def test_page_starts_with_whom_it_is_for(path: Path) -> None:
    title, blank, first, *_ = path.read_text(encoding="utf-8").split("\n")
    assert title.startswith("# ")
    assert blank == ""
    assert first.startswith("For ")
