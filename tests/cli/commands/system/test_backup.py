"""`ductile system backup`, `restore` and `verify`, with and without a running gateway."""

from __future__ import annotations

import os
import signal
import stat
import tarfile
from io import BytesIO
from pathlib import Path

import apsw
import pytest

from tests.cli.runner import CliRunner, read_until, stop
from tests.waiting import until

COUNT = "SELECT count(*) FROM job_queue"


@pytest.fixture
def used(cli: CliRunner) -> CliRunner:
    """A configuration whose ledger has one job."""
    assert cli("run", "hello").code == 0
    return cli


def count(path: Path) -> object:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute(COUNT).get
    connection.close()
    return found


def test_backup_without_a_running_gateway(used: CliRunner) -> None:
    result = used("system", "backup")
    assert result.code == 0
    [copy] = (used.state / "backups").iterdir()
    assert result.out.startswith(f"backed up to {copy}: 1 job, ")
    assert count(copy) == 1
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert (used.state / "ductile.lock").read_text() == ""


def test_backup_by_the_running_gateway(used: CliRunner) -> None:
    target = used.root / "copy.db"
    with used.gateway():
        created = used("system", "backup", str(target), "--json")
        again = used("system", "backup", str(target), "--json")
        replaced = used("system", "backup", str(target), "--replace")
    assert created.json["path"] == str(target)
    assert created.json["rows"]["job_queue"] == 1
    assert (again.code, again.json["code"]) == (1, "refused")
    assert replaced.code == 0
    assert count(target) == 1


def test_a_relative_path_is_resolved_by_the_caller(
    used: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = used.root / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with used.gateway():
        assert used("system", "backup", "a.db").code == 0
    assert used("system", "backup", "b.db").code == 0
    assert sorted(os.listdir(elsewhere)) == ["a.db", "b.db"]


def test_an_error_in_the_gateway_is_reported(used: CliRunner) -> None:
    with used.gateway():
        result = used("system", "backup", str(used.root / "no" / "where.db"))
    assert result.code == 1
    assert "there is no directory" in result.err


@pytest.mark.parametrize("running", [True, False])
def test_backup_dry_run_writes_nothing(used: CliRunner, running: bool) -> None:
    def probe() -> None:
        result = used("system", "backup", "--dry-run", "--with-config")
        assert result.code == 0
        assert result.out.startswith(f"would copy the ledger to {used.state}/backups/ledger-")
        assert "would archive the configuration" in result.out
        taken = used("system", "backup", str(used.root / "config.yaml"), "--dry-run")
        assert (taken.code, "exists" in taken.err) == (1, True)

    if running:
        with used.gateway():
            probe()
    else:
        probe()
    assert not (used.state / "backups").exists()


def test_with_config_archives_the_configuration(used: CliRunner) -> None:
    target = used.root / "copy.db"
    result = used("system", "backup", str(target), "--with-config", "--json")
    archive = Path(result.json["config"])
    assert archive == used.root / "copy.db.config.tar"
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as found:
        assert str(used.root / "config.yaml").lstrip("/") in found.getnames()


def _archive(used: CliRunner) -> str:
    target = used.root / "copy.db"
    done = used("system", "backup", str(target), "--with-config", "--json")
    return str(done.json["config"])


def test_configuration_is_restored_from_its_archive(used: CliRunner) -> None:
    before = (used.root / "config.yaml").read_bytes()
    archive = _archive(used)
    used.write("config.yaml", "service: {max_workers: none}\n")
    assert used("config", "restore", archive, "--dry-run").code == 0
    assert used("config", "check").code == 78
    done = used("config", "restore", archive, "--json").json
    assert [row["change"] for row in done["files"]] == ["replaced", "created"]
    assert done["next"] == [f"ductile system start --config {used.root}"]
    assert (used.root / "config.yaml").read_bytes() == before
    [kept] = used.root.glob("config.yaml.replaced-*")
    assert kept.read_text() == "service: {max_workers: none}\n"
    assert used("config", "restore", archive, "--json").json["files"] == []
    with used.gateway():
        used.write("config.yaml", before.decode() + "# changed\n")
        done = used("config", "restore", archive, "--json").json
        assert done["next"] == [f"ductile system reload --config {used.root}"]


def test_archive_replaces_sealed_files_only_with_lock(used: CliRunner) -> None:
    archive = _archive(used)
    with (used.root / "config.yaml").open("a") as file:
        file.write("# changed\n")
    assert used("config", "lock").code == 0
    refused = used("config", "restore", archive)
    assert (refused.code, "add --lock" in refused.err) == (1, True)
    assert used("config", "restore", archive, "--lock").code == 0
    assert used("config", "check", "--strict").code == 0


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x/config.yaml", b"servce: {}", "unknown key"),
        ("x/../config.yaml", b"", "is not a file that such an archive can have"),
        ("/x/config.yaml", b"", "is not a file that such an archive can have"),
        ("x/config.yaml", None, "is not a file that such an archive can have"),
        ("x/other.yaml", b"", "has no config.yaml"),
    ],
    ids=["invalid", "dots", "absolute", "link", "other"],
)
def test_wrong_archive_of_a_configuration_changes_nothing(
    cli: CliRunner, name: str, content: bytes | None, reason: str
) -> None:
    before = sorted(cli.root.rglob("*"))
    archive = cli.root.parent / f"{cli.root.name}.tar"
    with tarfile.open(archive, "w") as opened:
        member = tarfile.TarInfo(name)
        if content is None:
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        member.size = len(content or b"")
        opened.addfile(member, BytesIO(content or b""))
    refused = cli("config", "restore", str(archive))
    assert refused.code in (1, 78)
    assert reason in refused.err
    assert sorted(cli.root.rglob("*")) == before
    archive.write_bytes(b"no archive")
    assert cli("config", "restore", str(archive)).err.endswith("not be opened successfully\n")
    missing = cli.root / "missing.tar"
    refused = cli("config", "restore", str(missing)).err
    assert refused == f"error: cannot read {missing}: No such file or directory\n"
    archive.unlink()


