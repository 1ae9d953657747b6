"""`config`: init, check, show, schema, lock."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from ductile.cli import main
from tests.cli.running import House

TOKENS = "tokens: [{name: ci, key: 0123456789abcdef, scopes: ['*']}]\n"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


class TestInit:
    def test_it_writes_what_check_finds_good(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        where = tmp_path / "new"
        assert main(["config", "init", str(where)]) == 0
        assert mode(where) == 0o700
        assert mode(where / "config.yaml") == 0o600
        assert main(["config", "check", "--config", str(where)]) == 0
        assert "is valid" in capsys.readouterr().out

    def test_it_writes_to_where_a_config_is_looked_for(
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

    def test_a_dry_run_writes_nothing(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        where = tmp_path / "new"
        assert main(["config", "init", str(where), "--dry-run"]) == 0
        assert f"would write {where / 'config.yaml'}" in capsys.readouterr().out
        assert not where.exists()

    @pytest.mark.parametrize("dry", [(), ("--dry-run",)])
    def test_nothing_is_overwritten(self, house: House, dry: tuple[str, ...]) -> None:
        done = house("config", "init", "--json", *dry)
        assert done.code == 1
        assert done.json["code"] == "refused"
        assert "plugin_roots" in (house.root / "config.yaml").read_text()


class TestCheck:
    def test_every_problem_comes_with_its_place(self, house: House) -> None:
        house.write("config.yaml", "servce: {}\nplugins:\n  hello: {enabled: maybe}\n")
        done = house("config", "check", "--json")
        assert done.code == 78
        assert done.json["code"] == "config_invalid"
        places = {(p["line"], p["path"]) for p in done.json["problems"]}
        assert places == {(1, "servce"), (3, "plugins.hello.enabled")}
        people = house("config", "check")
        assert people.code == 78
        assert f"{house.root}/config.yaml:1:1: servce" in people.err

    def test_what_only_plugins_can_tell_comes_with_the_rest(self, house: House) -> None:
        house.write(
            "config.yaml",
            "state: {path: ./data/state.db}\n"
            "plugin_roots: [./plugins]\n"
            "api: {max_sync: 1}\n"
            "plugins: {hello: {retri: {}}}\n"
            "routes: [{from: hello, event_type: x, to: helo}]\n"
            "pipelines:\n"
            "  - {name: a, on: x, if: {path: payload.x, op: equal}, steps: [{uses: hello}]}\n",
        )
        done = house("config", "check", "--json")
        assert done.code == 78
        assert [problem["path"] for problem in done.json["problems"]] == [
            "api.max_sync",
            "plugins.hello.retri",
            "pipelines[0].if.op",
            "routes[0].to",
        ]

    def test_a_refused_plugin_is_a_warning(self, house: House) -> None:
        (house.root / "plugins/bad/run.sh").chmod(0o600)
        done = house("config", "check", "--json")
        assert done.code == 0
        assert done.json["plugins"] == ["hello"]
        (warning,) = done.json["warnings"]
        assert "plugin bad is refused" in warning["message"]
        assert (warning["severity"], warning["line"]) == ("warning", 6)
        assert "1 warning" in house("config", "check").out

    def test_what_leads_to_a_plugin_without_handle_is_a_warning(self, house: House) -> None:
        house.plugin("mute", "exit 1", commands="poll")
        house.write(
            "config.yaml",
            "routes: [{from: mute, event_type: x, to: mute}]\n"
            "webhooks: [{path: /h, plugin: mute, secret: s}]\n",
        )
        done = house("config", "check", "--json")
        assert done.code == 0
        assert [w["path"] for w in done.json["warnings"] if "`handle`" in w["message"]] == [
            "routes[0].to",
            "webhooks.endpoints[0].plugin",
        ]

    def test_a_plugin_of_another_name_is_a_warning(self, house: House) -> None:
        (house.root / "plugins/hello").rename(house.root / "plugins/other")
        assert "contains a plugin with a different name" in house("config", "check").out

    def test_no_config_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DUCTILE_CONFIG_DIR", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert main(["config", "check"]) == 78
        assert main(["system", "status", "--config", str(tmp_path / "gone")]) == 78

    def test_a_file_that_is_not_there_has_no_lines(self, house: House) -> None:
        gone = house.root / "gone"
        assert main(["config", "check", "--config", str(gone)]) == 78
        message = f"error: there is no file {gone}; create it, or correct the path\n"
        assert house.capsys.readouterr().err == message

    def test_a_broken_seal_hides_nothing_else(self, house: House) -> None:
        house.write("config.yaml", "include: [tokens.yaml]\nservice: {max_wrkers: 1}\n")
        house.write("tokens.yaml", TOKENS)
        done = house("config", "check", "--json")
        assert done.code == 78
        assert [problem["path"] for problem in done.json["problems"]] == [
            "service.max_wrkers",
            None,
        ]

    def test_the_option_may_stand_before_the_noun(self, house: House) -> None:
        assert main(["--config", str(house.root), "-v", "config", "check"]) == 0
        assert f"config: {house.root}" in house.capsys.readouterr().err


class TestShow:
    def test_secrets_are_redacted(self, house: House) -> None:
        house.write(
            "config.yaml",
            "plugins: {hello: {config: {api_key: 0123456789abcdef, city: Oslo}}}\n",
        )
        for done in (house("config", "show"), house("config", "show", "--json")):
            assert done.code == 0
            assert "0123456789abcdef" not in done.out
            assert "Oslo" in done.out
        assert house("config", "show", "--json").json["service"]["name"] == "ductile"
        assert yaml.safe_load(house("config", "show").out)["service"]["name"] == "ductile"


class TestSchema:
    @pytest.mark.parametrize("kind", ["config", "plugins", "checksums", "manifest"])
    def test_of_a_kind(self, house: House, kind: str) -> None:
        assert house("config", "schema", kind).json["$schema"].startswith("https://json-schema")

    def test_of_no_kind(self, house: House) -> None:
        done = house("config", "schema", "manifst")
        assert done.code == 2
        assert "did you mean 'manifest'?" in done.err


class TestLock:
    def test_what_is_sealed_runs_and_what_changed_does_not(self, house: House) -> None:
        house.write("config.yaml", "include: [tokens.yaml]\n")
        house.write("tokens.yaml", TOKENS)
        assert house("config", "check").code == 78
        assert house("config", "lock").code == 0
        assert mode(house.root / ".checksums") == 0o600
        assert house("config", "check").code == 0
        house.write("tokens.yaml", TOKENS.replace("ci", "xx"))
        assert house("config", "check").code == 78
        assert house("system", "start", "--dry-run").code == 78

    def test_plugins_are_recorded(self, house: House) -> None:
        assert house("config", "lock", "--json").json["plugins"] == ["bad", "hello"]
        seal = yaml.safe_load((house.root / ".checksums").read_text())
        first = seal["plugin_fingerprints"][0]
        assert first["name"] == "bad"
        assert first["entrypoint_path"] == str(house.root / "plugins/bad/run.sh")
        assert len(first["entrypoint_hash"]) == len(first["manifest_hash"]) == 64

    def test_a_dry_run_shows_what_would_change(self, house: House) -> None:
        assert main(["config", "lock", "--config-dir", str(house.root)]) == 0
        before = (house.root / ".checksums").read_bytes()
        with (house.root / "config.yaml").open("a") as file:
            file.write("routes: []\n")
        done = house("config", "lock", "--dry-run", "--json")
        assert done.json["files"] == {str(house.root / "config.yaml"): "changed"}
        assert (house.root / ".checksums").read_bytes() == before

    def test_an_unset_variable_does_not_keep_files_from_being_sealed(self, house: House) -> None:
        house.write("config.yaml", "service: {name: '${NOT_SET_ANYWHERE}'}\n")
        done = house("config", "lock")
        assert done.code == 0
        assert "plugins are not sealed" in done.err
        assert (house.root / ".checksums").exists()

    @pytest.mark.parametrize(
        "text", ["service: {max_wrkers: 1}\n", "routes: [{from: a, event_type: x, to: nobody}]\n"]
    )
    def test_what_is_not_valid_is_sealed_with_a_warning(self, house: House, text: str) -> None:
        house.write("config.yaml", text)
        done = house("config", "lock")
        assert done.code == 0
        assert "its plugins are not sealed" in done.err
        assert (house.root / ".checksums").exists()
