"""`ductile plugin install` and `plugin update`, from directories and git repositories."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ductile.cli.commands.plugin import install
from ductile.operations.plugins import fetch
from tests.cli.runner import CliRunner

MANIFEST = """\
manifest_spec: ductile.plugin
manifest_version: 1
name: greeter
version: {version}
protocol: 2
entrypoint: run.sh
description: Greets
commands: {{poll: {{type: read}}}}
config_keys: {{optional: [greeting]}}
"""
PROGRAM = '#!/bin/sh\ncat > /dev/null\nprintf \'{"status": "ok", "result": "%s"}\' VERSION\n'

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def write_source(directory: Path, version: str = "1.0.0") -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "manifest.yaml").write_text(MANIFEST.format(version=version))
    (directory / "run.sh").write_text(PROGRAM.replace("VERSION", version))
    (directory / "run.sh").chmod(0o755)
    return directory


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_source(tmp_path / "source")


@pytest.fixture
def gate(cli: CliRunner) -> CliRunner:
    cli.write("config.yaml", "plugin_roots: [./plugins]\n")
    cli.write("plugins/.keep", "")
    return cli


def target(gate: CliRunner) -> Path:
    return gate.root / "plugins/greeter"


def leftovers(gate: CliRunner) -> list[str]:
    return [path.name for path in (gate.root / "plugins").iterdir() if "install" in path.name]


def git(directory: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    done = subprocess.run(
        ["git", *identity, "-C", str(directory), *words], capture_output=True, check=True, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(source: Path) -> Path:
    git(source, "init", "--quiet", "--initial-branch", "main")
    git(source, "add", ".")
    git(source, "commit", "--quiet", "-m", "one")
    git(source, "tag", "v1")
    write_source(source, "2.0.0")
    git(source, "commit", "--quiet", "-a", "-m", "two")
    return source


def test_a_directory_is_installed_and_runs(gate: CliRunner, source: Path) -> None:
    (source / "data").mkdir()
    (source / "data/words.txt").write_text("hello")
    (source / "alias.txt").symlink_to("data/words.txt")
    (source / "__pycache__").mkdir()
    (source / "__pycache__/x.pyc").write_text("")
    planned = gate("plugin", "install", str(source), "--dry-run")
    assert planned.code == 0, planned.err
    for shown in ("greeter 1.0.0", "Greets", "command: poll (read)", "would be installed"):
        assert shown in planned.out
    assert not target(gate).exists()
    done = gate("plugin", "install", str(source), "--yes", "--json")
    assert done.code == 0, done.err
    assert done.json["commands"] == {"poll": "read"}
    assert gate("plugin", "run", "greeter", "--json").json["result"]["result"] == "1.0.0"
    assert (target(gate) / "alias.txt").read_text() == "hello"
    assert not (target(gate) / "__pycache__").exists()
    assert leftovers(gate) == []


def test_without_a_terminal_yes_is_required(gate: CliRunner, source: Path) -> None:
    done = gate.process("plugin", "install", str(source))
    assert done.code == 2
    assert "--yes" in done.err
    assert not target(gate).exists()
    assert leftovers(gate) == []


def test_an_existing_plugin_is_not_overwritten(gate: CliRunner, source: Path) -> None:
    assert gate("plugin", "install", str(source), "--yes").code == 0
    again = gate("plugin", "install", str(source), "--yes")
    assert again.code == 1
    assert "ductile plugin update greeter" in again.err


@pytest.mark.parametrize("to", ["/etc/passwd", "../outside", "data/../../outside"])
def test_a_link_out_of_the_plugin_is_refused(gate: CliRunner, source: Path, to: str) -> None:
    (source / "data").mkdir()
    (source / "link").symlink_to(to)
    done = gate("plugin", "install", str(source), "--yes")
    assert done.code == 1
    assert "outside of the plugin" in done.err
    assert not target(gate).exists()
    assert leftovers(gate) == []


def test_a_link_to_another_part_of_the_source_is_refused(gate: CliRunner, tmp_path: Path) -> None:
    many = tmp_path / "many"
    (write_source(many / "greeter") / "words.txt").symlink_to("../words.txt")
    (many / "words.txt").write_text("hello")
    done = gate("plugin", "install", str(many), "--path", "greeter", "--yes")
    assert done.code == 1
    assert "outside of the plugin" in done.err
    assert not target(gate).exists()
    assert leftovers(gate) == []


def test_special_files_are_refused(gate: CliRunner, source: Path) -> None:
    os.mkfifo(source / "pipe")
    done = gate("plugin", "install", str(source), "--yes")
    assert "not a regular file" in done.err
    assert leftovers(gate) == []


def test_size_and_number_of_files_are_limited(
    gate: CliRunner, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "large").write_bytes(b"x" * 2000)
    monkeypatch.setattr(fetch, "MAX_SIZE", 1500)
    assert "larger than the limit" in gate("plugin", "install", str(source), "--yes").err
    monkeypatch.undo()
    monkeypatch.setattr(fetch, "MAX_FILES", 2)
    assert "more than 2 files" in gate("plugin", "install", str(source), "--yes").err
    assert leftovers(gate) == []


def test_an_invalid_plugin_is_refused_with_its_problems(gate: CliRunner, source: Path) -> None:
    (source / "manifest.yaml").write_text("name: ../greeter\nprotocol: 9\n")
    done = gate("plugin", "install", str(source), "--yes")
    assert done.code == 1
    assert "manifest.yaml:1:7: name: is not a valid name; found '../greeter'" in done.err
    assert "entrypoint" in done.err
    assert not target(gate).exists()


def test_a_plugin_in_a_subdirectory_is_found_or_named(gate: CliRunner, tmp_path: Path) -> None:
    many = tmp_path / "many"
    write_source(many / "plugins/greeter")
    assert gate("plugin", "install", str(many), "--dry-run").code == 0
    write_source(many / "plugins/other")
    several = gate("plugin", "install", str(many), "--yes")
    assert "plugins/greeter, plugins/other" in several.err
    missing = gate("plugin", "install", str(many), "--path", "../source", "--yes")
    assert "no plugin in" in missing.err
    named = gate("plugin", "install", str(many), "--path", "plugins/greeter", "--yes")
    assert named.code == 0, named.err


@pytest.mark.parametrize(
    ("address", "word"),
    [
        ("http://example.com/x.git", "not allowed"),
        ("git://example.com/x.git", "not allowed"),
        ("ext::sh -c touch% /tmp/x", "neither a directory"),
        ("https://me:secret@example.com/x.git", "password"),
        ("--upload-pack=touch", "no such option"),
        ("/no/such/directory", "neither a directory"),
        ("https://example.com/x.git@--option", "not a valid revision"),
    ],
)
def test_unsafe_sources_are_refused(gate: CliRunner, address: str, word: str) -> None:
    done = gate("plugin", "install", address, "--yes")
    assert done.code == 2
    assert word in done.err


def test_the_revision_is_separated_from_the_address() -> None:
    def parsed(text: str) -> tuple[str, str | None]:
        source = fetch.parse_source(text)
        return source.location, source.revision

    assert parsed("https://h/a/b.git@v1.2") == ("https://h/a/b.git", "v1.2")
    assert parsed("https://h/a/b.git") == ("https://h/a/b.git", None)
    assert parsed("git@h:a/b.git@v1") == ("git@h:a/b.git", "v1")
    assert parsed("git@h:b.git") == ("git@h:b.git", None)
    assert parsed("ssh://git@h/a/b") == ("ssh://git@h/a/b", None)


@needs_git
class TestGit:
    def test_a_revision_is_installed_and_updated(self, gate: CliRunner, repository: Path) -> None:
        done = gate("plugin", "install", f"{repository}@v1", "--yes", "--json")
        assert done.code == 0, done.err
        assert done.json["commit"] == git(repository, "rev-parse", "v1")
        assert not (target(gate) / ".git").exists()
        assert "up to date" in gate("plugin", "update", "greeter", "--yes").out
        planned = gate("plugin", "update", "greeter", "--rev", "main", "--dry-run")
        assert "changed: run.sh" in planned.out
        updated = gate("plugin", "update", "greeter", "--rev", "main", "--yes", "--json")
        assert updated.json["changes"] == {"manifest.yaml": "changed", "run.sh": "changed"}
        assert gate("plugin", "run", "greeter", "--json").json["result"]["result"] == "2.0.0"
        assert leftovers(gate) == []

    def test_hooks_and_filters_of_a_repository_are_not_run(
        self, gate: CliRunner, repository: Path, tmp_path: Path
    ) -> None:
        trace = tmp_path / "trace"
        (repository / ".gitattributes").write_text("* filter=evil\n")
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", "-m", "three")
        git(repository, "config", "filter.evil.smudge", f"touch {trace}")
        hook = repository / ".git/hooks/post-checkout"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {trace}\n")
        hook.chmod(0o755)
        done = gate("plugin", "install", f"{repository}@main", "--yes")
        assert done.code == 0, done.err
        assert not trace.exists()

    def test_an_unknown_revision_is_reported(self, gate: CliRunner, repository: Path) -> None:
        done = gate("plugin", "install", f"{repository}@v9", "--yes")
        assert done.code == 1
        assert "v9" in done.err
        assert leftovers(gate) == []


def test_local_changes_are_overwritten_only_with_force(gate: CliRunner, source: Path) -> None:
    gate("plugin", "install", str(source), "--yes")
    program = target(gate) / "run.sh"
    program.write_text(program.read_text() + "# mine\n")
    refused = gate("plugin", "update", "greeter", "--yes")
    assert refused.code == 1
    assert "run.sh" in refused.err
    assert gate("plugin", "update", "greeter", "--yes", "--force").code == 0
    assert "# mine" not in program.read_text()


def test_an_update_keeps_the_lock_of_the_plugin(gate: CliRunner, source: Path) -> None:
    gate("plugin", "install", str(source), "--yes")
    (target(gate) / "run.sh.lock").write_text("locked")
    write_source(source, "2.0.0")
    done = gate("plugin", "update", "greeter", "--yes")
    assert done.code == 0, done.err
    assert (target(gate) / "run.sh.lock").read_text() == "locked"


def test_a_plugin_of_unknown_source_is_not_updated(gate: CliRunner) -> None:
    write_source(target(gate))
    assert "its source is not known" in gate("plugin", "update", "greeter", "--yes").err


def test_an_installed_plugin_is_sealed_where_plugins_are_sealed(
    gate: CliRunner, source: Path
) -> None:
    gate.plugin("other", "exit 0")
    gate.write("config.yaml", "plugin_roots: [./plugins]\nservice: {strict_mode: true}\n")
    assert gate("config", "lock").code == 0
    installed = gate("plugin", "install", str(source), "--yes", "--json")
    assert installed.json["sealed"] is True
    assert gate("plugin", "run", "greeter").code == 0
    write_source(source, "2.0.0")
    updated = gate("plugin", "update", "greeter", "--yes", "--json")
    assert updated.json["sealed"] is True
    assert gate("plugin", "run", "greeter").code == 0
    gate.plugin("other", "exit 1")
    write_source(source, "3.0.0")
    gate("plugin", "update", "greeter", "--yes")
    assert "has changed since it was sealed" in gate("plugin", "show", "other").out


NOBODY = 65534
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")


@pytest.fixture
def shared(gate: CliRunner, source: Path) -> Iterator[Path]:
    """A plugin root of another user, and a source that this user can read."""
    with TemporaryDirectory() as name:
        top = Path(name)
        top.chmod(0o755)
        (top / "plugins").mkdir(0o700)
        os.chown(top / "plugins", NOBODY, NOBODY)
        shutil.copytree(source, top / "source")
        (top / "source").chmod(0o755)
        gate.write("config.yaml", f"plugin_roots: [{top}/plugins]\n")
        yield top


@only_root
def test_root_installs_with_the_rights_of_the_owner(gate: CliRunner, shared: Path) -> None:
    done = gate("plugin", "install", str(shared / "source"), "--yes")
    assert done.code == 0, done.err
    assert {p.lstat().st_uid for p in (shared / "plugins").rglob("*")} == {NOBODY}
    assert (os.geteuid(), os.getegid()) == (0, 0)
    write_source(shared / "source", "2.0.0")
    assert gate("plugin", "update", "greeter", "--yes").code == 0
    assert "2.0.0" in (shared / "plugins/greeter/run.sh").read_text()


@only_root
def test_replaced_staging_directory_gives_no_access_to_files_of_root(
    gate: CliRunner, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(0o700)

    def swap(context: object, document: object, question: str, *, yes: bool) -> None:
        [staging] = (shared / "plugins").glob(".install-*")
        (staging / "greeter").rename(staging / "aside")
        (staging / "greeter").symlink_to(victim)

    monkeypatch.setattr(install, "_confirm", swap)
    done = gate("plugin", "install", str(shared / "source"), "--yes")
    assert done.code == 1
    assert "Permission denied" in done.err
    assert victim.stat().st_uid == 0
    assert victim.stat().st_mode & 0o777 == 0o700
    assert list(victim.iterdir()) == []
    assert os.geteuid() == 0


@only_root
def test_update_as_root_does_not_read_what_the_owner_may_not(
    gate: CliRunner, shared: Path, source: Path
) -> None:
    """The record that names the source belongs to the owner."""
    assert gate("plugin", "install", str(shared / "source"), "--yes").code == 0
    record = shared / "plugins/greeter/.ductile-source.json"
    write_source(source, "3.0.0").chmod(0o700)
    record.write_text(record.read_text().replace(str(shared / "source"), str(source)))
    done = gate("plugin", "update", "greeter", "--yes")
    assert done.code == 1
    assert "Permission denied" in done.err


@only_root
@needs_git
def test_git_runs_as_the_owner(gate: CliRunner, shared: Path) -> None:
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "one")):
        git(shared / "source", *words)
    for path in (shared / "source", *(shared / "source").rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    done = gate("plugin", "install", (shared / "source").as_uri(), "--yes")
    assert done.code == 0, done.err
