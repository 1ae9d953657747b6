"""The seal: which differences are errors, which are warnings, and what is checked first."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from blake3 import blake3

from ductile.config import create_seal
from ductile.errors import ConfigError, Severity
from tests.config.conftest import MOMENT, ConfigDir, only

TOKEN = "a-token-0123456789"
FILES = {
    "config.yaml": "include: [tokens.yaml, routes.yaml]\nservice: {strict_mode: false}",
    "tokens.yaml": "tokens: [{name: t, key: ${KEY}, scopes_file: scopes/t.json}]",
    "routes.yaml": "routes: []",
    "scopes/t.json": '["*"]',
}
STRICT = {"config.yaml": FILES["config.yaml"].replace("false", "true")}


@pytest.fixture
def sealed(config_dir: ConfigDir) -> ConfigDir:
    config_dir.write(FILES)
    config_dir.lock()
    return config_dir


def test_sealed_configuration_loads_without_warnings(sealed: ConfigDir) -> None:
    assert sealed.load(KEY=TOKEN).warnings == ()


def test_seal_has_hashes_by_absolute_path(sealed: ConfigDir) -> None:
    path = sealed.path / ".checksums"
    document = yaml.safe_load(path.read_text())
    assert document == {
        "version": 2,
        "generated_at": "2026-02-08T10:00:00.000000Z",
        "hashes": {
            str(sealed.path / name): blake3(text.encode()).hexdigest()
            for name, text in FILES.items()
        },
        "plugin_fingerprints": [],
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_sealing_leaves_no_temporary_file(sealed: ConfigDir) -> None:
    assert sorted(path.name for path in sealed.path.iterdir()) == sorted(
        {".checksums", *(name.split("/")[0] for name in FILES)}
    )


def test_seal_is_optional_without_high_security_files(config_dir: ConfigDir) -> None:
    assert config_dir.load("service: {strict_mode: true}").warnings == ()


@pytest.mark.parametrize("name", ["tokens.yaml", "webhooks.yaml", "sub/tokens.yaml"])
def test_high_security_file_requires_a_seal(config_dir: ConfigDir, name: str) -> None:
    problem = only(config_dir.load_errors({"config.yaml": f"include: [{name}]", name: "{}"}))
    assert problem.file == str(config_dir.path / name)
    assert "is not sealed" in problem.message
    assert "ductile config lock" in problem.message


GRANTS = {
    "tokens": "tokens: [{name: t, key: a-token-0123456789}]",
    "webhooks": "webhooks: [{path: /h, plugin: p, secret: a-secret-0123456789}]",
    "endpoints": "webhooks: {endpoints: [{path: /h, plugin: p, secret: a-secret-0123456789}]}",
    "api": "api: {auth: {tokens: [{token: a-token-0123456789, scopes: ['*']}]}}",
    "peers": "remote_ingress: {peers: [{name: lab, secret: a-secret-0123456789, accept: [x]}]}",
}


@pytest.mark.parametrize("text", GRANTS.values(), ids=GRANTS)
def test_included_file_that_grants_access_requires_a_seal(config_dir: ConfigDir, text: str) -> None:
    files = {"config.yaml": "include: [extra.yaml]", "extra.yaml": "{}"}
    assert config_dir.load(files).warnings == ()
    problem = only(config_dir.load_errors({"extra.yaml": text}))
    assert problem.file == str(config_dir.path / "extra.yaml")
    assert "is not sealed" in problem.message
    config_dir.lock()
    config_dir.load()
    problem = only(config_dir.load_errors({"extra.yaml": f"{text}\n"}))
    assert "has changed since it was sealed" in problem.message


def test_config_yaml_itself_needs_no_seal_for_its_tokens(config_dir: ConfigDir) -> None:
    assert config_dir.load(GRANTS["api"]).settings.all_tokens


@pytest.mark.parametrize("name", ["tokens.yaml", "scopes/t.json"])
def test_changed_high_security_file_is_an_error(sealed: ConfigDir, name: str) -> None:
    problem = only(sealed.load_errors({name: FILES[name] + "\n"}, KEY=TOKEN))
    assert problem.file == str(sealed.path / name)
    assert "has changed since it was sealed" in problem.message


def test_scope_file_in_any_directory_is_high_security(config_dir: ConfigDir) -> None:
    config_dir.write(
        {"config.yaml": "tokens: [{name: t, key: k, scopes_file: perms.json}]", "perms.json": "[]"}
    )
    config_dir.lock()
    assert "has changed" in only(config_dir.load_errors({"perms.json": '["*"]'})).message


@pytest.mark.parametrize("name", ["config.yaml", "routes.yaml"])
def test_other_changed_file_causes_a_warning(sealed: ConfigDir, name: str) -> None:
    warning = only(list(sealed.load({name: FILES[name] + "\n"}, KEY=TOKEN).warnings))
    assert (warning.severity, warning.file) == (Severity.WARNING, str(sealed.path / name))


def test_difference_is_reported_with_both_hashes(sealed: ConfigDir) -> None:
    changed, was = '["*"] ', FILES["scopes/t.json"]
    problem = only(sealed.load_errors({"scopes/t.json": changed}, KEY=TOKEN))
    assert (problem.line, problem.column) == (1, 1)
    assert problem.found == f"BLAKE3 {blake3(changed.encode()).hexdigest()}"
    assert problem.allowed == f"BLAKE3 {blake3(was.encode()).hexdigest()}"


def test_missing_file_is_reported_with_its_sealed_hash(sealed: ConfigDir) -> None:
    (sealed.path / "scopes/t.json").unlink()
    problem = next(p for p in sealed.load_errors(KEY=TOKEN) if "is sealed but missing" in p.message)
    assert (problem.file, problem.line, problem.column) == (
        str(sealed.path / "scopes/t.json"),
        None,
        None,
    )
    assert problem.found == "no file"
    assert problem.allowed == f"BLAKE3 {blake3(FILES['scopes/t.json'].encode()).hexdigest()}"


def test_other_changed_file_is_an_error_in_strict_mode(sealed: ConfigDir) -> None:
    sealed.write(STRICT)
    sealed.lock()
    assert (
        "has changed" in only(sealed.load_errors({"routes.yaml": "routes: [] "}, KEY=TOKEN)).message
    )


def test_strict_mode_may_be_a_variable(sealed: ConfigDir) -> None:
    sealed.write({"config.yaml": FILES["config.yaml"].replace("false", "${STRICT}")})
    sealed.lock()
    assert len(sealed.load({"routes.yaml": "routes: [] "}, KEY=TOKEN, STRICT="false").warnings) == 1
    assert "has changed" in only(sealed.load_errors(KEY=TOKEN, STRICT="true")).message


def test_new_file_causes_a_warning(sealed: ConfigDir) -> None:
    sealed.write(
        {
            "more/a.yaml": "{}",
            "config.yaml": FILES["config.yaml"].replace("routes.yaml", "routes.yaml, more"),
        }
    )
    sealed.lock()
    loaded = sealed.load({"more/b.yaml": "{}"}, KEY=TOKEN)
    assert "is not sealed" in only(list(loaded.warnings)).message


def test_missing_sealed_file_causes_a_warning(sealed: ConfigDir) -> None:
    sealed.write({"more/a.yaml": "{}", "more/b.yaml": "{}", "config.yaml": "include: [more]"})
    sealed.lock()
    (sealed.path / "more/b.yaml").unlink()
    assert "is sealed but missing" in only(list(sealed.load().warnings)).message


def test_env_file_is_sealed(config_dir: ConfigDir) -> None:
    config_dir.write({"config.yaml": "environment_vars: {include: [.env]}", ".env": "A=1"})
    config_dir.lock()
    assert "has changed" in only(list(config_dir.load({".env": "A=2"}).warnings)).message


def test_variables_are_not_expanded_if_the_seal_is_violated(sealed: ConfigDir) -> None:
    problem = only(sealed.load_errors({"tokens.yaml": FILES["tokens.yaml"] + " "}))
    assert "KEY" not in str(problem)


def test_changed_high_security_file_is_not_parsed(sealed: ConfigDir) -> None:
    assert "has changed" in only(sealed.load_errors({"tokens.yaml": "tokens: ["})).message


def test_violated_seal_does_not_hide_syntax_errors(sealed: ConfigDir) -> None:
    problems = sealed.load_errors({"tokens.yaml": "tokens: []", "routes.yaml": "routes: ["})
    assert [Path(problem.file or "").name for problem in problems] == ["tokens.yaml", "routes.yaml"]


def test_violated_seal_does_not_hide_problems_of_other_files(config_dir: ConfigDir) -> None:
    files = {
        "config.yaml": "include: [tokens.yaml, more.yaml]\n"
        "environment_vars: {include: [.env]}\n"
        "service: {max_wrkers: 3}",
        "tokens.yaml": "tokens: [{nam: x}]\nservice: {max_hops: y}",
        "more.yaml": "service: {max_workers: many}\nroutes: [{from: a}]",
        ".env": "A",
    }
    found = [
        (Path(problem.file or "").name, problem.message)
        for problem in config_dir.load_errors(files)
    ]
    assert [(file, message.partition(";")[0]) for file, message in found] == [
        ("config.yaml", "unknown key 'max_wrkers'"),
        (".env", "this is not a valid line of an .env file"),
        ("tokens.yaml", f"the file is not sealed (there is no {config_dir.path}/.checksums)"),
        ("more.yaml", "must be a whole number"),
        ("more.yaml", "missing key 'event_type'"),
        ("more.yaml", "missing key 'to'"),
    ]


def test_references_into_an_unsealed_file_are_not_reported(config_dir: ConfigDir) -> None:
    endpoint = "webhooks: [{path: /h, plugin: p, secret_ref: s}]"
    files = {
        "config.yaml": f"include: [tokens.yaml]\napi: {{enabled: true}}\n{endpoint}",
        "tokens.yaml": "tokens: [{name: s, key: k}]",
    }
    assert "is not sealed" in only(config_dir.load_errors(files)).message


@pytest.mark.parametrize("value", ["${N}", "${N:-many}"])
def test_variables_are_not_looked_up_if_the_seal_is_violated(
    config_dir: ConfigDir, value: str
) -> None:
    files = {
        "config.yaml": f"include: [tokens.yaml]\nservice: {{max_workers: {value}}}",
        "tokens.yaml": "{}",
    }
    assert "is not sealed" in only(config_dir.load_errors(files)).message
    assert "is not sealed" in only(config_dir.load_errors(files, N="canary")).message


def test_secrets_are_redacted_if_the_seal_is_violated(config_dir: ConfigDir) -> None:
    files = {
        "config.yaml": "include: [tokens.yaml]\nstate: {url: host=/x password=hunter22}\n"
        "plugins: {p: {config: {token: hunter2hunter2}, parallelism: hunter2hunter2}}",
        "tokens.yaml": "{}",
    }
    problems = config_dir.load_errors(files)
    assert len(problems) == 3
    assert "hunter2" not in "".join(map(str, problems))


def test_seal_can_be_skipped(config_dir: ConfigDir) -> None:
    config_dir.write(FILES)
    assert config_dir.load(seal=False, KEY=TOKEN).settings.tokens[0].scopes == ("*",)


@pytest.mark.parametrize(
    "text", ["", "version: 1\nhashes: {}", "- a", "version: 2\nhashes: [a]", "{"]
)
def test_invalid_seal_is_an_error(config_dir: ConfigDir, text: str) -> None:
    problem = only(config_dir.load_errors({"config.yaml": "", ".checksums": text}))
    assert problem.file == str(config_dir.path / ".checksums")


def test_moving_the_directory_violates_the_seal(sealed: ConfigDir) -> None:
    moved = sealed.path.rename(sealed.path.with_name("moved"))
    assert any(
        "is not sealed" in problem.message for problem in ConfigDir(moved).load_errors(KEY=TOKEN)
    )


def test_unused_scope_files_are_sealed(sealed: ConfigDir) -> None:
    sealed.write({"scopes/unused.json": "[]"})
    assert (
        str(sealed.path / "scopes/unused.json") in create_seal(sealed.path / "config.yaml").hashes
    )


def test_unused_scope_file_is_compared_with_the_seal(sealed: ConfigDir) -> None:
    sealed.write({"scopes/unused.json": "[]"})
    problem = only(sealed.load_errors(KEY=TOKEN))
    assert (problem.file, "is not sealed" in problem.message) == (
        str(sealed.path / "scopes/unused.json"),
        True,
    )
    sealed.lock()
    assert sealed.load(KEY=TOKEN).warnings == ()
    problem = only(sealed.load_errors({"scopes/unused.json": '["*"]'}, KEY=TOKEN))
    assert "has changed since it was sealed" in problem.message


@pytest.mark.parametrize("name", ["tokens.yaml", "webhooks.yaml"])
def test_high_security_file_that_is_not_included_is_compared_with_the_seal(
    config_dir: ConfigDir, name: str
) -> None:
    config_dir.write("{}")
    config_dir.lock()
    assert "is not sealed" in only(config_dir.load_errors({name: "{"})).message
    config_dir.lock()
    assert config_dir.load().warnings == ()
    assert "has changed" in only(config_dir.load_errors({name: "{}"})).message


def test_sealed_file_in_a_subdirectory_is_compared_with_the_seal(
    config_dir: ConfigDir,
) -> None:
    config_dir.write({"config.yaml": "include: [sub/tokens.yaml]", "sub/tokens.yaml": "{}"})
    config_dir.lock()
    (config_dir.path / "config.yaml").write_text("{}")
    problem = only(config_dir.load_errors({"sub/tokens.yaml": "tokens: []"}))
    assert (problem.file, "has changed" in problem.message) == (
        str(config_dir.path / "sub/tokens.yaml"),
        True,
    )


def test_temporary_files_of_editors_are_ignored(sealed: ConfigDir) -> None:
    (sealed.path / "scopes/.#t.json").symlink_to("somebody@somewhere.1234")
    assert sealed.load({"scopes/t.json~": "[]"}, KEY=TOKEN).warnings == ()


def test_unreadable_scopes_directory_is_reported(
    sealed: ConfigDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("ductile.config.loader.files.os.scandir", deny)
    assert "cannot list" in only(sealed.load_errors(KEY=TOKEN)).message


def test_unreadable_configuration_cannot_be_sealed(config_dir: ConfigDir) -> None:
    config_dir.write("include: [gone.yaml]")
    with pytest.raises(ConfigError, match=r"gone\.yaml"):
        config_dir.lock()
    assert not (config_dir.path / ".checksums").exists()


def test_sealing_does_not_expand_variables(config_dir: ConfigDir) -> None:
    config_dir.write("service: {name: ${UNSET}}")
    assert config_dir.lock().exists()


def test_plugin_fingerprints_are_read_back(config_dir: ConfigDir) -> None:
    config_dir.write("")
    prints = [{"name": "echo", "enabled": True, "manifest_hash": "1" * 64}]
    create_seal(config_dir.path / "config.yaml", plugin_fingerprints=prints).write(MOMENT)
    seal = config_dir.load().seal
    assert seal is not None
    assert list(seal.plugin_fingerprints) == prints


def test_hash_that_looks_like_a_number_is_text(config_dir: ConfigDir) -> None:
    config_dir.write("")
    text = f"version: 2\nhashes: {{{config_dir.path}/gone.yaml: {'1' * 31}e{'1' * 32}}}\n"
    assert "is sealed but missing" in config_dir.load({".checksums": text}).warnings[-1].message
