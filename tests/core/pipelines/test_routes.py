from __future__ import annotations

import pytest

from ductile.core.pipelines.routes import Route, Routes, compile_routes
from ductile.errors import Severity

PLUGINS = {"a": frozenset({"poll", "handle"}), "b": frozenset({"handle"}), "c": frozenset({"poll"})}
GOOD = {"from": "a", "event_type": "x", "to": "b"}


def test_routes_are_read():
    assert compile_routes([GOOD], PLUGINS) == Routes((Route("a", "x", "b"),))


@pytest.mark.parametrize(
    ("route", "path", "part"),
    [
        ("x", ("routes", 0), "must be a mapping"),
        ({**GOOD, "from": "aa"}, ("routes", 0, "from"), "did you mean 'a'?"),
        ({**GOOD, "to": "zzz"}, ("routes", 0, "to"), "unknown plugin"),
        ({**GOOD, "event_type": ""}, ("routes", 0, "event_type"), "needs `event_type:`"),
        ({"from": "a", "to": "b"}, ("routes", 0, "event_type"), "needs `event_type:`"),
        ({**GOOD, "to": 3}, ("routes", 0, "to"), "needs `to:`"),
    ],
)
def test_a_bad_route_is_refused_where_it_is_bad(route, path, part):
    problems = compile_routes([route], PLUGINS)
    assert isinstance(problems, list)
    assert [p for p in problems if p.path == path and part in str(p)]


def test_target_without_handle_and_duplicate_route_are_warned_about():
    routes = compile_routes([GOOD, GOOD, {**GOOD, "to": "c"}], PLUGINS)
    assert isinstance(routes, Routes)
    assert routes.routes == (Route("a", "x", "b"), Route("a", "x", "c"))
    assert [warning.path for warning in routes.warnings] == [("routes", 1), ("routes", 2, "to")]
    assert {warning.severity for warning in routes.warnings} == {Severity.WARNING}


def test_sources_other_than_plugins_can_be_named():
    assert isinstance(
        compile_routes([{**GOOD, "from": "peer"}], PLUGINS, sources=frozenset({"peer"})), Routes
    )
