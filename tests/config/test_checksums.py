"""The seal: what must be sealed, what is only warned about, and in which order things happen."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml
from blake3 import blake3

from ductile.config import measure
from ductile.errors import ConfigError, Severity
from tests.config.conftest import MOMENT, Home, only

FILES = {
    "config.yaml": "include: [tokens.yaml, routes.yaml]\nservice: {strict_mode: false}",
    "tokens.yaml": "tokens: [{name: t, key: ${KEY}, scopes_file: scopes/t.json}]",
    "routes.yaml": "routes: []",
    "scopes/t.json": '["*"]',
}
STRICT = {"config.yaml": FILES["config.yaml"].replace("false", "true")}


@pytest.fixture
def sealed(home: Home) -> Home:
    home.write(FILES)
    home.lock()
    return home


def test_what_is_as_it_was_sealed_loads_without_a_word(sealed: Home) -> None:
    assert sealed.load(KEY="k").warnings == ()


def test_the_seal_is_yaml_by_absolute_path(sealed: Home) -> None:
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


def test_sealing_leaves_no_draft_behind(sealed: Home) -> None:
    assert sorted(path.name for path in sealed.path.iterdir()) == sorted(
        {".checksums", *(name.split("/")[0] for name in FILES)}
    )


def test_no_seal_is_needed_without_high_security_files(home: Home) -> None:
    assert home.load("service: {strict_mode: true}").warnings == ()


@pytest.mark.parametrize("name", ["tokens.yaml", "webhooks.yaml", "sub/tokens.yaml"])
def test_a_high_security_file_needs_a_seal(home: Home, name: str) -> None:
    problem = only(home.refused({"config.yaml": f"include: [{name}]", name: "{}"}))
    assert problem.file == str(home.path / name)
    assert "is not sealed" in problem.message
    assert "ductile config lock" in problem.message


@pytest.mark.parametrize("name", ["tokens.yaml", "scopes/t.json"])
def test_a_changed_high_security_file_is_refused(sealed: Home, name: str) -> None:
    problem = only(sealed.refused({name: FILES[name] + "\n"}, KEY="k"))
    assert problem.file == str(sealed.path / name)
    assert "has changed since it was sealed" in problem.message


def test_a_scope_file_anywhere_is_high_security(home: Home) -> None:
    home.write(
        {"config.yaml": "tokens: [{name: t, key: k, scopes_file: perms.json}]", "perms.json": "[]"}
    )
    home.lock()
    assert "has changed" in only(home.refused({"perms.json": '["*"]'})).message


@pytest.mark.parametrize("name", ["config.yaml", "routes.yaml"])
def test_another_changed_file_is_warned_about(sealed: Home, name: str) -> None:
    warning = only(list(sealed.load({name: FILES[name] + "\n"}, KEY="k").warnings))
    assert (warning.severity, warning.file) == (Severity.WARNING, str(sealed.path / name))


def test_what_differs_is_told_with_both_hashes(sealed: Home) -> None:
    changed, was = '["*"] ', FILES["scopes/t.json"]
    problem = only(sealed.refused({"scopes/t.json": changed}, KEY="k"))
    assert (problem.line, problem.column) == (1, 1)
    assert problem.found == f"BLAKE3 {blake3(changed.encode()).hexdigest()}"
    assert problem.allowed == f"BLAKE3 {blake3(was.encode()).hexdigest()}"


def test_what_is_gone_is_told_with_the_hash_that_it_had(sealed: Home) -> None:
    (sealed.path / "scopes/t.json").unlink()
    problem = next(p for p in sealed.refused(KEY="k") if "is gone" in p.message)
    assert (problem.file, problem.line, problem.column) == (
        str(sealed.path / "scopes/t.json"),
        None,
        None,
    )
    assert problem.found == "nothing"
    assert problem.allowed == f"BLAKE3 {blake3(FILES['scopes/t.json'].encode()).hexdigest()}"


def test_another_changed_file_is_refused_in_strict_mode(sealed: Home) -> None:
    sealed.write(STRICT)
    sealed.lock()
    assert "has changed" in only(sealed.refused({"routes.yaml": "routes: [] "}, KEY="k")).message


def test_strict_mode_by_variable_counts_too(sealed: Home) -> None:
    sealed.write({"config.yaml": FILES["config.yaml"].replace("false", "${STRICT}")})
    sealed.lock()
    assert len(sealed.load({"routes.yaml": "routes: [] "}, KEY="k", STRICT="false").warnings) == 1
    assert "has changed" in only(sealed.refused(KEY="k", STRICT="true")).message


def test_a_new_file_is_warned_about(sealed: Home) -> None:
    sealed.write(
        {
            "more/a.yaml": "{}",
            "config.yaml": FILES["config.yaml"].replace("routes.yaml", "routes.yaml, more"),
        }
    )
    sealed.lock()
    loaded = sealed.load({"more/b.yaml": "{}"}, KEY="k")
    assert "is not sealed" in only(list(loaded.warnings)).message


def test_a_sealed_file_that_is_gone_is_warned_about(sealed: Home) -> None:
    sealed.write({"more/a.yaml": "{}", "more/b.yaml": "{}", "config.yaml": "include: [more]"})
    sealed.lock()
    (sealed.path / "more/b.yaml").unlink()
    assert "is gone" in only(list(sealed.load().warnings)).message


def test_an_env_file_is_sealed_as_well(home: Home) -> None:
    home.write({"config.yaml": "environment_vars: {include: [.env]}", ".env": "A=1"})
    home.lock()
    assert "has changed" in only(list(home.load({".env": "A=2"}).warnings)).message


def test_nothing_is_expanded_before_the_seal_holds(sealed: Home) -> None:
    problem = only(sealed.refused({"tokens.yaml": FILES["tokens.yaml"] + " "}))
    assert "KEY" not in str(problem)


def test_a_broken_high_security_file_is_not_even_parsed(sealed: Home) -> None:
    assert "has changed" in only(sealed.refused({"tokens.yaml": "tokens: ["})).message


def test_a_broken_seal_does_not_hide_syntax_errors_elsewhere(sealed: Home) -> None:
    problems = sealed.refused({"tokens.yaml": "tokens: []", "routes.yaml": "routes: ["})
    assert [Path(problem.file or "").name for problem in problems] == ["tokens.yaml", "routes.yaml"]


def test_a_broken_seal_does_not_hide_what_is_wrong_elsewhere(home: Home) -> None:
    files = {
        "config.yaml": "include: [tokens.yaml, more.yaml]\n"
        "environment_vars: {include: [.env]}\n"
        "service: {max_wrkers: 3}",
        "tokens.yaml": "tokens: [{nam: x}]\nservice: {max_hops: y}",
        "more.yaml": "service: {max_workers: many}\nroutes: [{from: a}]",
        ".env": "A",
    }
    told = [(Path(problem.file or "").name, problem.message) for problem in home.refused(files)]
    assert [(file, message.partition(";")[0]) for file, message in told] == [
        ("config.yaml", "unknown key 'max_wrkers'"),
        (".env", "not a line of an .env file"),
        ("tokens.yaml", f"the file is not sealed (there is no {home.path}/.checksums)"),
        ("more.yaml", "must be a whole number"),
        ("more.yaml", "missing key 'event_type'"),
        ("more.yaml", "missing key 'to'"),
    ]


def test_what_the_broken_file_may_hold_is_not_missed(home: Home) -> None:
    endpoint = "webhooks: [{path: /h, plugin: p, secret_ref: s}]"
    files = {
        "config.yaml": f"include: [tokens.yaml]\napi: {{enabled: true}}\n{endpoint}",
        "tokens.yaml": "tokens: [{name: s, key: k}]",
    }
    assert "is not sealed" in only(home.refused(files)).message


@pytest.mark.parametrize("value", ["${N}", "${N:-many}"])
def test_no_variable_is_looked_up_while_the_seal_is_broken(home: Home, value: str) -> None:
    files = {
        "config.yaml": f"include: [tokens.yaml]\nservice: {{max_workers: {value}}}",
        "tokens.yaml": "{}",
    }
    assert "is not sealed" in only(home.refused(files)).message
    assert "is not sealed" in only(home.refused(files, N="canary")).message


def test_no_secret_is_told_while_the_seal_is_broken(home: Home) -> None:
    files = {
        "config.yaml": "include: [tokens.yaml]\nstate: {url: host=/x password=hunter22}\n"
        "plugins: {p: {config: {token: hunter2hunter2}, parallelism: hunter2hunter2}}",
        "tokens.yaml": "{}",
    }
    problems = home.refused(files)
    assert len(problems) == 3
    assert "hunter2" not in "".join(map(str, problems))


def test_a_check_before_sealing_leaves_the_seal_aside(home: Home) -> None:
    home.write(FILES)
    assert home.load(seal=False, KEY="k").settings.tokens[0].scopes == ("*",)


@pytest.mark.parametrize(
    "text", ["", "version: 1\nhashes: {}", "- a", "version: 2\nhashes: [a]", "{"]
)
def test_a_seal_that_cannot_be_read_refuses(home: Home, text: str) -> None:
    problem = only(home.refused({"config.yaml": "", ".checksums": text}))
    assert problem.file == str(home.path / ".checksums")


def test_moving_the_directory_breaks_the_seal(sealed: Home) -> None:
    moved = sealed.path.rename(sealed.path.with_name("moved"))
    assert any("is not sealed" in problem.message for problem in Home(moved).refused(KEY="k"))


def test_unused_scope_files_are_sealed_too(sealed: Home) -> None:
    sealed.write({"scopes/unused.json": "[]"})
    assert str(sealed.path / "scopes/unused.json") in measure(sealed.path).hashes


def test_an_unused_scope_file_is_held_to_its_seal(sealed: Home) -> None:
    sealed.write({"scopes/unused.json": "[]"})
    problem = only(sealed.refused(KEY="k"))
    assert (problem.file, "is not sealed" in problem.message) == (
        str(sealed.path / "scopes/unused.json"),
        True,
    )
    sealed.lock()
    assert sealed.load(KEY="k").warnings == ()
    problem = only(sealed.refused({"scopes/unused.json": '["*"]'}, KEY="k"))
    assert "has changed since it was sealed" in problem.message


@pytest.mark.parametrize("name", ["tokens.yaml", "webhooks.yaml"])
def test_a_high_security_file_that_nobody_includes_is_held_to_its_seal(
    home: Home, name: str
) -> None:
    home.write("{}")
    home.lock()
    assert "is not sealed" in only(home.refused({name: "{"})).message
    home.lock()
    assert home.load().warnings == ()
    assert "has changed" in only(home.refused({name: "{}"})).message


def test_a_sealed_high_security_file_elsewhere_is_held_to_its_seal(home: Home) -> None:
    home.write({"config.yaml": "include: [sub/tokens.yaml]", "sub/tokens.yaml": "{}"})
    home.lock()
    (home.path / "config.yaml").write_text("{}")
    problem = only(home.refused({"sub/tokens.yaml": "tokens: []"}))
    assert (problem.file, "has changed" in problem.message) == (
        str(home.path / "sub/tokens.yaml"),
        True,
    )


def test_what_an_editor_leaves_among_the_scope_files_is_its_business(sealed: Home) -> None:
    (sealed.path / "scopes/.#t.json").symlink_to("somebody@somewhere.1234")
    assert sealed.load({"scopes/t.json~": "[]"}, KEY="k").warnings == ()


def test_scope_files_that_cannot_be_listed_are_a_problem(
    sealed: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("ductile.config.loader.files.os.scandir", refuse)
    assert "cannot list" in only(sealed.refused(KEY="k")).message


def test_what_cannot_be_read_cannot_be_sealed(home: Home) -> None:
    home.write("include: [gone.yaml]")
    with pytest.raises(ConfigError, match=r"gone\.yaml"):
        home.lock()
    assert not (home.path / ".checksums").exists()


def test_sealing_needs_no_variables(home: Home) -> None:
    home.write("service: {name: ${UNSET}}")
    assert home.lock().exists()


def test_plugin_fingerprints_come_back(home: Home) -> None:
    home.write("")
    prints = [{"name": "echo", "enabled": True, "manifest_hash": "1" * 64}]
    measure(home.path, plugin_fingerprints=prints).write(MOMENT)
    seal = home.load().seal
    assert seal is not None
    assert list(seal.plugin_fingerprints) == prints


def test_a_hash_that_looks_like_a_number_is_text(home: Home) -> None:
    home.write("")
    text = f"version: 2\nhashes: {{{home.path}/gone.yaml: {'1' * 31}e{'1' * 32}}}\n"
    assert "is gone" in home.load({".checksums": text}).warnings[-1].message
