"""Owners of files: what root does must not lock the service out of its own state."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ductile import files
from ductile.config import load
from ductile.engine.instance_lock import InstanceLock
from ductile.errors import DuctileError
from ductile.operations import doctor
from ductile.operations.doctor.facts import collect_facts
from ductile.store.engines.open import open_ledger
from tests.cli.runner import CliRunner

NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")


def run_as_nobody(work: Callable[[], str]) -> str:
    """Run a function in a child process of another user, and return its text."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        text = "the child failed"
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            text = work()
        except BaseException as error:  # noqa: BLE001 - reported to the test
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, text.encode())
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        return pipe.read()


def give_to_nobody(cli: CliRunner) -> None:
    for path in (cli.root, *cli.root.rglob("*")):
        os.chown(path, NOBODY, NOBODY)


def use_state(cli: CliRunner) -> str:
    """Take the lock and open the ledger, as a start does."""
    settings = load(cli.root, environ=dict(os.environ)).settings
    lock = InstanceLock(settings.state_dir)
    lock.acquire()
    try:
        open_ledger(path=settings.state.path, url=None).close()
    except DuctileError as error:
        return error.message
    finally:
        lock.release()
    return "used"


def owners(cli: CliRunner) -> set[int]:
    return {path.lstat().st_uid for path in (cli.state, *cli.state.rglob("*"))}


def test_backup_and_restore_as_root_keep_the_owner(cli: CliRunner) -> None:
    assert cli("plugin", "run", "hello").code == 0
    give_to_nobody(cli)
    assert cli("system", "backup").code == 0
    [backup] = (cli.state / "backups").glob("*.db")
    assert cli("system", "restore", str(backup)).code == 0
    assert owners(cli) == {NOBODY}
    assert run_as_nobody(lambda: use_state(cli)) == "used"


def test_first_command_as_root_keeps_the_owner(cli: CliRunner) -> None:
    cli.state.mkdir(mode=0o700)
    give_to_nobody(cli)
    assert cli("plugin", "run", "hello").code == 0
    assert owners(cli) == {NOBODY}
    assert run_as_nobody(lambda: use_state(cli)) == "used"


def test_restored_ledger_has_the_owner_of_the_one_before(cli: CliRunner) -> None:
    assert cli("plugin", "run", "hello").code == 0
    backup = cli.root / "copy.db"
    assert cli("system", "backup", str(backup)).code == 0
    os.chown(cli.state / "state.db", NOBODY, NOBODY)
    assert cli("system", "restore", str(backup)).code == 0
    assert (cli.state / "state.db").stat().st_uid == NOBODY


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_ledger_of_another_user_is_refused_with_the_command_to_run(
    cli: CliRunner, suffix: str
) -> None:
    assert cli("plugin", "run", "hello").code == 0
    give_to_nobody(cli)
    ledger = cli.write(f"data/state.db{suffix}", "") if suffix else cli.state / "state.db"
    os.chown(ledger, 0, 0)
    text = run_as_nobody(lambda: use_state(cli))
    assert f"{ledger} belongs to user root" in text
    assert f"chown -R --reference={cli.state} {cli.state}" in text


def test_doctor_reports_owners_with_chown(cli: CliRunner) -> None:
    assert cli("plugin", "run", "hello").code == 0
    give_to_nobody(cli)
    os.chown(cli.state / "state.db", 0, 0)
    found = cli("system", "doctor", "--json").json["findings"]
    [finding] = [each for each in found if "belongs to user root, but" in each["what"]]
    assert finding["severity"] == "error"
    assert finding["run"] == f"chown -R --reference={cli.state} {cli.state}"


def examine(config: Path) -> str:
    from datetime import UTC, datetime

    context = doctor.DoctorContext(config, dict(os.environ), datetime.now(UTC))
    findings = doctor.examine(context)
    facts = collect_facts(context)
    context.close()
    lines = [f"{each.topic}: {each.what} | {each.why} | {each.run}" for each in findings]
    return "\n".join([*lines, str(facts["free_bytes"])])


@pytest.mark.parametrize("hidden", ["state", "above"])
def test_doctor_survives_state_that_it_may_not_read(cli: CliRunner, hidden: str) -> None:
    (cli.root / "above").mkdir(mode=0o700)
    config = f"state: {{path: ./{'above/' if hidden == 'above' else ''}data/state.db}}\n"
    cli.write("config.yaml", config + "plugin_roots: [./plugins]\n")
    assert cli("plugin", "run", "hello").code == 0
    for path in (cli.root, cli.root / "config.yaml", *(cli.root / "plugins").rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    text = run_as_nobody(lambda: examine(cli.root))
    assert "the check" not in text
    where = "belongs to user root" if hidden == "state" else "cannot be read by user nobody"
    assert where in text, text


def test_link_is_not_followed_when_a_file_is_given_away(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    outside = tmp_path.parent / "outside"
    outside.touch()
    (tmp_path / "link").symlink_to(outside)
    files.give_to_owner(tmp_path / "link")
    assert outside.stat().st_uid == 0
    with pytest.raises(OSError, match="symbolic links"):
        files.open_or_create(tmp_path / "link")
