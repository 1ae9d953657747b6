"""Included files and how they are merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ductile.config.loader.include import merge
from ductile.config.loader.nodes import (
    Location,
    MappingEntry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
)
from tests.config.conftest import ConfigDir, location, no_deadline, only

HERE = Location("f", 1, 1)
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
        return MappingNode(
            {key: MappingEntry(HERE, node(item)) for key, item in value.items()}, HERE
        )
    if isinstance(value, list):
        return SequenceNode(tuple(map(node, value)), HERE)
    return ScalarNode(str(value), HERE)


def value(node: Node) -> Any:
    if isinstance(node, MappingNode):
        return {key: value(entry.value) for key, entry in node.items.items()}
    if isinstance(node, SequenceNode):
        return [value(item) for item in node.items]
    return int(node.text)


def merged(base: Any, later: Any) -> Any:
    if isinstance(base, dict) and isinstance(later, dict):
        both = {key: merged(base[key], later[key]) for key in base.keys() & later.keys()}
        return {**base, **later, **both}
    if isinstance(base, list) and isinstance(later, list):
        return base + later
    return later


@no_deadline
@given(TABLES, TABLES)
def test_mappings_merge_lists_append_scalars_replace(base: Any, later: Any) -> None:
    assert value(merge(node(base), node(later))) == merged(base, later)


@no_deadline
@given(TABLES)
def test_merging_an_empty_mapping_changes_nothing(table: Any) -> None:
    assert value(merge(node(table), node({}))) == table == value(merge(node({}), node(table)))


def test_later_files_override_earlier_ones(config_dir: ConfigDir) -> None:
    files = {
        "config.yaml": "include: [a.yaml, b.yaml]\nservice: {name: root, max_hops: 5}",
        "a.yaml": "service: {name: a}\nroutes: [{from: a, event_type: e, to: x}]",
        "b.yaml": "service: {name: b}\nroutes: [{from: b, event_type: e, to: x}]",
    }
    settings = config_dir.load(files).settings
    assert (settings.service.name, settings.service.max_hops) == ("b", 5)
    assert [route.from_ for route in settings.routes] == ["a", "b"]


def test_included_directory_means_its_yaml_files_in_order(config_dir: ConfigDir) -> None:
    route = "routes: [{{from: {0}, event_type: e, to: x}}]"
    files = {
        "config.yaml": "include: [conf.d]",
        **{f"conf.d/{name}.yaml": route.format(name) for name in "ba"},
        "conf.d/deep/c.yaml": route.format("c"),
        "conf.d/.hidden.yaml": route.format("h"),
        "conf.d/notes.txt": "not yaml: [",
    }
    assert [route.from_ for route in config_dir.load(files).settings.routes] == ["a", "b"]


def test_included_file_may_include_others(config_dir: ConfigDir) -> None:
    files = {
        "config.yaml": "include: [sub/a.yaml]",
        "sub/a.yaml": "include: [sub/b.yaml]\nservice: {name: a}",
        "sub/b.yaml": "service: {name: b}",
    }
    assert config_dir.load(files).settings.service.name == "b"


def test_nested_include_may_be_relative_to_its_file(config_dir: ConfigDir) -> None:
    files = {
        "config.yaml": "include: [sub/a.yaml]",
        "sub/a.yaml": "include: [b.yaml]",
        "sub/b.yaml": "service: {name: b}",
    }
    assert config_dir.load(files).settings.service.name == "b"


def test_other_files_are_not_loaded_without_include(config_dir: ConfigDir) -> None:
    assert len(config_dir.load({"config.yaml": "", "pipelines.yaml": "nonsense: ["}).files) == 1


def test_circular_include_is_reported_with_its_files(config_dir: ConfigDir) -> None:
    files = {"config.yaml": "include: [a.yaml]", "a.yaml": "include: [config.yaml]"}
    problem = only(config_dir.load_errors(files))
    assert location(problem) == ("a.yaml", 1, 11)
    assert "circular include" in problem.message
    assert problem.message.count("config.yaml") == 2


def test_file_that_includes_itself_is_reported(config_dir: ConfigDir) -> None:
    assert "circular include" in only(config_dir.load_errors("include: [./config.yaml]")).message


def test_file_included_twice_is_read_once(config_dir: ConfigDir) -> None:
    files = {
        "config.yaml": "include: [a.yaml, ./a.yaml]",
        "a.yaml": "routes: [{from: a, event_type: e, to: x}]",
    }
    loaded = config_dir.load(files)
    assert len(loaded.settings.routes) == 1
    assert "already included" in only(list(loaded.warnings)).message


def test_missing_file_is_reported_where_it_is_included(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("include:\n  - nope.yaml\n"))
    assert location(problem) == ("config.yaml", 2, 5)


def test_include_must_not_contain_variables(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors("include: [${F}]", F="a.yaml"))
    assert problem.found == "${F}"
    assert "must not contain variables" in problem.message


def test_include_must_be_a_list(config_dir: ConfigDir) -> None:
    assert "must be a list" in only(config_dir.load_errors("include: a.yaml")).message


def test_empty_key_does_not_replace_a_mapping(config_dir: ConfigDir) -> None:
    files = {
        "config.yaml": "include: [a.yaml]\nplugins: {p: {enabled: false}}",
        "a.yaml": "plugins:\n",
    }
    assert config_dir.load(files).settings.plugins["p"].enabled is False


def test_problems_of_all_files_are_reported(config_dir: ConfigDir) -> None:
    files = {
        "config.yaml": "include: [a.yaml, b.yaml]\nservice: {nam: x}",
        "a.yaml": "a: [1",
        "b.yaml": "service: {log_level: loud}",
    }
    assert [location(problem)[0] for problem in config_dir.load_errors(files)] == [
        "config.yaml",
        "a.yaml",
        "b.yaml",
    ]


def test_value_is_located_in_the_file_that_sets_it(config_dir: ConfigDir) -> None:
    files = {
        "config.yaml": "include: [a.yaml]\nservice: {name: x}",
        "a.yaml": "\nservice: {name: y}",
    }
    loaded = config_dir.load(files)
    assert loaded.locate(("service", "name")) == (str(config_dir.path / "a.yaml"), 2, 17)


def test_absent_path_is_located_at_its_parent(config_dir: ConfigDir) -> None:
    loaded = config_dir.load("plugins:\n  echo: {}\n")
    assert loaded.locate(("plugins", "echo", "schedules", 3))[1:] == (2, 3)
    assert loaded.locate(("webhooks",)) == (str(config_dir.path / "config.yaml"), 1, 1)


def test_every_file_has_its_hash(config_dir: ConfigDir) -> None:
    from blake3 import blake3

    files = {
        "config.yaml": "include: [a.yaml]\nenvironment_vars: {include: [.env]}",
        "a.yaml": "{}",
        ".env": "",
    }
    loaded = config_dir.load(files)
    assert {path.name: digest for path, digest in loaded.files.items()} == {
        name: blake3(text.encode()).hexdigest() for name, text in files.items()
    }


def test_number_of_files_is_limited(config_dir: ConfigDir) -> None:
    files = {f"d/{n:04}.yaml": "{}" for n in range(1005)}
    problem = only(config_dir.load_errors({"config.yaml": "include: [d]", **files}))
    assert problem.allowed == "at most 1000 files"


def test_tilde_is_the_home_directory(config_dir: ConfigDir, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/x.yaml").write_text("service: {name: from-home}")
    (tmp_path / "home/.env").write_text("LEVEL=debug\n")
    text = """include: ["~/x.yaml"]
environment_vars: {include: ["~/.env"]}
service: {log_level: "${LEVEL}"}
"""
    service = config_dir.load(text, HOME=str(tmp_path / "home")).settings.service
    assert (service.name, service.log_level) == ("from-home", "debug")


def test_missing_file_of_the_home_directory_is_named(config_dir: ConfigDir) -> None:
    problem = only(config_dir.load_errors('include: ["~/x.yaml"]', HOME="/nowhere"))
    assert "there is no file /nowhere/x.yaml" in problem.message


def test_other_names_with_a_tilde_are_relative(config_dir: ConfigDir) -> None:
    files = {"config.yaml": 'include: ["~x.yaml"]', "~x.yaml": "service: {name: tilde}"}
    assert config_dir.load(files, HOME="/nowhere").settings.service.name == "tilde"
