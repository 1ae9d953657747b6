"""`routes:`: plugin, event type, plugin. Exact matches only; each match makes a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ductile.core.jobs.commands import HANDLE
from ductile.core.values.json_values import shorten
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem, Severity, errors_of
from ductile.model import Json
from ductile.record import dataclass

KEYS = ("from", "event_type", "to")


@dataclass(frozen=True, slots=True)
class Route:
    source: str
    event_type: str
    to: str


@dataclass(frozen=True, slots=True)
class Routes:
    routes: tuple[Route, ...]
    warnings: tuple[Problem, ...] = ()


def compile_routes(
    raw: Sequence[Mapping[str, Json]],
    plugins: Mapping[str, frozenset[str]],
    *,
    sources: frozenset[str] = frozenset(),
) -> Routes | list[Problem]:
    """Compile a config's routes, or list every problem; one written twice counts once.

    `sources` are names besides plugins that an event may come from. A target that has no
    `handle` is a warning: its jobs will fail and say so.
    """
    problems: list[Problem] = []
    routes: dict[Route, None] = {}
    for index, item in enumerate(raw):
        route = _read(item, ("routes", index), plugins, sources, problems)
        if route in routes:
            message = "a second time the same route: it counts once"
            problems.append(Problem(message, ("routes", index), severity=Severity.WARNING))
        elif route is not None:
            routes[route] = None
    if errors_of(problems):
        return problems
    return Routes(tuple(routes), tuple(problems))


def _read(
    raw: Json,
    at: Path,
    plugins: Mapping[str, frozenset[str]],
    sources: frozenset[str],
    problems: list[Problem],
) -> Route | None:
    if not isinstance(raw, Mapping):
        problems.append(Problem("a route must be a mapping", at, found=shorten(raw)))
        return None
    texts = {}
    for key in KEYS:
        value = raw.get(key)
        if isinstance(value, str) and value:
            texts[key] = value
        else:
            found = None if value is None else shorten(value)
            problems.append(Problem(f"a route needs `{key}:`", (*at, key), found=found))
    for key in ("from", "to"):
        name = texts.get(key)
        if name is None or name in plugins or (key == "from" and name in sources):
            continue
        close, found = nearest(name, plugins), shorten(name)
        problems.append(Problem("an unknown plugin", (*at, key), found=found, nearest=close))
    if len(texts) < len(KEYS):
        return None
    if HANDLE not in plugins.get(texts["to"], {HANDLE}):
        message = f"{texts['to']} has no command `{HANDLE}`: its jobs will fail"
        problems.append(Problem(message, (*at, "to"), severity=Severity.WARNING))
    return Route(texts["from"], texts["event_type"], texts["to"])
