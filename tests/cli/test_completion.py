"""Shell completion: the scripts and the completed names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from ductile.cli import main
from ductile.cli.main import root
from tests.cli.runner import CliRunner, run_process
from tests.cli.test_command_tree import HEAVY

BIN = Path(sys.executable).parent
CONFIG = """\
plugin_roots: [./plugins]
plugins:
  hello: {schedules: [{id: hourly, every: 1h}, {id: nightly, cron: "0 3 * * *"}]}
pipelines:
  - {name: greet, on: a, steps: [{uses: hello}]}
  - {name: grow, on: b, steps: [{uses: hello}]}
"""


def complete(cli: CliRunner, *line: str, program: str = "ductile") -> list[str]:
    """Return the completions of the last word, as the script for bash requests them."""
    *words, incomplete = line
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUCTILE_CONFIG_DIR", str(cli.root))
        found = BashComplete(root, {}, program, "_COMPLETE").get_completions(words, incomplete)
    return [item.value for item in found]


@pytest.fixture
def named(cli: CliRunner) -> CliRunner:
    cli.write("config.yaml", CONFIG)
    return cli


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
    def test_completion_of_names_and_values(
        self, named: CliRunner, line: tuple[str, ...], names: list[str]
    ) -> None:
        found = complete(named, *line)
        assert [name for name in found if not name.startswith("plugins_")] == names

    def test_completion_uses_the_config_option(self, named: CliRunner) -> None:
        other = named.root / "other"
        named.write("other/config.yaml", "plugins: {elsewhere: {enabled: false}}\n")
        assert complete(named, "plugin", "run", "--config", str(other), "") == ["elsewhere"]

    @pytest.mark.parametrize("text", ["plugins: [", "servce: {}", ""])
    def test_an_invalid_configuration_completes_nothing(self, named: CliRunner, text: str) -> None:
        named.write("config.yaml", text)
        (named.root / "plugins").rename(named.root / "gone")
        assert complete(named, "plugin", "run", "") == []

    def test_completion_of_senechal_gw(self, named: CliRunner) -> None:
        assert complete(named, "re", program="senechal-gw") == ["reload", "reset"]

    def test_completing_the_first_word_imports_no_command(self, named: CliRunner) -> None:
        probe = (
            "import os, sys; sys.argv[0] = 'ductile'; from ductile.cli import main; main([]);"
            f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
        )
        env = {"COMP_WORDS": "ductile s", "COMP_CWORD": "1", "_DUCTILE_COMPLETE": "bash_complete"}
        done = run_process(command=("-c", probe), env=env)
        assert "system" in done.stdout
        assert done.stderr.strip() == "[]"


class TestScripts:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_each_shell_has_a_script(self, shell: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["completion", shell]) == 0
        assert f"_COMPLETE={shell}_complete" in capsys.readouterr().out

    def test_an_unknown_shell_exits_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["completion", "tcsh"]) == 2

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_script_has_valid_syntax(self, shell: str) -> None:
        if shutil.which(shell) is None:
            pytest.skip(f"{shell} is not installed")
        script = subprocess.run(
            [BIN / "ductile", "completion", shell], capture_output=True, check=True
        ).stdout
        subprocess.run([shell, "-n"], input=script, check=True)

    @pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
    def test_bash_completes_with_the_script(self, named: CliRunner) -> None:
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
