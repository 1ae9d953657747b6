"""`plugin new`: a plugin that works as it is made."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from ductile.cli import main
from ductile.cli.commands.plugin_dev import LANGUAGES
from tests.cli.running import House

OWN_TEST = {
    "python": (sys.executable, "test_run.py"),
    "sh": ("sh", "test.sh"),
    "node": ("node", "--test"),
}
languages = pytest.mark.parametrize(
    "lang",
    [
        pytest.param(
            lang,
            marks=pytest.mark.skipif(
                lang == "node" and shutil.which("node") is None, reason="node is not installed"
            ),
        )
        for lang in LANGUAGES.choices
    ],
)


def test_every_language_that_there_are_templates_for_is_offered() -> None:
    assert {entry.name for entry in (files("ductile") / "scaffold").iterdir()} == {
        *LANGUAGES.choices
    }


def made(house: House, lang: str, name: str = "greeter") -> Path:
    done = house("plugin", "new", name, "--lang", lang, "--json")
    assert done.code == 0, done.err
    return Path(done.json["directory"])


@languages
class TestWorks:
    def test_its_own_test_passes_by_the_languages_own_means(self, house: House, lang: str) -> None:
        done = subprocess.run(
            OWN_TEST[lang],
            cwd=made(house, lang),
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.environ["PATH"], "HOME": str(house.root)},
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def test_its_own_test_can_fail(self, house: House, lang: str) -> None:
        directory = made(house, lang)
        (program,) = (p for p in directory.glob("run.*") if ".test." not in p.name)
        program.write_text(program.read_text().replace("+ 1", "+ 2"))
        done = subprocess.run(OWN_TEST[lang], cwd=directory, capture_output=True, check=False)
        assert done.returncode != 0

    def test_it_is_sound_and_answers_every_command(self, house: House, lang: str) -> None:
        directory = str(made(house, lang))
        assert house("plugin", "validate", directory, "--json").json["plugins"][0]["problems"] == []
        for command in ("poll", "handle", "health"):
            done = house("plugin", "test", "greeter", "--command", command, "--json")
            assert (done.code, done.json["advice"]) == (0, []), done.out

    def test_it_runs_in_a_gateway_and_remembers(self, house: House, lang: str) -> None:
        made(house, lang)
        assert house("plugin", "run", "greeter", "--json").json["status"] == "succeeded"
        second = house("plugin", "run", "greeter", "--json").json
        assert second["result"]["result"] == "counted to 2"
        handle = ("--command", "handle", "--payload", '{"name": "Ada \\"x\\" \\\\ é"}')
        answer = house("plugin", "run", "greeter", *handle, "--json").json["result"]
        assert answer["result"] == 'Hello, Ada "x" \\ é!'

    def test_the_commands_of_its_readme_work(self, house: House, lang: str) -> None:
        directory = made(house, lang)
        block = (directory / "README.md").read_text().split("```")[1]
        bin_dir = Path(sys.executable).parent
        done = subprocess.run(
            ["sh", "-ex"],
            input=block,
            cwd=directory,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Good day, Ada!" in done.stdout


class TestWhere:
    def test_in_the_first_plugin_root(self, house: House) -> None:
        assert made(house, "sh") == house.root / "plugins/greeter"
        assert stat.S_IMODE((house.root / "plugins/greeter").stat().st_mode) == 0o700
        assert stat.S_IMODE((house.root / "plugins/greeter/run.sh").stat().st_mode) == 0o700
        assert stat.S_IMODE((house.root / "plugins/greeter/manifest.yaml").stat().st_mode) == 0o600

    def test_in_a_directory_without_any_configuration(
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

    def test_a_dry_run_writes_nothing(self, house: House) -> None:
        done = house("plugin", "new", "greeter", "--dry-run", "--json")
        assert done.code == 0
        assert str(house.root / "plugins/greeter/run.py") in done.json["files"]
        assert not (house.root / "plugins/greeter").exists()

    def test_nothing_is_left_beside_it(self, house: House) -> None:
        made(house, "python")
        assert sorted(os.listdir(house.root / "plugins")) == ["bad", "greeter", "hello"]


class TestRefused:
    @pytest.mark.parametrize("dry", [(), ("--dry-run",)])
    def test_nothing_is_overwritten(self, house: House, dry: tuple[str, ...]) -> None:
        (house.root / "plugins/greeter").mkdir()
        done = house("plugin", "new", "greeter", "--json", *dry)
        assert (done.code, done.json["code"]) == (1, "refused")
        assert list((house.root / "plugins/greeter").iterdir()) == []

    def test_a_name_that_another_root_has(self, house: House) -> None:
        done = house("plugin", "new", "hello")
        assert done.code == 1
        assert f"in {house.root}/plugins/hello" in done.err

    @pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "core.x", "", "a b", "x" * 200])
    def test_a_name_that_no_plugin_can_have(self, house: House, name: str) -> None:
        done = house("plugin", "new", name, "--json")
        assert (done.code, done.json["code"]) == (2, "usage")

    def test_a_language_that_we_have_not(self, house: House) -> None:
        done = house("plugin", "new", "x", "--lang", "cobol")
        assert done.code == 2
        assert "python" in done.err

    def test_a_root_that_takes_no_directory(self, house: House) -> None:
        house.write("file", "")
        done = house("plugin", "new", "x", "--root", str(house.root / "file"))
        assert done.code == 2

    @pytest.mark.parametrize("name", ["true", "1.10", "0x1f", "null", "a.b-c_d"])
    def test_a_name_that_yaml_might_take_for_something_else(self, house: House, name: str) -> None:
        made(house, "sh", name)
        assert house("plugin", "test", name).code == 0


def test_the_templates_are_packed(tmp_path: Path) -> None:
    project = Path(__file__).parents[3].resolve()
    (wheel,) = WheelBuilder(str(project)).build(directory=str(tmp_path), versions=["standard"])
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = project / "src/ductile/scaffold"
    wanted = {f"ductile/scaffold/{path.relative_to(sources)}" for path in sources.glob("*/*.in")}
    assert len(wanted) == 15
    assert wanted <= names
