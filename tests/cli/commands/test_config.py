"""`ductile config init`, `check`, `show`, `schema` and `lock`."""

from __future__ import annotations

import stat
import zlib
from pathlib import Path

import pytest
import yaml

from ductile.cli import main
from tests.cli.runner import CliRunner

TOKENS = "tokens: [{name: ci, key: 0123456789abcdef, scopes: ['*']}]\n"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestInit:
    def test_init_creates_a_valid_configuration(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        where = tmp_path / "new"
        assert main(["config", "init", str(where)]) == 0
        assert mode(where) == 0o700
        assert mode(where / "config.yaml") == 0o600
        assert main(["config", "check", "--config", str(where)]) == 0
        assert "is valid" in capsys.readouterr().out

    def test_init_defaults_to_the_search_path(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DUCTILE_CONFIG_DIR", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert main(["config", "init"]) == 0
        assert (tmp_path / ".config/ductile/config.yaml").exists()
        assert main(["config", "check"]) == 0
        monkeypatch.setenv("DUCTILE_CONFIG_DIR", str(tmp_path / "named"))
        assert main(["config", "init"]) == 0
        assert (tmp_path / "named/config.yaml").exists()

    def test_init_dry_run_writes_nothing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        where = tmp_path / "new"
        assert main(["config", "init", str(where), "--dry-run"]) == 0
        assert f"would write {where / 'config.yaml'}" in capsys.readouterr().out
        assert not where.exists()

    @pytest.mark.parametrize("dry", [(), ("--dry-run",)])
    def test_init_overwrites_nothing(self, cli: CliRunner, dry: tuple[str, ...]) -> None:
        done = cli("config", "init", "--json", *dry)
        assert done.code == 1
        assert done.json["code"] == "refused"
        assert "plugin_roots" in (cli.root / "config.yaml").read_text()


class TestCheck:
    def test_every_problem_has_its_place(self, cli: CliRunner) -> None:
        cli.write("config.yaml", "servce: {}\nplugins:\n  hello: {enabled: maybe}\n")
        done = cli("config", "check", "--json")
        assert done.code == 78
        assert done.json["code"] == "config_invalid"
        places = {(p["line"], p["path"]) for p in done.json["problems"]}
        assert places == {(1, "servce"), (3, "plugins.hello.enabled")}
        people = cli("config", "check")
        assert people.code == 78
        assert f"{cli.root}/config.yaml:1:1: servce" in people.err

    def test_errors_of_routes_and_pipelines_are_reported_with_the_others(
        self, cli: CliRunner
    ) -> None:
        cli.write(
            "config.yaml",
            "state: {path: ./data/state.db}\n"
            "plugin_roots: [./plugins]\n"
            "api: {max_sync: 1}\n"
            "plugins: {hello: {retri: {}}}\n"
            "routes: [{from: hello, event_type: x, to: helo}]\n"
            "pipelines:\n"
            "  - {name: a, on: x, if: {path: payload.x, op: equal}, steps: [{uses: hello}]}\n",
        )
        done = cli("config", "check", "--json")
        assert done.code == 78
        assert [problem["path"] for problem in done.json["problems"]] == [
            "api.max_sync",
            "plugins.hello.retri",
            "routes[0].to",
            "pipelines[0].if.op",
        ]

    def test_a_refused_plugin_is_a_warning(self, cli: CliRunner) -> None:
        (cli.root / "plugins/bad/run.sh").chmod(0o600)
        done = cli("config", "check", "--json")
        assert done.code == 0
        assert done.json["plugins"] == ["hello"]
        (warning,) = done.json["warnings"]
        assert "plugin bad is refused" in warning["message"]
        assert (warning["severity"], warning["line"]) == ("warning", 6)
        assert "1 warning" in cli("config", "check").out

    def test_crlf_line_endings_of_a_program_are_a_warning(self, cli: CliRunner) -> None:
        path = cli.root / "plugins/hello/run.sh"
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
        (warning,) = cli("config", "check", "--json").json["warnings"]
        assert "plugin hello cannot run: CRLF line endings" in warning["message"]
        assert (warning["file"], warning["line"]) == (str(path), 1)

    def test_a_refused_plugin_with_a_schedule_is_an_error(self, cli: CliRunner) -> None:
        (cli.root / "plugins/bad/run.sh").chmod(0o600)
        cli.write("config.yaml", "plugins:\n  bad: {schedules: [{every: 1h}]}\n")
        done = cli("config", "check", "--json")
        assert done.code == 78
        (problem,) = done.json["problems"]
        assert "plugin bad is refused" in problem["message"]
        assert problem["message"].endswith("; its schedules would not run")
        assert (problem["severity"], problem["line"]) == ("error", 2)

    def test_a_route_to_a_plugin_without_handle_is_a_warning(self, cli: CliRunner) -> None:
        cli.plugin("mute", "exit 1", commands="poll")
        cli.write(
            "config.yaml",
            "routes: [{from: mute, event_type: x, to: mute}]\n"
            "webhooks: [{path: /h, plugin: mute, secret: s}]\n",
        )
        done = cli("config", "check", "--json")
        assert done.code == 0
        assert [w["path"] for w in done.json["warnings"] if "`handle`" in w["message"]] == [
            "routes[0].to",
            "webhooks.endpoints[0].plugin",
        ]

    def test_a_plugin_directory_with_another_name_is_a_warning(self, cli: CliRunner) -> None:
        (cli.root / "plugins/hello").rename(cli.root / "plugins/other")
        assert "contains a plugin with a different name" in cli("config", "check").out

    def test_a_missing_configuration_exits_78(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("DUCTILE_CONFIG_DIR", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert main(["config", "check"]) == 78
        assert main(["system", "status", "--config", str(tmp_path / "gone")]) == 78

    def test_a_missing_file_is_reported_without_a_line(self, cli: CliRunner) -> None:
        missing = cli.root / "gone"
        assert main(["config", "check", "--config", str(missing)]) == 78
        message = f"error: there is no file {missing}; create it, or correct the path\n"
        assert cli.capsys.readouterr().err == message

    def test_a_broken_seal_does_not_hide_other_problems(self, cli: CliRunner) -> None:
        cli.write("config.yaml", "include: [tokens.yaml]\nservice: {max_wrkers: 1}\n")
        cli.write("tokens.yaml", TOKENS)
        done = cli("config", "check", "--json")
        assert done.code == 78
        assert [problem["path"] for problem in done.json["problems"]] == [
            "service.max_wrkers",
            None,
        ]

    def test_options_are_accepted_before_the_noun(self, cli: CliRunner) -> None:
        assert main(["--config", str(cli.root), "-v", "config", "check"]) == 0
        assert f"config: {cli.root}" in cli.capsys.readouterr().err


class TestShow:
    def test_show_redacts_secrets(self, cli: CliRunner) -> None:
        cli.write(
            "config.yaml",
            "plugins: {hello: {config: {api_key: 0123456789abcdef, city: Oslo}}}\n",
        )
        for done in (cli("config", "show"), cli("config", "show", "--json")):
            assert done.code == 0
            assert "0123456789abcdef" not in done.out
            assert "Oslo" in done.out
        assert cli("config", "show", "--json").json["service"]["name"] == "ductile"
        assert yaml.safe_load(cli("config", "show").out)["service"]["name"] == "ductile"


class TestSchema:
    @pytest.mark.parametrize("kind", ["config", "plugins", "checksums", "manifest"])
    def test_schema_of_a_known_kind(self, cli: CliRunner, kind: str) -> None:
        assert cli("config", "schema", kind).json["$schema"].startswith("https://json-schema")

    def test_schema_of_an_unknown_kind(self, cli: CliRunner) -> None:
        done = cli("config", "schema", "manifst")
        assert done.code == 2
        assert "did you mean 'manifest'?" in done.err


class TestLock:
    def test_a_changed_file_fails_the_check_until_it_is_sealed(self, cli: CliRunner) -> None:
        cli.write("config.yaml", "include: [tokens.yaml]\n")
        cli.write("tokens.yaml", TOKENS)
        assert cli("config", "check").code == 78
        assert cli("config", "lock").code == 0
        assert mode(cli.root / ".checksums") == 0o600
        assert cli("config", "check").code == 0
        cli.write("tokens.yaml", TOKENS.replace("ci", "xx"))
        assert cli("config", "check").code == 78
        assert cli("system", "start", "--dry-run").code == 78

    def test_one_file_is_accepted_and_other_changes_stay_refused(self, cli: CliRunner) -> None:
        cli.write("config.yaml", "include: [tokens.yaml, webhooks.yaml]\n")
        cli.write("tokens.yaml", TOKENS)
        cli.write("webhooks.yaml", "webhooks: []\n")
        assert cli("config", "lock").code == 0
        cli.write("tokens.yaml", TOKENS.replace("ci", "xx"))
        cli.write("webhooks.yaml", "webhooks: [] # changed\n")
        refused = cli("config", "check")
        advised = f"config lock {cli.root}/tokens.yaml"
        assert f"run: ductile {advised}" in refused.err
        assert cli(*advised.split(), "--json").json["files"] == {
            str(cli.root / "tokens.yaml"): "changed"
        }
        after = cli("config", "check")
        assert (after.code, "tokens.yaml" in after.err) == (78, False)
        assert f"config lock {cli.root}/webhooks.yaml" in after.err
        assert cli("config", "lock", "elsewhere.yaml").code == 1

    def test_the_seal_contains_the_plugins(self, cli: CliRunner) -> None:
        assert cli("config", "lock", "--json").json["plugins"] == ["bad", "hello"]
        seal = yaml.safe_load((cli.root / ".checksums").read_text())
        first = seal["plugin_fingerprints"][0]
        assert first["name"] == "bad"
        assert first["entrypoint_path"] == str(cli.root / "plugins/bad/run.sh")
        assert len(first["entrypoint_hash"]) == len(first["manifest_hash"]) == 64

    def test_changed_plugin_is_shown_by_line_and_accepted_alone(self, cli: CliRunner) -> None:
        assert cli("config", "lock").code == 0
        script, manifest = (cli.root / f"plugins/hello/{n}" for n in ("run.sh", "manifest.yaml"))
        script.write_text(script.read_text() + "# changed\n")
        manifest.write_text(manifest.read_text().replace("version: '1'", "version: '2'"))
        (cli.root / "plugins/bad/run.sh").write_text("#!/bin/sh\n")
        shown = cli("config", "lock", "--dry-run", "--json").json
        assert shown["plugin_states"] == {"bad": "changed", "hello": "changed"}
        assert f"{script}: line" in shown["changes"][str(script)]
        assert "+version: '2'" in shown["changes"][str(manifest)]
        found = cli("system", "doctor", "--json").json["findings"]
        advised = [row["run"] for row in found if row["run"] and "lock" in row["run"]]
        assert [line.partition(" --config")[0] for line in advised] == [
            "ductile config lock --plugin bad",
            "ductile config lock --plugin hello",
        ]
        accepted = cli("config", "lock", "--plugin", "hello", "--json").json
        assert accepted["plugin_states"] == {"hello": "changed"}
        assert accepted["changes"].keys() == {str(script), str(manifest)}
        left = cli("config", "lock", "--dry-run", "--json").json
        assert left["plugin_states"] == {"bad": "changed"}

    def test_lock_dry_run_shows_what_would_change(self, cli: CliRunner) -> None:
        assert main(["config", "lock", "--config-dir", str(cli.root)]) == 0
        before = (cli.root / ".checksums").read_bytes()
        with (cli.root / "config.yaml").open("a") as file:
            file.write("routes: []\n")
        done = cli("config", "lock", "--dry-run", "--json")
        assert done.json["files"] == {str(cli.root / "config.yaml"): "changed"}
        assert (cli.root / ".checksums").read_bytes() == before

    def test_files_with_unset_variables_can_be_sealed(self, cli: CliRunner) -> None:
        cli.write("config.yaml", "service: {name: '${NOT_SET_ANYWHERE}'}\n")
        done = cli("config", "lock")
        assert done.code == 0
        assert "plugins are not sealed" in done.err
        assert (cli.root / ".checksums").exists()

    @pytest.mark.parametrize(
        "text", ["service: {max_wrkers: 1}\n", "routes: [{from: a, event_type: x, to: nobody}]\n"]
    )
    def test_an_invalid_configuration_is_sealed_with_a_warning(
        self, cli: CliRunner, text: str
    ) -> None:
        cli.write("config.yaml", text)
        done = cli("config", "lock")
        assert done.code == 0
        assert "its plugins are not sealed" in done.err
        assert (cli.root / ".checksums").exists()

    def test_change_since_the_seal_is_shown_by_file_and_line(
        self, cli: CliRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tokens = "tokens:\n  - {name: ci,\n     key: SECRET,\n     scopes: ['jobs:ro']}\n"
        path = cli.write("tokens.yaml", tokens.replace("SECRET", "0123456789abcdef"))
        cli.write(
            "config.yaml", f"include: [tokens.yaml]\n{(cli.root / 'config.yaml').read_text()}"
        )
        assert cli("config", "lock").code == 0
        copies = cli.root / "data/sealed"
        assert {mode(copy) for copy in copies.iterdir()} == {0o600}
        changed = tokens.replace("SECRET", "fedcba9876543210").replace("jobs:ro", "*")
        cli.write("tokens.yaml", changed)
        refused = cli("config", "check").err
        assert f"{path}:3:1: the file has changed since it was sealed" in refused
        assert "changes in lines 3-4" in refused
        shown = cli("config", "lock", "--dry-run", str(path)).out
        assert "-     scopes: ['jobs:ro']}" in shown
        assert "+     scopes: ['*']}" in shown
        assert "fedcba" not in shown
        assert "012345" not in shown
        # A copy that does not have the hash of the seal shows nothing rather than something false.
        for copy in copies.iterdir():
            copy.write_bytes(zlib.compress(changed.replace("ci", "other").encode()))
        assert "found BLAKE3" in cli("config", "check").err
        # A refusal names the file and not the configuration: it is found from there.
        monkeypatch.delenv("DUCTILE_CONFIG_DIR", raising=False)
        assert main(["config", "lock", str(path)]) == 0
        cli.write("tokens.yaml", changed.replace("fedcba", "abcdef"))
        assert "only a secret changed, in line 3" in cli("config", "lock", str(path)).out
        assert cli("config", "check").code == 0


class TestPlan:
    def test_plan_without_a_gateway_is_refused(self, cli: CliRunner) -> None:
        refused = cli("config", "plan")
        assert (refused.code, "no gateway is running" in refused.err) == (1, True)
