"""The steps from SQLite to PostgreSQL, typed as they stand, with a real server."""

from __future__ import annotations

from tests.docs.page import ROOT, Block, blocks, commands, matches
from tests.docs.session import Session
from tests.docs.test_commands import session as session
from tests.postgres import Server

PAGE = ROOT / "docs" / "how-to" / "operations.md"
ADDRESS = "postgresql://ductile:password@db.internal/ductile"


def typed(session: Session, block: Block, url: str) -> None:
    for command in commands(block):
        command.text = command.text.replace(ADDRESS, url)
        code, printed = session.run(command)
        where = f"{PAGE.name}:{command.line}: {command.text}"
        assert code == command.code, f"{where}\nexit code {code}, and:\n{printed}"
        assert matches(command.printed, printed), f"{where}\nprinted:\n{printed}"


def test_a_ledger_moves_to_postgresql_as_the_page_says(session: Session, postgres: Server) -> None:
    found = blocks(PAGE)
    [steps] = [block for block in found if ADDRESS in block.text]
    # The page's first block makes the gateway that is moved.
    typed(session, found[0], "")
    typed(session, steps, postgres.database(empty=True))
