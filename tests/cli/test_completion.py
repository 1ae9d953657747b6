"""Shell completion: the scripts, and the names that they offer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ductile.cli import main
from tests.cli.running import House, run
from tests.cli.test_tree import HEAVY
from tests.waiting import WAIT_LIMIT

BIN = Path(sys.executable).parent
CONFIG = """\
plugin_roots: [./plugins]
plugins:
  hello: {schedules: [{id: hourly, every: 1h}, {id: nightly, cron: "0 3 * * *"}]}
pipelines:
  - {name: greet, on: a, steps: [{uses: hello}]}
  - {name: grow, on: b, steps: [{uses: hello}]}
"""


def offered(house: House, *line: str, program: str = "ductile") -> list[str]:
    """What a Tab at the end of the line offers, as the scripts ask for it."""
    words = " ".join([program, *line])
    env = {
        **os.environ,
        "DUCTILE_CONFIG_DIR": str(house.root),
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(line)),
        f"_{program.upper().replace('-', '_')}_COMPLETE": "bash_complete",
    }
    done = subprocess.run(
        [BIN / program], capture_output=True, text=True, env=env, timeout=WAIT_LIMIT, check=False
    )
    assert done.stderr == ""
    return [item.partition(",")[2] for item in done.stdout.split()]


@pytest.fixture
def named(house: House) -> House:
    house.write("config.yaml", CONFIG)
    return house


class TestNames:
    @pytest.mark.parametrize(
        ("line", "names"),
        [
            (("plugin", "run", ""), ["bad", "hello"]),
            (("plugin", "test", "he"), ["hello"]),
            (("run", ""), ["bad", "hello"]),
            (("logs", "b"), ["bad"]),
            (("system", "breaker", "h"), ["hello"]),
            (("pipeline", "run", "gr"), ["greet", "grow"]),
            (("pipeline", "show", "gre"), ["greet"]),
            (("schedule", "pause", ""), ["hello/hourly", "hello/nightly"]),
            (("config", "get", "plugins."), ["plugins.hello"]),
            (("config", "set", "plugins.hello.re"), ["plugins.hello.retry"]),
            (("config", "show", "plug"), ["plugin_roots", "plugins", "plugin:"]),
            (("job", "list", "--status", "s"), ["succeeded", "skipped"]),
            (("plugin", "new", "x", "--lang", ""), ["python", "sh", "node"]),
            (("plugin", "va"), ["validate"]),
            (("pl",), ["plugin", "plugins"]),
        ],
    )
    def test_what_a_tab_offers(self, named: House, line: tuple[str, ...], names: list[str]) -> None:
        found = offered(named, *line)
        assert [name for name in found if not name.startswith("plugins_")] == names

    def test_the_config_that_the_line_names(self, named: House) -> None:
        other = named.root / "other"
        named.write("other/config.yaml", "plugins: {elsewhere: {enabled: false}}\n")
        assert offered(named, "plugin", "run", "--config", str(other), "") == ["elsewhere"]

    @pytest.mark.parametrize("text", ["plugins: [", "servce: {}", ""])
    def test_a_wrong_configuration_offers_nothing(self, named: House, text: str) -> None:
        named.write("config.yaml", text)
        (named.root / "plugins").rename(named.root / "gone")
        assert offered(named, "plugin", "run", "") == []

    def test_by_the_old_name(self, named: House) -> None:
        assert offered(named, "re", program="senechal-gw") == ["reload", "reset"]

    def test_a_tab_on_the_first_word_loads_no_command(self, named: House) -> None:
        probe = (
            "import os, sys; sys.argv[0] = 'ductile'; from ductile.cli import main; main([]);"
            f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
        )
        env = {"COMP_WORDS": "ductile s", "COMP_CWORD": "1", "_DUCTILE_COMPLETE": "bash_complete"}
        done = run(command=("-c", probe), env=env)
        assert "system" in done.stdout
        assert done.stderr.strip() == "[]"


class TestScripts:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_each_shell_has_one(self, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["completion", shell]) == 0
        assert f"_COMPLETE={shell}_complete" in capsys.readouterr().out

    def test_another_shell(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["completion", "tcsh"]) == 2

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_it_is_good_syntax(self, shell: str) -> None:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        script = subprocess.run(
            [BIN / "ductile", "completion", shell], capture_output=True, check=True
        ).stdout
        subprocess.run([shell, "-n"], input=script, check=True)

    @pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
    def test_bash_completes_with_it(self, named: House) -> None:
        script = f"""
            PATH={BIN}:$PATH
            eval "$(ductile completion bash)"
            COMP_WORDS=(ductile plugin run he)
            COMP_CWORD=3
            _ductile_completion ductile he run
            echo "${{COMPREPLY[@]}}"
        """
        done = subprocess.run(
            ["bash", "--norc", "-c", script],
            capture_output=True,
            text=True,
            env={**os.environ, "DUCTILE_CONFIG_DIR": str(named.root)},
            check=True,
        )
        assert done.stdout == "hello\n"
