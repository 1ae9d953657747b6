"""What is documented is what there is: pages made from the code, and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ductile.cli import reference as commands
from ductile.config import reference as config
from ductile.config.schema import json_schema
from tests.docs.page import ROOT

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


@pytest.mark.parametrize(
    ("name", "made"),
    [("config-reference.md", config.markdown), ("commands.md", commands.markdown)],
    ids=["config", "commands"],
)
def test_a_page_made_from_the_code_is_up_to_date(name: str, made: object) -> None:
    assert callable(made)
    assert (DOCS / name).read_text(encoding="utf-8") == made(), "run: make docs"


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


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    missing = [page.name for page in DOCS.glob("*.md") if f"({page.name})" not in index]
    assert missing == ["README.md"]
