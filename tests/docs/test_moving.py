"""The steps from SQLite to PostgreSQL of the operations page, executed with a real server."""

from __future__ import annotations

from tests.docs.page import DOCS, Block, parse_commands, read_blocks
from tests.docs.session import Session
from tests.postgres import Server

PAGE = DOCS / "how-to" / "operations.md"
ADDRESS = "postgresql://ductile:password@db.internal/ductile"


def run_block(session: Session, block: Block, url: str) -> None:
    for command in parse_commands(block):
        command.text = command.text.replace(ADDRESS, url)
        session.check(command, PAGE.name)


def test_ledger_moves_to_postgresql_as_the_page_shows(session: Session, postgres: Server) -> None:
    blocks = read_blocks(PAGE)
    [steps] = [block for block in blocks if ADDRESS in block.text]
    # The first block of the page creates the gateway that is moved.
    run_block(session, blocks[0], "")
    run_block(session, steps, postgres.database(empty=True))
