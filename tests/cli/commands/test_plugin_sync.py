"""`ductile plugin sync`: dependencies from a wheelhouse, without network."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ductile.errors import Refused
from ductile.operations.plugins import installers, sync
from ductile.plugins.environments.locate import PythonBuild
from ductile.plugins.environments.lock import LockedPackage
from ductile.plugins.environments.plugin_files import PythonPlugin
from tests.cli.runner import CliRunner, stop
from tests.waiting import until
from tests.wheels import write_wheel

PROGRAM = """\
#!/usr/bin/env -S uv run --quiet --script
# /// script
# requires-python = "{python}"
# dependencies = [{dependencies}]
# ///
import json, sys, time
request = json.load(sys.stdin)
{body}
"""
BODY = """\
import tiny
json.dump({"status": "ok", "result": f"{tiny.VERSION} {sys.prefix}"}, sys.stdout)
"""
CONFIG = "plugin_roots: [./plugins]\n"


@pytest.fixture(autouse=True)
def pip_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed uv is not used, so that every machine tests the same."""
    monkeypatch.setattr(installers, "find_uv", lambda: None)
    monkeypatch.setattr(sync, "find_uv", lambda: None)


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    wheelhouse = tmp_path / "wheels"
    write_wheel(wheelhouse, "tiny", "1.0", requires=["small>=2"])
    write_wheel(wheelhouse, "small", "2.0")
    return wheelhouse


Write = Callable[..., Path]


@pytest.fixture
def write(cli: CliRunner) -> Write:
    """Writes the plugin `mailer`, and returns the path of its lock."""

    def write(
        dependencies: str = '"tiny"',
        *,
        python: str = ">=3.11",
        body: str = BODY,
        name: str = "mailer",
    ) -> Path:
        cli.write("config.yaml", CONFIG)
        cli.write(
            f"plugins/{name}/manifest.yaml",
            "manifest_spec: ductile.plugin\nmanifest_version: 1\n"
            f"name: {name}\nversion: '1'\nprotocol: 2\nentrypoint: run.py\ncommands: [poll]\n",
        )
        program = PROGRAM.format(dependencies=dependencies, python=python, body=body)
        return cli.write(f"plugins/{name}/run.py", program, 0o700).with_name("run.py.lock")

    return write


def environments(cli: CliRunner) -> list[Path]:
    return sorted(path for path in (cli.state / "envs").glob("*") if path.is_dir())


