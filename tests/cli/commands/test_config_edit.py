"""`ductile config get`, `config set` and `config show ENTITY`."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path

import pytest

from ductile.cli import main
from tests.cli.runner import CliRunner

CONFIG = """\
# Two plugins.
include: [tokens.yaml]
service: {shutdown_grace: 0s}
state: {path: ./data/state.db}
plugin_roots: [./plugins]
plugins:
  hello:
    retry: {max_attempts: 2}   # quick
    config: {city: Oslo, api_key: "${HELLO_KEY:-not-a-real-one}"}
routes:
  - {from: hello, event_type: said, to: hello}
"""
TOKENS = "tokens:\n  - name: ci   # the robot\n    key: 0123456789abcdef\n    scopes: [jobs:ro]\n"


@pytest.fixture
def sealed(cli: CliRunner) -> CliRunner:
    cli.write("config.yaml", CONFIG)
    cli.write("tokens.yaml", TOKENS)
    assert cli("config", "lock").code == 0
    return cli


def read(cli: CliRunner, name: str = "config.yaml") -> str:
    return (cli.root / name).read_text()


class TestGet:
    def test_get_prints_a_scalar_without_quotes(self, sealed: CliRunner) -> None:
        assert sealed("config", "get", "plugin:hello.config.city").out == "Oslo\n"
        assert sealed("config", "get", "plugins.hello.retry.max_attempts").out == "2\n"

    def test_get_reports_file_and_line(self, sealed: CliRunner) -> None:
        found = sealed("config", "get", "plugin:hello.retry.max_attempts", "--json").json
        assert found == {
            "path": "plugins.hello.retry.max_attempts",
            "value": 2,
            "default": False,
            "file": str(sealed.root / "config.yaml"),
            "line": 8,
            "column": 27,
        }
        result = sealed("config", "get", "plugin:hello.retry.max_attempts", "-v").err
        assert f"{sealed.root}/config.yaml:8" in result

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            ("service.tick_interval", "60s"),
            ("plugins.hello.retry.backoff_base", "30s"),
            ("plugins.hello.enabled", "true"),
            ("api.listen", "127.0.0.1:8080"),
        ],
    )
    def test_get_prints_defaults_in_config_notation(
        self, sealed: CliRunner, path: str, value: str
    ) -> None:
        assert sealed("config", "get", path).out.strip() == value
        assert sealed("config", "get", path, "--json").json["default"] is True

    def test_get_redacts_secrets(self, sealed: CliRunner) -> None:
        assert sealed("config", "get", "plugin:hello.config.api_key").out == "[REDACTED]\n"
        assert "0123456789abcdef" not in sealed("config", "get", "tokens").out

    def test_get_of_an_unknown_setting_is_not_found(self, sealed: CliRunner) -> None:
        done = sealed("config", "get", "service.log_lvel", "--json")
        assert done.code == 1
        assert done.json["code"] == "not_found"
        assert "did you mean 'service.log_level'?" in done.json["error"]
        assert sealed("config", "get", "a..b").code == 2

    def test_get_works_with_problems_elsewhere(self, cli: CliRunner) -> None:
        cli.write("config.yaml", "servce: {}\nservice: {name: x}\n")
        assert cli("config", "get", "service.name").out == "x\n"


class TestSet:
    def test_set_changes_one_line_and_shows_the_diff(self, sealed: CliRunner) -> None:
        done = sealed("config", "set", "plugin:hello.retry.max_attempts", "5")
        assert done.code == 0
        assert "-    retry: {max_attempts: 2}   # quick" in done.out
        assert "+    retry: {max_attempts: 5}   # quick" in done.out
        assert read(sealed) == CONFIG.replace("max_attempts: 2", "max_attempts: 5")
        assert sealed("config", "get", "plugin:hello.retry.max_attempts").out == "5\n"

    def test_set_keeps_the_mode_of_the_file(self, sealed: CliRunner) -> None:
        path = sealed.root / "config.yaml"
        path.chmod(0o640)
        names = sorted(sealed.root.rglob("*"))
        sealed("config", "set", "service.name", "lab")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert sorted(sealed.root.rglob("*")) == names

    def test_set_dry_run_writes_nothing(self, sealed: CliRunner) -> None:
        done = sealed("config", "set", "service.name=lab", "--dry-run", "--json")
        assert (done.code, done.json["dry_run"], done.json["changed"]) == (0, True, True)
        assert "+service: {shutdown_grace: 0s, name: lab}" in done.json["diff"]
        assert read(sealed) == CONFIG

    def test_set_does_not_write_an_invalid_result(self, sealed: CliRunner) -> None:
        done = sealed("config", "set", "plugin:hello.retry.max_attempts", "many")
        assert done.code == 78
        assert "nothing was written" in done.err
        assert "config.yaml:8:27: plugins.hello.retry.max_attempts" in done.err
        unknown = sealed("config", "set", "plugin:hello.retyr.max_attempts", "3", "--json")
        assert unknown.code == 78
        assert unknown.json["problems"][0]["nearest"] == "retry"
        routed = sealed("config", "set", "routes[0].to", "nobody", "--json")
        assert routed.code == 78
        assert routed.json["problems"][0]["path"] == "routes[0].to"
        assert read(sealed) == CONFIG

    def test_set_overwrites_a_variable_only_on_request(self, sealed: CliRunner) -> None:
        path = "plugin:hello.config.api_key"
        done = sealed("config", "set", path, "a-literal-secret", "--json")
        assert done.code == 1
        assert "${HELLO_KEY:-not-a-real-one}" in done.json["error"]
        assert read(sealed) == CONFIG
        forced = sealed("config", "set", path, "a-literal-secret", "--replace-variable")
        assert forced.code == 0
        assert "keep it in the environment" in forced.err
        assert "a-literal-secret" not in forced.out + forced.err
        assert 'api_key: "a-literal-secret"' in read(sealed)

    def test_set_names_the_variables_of_a_value(
        self, sealed: CliRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CITY", "Bergen")
        done = sealed("config", "set", "plugin:hello.config.city", "${CITY}")
        assert "the value is read from the variable CITY" in done.out
        assert "city: ${CITY}" in read(sealed)
        assert sealed("config", "get", "plugin:hello.config.city").out == "[REDACTED]\n"
        sealed("config", "set", "plugin:hello.public_config", "[city]")
        assert sealed("config", "get", "plugin:hello.config.city").out == "Bergen\n"
        unset = sealed("config", "set", "plugin:hello.config.city", "${NOT_SET_ANYWHERE}")
        assert unset.code == 78
        assert "NOT_SET_ANYWHERE is not set" in unset.err

    def test_set_reads_a_secret_from_stdin(self, sealed: CliRunner) -> None:
        done = sealed.process("config", "set", "tokens.ci.key", "-", input="fedcba9876543210\n")
        assert done.code == 0, done.err
        assert "    key: fedcba9876543210\n" in read(sealed, "tokens.yaml")
        assert "fedcba" not in done.out + done.err
        assert "only a secret changes" in done.out

    def test_set_to_the_same_value_changes_nothing(self, sealed: CliRunner) -> None:
        done = sealed("config", "set", "plugin:hello.config.city", "Oslo", "--json")
        assert (done.code, done.json["changed"]) == (0, False)

    @pytest.mark.parametrize("line", [("service.name",), ("service.name", "[1, "), ("", "x")])
    def test_wrong_usage_exits_2(self, sealed: CliRunner, line: tuple[str, ...]) -> None:
        assert sealed("config", "set", *line).code == 2
        assert read(sealed) == CONFIG

    def test_the_place_of_a_running_gateway_is_not_changed(self, cli: CliRunner) -> None:
        cli.state.mkdir(mode=0o700, exist_ok=True)
        before = (cli.root / "config.yaml").read_text()
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(cli.state / "ductile.sock"))
            listening.listen()
            refused = cli("config", "set", "state.path", "./elsewhere/state.db")
            assert refused.code == 1
            assert "first stop it: ductile system stop" in refused.err
            assert (cli.root / "config.yaml").read_text() == before
            assert cli("config", "set", "state.path", "./elsewhere/s.db", "--dry-run").code == 0
        assert cli("config", "set", "state.path", "./elsewhere/state.db").code == 0


class TestSeal:
    def test_set_of_a_sealed_file_asks_for_a_lock(self, sealed: CliRunner) -> None:
        done = sealed("config", "set", "tokens.ci.scopes", "[jobs:rw]", "--json")
        assert done.json["next"] == [
            f"ductile config lock {sealed.root}/tokens.yaml --config {sealed.root}",
            f"ductile system reload --config {sealed.root}",
        ]
        assert sealed("config", "check").code == 78
        assert main(done.json["next"][0].split()[1:]) == 0
        assert sealed("config", "check").code == 0

    def test_set_with_lock_seals_the_file(self, sealed: CliRunner) -> None:
        done = sealed("config", "set", "tokens.ci.scopes", "[jobs:rw]", "--lock", "--json")
        assert done.code == 0
        assert len(done.json["next"]) == 1
        assert sealed("config", "check").code == 0
        assert sealed("config", "lock", "--dry-run", "--json").json["files"] == {
            str(sealed.root / "config.yaml"): "same",
            str(sealed.root / "tokens.yaml"): "same",
        }

    def test_set_with_lock_refuses_a_file_changed_after_sealing(self, sealed: CliRunner) -> None:
        changed = TOKENS.replace("jobs:ro", "'*'")
        sealed.write("tokens.yaml", changed)
        done = sealed("config", "set", "tokens.ci.description", "robot", "--lock")
        assert done.code == 1
        assert "was changed after it was sealed" in done.err
        assert read(sealed, "tokens.yaml") == changed
        assert sealed("config", "check").code == 78

    def test_set_dry_run_seals_nothing(self, sealed: CliRunner) -> None:
        before = read(sealed, ".checksums")
        sealed("config", "set", "service.name", "lab", "--lock", "--dry-run")
        assert read(sealed, ".checksums") == before


ROUTE = {
    "from": "hello",
    "event_type": "said",
    "to": "hello",
    "priority": "0s",
    "debounce": None,
}


class TestShow:
    def test_show_prints_durations_and_sizes_in_config_notation(self, sealed: CliRunner) -> None:
        assert "backoff_base: 30s\n" in sealed("config", "show", "plugin:hello").out
        assert sealed("config", "show", "service.shutdown_grace").out == "0s\n"
        assert sealed("config", "get", "plugins.hello.timeouts", "--json").json["value"] == {}
        assert "max_body_size: 1MB\n" in sealed("config", "show", "remote_ingress").out

    def test_show_includes_defaults(self, sealed: CliRunner) -> None:
        found = sealed("config", "show", "plugin:hello", "--json").json
        assert found["retry"] == {"max_attempts": 2, "backoff_base": "30s"}
        assert found["config"] == {"city": "Oslo", "api_key": "[REDACTED]"}

    @pytest.mark.parametrize(
        ("entity", "value"),
        [
            ("route:hello", ROUTE),
            ("route:*", [ROUTE]),
            ("plugins.hello.retry.max_attempts", 2),
            ("token:ci.scopes", ["jobs:ro"]),
            ("plugin:bad.enabled", True),
        ],
    )
    def test_show_of_a_part(self, sealed: CliRunner, entity: str, value: object) -> None:
        assert sealed("config", "show", entity, "--json").json == value

    @pytest.mark.parametrize(
        ("entity", "code", "word"),
        [
            ("plugin:helo", 1, "did you mean 'hello'?"),
            ("plgin:hello", 2, "did you mean 'plugin'?"),
            ("pipeline:x", 1, "no item 'x'"),
        ],
    )
    def test_show_of_an_unknown_entity(
        self, sealed: CliRunner, entity: str, code: int, word: str
    ) -> None:
        done = sealed("config", "show", entity)
        assert done.code == code
        assert word in done.err


def test_set_keeps_the_comments_of_the_initial_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "init", str(tmp_path / "g")]) == 0
    config = ["--config", str(tmp_path / "g")]
    assert main(["config", "set", "plugins.echo.enabled", "false", *config]) == 0
    assert main(["config", "set", "plugins.echo.schedule.every", "15m", *config]) == 0
    assert main(["config", "set", "service.max_workers", "4", *config]) == 0
    capsys.readouterr()
    assert main(["config", "get", "plugins.echo", "--json", *config]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == {
        "enabled": False,
        "schedules": [{"every": "15m"}],
    }
    text = (tmp_path / "g/config.yaml").read_text()
    assert "  log_level: info            # debug | info | warn | error\n  max_workers: 4\n" in text
    assert "#     retry: {max_attempts: 4, backoff_base: 30s}" in text
