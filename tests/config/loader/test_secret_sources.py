"""Secrets that are kept in files, systemd credentials and the output of commands."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ductile.config import Loaded, load, redact_settings
from ductile.config.loader import secret_sources
from ductile.config.loader.secret_sources import MAX_BYTES
from ductile.errors import ConfigError
from tests.config.conftest import ConfigDir, location, only
from tests.waiting import WAIT_LIMIT

SECRET = "9f3b77d1c0e24a5bb0c1"


def load_value(config_dir: ConfigDir, value: str, **env: str) -> Loaded:
    return config_dir.load(f"plugins: {{p: {{config: {{key: {value}}}}}}}\n", **env)


def value_of(loaded: Loaded) -> object:
    return loaded.settings.plugins["p"].config["key"]


def test_file_is_read_without_its_last_newline(config_dir: ConfigDir, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{SECRET}\n\n")
    loaded = load_value(config_dir, f"${{file:{tmp_path}/token}}")
    assert value_of(loaded) == f"{SECRET}\n"


def test_relative_path_starts_at_the_configuration(config_dir: ConfigDir) -> None:
    config_dir.write({"secrets/token": SECRET})
    assert value_of(load_value(config_dir, "${file:secrets/token}")) == SECRET


def test_path_may_start_at_the_home_directory(config_dir: ConfigDir, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    assert value_of(load_value(config_dir, "${file:~/token}", HOME=str(tmp_path))) == SECRET


def test_credential_is_read_from_the_directory_of_systemd(
    config_dir: ConfigDir, tmp_path: Path
) -> None:
    (tmp_path / "github").write_text(SECRET)
    loaded = load_value(config_dir, "${credential:github}", CREDENTIALS_DIRECTORY=str(tmp_path))
    assert value_of(loaded) == SECRET


def test_command_runs_without_a_shell(config_dir: ConfigDir) -> None:
    loaded = load_value(config_dir, "\"${command:printf '%s' 'a b; $HOME'}\"", PATH=os.defpath)
    assert value_of(loaded) == "a b; $HOME"


def test_command_that_is_used_twice_runs_once(config_dir: ConfigDir, tmp_path: Path) -> None:
    count = tmp_path / "count"
    source = f"${{command:sh -c 'echo x >> {count}; cat {count}'}}"
    text = f'plugins: {{p: {{config: {{a: "{source}", b: "{source}"}}}}}}\n'
    config_dir.load(text, PATH=os.defpath)
    assert count.read_text() == "x\n"


def test_command_leaves_nothing_behind(config_dir: ConfigDir, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held")
    end = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    try:
        source = f"${{command:sh -c 'exec 3> {tmp_path}/held; sleep 600 >&3 2>&3 & echo x'}}"
        assert value_of(load_value(config_dir, f'"{source}"', PATH=os.defpath)) == "x"
        with select.epoll() as poller:
            poller.register(end, select.EPOLLIN)
            # What it has started has the other end open, until it is killed.
            assert poller.poll(WAIT_LIMIT)
    finally:
        os.close(end)


HANGS = "sh -c 'exec 3> held; echo x >&3; setsid sleep 600 & exec sleep 600'"
"""Opens a pipe that stays open while it, or what it has started in another session, runs."""


def wait_for_the_end(pipe: int) -> None:
    """Wait until no process has the other end open."""
    with select.epoll() as poller:
        poller.register(pipe, 0)
        assert poller.poll(WAIT_LIMIT) == [(pipe, select.EPOLLHUP)]


@pytest.fixture
def held(config_dir: ConfigDir) -> Iterator[int]:
    os.mkfifo(config_dir.path / "held")
    end = os.open(config_dir.path / "held", os.O_RDONLY | os.O_NONBLOCK)
    yield end
    os.close(end)


def test_command_that_hangs_ends_with_all_that_it_has_started(
    config_dir: ConfigDir, held: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_sources, "COMMAND_TIMEOUT", 1.0)
    text = f'plugins: {{p: {{config: {{key: "${{command:{HANGS}}}"}}}}}}\n'
    assert "longer than" in only(config_dir.load_errors(text, PATH=os.defpath)).message
    assert os.read(held, 8) == b"x\n"
    wait_for_the_end(held)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_command_ends_with_its_caller(config_dir: ConfigDir, held: int, number: int) -> None:
    config_dir.write(f'plugins: {{p: {{config: {{key: "${{command:{HANGS}}}"}}}}}}\n')
    # A test run that is started with nohup ignores SIGHUP, and so do its children.
    program = (
        "import os, signal, sys; from pathlib import Path; from ductile.config import load; "
        "signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "load(Path(sys.argv[1]), environ=os.environ)"
    )
    caller = subprocess.Popen([sys.executable, "-c", program, str(config_dir.path)])
    with select.epoll() as poller:
        poller.register(held, select.EPOLLIN)
        assert poller.poll(WAIT_LIMIT)
    caller.send_signal(number)
    assert caller.wait(WAIT_LIMIT) == -number
    assert os.read(held, 8) == b"x\n"
    wait_for_the_end(held)


def test_secret_is_text_whatever_it_looks_like(config_dir: ConfigDir) -> None:
    config_dir.write({"token": "0123"})
    assert value_of(load_value(config_dir, "${file:token}")) == "0123"


def test_secret_may_be_a_part_of_a_value(config_dir: ConfigDir) -> None:
    config_dir.write({"token": SECRET})
    assert value_of(load_value(config_dir, "Bearer ${file:token} ${A}", A="b")) == (
        f"Bearer {SECRET} b"
    )


def test_secret_is_redacted_whatever_its_key(config_dir: ConfigDir) -> None:
    config_dir.write({"plain": SECRET})
    loaded = config_dir.load("service: {name: 'x ${file:plain}'}\n")
    assert SECRET in loaded.secrets
    assert SECRET not in str(redact_settings(loaded.settings))


@pytest.mark.parametrize("source", ["${file:absent:-d}", "${credential:absent:-d}"])
def test_default_replaces_what_does_not_exist(config_dir: ConfigDir, source: str) -> None:
    assert value_of(load_value(config_dir, source)) == "d"


def test_default_does_not_replace_what_cannot_be_read(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("plugins: {p: {config: {key: '${file:.:-d}'}}}\n"))
    assert "is not a regular file" in problem.message


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("${file:absent}", "there is no file"),
        ("${file:fifo}", "is not a regular file"),
        ("${file:large}", "more than 64 KiB"),
        ("${file:binary}", "is not UTF-8 text"),
        ("${file:nul}", "NUL"),
        ("${credential:github}", "LoadCredential=github:/path"),
        ("${credential:../x}", "letters, digits"),
        ("${command:false}", "exit code 1"),
        ("${command:sh -c 'echo first >&2; echo denied >&2; exit 3'}", "exit code 3: denied"),
        ("${command:sh -c 'kill -9 $$'}", "signal 9"),
        ("${command:no-such-program-here}", "cannot start no-such-program-here"),
        ("${command:yes}", "took longer than"),
        ("${command:sleep 600}", "took longer than"),
        ("${command:sh -c 'exec >&- 2>&-; sleep 600'}", "took longer than"),
        ("${command:printf 'a}", "cannot be split"),
    ],
)
def test_unavailable_secret_is_reported_with_its_place_and_reason(
    config_dir: ConfigDir, source: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secret_sources, "COMMAND_TIMEOUT", 1.0)
    config_dir.write({"large": "x" * (MAX_BYTES + 1), "nul": "a\0b"})
    (config_dir.path / "binary").write_bytes(b"\xff\xfe\xff")
    os.mkfifo(config_dir.path / "fifo")
    text = f'plugins:\n  p:\n    config:\n      key: "{source}"\n'
    problem = only(config_dir.load_errors(text, PATH=os.defpath))
    assert location(problem) == ("config.yaml", 4, 12)
    assert reason in problem.message
    assert "cannot read the secret ${" in problem.message


def test_secrets_are_not_read_by_commands_that_need_none(config_dir: ConfigDir) -> None:
    config_dir.write("plugins: {p: {config: {key: '${command:false}', file: '${file:absent}'}}}\n")
    loaded = load(config_dir.path, environ={}, secrets=False)
    assert loaded.settings.plugins["p"].config == {
        "key": "${command:false}",
        "file": "${file:absent}",
    }


def test_hash_does_not_depend_on_whether_secrets_were_read(config_dir: ConfigDir) -> None:
    config_dir.write(
        {
            "token": SECRET,
            "other": SECRET[::-1],
            "tokens.yaml": "tokens: [{name: hook, key: '${file:token}'}]\n",
            "config.yaml": "include: [tokens.yaml]\n"
            "webhooks: {endpoints: [{path: /a, plugin: p, secret_ref: hook, "
            "signature_header: X-S}]}\n"
            "plugins: {p: {config: {a: 'x ${file:other}'}}}\n",
        }
    )
    config_dir.lock()
    read = load(config_dir.path, environ={})
    assert read.settings.webhooks.endpoints[0].secret == SECRET
    assert read.config_hash == load(config_dir.path, environ={}, secrets=False).config_hash


def test_location_of_the_ledger_may_be_a_secret_file(config_dir: ConfigDir) -> None:
    url = "postgresql://ductile:9f3b77d1c0e2@localhost/ductile"
    config_dir.write({"url": url, "config.yaml": "state: {url: '${file:url}'}\n"})
    assert load(config_dir.path, environ={}, secrets=False).settings.state.url == url


def test_location_of_the_ledger_cannot_be_the_output_of_a_command(config_dir: ConfigDir) -> None:
    config_dir.write("state: {url: '${command:cat url}'}\n")
    with pytest.raises(ConfigError) as caught:
        load(config_dir.path, environ={}, secrets=False)
    assert "cannot be the output of one" in caught.value.problems[0].message


class TestAllowedSecrets:
    def test_references_that_are_not_listed_are_refused(self, config_dir: ConfigDir) -> None:
        text = (
            "plugins:\n"
            "  p:\n"
            "    secrets: [MINE, 'file:token']\n"
            "    config: {a: '${MINE}', b: '${file:token:-x}', c: '${OTHER:-}'}\n"
            "    env: {D: '${file:other:-}', E: '${HOME:-}'}\n"
        )
        problems = config_dir.load_errors(text, MINE="m")
        assert [(p.line, p.message.partition(";")[0]) for p in problems] == [
            (4, "the plugin p may not receive ${OTHER}"),
            (5, "the plugin p may not receive ${file:other}"),
        ]

    def test_steps_of_a_plugin_are_checked_too(self, config_dir: ConfigDir) -> None:
        text = (
            "plugins: {p: {secrets: []}}\n"
            "pipelines:\n"
            "  - name: x\n"
            "    on: e\n"
            "    steps:\n"
            "      - split:\n"
            "          - {uses: p, with: {a: ['${OTHER}']}}\n"
            "          - {uses: q, with: {a: '${OTHER}'}}\n"
        )
        problem = only(config_dir.load_errors(text, OTHER="o"))
        assert (problem.line, problem.allowed) == (7, "no reference")

    @pytest.mark.parametrize(
        "text",
        [
            "pipelines: [{name: x, on: e, steps: [{uses: '${P:-p}', with: {a: '${OTHER}'}}]}]\n",
            "pipelines: [{name: x, on: e, steps: [{uses: alias, with: {a: '${OTHER}'}}]}]\n",
        ],
    )
    def test_variables_and_aliases_do_not_evade_the_list(
        self, config_dir: ConfigDir, text: str
    ) -> None:
        plugins = "plugins: {p: {secrets: []}, alias: {uses: p}}\n"
        problem = only(config_dir.load_errors(plugins + text, OTHER="o"))
        assert "may not receive ${OTHER}" in problem.message

    def test_payloads_of_schedules_are_checked_too(self, config_dir: ConfigDir) -> None:
        entry = "{every: 1h, payload: {a: '${OTHER}'}}"
        text = f"plugins: {{p: {{secrets: [], schedules: [{entry}]}}}}\n"
        assert "may not receive" in only(config_dir.load_errors(text, OTHER="o")).message

    def test_payloads_of_schedules_of_pipelines_are_checked_too(
        self, config_dir: ConfigDir
    ) -> None:
        text = (
            "plugins: {p: {secrets: []}, q: {}}\n"
            "pipelines:\n"
            "  - name: x\n"
            "    schedules: [{every: 1h, payload: {a: '${OTHER}'}}]\n"
            "    steps: [{uses: q}, {split: [{uses: p}, {uses: p}]}]\n"
            "  - name: y\n"
            "    schedules: [{every: 1h, payload: {a: '${OTHER}'}}]\n"
            "    steps: [{uses: q}]\n"
        )
        problem = only(config_dir.load_errors(text, OTHER="o"))
        assert (problem.line, problem.allowed) == (4, "no reference")

    def test_without_a_list_every_reference_is_allowed(self, config_dir: ConfigDir) -> None:
        assert value_of(load_value(config_dir, "${OTHER}", OTHER="o")) == "o"


class TestEnvironmentOfAPlugin:
    @pytest.mark.parametrize("name", ["DUCTILE_BOOT", "NOTIFY_SOCKET", "A-B", "1A", "''"])
    def test_names_that_the_gateway_sets_are_refused(
        self, config_dir: ConfigDir, name: str
    ) -> None:
        problem = only(config_dir.load_errors(f"plugins: {{p: {{env: {{{name}: x}}}}}}\n"))
        assert problem.path[:3] == ("plugins", "p", "env")

    def test_interpolated_values_are_secrets(self, config_dir: ConfigDir) -> None:
        loaded = config_dir.load("plugins: {p: {env: {NAME: 'a ${V}'}}}\n", V=SECRET)
        assert loaded.settings.plugins["p"].env == {"NAME": f"a {SECRET}"}
        assert SECRET in loaded.secrets