def test_a_plugin_for_uv_runs_in_its_own_environment(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    lock = write()
    assert "run: ductile plugin sync mailer" in cli("plugin", "list").out
    done = cli("plugin", "sync", "--wheelhouse", str(wheels), "--json")
    assert done.code == 0, done.err
    assert "locking run.py.lock with pip" in done.err
    [row] = done.json["plugins"]
    assert (row["locked"], row["built"], row["packages"]) == (True, True, 2)
    [environment] = environments(cli)
    assert row["environment"] == str(environment)
    text = lock.read_text()
    assert "tiny==1.0" in text
    assert "small==2.0" in text
    assert "://" not in text
    assert str(wheels) not in text
    ran = cli("plugin", "run", "mailer", "--json")
    assert ran.json["attempts"][-1]["result"]["result"] == f"1.0 {environment}"
    assert cli("plugin", "show", "mailer", "--json").json["environment"] == str(environment)
    assert cli("config", "check").code == 0
    again = cli("plugin", "sync", "--json").json["plugins"]
    assert [(row["locked"], row["built"]) for row in again] == [(False, False)]


def test_requirements_txt_is_installed(cli: CliRunner, write: Write, wheels: Path) -> None:
    program = write().with_name("run.py")
    program.write_text(f"#!/usr/bin/env python3\nimport json, sys\n{BODY}")
    (program.parent / "requirements.txt").write_text("tiny==1.0  # pinned\n")
    assert cli("plugin", "sync", "mailer", "--wheelhouse", str(wheels)).code == 0
    assert cli("plugin", "run", "mailer").code == 0


@pytest.mark.parametrize("requirements", ["tiny==1.0\n", "-r other.txt\n"])
def test_requirements_txt_that_was_never_locked_changes_nothing(
    cli: CliRunner, write: Write, requirements: str
) -> None:
    program = write().with_name("run.py")
    program.write_text(
        "#!/usr/bin/env python3\nimport json\nprint(json.dumps({'status': 'ok', 'result': 'x'}))\n"
    )
    (program.parent / "requirements.txt").write_text(requirements)
    assert cli("plugin", "run", "mailer").code == 0
    checked = cli("config", "check")
    assert checked.code == 0
    assert "plugin sync" in checked.out + checked.err
    findings = cli("system", "doctor", "--json").json["findings"]
    commands = [finding["run"] for finding in findings]
    synced = cli("plugin", "sync", "mailer", "--dry-run")
    if requirements.startswith("-"):
        assert (synced.code, "option '-r other.txt' is not supported" in synced.err) == (1, True)
    else:
        assert f"ductile plugin sync mailer --config {cli.root}" in commands
        assert synced.code == 0


def test_requirements_txt_without_packages_needs_no_environment(
    cli: CliRunner, write: Write
) -> None:
    program = write().with_name("run.py")
    program.write_text('#!/usr/bin/env python3\nprint(\'{"status": "ok", "result": 1}\')\n')
    (program.parent / "requirements.txt").write_text("# none yet\n\n")
    checked = cli("config", "check")
    assert (checked.code, "plugin sync" in checked.out + checked.err) == (0, False)


def test_missing_environments_are_reported_with_the_command(cli: CliRunner, write: Write) -> None:
    write()
    cli.write("config.yaml", f"{CONFIG}plugins: {{mailer: {{schedules: [{{every: 1h}}]}}}}\n")
    reason = "its dependencies are not installed; run: ductile plugin sync mailer"
    assert reason in cli("plugin", "list").out
    assert reason in cli("plugin", "show", "mailer").out
    checked = cli("config", "check")
    assert (checked.code, reason in checked.err) == (78, True)
    findings = cli("system", "doctor", "--json").json["findings"]
    assert "ductile plugin sync mailer" in [finding["run"] for finding in findings]
    tested = cli("plugin", "test", f"{cli.root}/plugins/mailer")
    assert f"run: ductile plugin sync {cli.root}/plugins/mailer\n" in tested.err


def test_jobs_wait_until_the_environment_is_built(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    repaired = cli.root / "repaired"
    fails = f"import os\nassert os.path.exists({str(repaired)!r})\n"
    lock = write(body=fails + BODY)
    retry = "{max_attempts: 10, backoff_base: 2s}"
    cli.write("config.yaml", f"{CONFIG}plugins: {{mailer: {{retry: {retry}}}}}\n")
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    with cli.gateway():
        job = cli("plugin", "run", "mailer", "--async", "--json").json["job_id"]
        inspect = lambda: cli("job", "inspect", job, "--json").json  # noqa: E731
        until(lambda: inspect()["next_retry_at"])
        lock.unlink()
        assert cli("system", "reload").code == 0
        reason = "its dependencies are not installed; run: ductile plugin sync mailer"
        until(lambda: reason in (inspect()["waits_for"] or ""))
        assert reason in cli("plugin", "run", "mailer").err
        repaired.touch()
        done = cli("plugin", "sync", "--wheelhouse", str(wheels))
        assert "ductile system reload" in done.err
        assert cli("system", "reload").code == 0
        until(lambda: inspect()["status"] == "succeeded")


def test_a_changed_block_is_noticed_and_locked_again(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    lock = write()
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    before = lock.read_text()
    write('"tiny", "small"')
    assert "run.py has changed since it was locked" in cli("plugin", "list").out
    with cli.gateway():
        findings = cli("system", "doctor", "--json").json["findings"]
        [run] = [row["run"] for row in findings if "plugin mailer is refused" in row["what"]]
        assert run.startswith("ductile plugin sync mailer && ductile system reload")
    planned = cli("plugin", "sync", "--dry-run").out
    assert "would be locked" in planned
    assert lock.read_text() == before
    assert cli("plugin", "sync", "--wheelhouse", str(wheels)).code == 0
    assert lock.read_text() != before
    assert cli("plugin", "run", "mailer").code == 0


def test_a_changed_lock_is_noticed(cli: CliRunner, write: Write, wheels: Path) -> None:
    lock = write()
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    lock.write_text(lock.read_text().replace("small==2.0", "small==2.1"))
    assert "its dependencies are not installed" in cli("plugin", "list").out
    failed = cli("plugin", "sync", "--wheelhouse", str(wheels), "--json")
    assert failed.code == 1
    assert "small==2.1" in failed.json["failed"][0]["error"]


def test_a_file_that_does_not_match_its_hash_is_not_installed(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    write()
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    [environment] = environments(cli)
    shutil.rmtree(environment)
    write_wheel(wheels, "small", "2.0", files={"small.py": "import evil\n"})
    failed = cli("plugin", "sync", "--wheelhouse", str(wheels), "--json")
    assert failed.code == 1
    assert "HASH" in failed.json["failed"][0]["error"].upper()
    assert environments(cli) == []


def test_upgrade_locks_newer_versions(cli: CliRunner, write: Write, wheels: Path) -> None:
    lock = write()
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    write_wheel(wheels, "tiny", "1.5")
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    assert "tiny==1.0" in lock.read_text()
    upgrade = ("plugin", "sync", "--wheelhouse", str(wheels), "--upgrade")
    assert cli(*upgrade, "--json").json["plugins"][0]["locked"] is True
    assert "tiny==1.5" in lock.read_text()
    assert "up to date" in cli(*upgrade).out


def test_the_lock_of_another_program_is_replaced_only_on_request(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    lock = write()
    lock.write_text('version = 1\nrequires-python = ">=3.11"\n')
    assert "run: ductile plugin sync --upgrade mailer" in cli("plugin", "list").out
    failed = cli("plugin", "sync", "--wheelhouse", str(wheels), "--json")
    assert failed.code == 1
    assert "--upgrade" in failed.json["failed"][0]["error"]
    assert lock.read_text().startswith("version = 1")
    assert cli("plugin", "sync", "--wheelhouse", str(wheels), "--upgrade").code == 0


def test_environment_that_is_built_needs_no_python_in_path(
    cli: CliRunner, write: Write, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    assert cli("plugin", "sync", "--wheelhouse", str(wheels)).code == 0

    def refuse(plugin: PythonPlugin) -> PythonBuild:
        raise Refused(f"{plugin.name}: no such version is in PATH")

    monkeypatch.setattr(sync, "choose_python", refuse)
    for words in ((), ("--dry-run",)):
        done = cli("plugin", "sync", *words)
        assert (done.code, "up to date (2 packages" in done.out) == (0, True)


def test_a_python_version_that_this_machine_lacks_is_an_error(cli: CliRunner, write: Write) -> None:
    write(python=">=3.98")
    failed = cli("plugin", "sync", "--json")
    assert failed.code == 1
    error = failed.json["failed"][0]["error"]
    assert "plugin mailer requires Python >=3.98" in error
    assert "requires Python >=3.98" in cli("plugin", "list").out


def test_without_dependencies_no_environment_is_needed(cli: CliRunner, write: Write) -> None:
    write("", body='json.dump({"status": "ok", "result": sys.version}, sys.stdout)')
    assert cli("plugin", "run", "mailer").code == 0
    assert "needs no environment" in cli("plugin", "sync").out
    assert environments(cli) == []


def test_environment_whose_build_was_killed_is_not_used_and_is_rebuilt(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    write()
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    [environment] = environments(cli)
    (environment / "ductile-environment.json").unlink()
    (environment / "leftover").write_text("")
    assert "its dependencies are not installed" in cli("plugin", "list").out
    assert cli("plugin", "sync", "--wheelhouse", str(wheels)).code == 0
    assert not (environment / "leftover").exists()
    assert cli("plugin", "run", "mailer").code == 0


def test_a_build_that_is_killed_leaves_nothing_that_is_used(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    write()
    process = cli.start("plugin", "sync", "--wheelhouse", str(wheels))
    until(lambda: environments(cli))
    assert stop(process, signal.SIGKILL) == -signal.SIGKILL
    assert "its dependencies are not installed" in cli("plugin", "list").out
    assert cli("plugin", "sync", "--wheelhouse", str(wheels)).code == 0
    assert cli("plugin", "run", "mailer").code == 0


def test_a_moved_environment_is_not_used(cli: CliRunner, write: Write, wheels: Path) -> None:
    write()
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    cli.state.rename(cli.root / "moved")
    cli.write("config.yaml", f"{CONFIG}state: {{path: ./moved/state.db}}\n")
    assert "its dependencies are not installed" in cli("plugin", "list").out


def test_prune_removes_environments_that_no_plugin_uses(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    write()
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    [old] = environments(cli)
    write('"small"')
    planned = cli("plugin", "sync", "--prune", "--dry-run", "--json").json
    assert planned["pruned"]["removed"] == [str(old)]
    assert environments(cli) == [old]
    done = cli("plugin", "sync", "--prune", "--wheelhouse", str(wheels), "--json").json
    assert done["pruned"] == {"removed": [str(old)], "in_use": []}
    [kept] = environments(cli)
    assert kept != old


def test_prune_keeps_an_environment_that_a_job_of_the_gateway_uses(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    body = "import tiny, pathlib\npathlib.Path('started').touch()\ntime.sleep(60)\n"
    write(body=body.replace("'started'", repr(str(cli.root / "started"))))
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    [old] = environments(cli)
    with cli.gateway():
        cli("plugin", "run", "mailer", "--async")
        until((cli.root / "started").exists)
        write('"small"', body=BODY)
        by_gateway = cli("plugin", "sync", "--prune", "--wheelhouse", str(wheels), "--json")
        assert by_gateway.json["pruned"] == {"removed": [], "in_use": []}
        cli("system", "reload")
        by_process = cli("plugin", "sync", "--prune", "--json")
        assert by_process.json["pruned"] == {"removed": [], "in_use": [str(old)]}
        assert old.exists()


def test_the_fingerprint_of_a_plugin_contains_its_lock(
    cli: CliRunner, write: Write, wheels: Path
) -> None:
    lock = write()
    cli.write("config.yaml", f"{CONFIG}service: {{strict_mode: true}}\n")
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    assert cli("config", "lock").code == 0
    assert cli("plugin", "run", "mailer").code == 0
    write_wheel(wheels, "tiny", "1.5")
    done = cli("plugin", "sync", "--wheelhouse", str(wheels), "--upgrade")
    assert "ductile config lock" in done.err
    assert "tiny==1.5" in lock.read_text()
    assert "it has changed since it was sealed" in cli("plugin", "list").out


def test_a_directory_is_synchronized_without_a_configuration(
    cli: CliRunner,
    write: Write,
    wheels: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from ductile.cli import main

    directory = str(write().parent)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert main(["plugin", "sync", directory, "--wheelhouse", str(wheels)]) == 0
    assert "for one, run: ductile plugin sync NAME" in capsys.readouterr().err
    assert main(["plugin", "sync", directory, "--wheelhouse", str(wheels)]) == 0
    again = capsys.readouterr()
    assert "NAME" not in again.err
    assert str(tmp_path / "cache" / "ductile" / "envs") in again.out
    assert main(["plugin", "test", directory]) == 0


def test_plugin_that_names_its_own_virtual_environment_keeps_it(
    cli: CliRunner, write: Write, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", own], check=True)
    program = write().with_name("run.py")
    text = program.read_text().replace(
        "#!/usr/bin/env -S uv run --quiet --script", f"#!{own}/bin/python"
    )
    program.write_text(text.replace("import tiny", "").replace("tiny.VERSION", "1"))
    assert cli("plugin", "run", "mailer").code == 0
    assert "no plugin has dependencies" in cli("plugin", "sync").out


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
def test_uv_builds_the_same_environment(
    cli: CliRunner, write: Write, wheels: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = write()
    cli("plugin", "sync", "--wheelhouse", str(wheels))
    text = lock.read_text()
    for environment in environments(cli):
        shutil.rmtree(environment)
    monkeypatch.setattr(installers, "find_uv", lambda: shutil.which("uv"))
    done = cli("plugin", "sync", "--wheelhouse", str(wheels), "--upgrade")
    assert "with uv" in done.err
    assert lock.read_text() == text
    assert cli("plugin", "run", "mailer").code == 0
    assert len(environments(cli)) == 1


NOBODY = 65534


class NotingInstaller:
    """Notes the user that each step has, and that of a program that it runs."""

    name = "noting"

    def __init__(self) -> None:
        self.users: list[int] = []
        self.programs: list[str] = []

    def _note(self, report: Callable[[str], None] = lambda line: None) -> None:
        self.users.append(os.geteuid())
        with TemporaryDirectory() as directory:
            said = Path(directory) / "said"
            # A program could become root again if only its effective user were another one.
            words = ["/bin/sh", "-c", f"id -u > {said}; id -ru >> {said}; id -G >> {said}"]
            installers.run_installer("sh", words, report)
            self.programs += said.read_text().split()

    def resolve(self, requirements: Sequence[str], python: PythonBuild) -> list[LockedPackage]:
        self._note()
        return []

    def create(self, environment: Path, python: PythonBuild) -> None:
        self._note()
        environment.mkdir()

    def install(self, environment: Path, packages: Sequence[LockedPackage]) -> None:
        raise AssertionError("there are no packages")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
def test_root_runs_programs_with_the_rights_of_the_owner_of_the_state(
    cli: CliRunner, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner can replace the Python of an environment while packages are installed."""
    lock, noting = write(), NotingInstaller()
    monkeypatch.setattr(installers, "choose_installer", lambda wheelhouse, report: noting)
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        state = Path(name) / "state"
        state.mkdir(0o700)
        os.chown(state, NOBODY, NOBODY)
        cli.write("config.yaml", f"{CONFIG}state: {{path: {state}/state.db}}\n")
        done = cli("plugin", "sync", "--json")
        assert done.code == 0, (done.err, done.out)
        assert noting.users == [NOBODY] * 2
        assert noting.programs == [str(NOBODY)] * 6
        [environment] = [path for path in (state / "envs").iterdir() if path.is_dir()]
        assert {p.lstat().st_uid for p in (environment, *environment.rglob("*"))} == {NOBODY}
    assert lock.stat().st_uid == 0
    assert (os.geteuid(), os.getegid()) == (0, 0)
