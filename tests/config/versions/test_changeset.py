"""What makes a configuration consist of certain files, and what is kept of those before."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from blake3 import blake3

from ductile.config.checksums import create_seal
from ductile.config.versions.changeset import Changeset, compare_files, load_changed
from ductile.config.versions.copies import MAX_COPIES, KeptFile, has_copy, keep_copy, read_copy
from ductile.errors import NotFound, Refused
from tests.config.conftest import MOMENT

NAMES = {
    "config.yaml": "# the first\ninclude: [conf.d, tokens.yaml]\n",
    "conf.d/a.yaml": "service: {name: one} # one\n",
    "tokens.yaml": "tokens: []\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "config"
    (root / "conf.d").mkdir(parents=True)
    for name, text in NAMES.items():
        (root / name).write_text(text)
    return root


def keep(root: Path, id: str = "one") -> None:
    hashes = create_seal(root / "config.yaml").hashes
    keep_copy(root.parent / "state", id, {Path(name): hash for name, hash in hashes.items()})


def changeset(root: Path, id: str = "one") -> Changeset:
    wanted = read_copy(root.parent / "state", id)
    return compare_files(root / "config.yaml", wanted, {}, MOMENT)


def changes(found: Changeset, root: Path) -> dict[str, str | None]:
    return {str(Path(str(row["file"])).relative_to(root)): row["change"] for row in found.rows}


def test_files_return_with_comments_and_nothing_is_lost(root: Path) -> None:
    create_seal(root / "config.yaml").write(MOMENT)
    keep(root)
    (root / "config.yaml").write_text("include: [conf.d]\n")
    (root / "conf.d/b.yaml").write_text("service: {name: two}\n")
    (root / "conf.d/a.yaml").unlink()
    create_seal(root / "config.yaml").write(MOMENT)
    found = changeset(root)
    moment = "20260208T100000000000"
    assert changes(found, root) == {
        "conf.d/a.yaml": "created",
        "conf.d/b.yaml": "moved away",
        "config.yaml": "replaced",
        f"config.yaml.replaced-{moment}": "created",
    }
    assert found.changes_seal is True
    loaded = load_changed(root / "config.yaml", {}, found)
    assert (loaded.settings.service.name, (root / "conf.d/a.yaml").exists()) == ("one", False)
    found.write()
    assert {name: (root / name).read_text() for name in NAMES} == NAMES
    assert (root / f"config.yaml.replaced-{moment}").read_text() == "include: [conf.d]\n"
    assert (root / f"conf.d/b.yaml.replaced-{moment}").exists()
    sealed = yaml.safe_load((root / ".checksums").read_text())["hashes"]
    assert sealed == {
        str(root / name): blake3(text.encode()).hexdigest() for name, text in NAMES.items()
    }
    assert load_changed(root / "config.yaml", {}, None).warnings == ()


def test_file_that_was_changed_after_it_was_sealed_is_not_replaced(root: Path) -> None:
    create_seal(root / "config.yaml").write(MOMENT)
    keep(root)
    (root / "conf.d/a.yaml").write_text("service: {name: two}\n")
    with pytest.raises(Refused, match="changed after it was sealed"):
        changeset(root)


def test_only_the_newest_copies_are_kept_for_their_owner_alone(root: Path) -> None:
    state = root.parent / "state"
    for number in range(MAX_COPIES + 1):
        keep(root, f"n{number}")
    assert [has_copy(state, f"n{number}") for number in (0, 1)] == [False, True]
    [path] = (state / "config-history").glob("n1.json")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with pytest.raises(Refused, match="not kept"):
        read_copy(state, "n0")


def test_file_that_changed_since_it_was_loaded_is_not_kept(root: Path) -> None:
    with pytest.raises(Refused, match="has changed"):
        keep_copy(root.parent / "state", "one", {root / "config.yaml": "00"})


def test_id_that_is_a_path_is_unknown(root: Path) -> None:
    with pytest.raises(NotFound):
        read_copy(root.parent / "state", "../../config/x")


def test_kept_content_is_not_saved_again(root: Path) -> None:
    path = root / "config.yaml"
    kept = {path: blake3(path.read_bytes()).hexdigest()}
    wanted = {path: KeptFile(b"service: {}\n", 0o600, (0, 0))}
    assert changes(compare_files(path, wanted, kept, MOMENT), root) == {"config.yaml": "replaced"}


def test_seal_that_was_renewed_meanwhile_refuses_the_replacement(root: Path) -> None:
    create_seal(root / "config.yaml").write(MOMENT)
    keep(root)
    (root / "conf.d/a.yaml").write_text("service: {name: two}\n")
    create_seal(root / "config.yaml").write(MOMENT)
    found = changeset(root)
    (root / "tokens.yaml").write_text("tokens: [] # accepted meanwhile\n")
    create_seal(root / "config.yaml").write(MOMENT)
    with pytest.raises(Refused, match="has changed meanwhile"):
        found.write()
    assert (root / "conf.d/a.yaml").read_text() == "service: {name: two}\n"


@pytest.mark.parametrize("text", ["", "[]", '{"files": [{}]}', '{"files": [{"path": 1}]}'])
def test_damaged_copy_is_refused(root: Path, text: str) -> None:
    keep(root)
    (root.parent / "state/config-history/one.json").write_text(text)
    with pytest.raises(Refused, match="cannot read"):
        read_copy(root.parent / "state", "one")
