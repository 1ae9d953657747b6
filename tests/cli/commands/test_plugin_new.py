"""`ductile plugin new`: the created plugin works."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
import venv
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from ductile.cli import main
from ductile.cli.commands.plugin.authoring import LANGUAGES
from tests.cli.runner import CliRunner
from tests.wheels import write_wheel

OWN_TEST = {
    "python": (sys.executable, "test_run.py"),
    "sh": ("sh", "test.sh"),
    "node": ("node", "--test"),
}
PARAMS = {
    lang: pytest.param(
        lang,
        marks=pytest.mark.skipif(
            lang == "node" and shutil.which("node") is None, reason="node is not installed"
        ),
    )
    for lang in LANGUAGES.choices
}
languages = pytest.mark.parametrize("lang", PARAMS.values())


def test_every_template_language_is_offered() -> None:
    assert {entry.name for entry in (files("ductile") / "scaffold").iterdir()} == {
        *LANGUAGES.choices
    }


def create(cli: CliRunner, lang: str, name: str = "greeter") -> Path:
    done = cli("plugin", "new", name, "--lang", lang, "--json")
    assert done.code == 0, done.err
    return Path(done.json["directory"])


@pytest.mark.parametrize("has_ductile", [True, False])
def test_the_generated_test_uses_the_python_of_the_first_line(
    cli: CliRunner, has_ductile: bool
) -> None:
    directory = create(cli, "python")
    venv.create(directory / ".venv")
    [packages] = (directory / ".venv").glob("lib/python*/site-packages")
    (packages / "only_here.py").touch()
    program = directory / "run.py"
    first, rest = program.read_text().split("\n", 1)
    assert first.startswith("#!")
    rest = rest.replace("import json\n", "import json\nimport only_here\n", 1)
    program.write_text(f"#!{directory}/.venv/bin/python\n{rest}")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}" if has_ductile else "/usr/bin"
    subprocess.run(
        [sys.executable, "test_run.py"], cwd=directory, env={**os.environ, "PATH": path}, check=True
    )


@languages
class TestCreatedPlugin:
    def test_the_generated_tests_can_fail(self, cli: CliRunner, lang: str) -> None:
        directory = create(cli, lang)
        (program,) = (p for p in directory.glob("run.*") if ".test." not in p.name)
        program.write_text(program.read_text().replace("+ 1", "+ 2"))
        done = subprocess.run(OWN_TEST[lang], cwd=directory, capture_output=True, check=False)
        assert done.returncode != 0

    def test_the_plugin_is_valid_and_handles_every_command(self, cli: CliRunner, lang: str) -> None:
        directory = str(create(cli, lang))
        assert cli("plugin", "validate", directory, "--json").json["plugins"][0]["problems"] == []
        for command in ("poll", "handle", "health"):
            done = cli("plugin", "test", "greeter", "--command", command, "--json")
            assert (done.code, done.json["advice"]) == (0, []), done.out
        sandbox = cli("plugin", "show", "greeter", "--json").json["sandbox"]
        assert (sandbox["level"], sandbox["network"]) == ("best_effort", "none")

    def test_the_plugin_keeps_its_state(self, cli: CliRunner, lang: str) -> None:
        create(cli, lang)
        assert cli("plugin", "run", "greeter", "--json").json["status"] == "succeeded"
        second = cli("plugin", "run", "greeter", "--json").json
        assert second["result"]["result"] == "counted to 2"
        handle = ("--command", "handle", "--payload", '{"name": "Ada \\"x\\" \\\\ é"}')
        answer = cli("plugin", "run", "greeter", *handle, "--json").json["result"]
        assert answer["result"] == 'Hello, Ada "x" \\ é!'

    def test_the_commands_in_the_readme_work(
        self, cli: CliRunner, lang: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        directory = create(cli, lang)
        monkeypatch.chdir(directory)
        tests, *commands = (directory / "README.md").read_text().split("```")[1].split("\n")[1:-1]
        bare = {"PATH": os.environ["PATH"], "HOME": str(cli.root)}
        done = subprocess.run(
            shlex.split(tests), capture_output=True, text=True, check=False, env=bare
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert len(commands) == 3
        for command in commands:
            program, *words = shlex.split(command)
            assert (program, main(words)) == ("ductile", 0)
        assert "Good day, Ada!" in cli.capsys.readouterr().out


@pytest.mark.parametrize("lang", [PARAMS["sh"], PARAMS["node"]])
def test_the_generated_tests_run_the_plugin_by_its_first_line(cli: CliRunner, lang: str) -> None:
    directory = create(cli, lang)
    (program,) = (p for p in directory.glob("run.*") if ".test." not in p.name)
    first, rest = program.read_text().split("\n", 1)
    script = f'#!/bin/sh\ntouch "$0.used"\nexec {first[2:]} "$@"\n'
    own = cli.write("own/interpreter", script, 0o700)
    program.write_text(f"#!{own}\n{rest}")
    done = subprocess.run(OWN_TEST[lang], cwd=directory, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert own.with_name("interpreter.used").exists()


def test_generated_tests_run_a_python_plugin_in_its_own_environment(
    cli: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = create(cli, "python")
    program = directory / "run.py"
    text = program.read_text().replace("dependencies = []", 'dependencies = ["tiny"]')
    program.write_text(text.replace("import json\n", "import json\nimport tiny\n"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    programs = Path(sys.executable).parent
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    write_wheel(tmp_path / "wheels", "tiny", "1.0")
    wheels = ("--wheelhouse", str(tmp_path / "wheels"))
    assert main(["plugin", "sync", str(directory), *wheels]) == 0
    done = subprocess.run(OWN_TEST["python"], cwd=directory, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    program.write_text(program.read_text().replace("import tiny\n", "import missing\n"))
    done = subprocess.run(OWN_TEST["python"], cwd=directory, capture_output=True, check=False)
    assert done.returncode != 0


class TestDirectory:
    def test_new_writes_to_the_first_plugin_root(self, cli: CliRunner) -> None:
        assert create(cli, "sh") == cli.root / "plugins/greeter"
        assert stat.S_IMODE((cli.root / "plugins/greeter").stat().st_mode) == 0o700
        assert stat.S_IMODE((cli.root / "plugins/greeter/run.sh").stat().st_mode) == 0o700
        assert stat.S_IMODE((cli.root / "plugins/greeter/manifest.yaml").stat().st_mode) == 0o600

    def test_new_with_root_needs_no_configuration(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("DUCTILE_CONFIG_DIR", raising=False)
        monkeypatch.chdir(tmp_path)
        assert main(["plugin", "new", "x", "--root", "deep/plugins", "--lang", "sh"]) == 0
        assert "next: ductile plugin test ./deep/plugins/x" in capsys.readouterr().out
        assert main(["plugin", "test", "./deep/plugins/x"]) == 0
        assert main(["plugin", "new", "y"]) == 78

    def test_new_dry_run_writes_nothing(self, cli: CliRunner) -> None:
        done = cli("plugin", "new", "greeter", "--dry-run", "--json")
        assert done.code == 0
        assert str(cli.root / "plugins/greeter/run.py") in done.json["files"]
        assert not (cli.root / "plugins/greeter").exists()

    def test_new_leaves_no_temporary_files(self, cli: CliRunner) -> None:
        create(cli, "python")
        assert sorted(os.listdir(cli.root / "plugins")) == ["bad", "greeter", "hello"]


class TestRefusals:
    @pytest.mark.parametrize("dry", [(), ("--dry-run",)])
    def test_new_overwrites_nothing(self, cli: CliRunner, dry: tuple[str, ...]) -> None:
        (cli.root / "plugins/greeter").mkdir()
        done = cli("plugin", "new", "greeter", "--json", *dry)
        assert (done.code, done.json["code"]) == (1, "refused")
        assert list((cli.root / "plugins/greeter").iterdir()) == []

    def test_new_refuses_the_name_of_an_existing_plugin(self, cli: CliRunner) -> None:
        done = cli("plugin", "new", "hello")
        assert done.code == 1
        assert f"in {cli.root}/plugins/hello" in done.err

    @pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "core.x", "", "a b", "x" * 200])
    def test_new_rejects_an_invalid_name(self, cli: CliRunner, name: str) -> None:
        done = cli("plugin", "new", name, "--json")
        assert (done.code, done.json["code"]) == (2, "usage")

    def test_new_rejects_an_unknown_language(self, cli: CliRunner) -> None:
        done = cli("plugin", "new", "x", "--lang", "cobol")
        assert done.code == 2
        assert "python" in done.err

    @pytest.mark.parametrize(
        ("lang", "meant"), [("bash", "sh"), ("Shell", "sh"), ("js", "node"), ("pyhton", "python")]
    )
    def test_new_suggests_the_language_that_was_meant(
        self, cli: CliRunner, lang: str, meant: str
    ) -> None:
        assert f"did you mean '{meant}'?" in cli("plugin", "new", "x", "--lang", lang).err

    def test_new_rejects_a_root_that_is_a_file(self, cli: CliRunner) -> None:
        cli.write("file", "")
        done = cli("plugin", "new", "x", "--root", str(cli.root / "file"))
        assert done.code == 2

    @pytest.mark.parametrize("name", ["true", "1.10", "0x1f", "null", "a.b-c_d"])
    def test_names_that_look_like_other_yaml_types_work(self, cli: CliRunner, name: str) -> None:
        create(cli, "sh", name)
        assert cli("plugin", "test", name).code == 0


def test_the_wheel_contains_the_templates(tmp_path: Path) -> None:
    project = Path(__file__).parents[3].resolve()
    (wheel,) = WheelBuilder(str(project)).build(directory=str(tmp_path), versions=["standard"])
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = project / "src/ductile/scaffold"
    wanted = {f"ductile/scaffold/{path.relative_to(sources)}" for path in sources.glob("*/*.in")}
    assert len(wanted) == 15
    assert wanted <= names
