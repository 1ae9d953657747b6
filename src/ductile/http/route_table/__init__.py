"""The route table: the only list of the API's routes.

A row binds a method and a path to the scope of a token, a handler, and the models of its query,
body and responses, which are the only source for parsing and for OpenAPI. Rows name handlers and
models, so that the start of a gateway does not wait for about 130 classes and for the modules of
routes that no client uses: see `Endpoint`.
"""

from __future__ import annotations

from ductile.http.route_table.access import PAGES, TOKENS, UI
from ductile.http.route_table.agents import AGENTS, RELAYS
from ductile.http.route_table.jobs import ALERTS, EVENTS, JOBS, PAUSES, SCHEDULES
from ductile.http.route_table.pipelines import PIPELINES
from ductile.http.route_table.system import AUTHORING, COMPARISONS, DISCOVERY, SYSTEM

__all__ = ["ENDPOINTS", "PAGES"]

ENDPOINTS = (
    *JOBS,
    *PIPELINES,
    *SCHEDULES,
    *PAUSES,
    *ALERTS,
    *EVENTS,
    *SYSTEM,
    *DISCOVERY,
    *AUTHORING,
    *COMPARISONS,
    *TOKENS,
    *UI,
    *RELAYS,
    *AGENTS,
)
