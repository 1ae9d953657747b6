"""docs/reference/api.md lists every route with its scope."""

from __future__ import annotations

import re
from pathlib import Path

from ductile.http.route_table import ENDPOINTS

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `([A-Z]+ /[^`]*)` \| (.*?) \| (.+?) \|$", re.MULTILINE)
ROWS = {route: scope for route, scope, _ in ROW.findall(PAGE)}
SCOPES = {None: "none", "any": "any token", "plugin": "`plugin:ro` or `plugin:rw`"}


def test_every_route_is_documented_with_its_scope() -> None:
    for endpoint in ENDPOINTS:
        scope = SCOPES.get(endpoint.token_scope, f"`{endpoint.token_scope}`")
        assert ROWS.get(f"{endpoint.method} {endpoint.path}") == scope, endpoint.path


def test_no_documented_route_is_missing() -> None:
    assert ROWS.keys() == {f"{endpoint.method} {endpoint.path}" for endpoint in ENDPOINTS}


def test_every_documented_metric_exists() -> None:
    source = (Path(__file__).parents[3] / "src/ductile/engine/observability/metrics.py").read_text()
    named = set(re.findall(r"`(ductile_\w+)`", PAGE))
    assert named
    for name in named:
        template = re.sub(r"ductile_store_\w+_total", "ductile_store_", name)
        assert template in source, name
