"""Variables in values, and .env files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.config.loader.dotenv import parse
from ductile.config.loader.interpolate import Variables, names_in
from ductile.config.loader.nodes import Location, ScalarNode
from ductile.config.loader.secret_sources import SecretSources
from ductile.config.loader.yaml import compose
from tests.config.conftest import ConfigDir, location, no_deadline, only

HERE = Location("f", 1, 1)
NO_SECRETS = SecretSources(Path("/nowhere"), {})
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
DEFAULTS = st.none() | st.text(
    st.characters(exclude_characters="$}\r\n", codec="utf-8"), max_size=20
)
REFERENCES = st.builds(
    lambda name, default: f"${{{name}}}" if default is None else f"${{{name}:-{default}}}",
    NAMES,
    DEFAULTS.filter(lambda text: text is None or not any(ord(c) >= 0x100000 for c in text)),
)
PLAIN = st.text("abc xyz:#[]{},'\"\n-$é", max_size=30)


@no_deadline
@given(st.lists(PLAIN | REFERENCES, max_size=12))
def test_placeholder_has_the_length_of_its_reference(parts: list[str]) -> None:
    text = "".join(parts)
    concealed, problems = Variables().conceal(text, "f")
    assert not problems
    assert [len(line) for line in concealed.split("\n")] == [len(line) for line in text.split("\n")]


@no_deadline
@given(st.lists(PLAIN | REFERENCES, max_size=12))
def test_concealed_text_can_be_restored(parts: list[str]) -> None:
    variables = Variables()
    text = "".join(parts)
    assert variables.restore(variables.conceal(text, "f")[0]) == text


@no_deadline
@given(REFERENCES, st.text(max_size=50))
def test_value_never_changes_the_structure(reference: str, value: str) -> None:
    variables = Variables()
    concealed, _ = variables.conceal(f"a: [{reference}, end]\n", "f")
    node, problems = compose(concealed, "f")
    assert not problems
    scalar = node.items["a"].value.items[0]  # type: ignore[union-attr,index]
    assert isinstance(scalar, ScalarNode)
    name = reference[2:-1].partition(":-")[0]
    expansion = variables.expand(scalar, {name: value}, NO_SECRETS)
    default = reference[2:-1].partition(":-")[2]
    assert expansion.text == (value or default)


def expand(source: str, **values: str) -> str:
    variables = Variables()
    concealed, _ = variables.conceal(source, "f")
    return variables.expand(ScalarNode(concealed, HERE), values, NO_SECRETS).text


def test_default_replaces_unset_and_empty_variables() -> None:
    assert expand("${A:-x} ${B:-y}", B="") == "x y"


@pytest.mark.parametrize(
    ("values", "expected"),
    [({}, "<z>"), ({"B": "b"}, "<b>"), ({"A": "a"}, "<a>"), ({"A": "a", "B": "b"}, "<a>")],
)
def test_default_may_contain_references(values: dict[str, str], expected: str) -> None:
    assert expand("<${A:-${B:-z}}>", **values) == expected


def test_several_references_in_a_default() -> None:
    source = "${URL:-http://${HOST:-localhost}:${PORT:-80}/${PATH_:-}}"
    assert expand(source, HOST="h") == "http://h:80/"


def test_only_references_that_are_used_must_be_set() -> None:
    variables = Variables()
    concealed, _ = variables.conceal("${A:-${B}} ${C:-${D}}", "f")
    expansion = variables.expand(ScalarNode(concealed, HERE), {"A": "a"}, NO_SECRETS)
    assert (expansion.text, expansion.used, expansion.missing) == ("a ", (("A", "a"),), ("D",))


def test_variables_of_nested_references_are_named() -> None:
    assert names_in("${A:-${B:-${C}}${B}} $${D} ${E") == ("A", "B", "C")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("$${A}", "${A}"),
        ("$${A:-x} ${A:-x}", "${A:-x} x"),
        ("cost: $${", "cost: ${"),
        ("$$${A}", "$${A}"),
        ("$A $$ $", "$A $$ $"),
        ("${A:-$${B}", "${B"),
    ],
)
def test_doubled_dollar_sign_writes_a_literal_reference(source: str, expected: str) -> None:
    assert expand(source) == expected


def test_escaped_references_cause_no_warning(config_dir: ConfigDir) -> None:
    text = 'plugins: {p: {config: {a: "$${A} $${b c}", "$${k}": 1}}}'
    loaded = config_dir.load(text, A="x")
    assert loaded.settings.plugins["p"].config == {"a": "${A} ${b c}", "$${k}": 1}
    assert loaded.warnings == ()


@pytest.mark.parametrize("text", ["${A:-${B}", "${A:-", "${A:-x\n    y}"])
def test_reference_without_its_closing_brace_is_warned_of(config_dir: ConfigDir, text: str) -> None:
    loaded = config_dir.load(f"plugins:\n  p:\n   config:\n    a: '{text}'\n", B="b")
    expected = text.replace("${B}", "b").replace("\n   ", "")
    assert loaded.settings.plugins["p"].config == {"a": expected}
    assert "is not a valid variable reference" in only(list(loaded.warnings)).message


def test_deep_nesting_is_not_an_error_of_the_program() -> None:
    assert expand("${A:-" * 2000 + "x" + "}" * 2000, A="a").endswith(":-a" + "}" * 1950)


def test_nested_default_in_a_quoted_scalar_is_unescaped(config_dir: ConfigDir) -> None:
    text = """plugins: {p: {config: {a: '${X:-it''s ${Y:-it''s}}', b: "${X:-${Y:-\\"hi\\"}}"}}}"""
    loaded = config_dir.load(text)
    assert loaded.settings.plugins["p"].config == {"a": "it's it's", "b": '"hi"'}


def test_default_may_be_empty() -> None:
    assert expand("a${A:-}b") == "ab"


def test_value_is_not_expanded_again() -> None:
    assert expand("${A}", A="${B}", B="no") == "${B}"


def test_several_references_in_one_scalar(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(
        "plugins: {p: {config: {url: 'http://${H}:${P}/x'}}}", H="host", P="80"
    )
    assert loaded.settings.plugins["p"].config == {"url": "http://host:80/x"}


def test_references_in_flow_collections(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(
        "plugins: {p: {config: {list: [${A}, ${B}], token: ${T}}}}", A="1", B="x", T="t"
    )
    assert loaded.settings.plugins["p"].config == {"list": [1, "x"], "token": "t"}


def test_columns_after_a_reference_are_correct(config_dir: ConfigDir) -> None:
    text = "service: {name: ${A}, max_worker: 1}\n"
    problem = only(config_dir.load_errors(text, A="a name much longer than its variable"))
    assert location(problem) == ("config.yaml", 1, text.index("max_worker") + 1)


def test_unquoted_scalar_is_typed_after_expansion(config_dir: ConfigDir) -> None:
    assert config_dir.load("service: {max_workers: ${N}}", N="7").settings.service.max_workers == 7


def test_quoted_scalar_is_text(config_dir: ConfigDir) -> None:
    loaded = config_dir.load("plugins: {p: {config: {a: ${N}, b: '${N}'}}}", N="7")
    assert loaded.settings.plugins["p"].config == {"a": 7, "b": "7"}


def test_scalar_of_a_text_field_is_text(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(
        "service: {name: ${N}}\nroutes: [{from: 1.10, event_type: on, to: 007}]", N="12"
    )
    route = loaded.settings.routes[0]
    assert loaded.settings.service.name == "12"
    assert (route.from_, route.event_type, route.to) == ("1.10", "on", "007")


def test_value_with_yaml_syntax_is_one_scalar(config_dir: ConfigDir) -> None:
    value = "x: y # {not} [yaml]\n- a"
    loaded = config_dir.load("plugins: {p: {config: {a: ${V}}}}", V=value)
    assert loaded.settings.plugins["p"].config == {"a": value}


def test_unset_variable_is_named(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("plugins:\n  p:\n    config:\n      a: ${GONE}\n"))
    assert "GONE is not set" in problem.message
    assert location(problem) == ("config.yaml", 4, 10)
    assert problem.path == ("plugins", "p", "config", "a")


def test_every_unset_variable_is_reported(config_dir: ConfigDir) -> None:
    problems = config_dir.load_errors("service: {name: ${A}, max_workers: ${B}}")
    assert ["A is not set" in problems[0].message, "B is not set" in problems[1].message] == [
        True,
        True,
    ]


def test_comments_are_not_expanded(config_dir: ConfigDir) -> None:
    config_dir.load("# token: ${OLD}\nservice: {name: x} # ${OLDER}\n")


def test_keys_are_not_expanded(config_dir: ConfigDir) -> None:
    loaded = config_dir.load("plugins: {p: {config: {'${A}': 1}}}", A="x")
    assert loaded.settings.plugins["p"].config == {"${A}": 1}


def test_invalid_reference_is_kept_with_a_warning(config_dir: ConfigDir) -> None:
    loaded = config_dir.load("plugins: {p: {config: {a: '${A:default}'}}}", A="x")
    assert loaded.settings.plugins["p"].config == {"a": "${A:default}"}
    assert only(list(loaded.warnings)).found == "${A:default}"


def test_reserved_character_is_rejected(config_dir: ConfigDir) -> None:
    assert "reserved" in only(config_dir.load_errors("service: {name: \U00100000abc}")).message


def test_other_private_use_characters_are_accepted(config_dir: ConfigDir) -> None:
    assert (
        config_dir.load("service: {name: '\ue0a0\U000f0001'}").settings.service.name
        == "\ue0a0\U000f0001"
    )


def test_default_in_a_quoted_scalar_is_unescaped(config_dir: ConfigDir) -> None:
    text = """plugins: {p: {config: {a: '${X:-it''s}', b: "${X:-say \\"hi\\"}"}}}"""
    assert config_dir.load(text).settings.plugins["p"].config == {"a": "it's", "b": 'say "hi"'}


def test_variable_that_is_not_utf_8_is_rejected(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("service: {name: ${A}}", A="\udcff"))
    assert "A is not UTF-8" in problem.message


@pytest.mark.parametrize("value", ["true", "1e3", "~"])
def test_values_of_plugin_config_have_yaml_types(config_dir: ConfigDir, value: str) -> None:
    loaded = config_dir.load("plugins: {p: {config: {a: ${V}}}}", V=value)
    assert loaded.settings.plugins["p"].config["a"] in (True, 1000.0, None)


def test_path_of_a_problem_has_keys_as_written(config_dir: ConfigDir) -> None:
    problems = config_dir.load_errors("plugins: {${P}: {enabled: true, enabled: false}}", P="p")
    assert ("plugins", "${P}", "enabled") in [problem.path for problem in problems]


class TestEnvFiles:
    def test_env_file_sets_variables(self, config_dir: ConfigDir) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}\nservice: {name: ${WHO}}",
            ".env": "# who\nexport WHO=\"a friend\"\n\nOTHER='x'\n",
        }
        assert config_dir.load(files).settings.service.name == "a friend"

    def test_environment_has_precedence_over_env_files(self, config_dir: ConfigDir) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}\nservice: {name: ${WHO}}",
            ".env": "WHO=file\n",
        }
        assert config_dir.load(files, WHO="real").settings.service.name == "real"

    def test_missing_env_file_is_reported(self, config_dir: ConfigDir) -> None:
        problem = only(config_dir.load_errors("environment_vars: {include: [.env]}"))
        assert "there is no file" in problem.message

    def test_invalid_line_is_reported_without_its_text(self, config_dir: ConfigDir) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}",
            ".env": "A=1\nhunter2 secret\n",
        }
        problem = only(config_dir.load_errors(files))
        assert location(problem) == (".env", 2, 1)
        assert "hunter2" not in str(problem)

    @pytest.mark.parametrize(
        ("line", "value"),
        [
            ('WHO="abcdefghij" # from vault', "abcdefghij"),
            ("WHO='a # b'\t# c", "a # b"),
            ("WHO= 'it is \"so\"' ", 'it is "so"'),
            ("WHO=plain # note", "plain"),
            ("WHO=plain\t# note # more", "plain"),
            ("WHO=a#b#", "a#b#"),
            ("WHO=#b", "#b"),
            ("WHO=it's", "it's"),
            ("WHO='x' #", "x"),
            ('WHO="{"a": 1}" # JSON', '{"a": 1}'),
            ('WHO="x" # from "vault"', "x"),
        ],
    )
    def test_comment_is_not_part_of_the_value(
        self, config_dir: ConfigDir, line: str, value: str
    ) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}\nservice: {name: '${WHO}'}",
            ".env": line,
        }
        assert config_dir.load(files).settings.service.name == value

    @pytest.mark.parametrize("value", ["", "''", '""', " # nothing", "'' # nothing"])
    def test_value_may_be_empty(self, value: str) -> None:
        assert parse(f"A={value}", ".env") == ({"A": ""}, [])

    @pytest.mark.parametrize(
        "value", ['"hunter2" x', '"hunter2"#x', "'hunter2", "\"hunter2'", '"a"hunter2', "'"]
    )
    def test_text_after_a_closing_quote_is_rejected(
        self, config_dir: ConfigDir, value: str
    ) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}",
            ".env": f"A=1\nB={value}\n",
        }
        problem = only(config_dir.load_errors(files))
        assert location(problem) == (".env", 2, 1)
        assert "closing quote" in problem.message
        assert "hunter2" not in str(problem)

    def test_unknown_key_of_environment_vars_is_rejected(self, config_dir: ConfigDir) -> None:
        assert (
            "unknown key 'files'"
            in only(config_dir.load_errors("environment_vars: {files: []}")).message
        )
