"""`system import`: what plugins remember in another program's ledger."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.cli.running import House

SQL = (Path(__file__).parents[1] / "compat/ledger.sql").read_text()
ANSWER = 'printf \'{"status":"ok","result":%s}\' "$request"'


@pytest.fixture
def moving(house: House) -> House:
    """A house whose ledger is still that of the Go program."""
    house.state.mkdir(mode=0o700)
    other(house.state / "state.db")
    house.plugin("withings", ANSWER)
    return house


def other(path: Path, sql: str = SQL) -> Path:
    with closing(apsw.Connection(str(path))) as db:
        db.pragma("journal_mode", "wal")
        db.execute(sql)
    return path


@pytest.mark.parametrize(
    "line", [("system", "start"), ("plugin", "run", "withings"), ("status",), ("job", "list")]
)
def test_another_programs_ledger_is_refused_and_not_touched(
    moving: House, line: tuple[str, ...]
) -> None:
    before = (moving.state / "state.db").read_bytes()
    done = moving(*line)
    assert done.code == 1
    assert "Traceback" not in done.err
    assert "ductile system import" in done.err
    assert (moving.state / "state.db").read_bytes() == before


@pytest.mark.parametrize("levels", [101, 255, 1000])
def test_a_state_that_nests_too_deep_is_left(moving: House, levels: int) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels
    with closing(apsw.Connection(str(moving.state / "state.db"))) as db:
        db.execute("UPDATE plugin_state SET state = ? WHERE plugin_name = 'withings'", (deep,))
    done = moving("system", "import")
    assert done.code == 0, done.err
    assert "the state of withings is no JSON object" in done.out


def test_it_is_taken_over_in_its_place_and_kept(moving: House) -> None:
    done = moving("system", "import")
    assert done.code == 0, done.err
    assert "took over 1 state and 2 facts" in done.out
    assert "the state of broken is no JSON object" in done.out
    assert "1 job not over there stays behind" in done.out
    seen = moving("plugin", "run", "withings", "--json").json["result"]["result"]
    assert seen["state"]["cursor"] == 41
    (kept,) = moving.state.glob("state.db.replaced-*")
    with closing(apsw.Connection(str(kept), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        assert db.execute("SELECT count(*) FROM plugin_state").fetchall() == [(3,)]
    facts = moving("system", "plugin-facts", "withings", "--json").json["facts"]
    assert [(f["seq"], f["fact_json"]["cursor"], f["created_at"]) for f in facts] == [
        (2, 41, "2026-02-08T06:00:02.000000Z"),
        (1, 40, "2026-02-08T05:00:02.000000Z"),
    ]
    assert moving("system", "selfcheck").code == 0
    assert not list(moving.state.glob(".import-*"))


def test_it_is_not_moved_while_somebody_has_it_open(moving: House) -> None:
    path = moving.state / "state.db"
    with closing(apsw.Connection(str(path))) as reader:
        reader.execute("SELECT count(*) FROM plugin_state").fetchall()
        done = moving("system", "import")
        assert done.code == 1
        assert "Traceback" not in done.err
        assert f"another process has the ledger {path} open" in done.err
        assert not list(moving.state.glob(".import-*"))
    assert moving("system", "import").code == 0


def test_a_dry_run_changes_nothing(moving: House) -> None:
    before = sorted(path.name for path in moving.state.iterdir())
    done = moving("system", "import", "--dry-run", "--json")
    assert done.json["states"] == ["withings"]
    assert done.json["moved_to"] is None
    left = {path.name for path in moving.state.iterdir()} - {"state.db-wal", "state.db-shm"}
    assert left == set(before)
    assert moving("status").code == 1


def test_from_a_file_into_a_ledger_that_is_there(house: House) -> None:
    house.plugin("withings", 'echo \'{"status":"ok","result":"x","state_updates":{"mine":1}}\'')
    house("plugin", "run", "withings")
    source = other(house.root / "old.db")
    done = house("system", "import", str(source), "--json").json
    assert (done["states"], done["kept"], done["facts"]) == ([], ["withings"], 0)
    assert source.exists()
    page = house("system", "plugin-facts", "withings", "--json").json
    assert (page["state"], page["facts"]) == ({"mine": 1}, [])


def test_twice_is_once(house: House) -> None:
    source = other(house.root / "old.db")
    assert house("system", "import", str(source), "--json").json["facts"] == 2
    again = house("system", "import", str(source), "--json").json
    assert (again["kept"], again["facts"]) == (["withings"], 0)


def test_what_is_remembered_under_a_name_that_no_plugin_can_have_stays_behind(house: House) -> None:
    name = "n" * 256
    source = other(
        house.root / "old.db",
        f"{SQL}; INSERT INTO plugin_state (plugin_name, state) VALUES ('{name}', '{{\"n\":1}}');"
        f" UPDATE plugin_facts SET plugin_name = '{name}'",
    )
    done = house("system", "import", str(source), "--json").json
    assert (done["states"], done["facts"]) == (["withings"], 0)
    assert "the name of a plugin has 256 bytes; its state is left" in done["notes"]
    assert any(note.startswith("2 facts are left") for note in done["notes"])


def test_not_beside_a_gateway(house: House) -> None:
    source = other(house.root / "old.db")
    with house.gateway():
        done = house("system", "import", str(source))
        assert done.code == 1
        assert "stop it before you import" in done.err


@pytest.mark.parametrize(
    ("text", "word"),
    [(None, "there is no file"), (b"no database at all" * 99, "no ledger that can be read")],
)
def test_no_such_ledger(house: House, text: bytes | None, word: str) -> None:
    path = house.root / "old.db"
    if text is not None:
        path.write_bytes(text)
    done = house("system", "import", str(path))
    assert done.code == 1
    assert word in done.err


def test_nothing_to_import(house: House) -> None:
    assert "name its file" in house("system", "import").err


def test_facts_of_an_older_version_have_no_number(house: House) -> None:
    sql = SQL.replace("seq INTEGER, ", "").replace("'f2', 2,", "'f2',").replace("'f1', 1,", "'f1',")
    source = other(house.root / "old.db", sql)
    house("system", "import", str(source))
    facts = house("system", "plugin-facts", "withings", "--json").json["facts"]
    assert [fact["fact_json"]["cursor"] for fact in facts] == [41, 40]
