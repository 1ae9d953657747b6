"""`routes:`: plugin, event type, plugin. Exact matches only; each match creates a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.commands import HANDLE
from ductile.core.values.json_values import shorten
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem, Severity, errors_of
from ductile.model import Json

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
    """Compile the configured routes, or list every problem; a repeated route counts once.

    `sources` are further names that an event may come from. A target without `handle` is a
    warning: its jobs will fail with that reason.
    """
    problems: list[Problem] = []
    routes: dict[Route, None] = {}
    for index, item in enumerate(raw):
        route = _read(item, ("routes", index), plugins, sources, problems)
        if route in routes:
            message = "the same route is repeated; it counts once"
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
