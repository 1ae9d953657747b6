"""`config get` and `config set`: reading and changing one value of the files."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from difflib import ndiff
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ductile.config.edit.editor import ConfigEditor, FileEdit, _are_equal, parse_value
from ductile.config.edit.paths import MISSING, get_at, resolve_path
from ductile.config.edit.spans import parse_spans
from ductile.config.loader.interpolate import Variables
from ductile.core.values.redact import REDACTED
from ductile.errors import ConfigError, NotFound, Refused, UsageError
from tests.config.conftest import ConfigDir, no_deadline

CONFIG = """\
# The gateway at home.
include: [plugins.yaml]

service:
  name: "home"     # shown in logs
  # max_workers: 4

state: {path: ./data/state.db}   # next to this file

routes:
- from: echo
  event_type: echo.done   # exactly
  to: notify

api: {enabled: true, auth: {tokens: [{token: "${TOKEN}", scopes: ['*']}]}}
"""
PLUGINS = """\
plugins:
    echo:
        schedule:
            every: 5m     # often enough
        config:
            text: |
                one
                two
            api_key: hunter2hunter2

    # The second one.
    my.plugin: {enabled: false}
"""


@pytest.fixture
def files(config_dir: ConfigDir) -> ConfigDir:
    config_dir.write({"config.yaml": CONFIG, "plugins.yaml": PLUGINS})
    return config_dir


def open_editor(config_dir: ConfigDir) -> ConfigEditor:
    return ConfigEditor(config_dir.path / "config.yaml")


def set_(config_dir: ConfigDir, path: str, value: Any, **more: Any) -> str:
    """The new lines of the edited file."""
    edit = open_editor(config_dir).set(path, value, **more)
    old = edit.before.decode().splitlines()
    return "\n".join(line for line in edit.after.decode().splitlines() if line not in old)


class TestGet:
    @pytest.mark.parametrize(
        ("path", "value", "file", "line"),
        [
            ("service.name", "home", "config.yaml", 5),
            ("plugins.echo.schedules[0].every", "5m", "plugins.yaml", 4),
            ("plugins.echo.schedule.every", "5m", "plugins.yaml", 4),
            ("plugin:echo.config.text", "one\ntwo\n", "plugins.yaml", 6),
            ("plugins.my.plugin.enabled", False, "plugins.yaml", 12),
            ("plugins[my.plugin].enabled", False, "plugins.yaml", 12),
            ("routes[0].to", "notify", "config.yaml", 13),
            ("routes.echo.to", "notify", "config.yaml", 13),
            ("route:echo:echo.done.to", "notify", "config.yaml", 13),
            ("database.path", "./data/state.db", "config.yaml", 8),
            ("api.auth.tokens[0].scopes", ["*"], "config.yaml", 15),
        ],
    )
    def test_value_and_its_location(
        self, files: ConfigDir, path: str, value: Any, file: str, line: int
    ) -> None:
        found = open_editor(files).get(path, {"TOKEN": "x"})
        assert found is not None
        assert found.value == value
        assert (Path(found.location.file).name, found.location.line) == (file, line)

    def test_alias_of_several_schedules_is_ambiguous(self, files: ConfigDir) -> None:
        text = "plugins: {echo: {schedule: {id: b, every: 1h}, schedules: [{id: a, every: 1h}]}}"
        files.write({"plugins.yaml": text})
        with pytest.raises(UsageError, match=r"schedules\[0\], schedules\[1\]"):
            open_editor(files).get("plugins.echo.schedule.every", {"TOKEN": "x"})

    def test_absent_value_is_none(self, files: ConfigDir) -> None:
        assert open_editor(files).get("service.log_level", {}) is None

    def test_secrets_are_redacted(self, files: ConfigDir) -> None:
        found = open_editor(files).get("plugin:echo.config", {})
        assert found is not None
        assert found.value["api_key"] == REDACTED
        token = open_editor(files).get("api.auth.tokens[0].token", {"TOKEN": "not-to-be-seen"})
        assert token is not None
        assert token.value == REDACTED

    def test_everything_below_a_secret_key_of_plugin_config_is_redacted(
        self, config_dir: ConfigDir
    ) -> None:
        config_dir.write("plugins: {p: {config: {auth: {user: joe, n: 5}, user: jane}}}\n")
        found = open_editor(config_dir).get("plugins.p.config", {})
        assert found is not None
        assert found.value == {"auth": {"user": REDACTED, "n": REDACTED}, "user": "jane"}

    def test_variable_is_expanded(self, config_dir: ConfigDir) -> None:
        config_dir.write("service: {name: '${N}', max_workers: ${W}}\n")
        env = {"N": "lab", "W": "3"}
        name = open_editor(config_dir).get("service.name", env)
        workers = open_editor(config_dir).get("service.max_workers", env)
        assert (name and name.value, workers and workers.value) == ("lab", 3)

    def test_unset_variable_is_reported(self, config_dir: ConfigDir) -> None:
        config_dir.write("service: {name: '${N}', log_level: info}\n")
        with pytest.raises(ConfigError, match="the variable N is not set"):
            open_editor(config_dir).get("service.name", {})
        assert open_editor(config_dir).get("service.log_level", {}) is not None

    @pytest.mark.parametrize("path", ["", ".", "a..b", "a[", "a[]", "plugin:", "a]"])
    def test_invalid_path_is_rejected(self, files: ConfigDir, path: str) -> None:
        with pytest.raises(UsageError):
            open_editor(files).get(path, {})

    def test_path_below_a_scalar_is_rejected(self, files: ConfigDir) -> None:
        with pytest.raises(UsageError, match=r"service\.name is a single value"):
            open_editor(files).get("service.name.first", {})

    def test_unknown_item_is_reported(self, files: ConfigDir) -> None:
        with pytest.raises(NotFound, match="known: echo:echo"):
            open_editor(files).get("route:ekko", {})
        with pytest.raises(NotFound, match="routes has 1 item"):
            open_editor(files).get("routes[7]", {})

    def test_ambiguous_name_is_rejected(self, config_dir: ConfigDir) -> None:
        config_dir.write(
            "routes:\n- {from: a, event_type: x, to: b}\n- {from: a, event_type: y, to: b}\n"
        )
        with pytest.raises(UsageError, match=r"routes\[0\], routes\[1\]"):
            open_editor(config_dir).get("route:a", {})
        found = open_editor(config_dir).get("route:a:y.event_type", {})
        assert found is not None
        assert found.value == "y"


class TestSet:
    @pytest.mark.parametrize(
        ("path", "value", "line"),
        [
            ("service.name", "lab", '  name: "lab"     # shown in logs'),
            ("service.name", 12, "  name: 12     # shown in logs"),
            ("plugins.echo.schedule.every", "10m", "            every: 10m     # often enough"),
            ("route:echo.to", "log", "  to: log"),
            ("state.path", "/srv/state.db", "state: {path: /srv/state.db}   # next to this file"),
            ("state.path", "a, b", 'state: {path: "a, b"}   # next to this file'),
            ("plugin:echo.config.text", "short", "            text: short"),
            ("plugins.my.plugin.enabled", True, "    my.plugin: {enabled: true}"),
        ],
    )
    def test_value_is_replaced_in_place(
        self, files: ConfigDir, path: str, value: Any, line: str
    ) -> None:
        assert set_(files, path, value) == line

    @pytest.mark.parametrize(
        ("path", "value", "lines"),
        [
            ("service.max_workers", 4, "  max_workers: 4"),
            ("plugin:echo.retry.max_attempts", 2, ["        retry:", " " * 12 + "max_attempts: 2"]),
            ("plugin:echo.schedule.jitter", "1m", "            jitter: 1m"),
            ("gateway.open", True, ["gateway:", "    open: true"]),
            (
                "routes[+]",
                {"from": "a", "event_type": "b", "to": "c"},
                ["- from: a", "  event_type: b", "  to: c"],
            ),
            ("plugins[a.b].enabled", True, ["    a.b:", "        enabled: true"]),
        ],
    )
    def test_new_key_has_the_indentation_of_the_file(
        self, files: ConfigDir, path: str, value: Any, lines: str | list[str]
    ) -> None:
        wanted = lines if isinstance(lines, str) else "\n".join(lines)
        if path == "gateway.open":
            wanted = wanted.replace("    open", "  open")
        assert set_(files, path, value) == wanted

    def test_literal_block_is_kept(self, files: ConfigDir) -> None:
        after = open_editor(files).set("plugin:echo.config.text", "1\n2\n3\n").after.decode()
        assert "text: |\n                1\n                2\n                3\n" in after

    @pytest.mark.parametrize("empty", ["plugins:", "plugins: {}", "plugins: ~", "plugins: null"])
    def test_empty_section_becomes_a_block(self, config_dir: ConfigDir, empty: str) -> None:
        config_dir.write(f"{empty}   # none yet\n# end\n")
        after = open_editor(config_dir).set("plugins.echo.enabled", False).after.decode()
        assert after == "plugins:   # none yet\n  echo:\n    enabled: false\n# end\n"

    @pytest.mark.parametrize(
        ("text", "after"),
        [
            ("", "service:\n  name: x\n"),
            ("# only words\n", "# only words\nservice:\n  name: x\n"),
            ("{}\n", "{service: {name: x}}\n"),
            ("routes: []", "routes: []\nservice:\n  name: x\n"),
            ("routes: []\r\n", "routes: []\r\nservice:\r\n  name: x\r\n"),
            ("include: []\n", "include: []\nservice:\n  name: x\n"),
        ],
    )
    def test_first_key_of_a_file(self, config_dir: ConfigDir, text: str, after: str) -> None:
        (config_dir.path / "config.yaml").write_bytes(text.encode())
        assert open_editor(config_dir).set("service.name", "x").after == after.encode()

    def test_file_that_sets_the_value_is_edited(self, config_dir: ConfigDir) -> None:
        config_dir.write(
            {
                "config.yaml": "include: [b.yaml]\nservice: {name: first}\n",
                "b.yaml": "service:\n  name: second\n",
            }
        )
        edit = open_editor(config_dir).set("service.name", "third")
        assert edit.file.name == "b.yaml"
        assert edit.after == b"service:\n  name: third\n"

    def test_item_is_appended_to_the_last_file_of_a_list(self, config_dir: ConfigDir) -> None:
        config_dir.write(
            {
                "config.yaml": "include: [b.yaml]\nplugin_roots: [./a]\n",
                "b.yaml": "plugin_roots:\n  - ./b\n",
            }
        )
        edit = open_editor(config_dir).set("plugin_roots[+]", "./c")
        assert (edit.file.name, edit.after) == ("b.yaml", b"plugin_roots:\n  - ./b\n  - ./c\n")

    @pytest.mark.parametrize("path", ["tokens[ci].scopes", "token:ci.key", "routes[a].to"])
    def test_item_of_a_list_that_is_missing_is_unknown(
        self, config_dir: ConfigDir, path: str
    ) -> None:
        config_dir.write({"config.yaml": "service: {name: a}\n"})
        with pytest.raises(NotFound, match=r"has no item '(ci|a)'; known: none"):
            open_editor(config_dir).set(path, "x")

    def test_webhook_by_path_and_by_name(self, config_dir: ConfigDir) -> None:
        config_dir.write(
            {
                "config.yaml": "include: [webhooks.yaml]\n",
                "webhooks.yaml": "webhooks:\n- path: /hook/github\n  plugin: a\n  secret: ${S}\n",
            }
        )
        for path in ("webhook:/hook/github", "webhook:github", "webhooks[0]"):
            assert set_(config_dir, f"{path}.plugin", "b") == "  plugin: b"

    def test_equal_value_is_no_change(self, files: ConfigDir) -> None:
        assert not open_editor(files).set("service.name", "home").is_change

    def test_variable_is_not_overwritten_silently(self, files: ConfigDir) -> None:
        with pytest.raises(Refused, match=r"is the variable \$\{TOKEN\} in .*config.yaml:15"):
            set_(files, "api.auth.tokens[0].token", "literal")
        with pytest.raises(Refused, match="TOKEN"):
            set_(files, "api.auth", {"tokens": []})
        line = set_(files, "api.auth.tokens[0].token", "literal", over_references=True)
        assert 'token: "literal"' in line

    def test_new_value_may_have_a_variable(self, files: ConfigDir) -> None:
        edit = open_editor(files).set("plugin:echo.config.api_key", "${KEY}")
        assert b"api_key: ${KEY}\n" in edit.after
        assert edit.references == ("KEY",)

    @pytest.mark.parametrize(
        "text",
        [
            "plugins:\n  a: &x {enabled: true}\n  b: *x\n",
            "plugins:\n  base: &x\n    enabled: true\n  a:\n    <<: *x\n",
        ],
    )
    def test_value_shared_by_an_anchor_is_not_changed(
        self, config_dir: ConfigDir, text: str
    ) -> None:
        config_dir.write(text)
        with pytest.raises(Refused, match="without changing other values"):
            set_(config_dir, "plugins.a.enabled", False)

    def test_files_that_are_not_yaml_are_reported(self, config_dir: ConfigDir) -> None:
        config_dir.write("a: [\n")
        with pytest.raises(ConfigError):
            open_editor(config_dir)

    def test_secret_is_redacted(self, files: ConfigDir) -> None:
        edit = open_editor(files).set("plugin:echo.config.api_key", "correct horse")
        assert "hunter2" not in "".join(edit.redacted())
        assert "correct horse" not in "".join(edit.redacted())
        edit = open_editor(files).set("state.url", "postgres://me:hush@db/x")
        assert "hush" not in edit.redacted()[1]
        edit = open_editor(files).set("state.url", "postgres://db/x?password=hush")
        assert "hush" not in edit.redacted()[1]

    @pytest.mark.parametrize("section", ["state", "database"])
    def test_connection_string_is_redacted(self, config_dir: ConfigDir, section: str) -> None:
        config_dir.write(f"{section}: {{url: 'host=/x password=hush'}}\n")
        edit = open_editor(config_dir).set("state.url", "postgresql://db/x")
        before, after = edit.redacted()
        assert "hush" not in before
        assert "postgresql://db/x" in after

    def test_value_below_a_secret_key_is_redacted(self, config_dir: ConfigDir) -> None:
        config_dir.write("plugins:\n  p:\n    config:\n      auth:\n        user: joe\n")
        edit = open_editor(config_dir).set("plugins.p.config.auth.user", "jane")
        assert edit.is_change
        assert not any(name in text for name in ("joe", "jane") for text in edit.redacted())


class TestWrite:
    def test_mode_is_kept_and_no_temporary_file_is_left(self, files: ConfigDir) -> None:
        path = files.path / "config.yaml"
        path.chmod(0o640)
        before = {entry.name for entry in files.path.iterdir()}
        edit = open_editor(files).set("service.name", "lab")
        edit.write()
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert path.read_bytes() == edit.after
        assert {entry.name for entry in files.path.iterdir()} == before

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the owner")
    def test_owner_is_kept(self, files: ConfigDir) -> None:
        os.chown(files.path / "config.yaml", 12345, 23456)
        open_editor(files).set("service.name", "lab").write()
        about = (files.path / "config.yaml").stat()
        assert (about.st_uid, about.st_gid) == (12345, 23456)

    def test_concurrent_change_is_not_overwritten(self, files: ConfigDir) -> None:
        edit = open_editor(files).set("service.name", "lab")
        files.write({"config.yaml": CONFIG + "# mine\n"})
        with pytest.raises(Refused, match="has changed since it was read"):
            edit.write()
        assert (files.path / "config.yaml").read_text().endswith("# mine\n")

    def test_symlink_is_kept(self, files: ConfigDir) -> None:
        path = files.path / "config.yaml"
        path.rename(files.path / "real.yaml")
        path.symlink_to("real.yaml")
        open_editor(files).set("service.name", "lab").write()
        assert path.is_symlink()
        assert '"lab"' in (files.path / "real.yaml").read_text()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_unwritable_directory_is_reported(self, files: ConfigDir) -> None:
        edit = open_editor(files).set("service.name", "lab")
        files.path.chmod(0o500)
        try:
            with pytest.raises(Refused, match="cannot write"):
                edit.write()
        finally:
            files.path.chmod(0o700)


class TestValue:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("5m", "5m"),
            ("5", 5),
            ("true", True),
            ("on", "on"),
            ("null", None),
            ("", ""),
            ("a: b", "a: b"),
            ("x # y", "x # y"),
            ('"5"', "5"),
            ("'it''s'", "it's"),
            ("[1, {a: ${B}}]", [1, {"a": "${B}"}]),
            ("{}", {}),
        ],
    )
    def test_value_from_the_command_line(self, text: str, value: Any) -> None:
        assert parse_value(text) == value

    @pytest.mark.parametrize("text", ["[", "{a: 1, a: 2}", ".inf", "[.nan]", "9" * 30, '"a" b'])
    def test_invalid_value_is_rejected(self, text: str) -> None:
        with pytest.raises(UsageError):
            parse_value(text)

    def test_reserved_character_is_rejected(self, files: ConfigDir) -> None:
        with pytest.raises(UsageError, match="reserved"):
            open_editor(files).set("service.name", "\U00100000")


TEXTS = st.text(st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFFF), max_size=12)
WORDS = st.sampled_from(
    ["a", "5m", "yes", "a: b", "- x", "x #y", "#", "${HOME}", "0x1f", "1.0", "~", "é", "a\nb\n"]
)
SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | WORDS | TEXTS
SCALARS |= st.floats(allow_nan=False, allow_infinity=False)
KEYS = st.sampled_from(["a", "b", "c.d", "x y", "e:", "${K}", "1", "on", "ä"]) | TEXTS.filter(bool)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)
TABLES = st.dictionaries(KEYS, TREES, min_size=1, max_size=4)


@st.composite
def files_with_comments(draw: st.DrawFn) -> str:
    """A file with one plugin that has a random config, in a random style."""
    document = {"plugins": {"p": {"enabled": True, "config": draw(TABLES)}}, "routes": []}
    text = yaml.safe_dump(
        document,
        sort_keys=False,
        allow_unicode=draw(st.booleans()),
        indent=draw(st.sampled_from([2, 4])),
        default_flow_style=draw(st.sampled_from([False, None])),
        default_style=draw(st.sampled_from([None, None, "'", '"', "|"])),
        width=10_000,
    )
    lines = text.splitlines(keepends=True)
    roots = [i for i, line in enumerate(lines) if line[:1] in ("p", "r", '"', "'")]
    for index in reversed(roots):
        lines.insert(index, draw(st.sampled_from(["# a word\n", "\n", ""])))
    return "".join(lines).replace("\n", draw(st.sampled_from(["\n", "\r\n"])))


def list_paths(value: Any, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(p for key, item in inner for p in list_paths(item, (*path, key)))]


def spell(path: tuple[str | int, ...]) -> str:
    return "".join(f"[{part}]" for part in path)


class TestAnything:
    @no_deadline
    @given(files_with_comments(), TREES, st.data())
    def test_set_changes_the_value_and_no_other_line(
        self, text: str, value: Any, data: st.DataObject
    ) -> None:
        with tempfile.TemporaryDirectory() as name:
            path = Path(name).resolve() / "config.yaml"
            path.write_bytes(text.encode())
            try:
                before = ConfigEditor(path)
            except ConfigError:
                # PyYAML emits some texts that YAML 1.2 reads differently, such as `! a`.
                return
            config = ("plugins", "p", "config")
            known = list_paths(get_at(before.document, config), config)
            target = data.draw(st.sampled_from(known))
            if isinstance(get_at(before.document, target), dict) and data.draw(st.booleans()):
                target = (*target, data.draw(KEYS.filter(lambda key: not {*"[]"} & {*key})))
            if any(isinstance(p, str) and {*"[]"} & {*p} for p in target):
                return
            if target != resolve_path(spell(target), before.document):
                return
            edit = before.set(spell(target), value, over_references=True)
            edit.write()
            assert get_at(ConfigEditor(path).document, target) == value
            assert_other_lines_stay(edit, before, target)


def assert_other_lines_stay(
    edit: FileEdit, before: ConfigEditor, target: tuple[str | int, ...]
) -> None:
    old, new = edit.before.decode().split("\n"), edit.after.decode().split("\n")
    if get_at(before.document, target) is MISSING:
        changed = [line for line in ndiff(old, new) if line.startswith("- ")]
        # A new key in brackets changes its line; otherwise every line stays.
        assert len(changed) <= 1
        return
    first, last = find_lines(edit, before, target)
    assert new[:first] == old[:first]
    tail = old[last + 1 :]
    assert new[len(new) - len(tail) :] == tail


def find_lines(
    edit: FileEdit, before: ConfigEditor, target: tuple[str | int, ...]
) -> tuple[int, int]:
    """The first and the last line of the value at `target`, from 0."""
    text = edit.before.decode()
    concealed, _ = Variables().conceal(text, "")
    root = parse_spans(concealed)
    node, _ = before._find_nearest(target)
    span = root and root.find(node)
    assert span is not None
    start = span.key.start if span.key else span.start
    return text[:start].count("\n"), text[: span.end].count("\n")


def test_equality_distinguishes_types() -> None:
    assert not _are_equal({"a": 1}, {"a": True})
    assert not _are_equal({"a": 1}, {"a": 1.0})
    assert _are_equal({"a": 1, "b": 2}, json.loads('{"b": 2, "a": 1}'))
