"""docs/reference/api.md names every route, with the scope that it asks for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ductile.http.endpoint import Endpoint
from ductile.http.route_table import ENDPOINTS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([A-Z]+ /[^`]*)` \| (.*?) \| (.+?) \|$", re.MULTILINE)
ROWS = {route: scope for route, scope, _ in ROW.findall(PAGE)}
SCOPES = {None: "none", "any": "any token", "plugin": "`plugin:ro` or `plugin:rw`"}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda e: f"{e.method} {e.path}")
def test_every_route_is_named_with_its_scope(endpoint: Endpoint) -> None:
    scope = SCOPES.get(endpoint.token_scope, f"`{endpoint.token_scope}`")
    assert ROWS.get(f"{endpoint.method} {endpoint.path}") == scope


def test_no_route_is_named_that_is_gone() -> None:
    assert ROWS.keys() == {f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS}


def test_every_metric_that_is_named_is_there() -> None:
    source = (Path(__file__).parents[3] / "src/ductile/engine/observability/metrics.py").read_text()
    named = set(re.findall(r"`(ductile_\w+)`", PAGE))
    assert named
    for name in named:
        template = re.sub(r"ductile_store_\w+_total", "ductile_store_", name)
        assert template in source, name