def test_backup_without_a_ledger_is_not_found(cli: CliRunner) -> None:
    result = cli("system", "backup", "--json")
    assert (result.code, result.json["code"]) == (1, "not_found")


def test_a_remote_backup_rejects_path_and_with_config(cli: CliRunner) -> None:
    for more in (["/tmp/x.db"], ["--with-config"]):
        result = cli("system", "backup", *more, "--api-url", "http://127.0.0.1:1")
        assert result.code == 2


def test_restore_replaces_and_keeps_the_previous_ledger(used: CliRunner) -> None:
    target = used.root / "copy.db"
    used("system", "backup", str(target))
    used("run", "hello")
    planned = used("system", "restore", str(target), "--dry-run")
    assert planned.out == f"would restore {target}: 1 job, verified\n"
    assert count(used.state / "state.db") == 2
    result = used("system", "restore", str(target))
    assert result.code == 0
    assert result.out.splitlines()[0] == f"restored {target}: 1 job, verified"
    [kept] = used.state.glob("state.db.replaced-*")
    assert result.out.splitlines()[1] == f"the previous ledger is kept in {kept}"
    assert (count(used.state / "state.db"), count(kept)) == (1, 2)
    assert used("system", "verify").code == 0


def test_restore_is_refused_while_a_gateway_is_running(used: CliRunner) -> None:
    target = used.root / "copy.db"
    with used.gateway() as process:
        used("system", "backup", str(target))
        result = used("system", "restore", str(target))
        assert result.code == 1
        assert f"(pid {process.pid})" in result.err
        assert "stop it before restoring" in result.err
        assert used("system", "restore", str(target), "--json").json["code"] == "locked"


def test_restore_refuses_a_file_that_is_not_a_ledger(used: CliRunner) -> None:
    result = used("system", "restore", str(used.root / "config.yaml"), "--json")
    assert (result.code, result.json["code"]) == (1, "refused")
    assert count(used.state / "state.db") == 1


def test_a_job_that_was_running_in_the_backup_is_recovered(cli: CliRunner) -> None:
    cli.plugin("slow", "sleep 60")
    target = cli.root / "copy.db"
    gateway = cli.start("system", "start")
    try:
        read_until(gateway, '"message":"ready"')
        job = cli("api", "/plugin/slow/poll", "-X", "POST").json["job_id"]
        until(lambda: cli("job", "inspect", job, "--json").json["status"] == "running")
        assert cli("system", "backup", str(target)).code == 0
    finally:
        stop(gateway, signal.SIGKILL)
    until(lambda: cli("system", "restore", str(target)).code == 0)
    checked = cli("system", "verify")
    assert checked.code == 0
    assert "running jobs: 1; the next start recovers them" in checked.out
    with cli.gateway():
        # The lost attempt was recovered; the job waits for its backoff or runs again.
        assert cli("job", "inspect", job, "--json").json["attempt"] == 2


def test_verify_with_and_without_a_running_gateway(used: CliRunner) -> None:
    result = used("system", "verify", "--quick")
    assert (result.code, result.out) == (0, "ok: 2 rows checked on sqlite\n")
    with used.gateway():
        page = used("system", "verify", "--json")
    assert (page.code, page.json["ok"], page.json["rows"]["job_queue"]) == (0, True, 1)


def test_verify_exits_1_on_violations(used: CliRunner) -> None:
    used("run", "hello")
    connection = apsw.Connection(str(used.state / "state.db"))
    connection.execute("UPDATE job_queue SET completed_at = NULL")
    connection.close()
    result = used("system", "verify")
    assert result.code == 1
    assert "has no completed_at" in result.out
    assert result.out.endswith("2 violations: 4 rows checked on sqlite\n")
    assert used("system", "verify", "--json").json["ok"] is False
    copy = used.root / "copy.db"
    created = used("system", "backup", str(copy))
    assert (created.code, "has 2 violations" in created.out) == (0, True)
    refused = used("system", "restore", str(copy))
    assert (refused.code, "the copy has 2 violations" in refused.err) == (1, True)
    for option in ("--accept-breaches", "--allow-violations"):
        assert used("system", "restore", str(copy), option).code == 0
