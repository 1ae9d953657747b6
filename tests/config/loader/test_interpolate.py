"""Variables: hidden while YAML is parsed, typed after they are expanded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.config.loader.dotenv import parse
from ductile.config.loader.interpolate import Variables
from ductile.config.loader.nodes import Place, Scalar
from ductile.config.loader.yaml import compose
from tests.config.conftest import Home, only, patient, place

HERE = Place("f", 1, 1)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
DEFAULTS = st.none() | st.text(
    st.characters(exclude_characters="}\r\n", codec="utf-8"), max_size=20
)
REFERENCES = st.builds(
    lambda name, default: f"${{{name}}}" if default is None else f"${{{name}:-{default}}}",
    NAMES,
    DEFAULTS.filter(lambda text: text is None or not any(ord(c) >= 0x100000 for c in text)),
)
PLAIN = st.text("abc xyz:#[]{},'\"\n-$é", max_size=30)


@patient
@given(st.lists(PLAIN | REFERENCES, max_size=12))
def test_a_placeholder_is_as_long_as_what_it_hides(parts: list[str]) -> None:
    text = "".join(parts)
    concealed, problems = Variables().conceal(text, "f")
    assert not problems
    assert [len(line) for line in concealed.split("\n")] == [len(line) for line in text.split("\n")]


@patient
@given(st.lists(PLAIN | REFERENCES, max_size=12))
def test_what_is_concealed_can_be_restored(parts: list[str]) -> None:
    variables = Variables()
    text = "".join(parts)
    assert variables.restore(variables.conceal(text, "f")[0]) == text


@patient
@given(REFERENCES, st.text(max_size=50))
def test_a_value_never_changes_the_structure(reference: str, value: str) -> None:
    variables = Variables()
    concealed, _ = variables.conceal(f"a: [{reference}, end]\n", "f")
    node, problems = compose(concealed, "f")
    assert not problems
    scalar = node.items["a"].value.items[0]  # type: ignore[union-attr,index]
    assert isinstance(scalar, Scalar)
    name = reference[2:-1].partition(":-")[0]
    expansion = variables.expand(scalar, {name: value})
    default = reference[2:-1].partition(":-")[2]
    assert expansion.text == (value or default)


def expand(source: str, **values: str) -> str:
    variables = Variables()
    concealed, _ = variables.conceal(source, "f")
    return variables.expand(Scalar(concealed, HERE), values).text


def test_a_default_stands_in_for_unset_and_for_empty() -> None:
    assert expand("${A:-x} ${B:-y}", B="") == "x y"


def test_an_empty_default_is_a_default() -> None:
    assert expand("a${A:-}b") == "ab"


def test_a_value_is_not_expanded_again() -> None:
    assert expand("${A}", A="${B}", B="no") == "${B}"


def test_several_references_in_one_scalar(home: Home) -> None:
    loaded = home.load("plugins: {p: {config: {url: 'http://${H}:${P}/x'}}}", H="host", P="80")
    assert loaded.settings.plugins["p"].config == {"url": "http://host:80/x"}


def test_references_in_flow_collections(home: Home) -> None:
    loaded = home.load(
        "plugins: {p: {config: {list: [${A}, ${B}], token: ${T}}}}", A="1", B="x", T="t"
    )
    assert loaded.settings.plugins["p"].config == {"list": [1, "x"], "token": "t"}


def test_columns_after_a_reference_stay_true(home: Home) -> None:
    text = "service: {name: ${A}, max_worker: 1}\n"
    problem = only(home.refused(text, A="a name much longer than its variable"))
    assert place(problem) == ("config.yaml", 1, text.index("max_worker") + 1)


def test_an_unquoted_scalar_is_typed_after_expansion(home: Home) -> None:
    assert home.load("service: {max_workers: ${N}}", N="7").settings.service.max_workers == 7


def test_a_quoted_scalar_stays_text(home: Home) -> None:
    loaded = home.load("plugins: {p: {config: {a: ${N}, b: '${N}'}}}", N="7")
    assert loaded.settings.plugins["p"].config == {"a": 7, "b": "7"}


def test_where_the_schema_wants_text_it_stays_text(home: Home) -> None:
    loaded = home.load(
        "service: {name: ${N}}\nroutes: [{from: 1.10, event_type: on, to: 007}]", N="12"
    )
    route = loaded.settings.routes[0]
    assert loaded.settings.service.name == "12"
    assert (route.from_, route.event_type, route.to) == ("1.10", "on", "007")


def test_a_value_full_of_yaml_stays_one_scalar(home: Home) -> None:
    value = "x: y # {not} [yaml]\n- a"
    loaded = home.load("plugins: {p: {config: {a: ${V}}}}", V=value)
    assert loaded.settings.plugins["p"].config == {"a": value}


def test_an_unset_variable_is_named(home: Home) -> None:
    problem = only(home.refused("plugins:\n  p:\n    config:\n      a: ${GONE}\n"))
    assert "GONE is not set" in problem.message
    assert place(problem) == ("config.yaml", 4, 10)
    assert problem.path == ("plugins", "p", "config", "a")


def test_every_unset_variable_is_reported(home: Home) -> None:
    problems = home.refused("service: {name: ${A}, max_workers: ${B}}")
    assert ["A is not set" in problems[0].message, "B is not set" in problems[1].message] == [
        True,
        True,
    ]


def test_comments_are_not_expanded(home: Home) -> None:
    home.load("# token: ${OLD}\nservice: {name: x} # ${OLDER}\n")


def test_keys_are_not_expanded(home: Home) -> None:
    loaded = home.load("plugins: {p: {config: {'${A}': 1}}}", A="x")
    assert loaded.settings.plugins["p"].config == {"${A}": 1}


def test_a_lookalike_is_left_alone_and_warned_about(home: Home) -> None:
    loaded = home.load("plugins: {p: {config: {a: '${A:default}'}}}", A="x")
    assert loaded.settings.plugins["p"].config == {"a": "${A:default}"}
    assert only(list(loaded.warnings)).found == "${A:default}"


def test_a_reserved_character_is_refused_not_confused(home: Home) -> None:
    assert "reserved" in only(home.refused("service: {name: \U00100000abc}")).message


def test_private_use_icons_are_welcome(home: Home) -> None:
    assert (
        home.load("service: {name: '\ue0a0\U000f0001'}").settings.service.name == "\ue0a0\U000f0001"
    )


def test_a_quoted_default_is_written_with_its_quoting(home: Home) -> None:
    text = """plugins: {p: {config: {a: '${X:-it''s}', b: "${X:-say \\"hi\\"}"}}}"""
    assert home.load(text).settings.plugins["p"].config == {"a": "it's", "b": 'say "hi"'}


def test_a_variable_that_is_no_text_is_refused(home: Home) -> None:
    problem = only(home.refused("service: {name: ${A}}", A="\udcff"))
    assert "A is not UTF-8" in problem.message


@pytest.mark.parametrize("value", ["true", "1e3", "~"])
def test_opaque_values_are_typed_as_yaml_types_them(home: Home, value: str) -> None:
    loaded = home.load("plugins: {p: {config: {a: ${V}}}}", V=value)
    assert loaded.settings.plugins["p"].config["a"] in (True, 1000.0, None)


def test_a_key_on_the_way_to_a_problem_is_told_as_it_was_written(home: Home) -> None:
    problems = home.refused("plugins: {${P}: {enabled: true, enabled: false}}", P="p")
    assert ("plugins", "${P}", "enabled") in [problem.path for problem in problems]


class TestEnvFiles:
    def test_they_give_values(self, home: Home) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}\nservice: {name: ${WHO}}",
            ".env": "# who\nexport WHO=\"a friend\"\n\nOTHER='x'\n",
        }
        assert home.load(files).settings.service.name == "a friend"

    def test_they_never_override_the_environment(self, home: Home) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}\nservice: {name: ${WHO}}",
            ".env": "WHO=file\n",
        }
        assert home.load(files, WHO="real").settings.service.name == "real"

    def test_a_missing_one_is_an_error(self, home: Home) -> None:
        problem = only(home.refused("environment_vars: {include: [.env]}"))
        assert "there is no file" in problem.message

    def test_a_broken_line_is_never_quoted(self, home: Home) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}",
            ".env": "A=1\nhunter2 secret\n",
        }
        problem = only(home.refused(files))
        assert place(problem) == (".env", 2, 1)
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
    def test_a_comment_is_no_part_of_a_value(self, home: Home, line: str, value: str) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}\nservice: {name: '${WHO}'}",
            ".env": line,
        }
        assert home.load(files).settings.service.name == value

    @pytest.mark.parametrize("value", ["", "''", '""', " # nothing", "'' # nothing"])
    def test_a_value_may_be_empty(self, value: str) -> None:
        assert parse(f"A={value}", ".env") == ({"A": ""}, [])

    @pytest.mark.parametrize(
        "value", ['"hunter2" x', '"hunter2"#x', "'hunter2", "\"hunter2'", '"a"hunter2', "'"]
    )
    def test_what_stands_behind_a_closing_quote_is_refused(self, home: Home, value: str) -> None:
        files = {
            "config.yaml": "environment_vars: {include: [.env]}",
            ".env": f"A=1\nB={value}\n",
        }
        problem = only(home.refused(files))
        assert place(problem) == (".env", 2, 1)
        assert "closing quote" in problem.message
        assert "hunter2" not in str(problem)

    def test_unknown_keys_beside_include_are_refused(self, home: Home) -> None:
        assert "unknown key 'files'" in only(home.refused("environment_vars: {files: []}")).message
