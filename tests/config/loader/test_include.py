"""Many files, one configuration."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ductile.config.loader.include import merge
from ductile.config.loader.nodes import Entry, Listing, Node, Place, Scalar, Table
from tests.config.conftest import Home, only, patient, place

HERE = Place("f", 1, 1)
TREES = st.recursive(
    st.integers(0, 9),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=12,
)
TABLES = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


def node(value: Any) -> Node:
    if isinstance(value, dict):
        return Table({key: Entry(HERE, node(item)) for key, item in value.items()}, HERE)
    if isinstance(value, list):
        return Listing(tuple(map(node, value)), HERE)
    return Scalar(str(value), HERE)


def value(node: Node) -> Any:
    if isinstance(node, Table):
        return {key: value(entry.value) for key, entry in node.items.items()}
    if isinstance(node, Listing):
        return [value(item) for item in node.items]
    return int(node.text)


def merged(base: Any, later: Any) -> Any:
    if isinstance(base, dict) and isinstance(later, dict):
        both = {key: merged(base[key], later[key]) for key in base.keys() & later.keys()}
        return {**base, **later, **both}
    if isinstance(base, list) and isinstance(later, list):
        return base + later
    return later


@patient
@given(TABLES, TABLES)
def test_maps_merge_lists_append_scalars_replace(base: Any, later: Any) -> None:
    assert value(merge(node(base), node(later))) == merged(base, later)


@patient
@given(TABLES)
def test_merging_nothing_changes_nothing(table: Any) -> None:
    assert value(merge(node(table), node({}))) == table == value(merge(node({}), node(table)))


def test_later_files_win(home: Home) -> None:
    files = {
        "config.yaml": "include: [a.yaml, b.yaml]\nservice: {name: root, max_hops: 5}",
        "a.yaml": "service: {name: a}\nroutes: [{from: a, event_type: e, to: x}]",
        "b.yaml": "service: {name: b}\nroutes: [{from: b, event_type: e, to: x}]",
    }
    settings = home.load(files).settings
    assert (settings.service.name, settings.service.max_hops) == ("b", 5)
    assert [route.from_ for route in settings.routes] == ["a", "b"]


def test_a_directory_means_its_yaml_files_by_name(home: Home) -> None:
    route = "routes: [{{from: {0}, event_type: e, to: x}}]"
    files = {
        "config.yaml": "include: [conf.d]",
        **{f"conf.d/{name}.yaml": route.format(name) for name in "ba"},
        "conf.d/deep/c.yaml": route.format("c"),
        "conf.d/.hidden.yaml": route.format("h"),
        "conf.d/notes.txt": "not yaml: [",
    }
    assert [route.from_ for route in home.load(files).settings.routes] == ["a", "b"]


def test_included_files_include_on_their_own(home: Home) -> None:
    files = {
        "config.yaml": "include: [sub/a.yaml]",
        "sub/a.yaml": "include: [sub/b.yaml]\nservice: {name: a}",
        "sub/b.yaml": "service: {name: b}",
    }
    assert home.load(files).settings.service.name == "b"


def test_a_nested_include_may_be_meant_from_its_own_file(home: Home) -> None:
    files = {
        "config.yaml": "include: [sub/a.yaml]",
        "sub/a.yaml": "include: [b.yaml]",
        "sub/b.yaml": "service: {name: b}",
    }
    assert home.load(files).settings.service.name == "b"


def test_only_config_yaml_is_loaded_by_itself(home: Home) -> None:
    assert len(home.load({"config.yaml": "", "pipelines.yaml": "nonsense: ["}).files) == 1


def test_a_circle_is_an_error_that_names_it(home: Home) -> None:
    files = {"config.yaml": "include: [a.yaml]", "a.yaml": "include: [config.yaml]"}
    problem = only(home.refused(files))
    assert place(problem) == ("a.yaml", 1, 11)
    assert "in a circle" in problem.message
    assert problem.message.count("config.yaml") == 2


def test_a_file_that_includes_itself_is_a_circle(home: Home) -> None:
    assert "in a circle" in only(home.refused("include: [./config.yaml]")).message


def test_a_file_included_twice_counts_once(home: Home) -> None:
    files = {
        "config.yaml": "include: [a.yaml, ./a.yaml]",
        "a.yaml": "routes: [{from: a, event_type: e, to: x}]",
    }
    loaded = home.load(files)
    assert len(loaded.settings.routes) == 1
    assert "already included" in only(list(loaded.warnings)).message


def test_a_missing_file_is_told_where_it_is_asked_for(home: Home) -> None:
    problem = only(home.refused("include:\n  - nope.yaml\n"))
    assert place(problem) == ("config.yaml", 2, 5)


def test_variables_do_not_choose_files(home: Home) -> None:
    problem = only(home.refused("include: [${F}]", F="a.yaml"))
    assert problem.found == "${F}"
    assert "must not depend on variables" in problem.message


def test_include_takes_a_list(home: Home) -> None:
    assert "must be a list" in only(home.refused("include: a.yaml")).message


def test_an_empty_key_takes_nothing_away(home: Home) -> None:
    files = {
        "config.yaml": "include: [a.yaml]\nplugins: {p: {enabled: false}}",
        "a.yaml": "plugins:\n",
    }
    assert home.load(files).settings.plugins["p"].enabled is False


def test_one_broken_file_does_not_hide_another(home: Home) -> None:
    files = {
        "config.yaml": "include: [a.yaml, b.yaml]\nservice: {nam: x}",
        "a.yaml": "a: [1",
        "b.yaml": "service: {log_level: loud}",
    }
    assert [place(problem)[0] for problem in home.refused(files)] == [
        "config.yaml",
        "a.yaml",
        "b.yaml",
    ]


def test_a_value_is_located_in_the_file_that_won(home: Home) -> None:
    files = {
        "config.yaml": "include: [a.yaml]\nservice: {name: x}",
        "a.yaml": "\nservice: {name: y}",
    }
    loaded = home.load(files)
    assert loaded.locate(("service", "name")) == (str(home.path / "a.yaml"), 2, 17)


def test_what_was_never_written_is_located_at_its_parent(home: Home) -> None:
    loaded = home.load("plugins:\n  echo: {}\n")
    assert loaded.locate(("plugins", "echo", "schedules", 3))[1:] == (2, 3)
    assert loaded.locate(("webhooks",)) == (str(home.path / "config.yaml"), 1, 1)


def test_every_file_is_listed_with_its_hash(home: Home) -> None:
    from blake3 import blake3

    files = {
        "config.yaml": "include: [a.yaml]\nenvironment_vars: {include: [.env]}",
        "a.yaml": "{}",
        ".env": "",
    }
    loaded = home.load(files)
    assert {path.name: digest for path, digest in loaded.files.items()} == {
        name: blake3(text.encode()).hexdigest() for name, text in files.items()
    }


def test_a_thousand_files_are_enough(home: Home) -> None:
    files = {f"d/{n:04}.yaml": "{}" for n in range(1005)}
    problem = only(home.refused({"config.yaml": "include: [d]", **files}))
    assert problem.allowed == "1000 files"
