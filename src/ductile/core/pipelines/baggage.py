"""`baggage`: values that a pipeline carries from step to step, and the rows that store them.

A context is a row of `event_context`; its `accumulated_json` holds the claims of all
earlier steps, plus the core's own key `ductile`. A step's row contains its parent's: claims add
paths, and a path that is inherited never changes. The rows of one instance differ under
`ductile` in `route_depth` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.limits import DEEPEST_KEPT, too_deep
from ductile.core.values.json_values import (
    MISSING,
    Failure,
    Ref,
    StepValues,
    are_equal,
    parse_ref,
    shorten,
    size_of,
)
from ductile.errors import Path, Problem
from ductile.model import MIB, Json

MAX_CONTEXT = MIB
RESERVED = frozenset({"ductile", "ductile_plugin", "ductile_pipeline", "ductile_step_id"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

Keys = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Claims:
    """What a step claims: single values by path, and whole objects by namespace."""

    values: tuple[tuple[Keys, Ref], ...]
    objects: tuple[tuple[Keys, Ref], ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a chain of jobs; written into its first context and never changed."""

    plugin: str | None
    event_type: str
    event_id: str
    job_id: str | None
    submitted_by: str

    def as_json(self) -> dict[str, Json]:
        return {
            "plugin": self.plugin,
            "event_type": self.event_type,
            "event_id": self.event_id,
            "job_id": self.job_id,
            "submitted_by": self.submitted_by,
        }


def compile_claims(raw: Json, path: Path) -> Claims | list[Problem]:
    """Compile the `baggage` at `path`, or list every problem in it."""
    if not isinstance(raw, Mapping) or not raw:
        allowed = "dotted.path: payload.x, or from: and namespace:"
        return [Problem("baggage must be a mapping", path, found=shorten(raw), allowed=allowed)]
    problems: list[Problem] = []
    given = {str(key): value for key, value in raw.items() if value is not None}
    objects = []
    if "from" in given or "namespace" in given:
        for key in ("from", "namespace"):
            if key not in given:
                problems.append(Problem(f"baggage requires `{key}:` here", path))
        namespace = _keys(given.pop("namespace", "_"), (*path, "namespace"), problems)
        source = _source(given.pop("from", "payload"), (*path, "from"), problems, ("payload",))
        objects.append((namespace, source))
    values = [
        (_keys(key, (*path, key), problems), _source(value, (*path, key), problems))
        for key, value in given.items()
    ]
    return problems or Claims(tuple(values), tuple(objects))


def claimed(claims: Claims, scope: StepValues) -> dict[str, Json] | Failure:
    """The claimed values as one tree, before they are merged with the inherited ones."""
    tree: dict[str, Json] = {}
    for keys, ref in (*claims.values, *claims.objects):
        value = ref.read(scope)
        if value is MISSING:
            return Failure(f"baggage {'.'.join(keys)}: {ref} does not exist")
        if (keys, ref) in claims.objects and not isinstance(value, dict):
            return Failure(f"baggage {'.'.join(keys)}: {ref} is not an object")
        for key in reversed(keys):
            value = {key: value}
        grown = accrete(tree, value)
        if isinstance(grown, Failure):
            return grown
        tree = grown
    return tree


def accrete(inherited: Mapping[str, Json], added: Mapping[str, Json]) -> dict[str, Json] | Failure:
    """`inherited` with the paths of `added`; a path in both must have the same value."""
    return _accrete(inherited, added, ())


def root_context(
    *,
    instance_id: str,
    max_depth: int,
    origin: Mapping[str, Json],
    first_hop: int = 0,
    baggage: Mapping[str, Json] | None = None,
    depth_is_computed: bool = False,
) -> dict[str, Json]:
    """`accumulated_json` of an instance's root row, which belongs to no step.

    `first_hop` is the number of hops from the root of the chain to the instance's first node.
    """
    computed = {"route_max_depth_computed": True} if depth_is_computed else {}
    return {
        **{key: value for key, value in (baggage or {}).items() if key not in RESERVED},
        "ductile": {
            "pipeline_instance_id": instance_id,
            "route_depth": 0,
            "route_max_depth": max_depth,
            **computed,
            "route_first_hop": first_hop,
            "origin": dict(origin),
        },
    }


def step_context(
    entering: Mapping[str, Json], claims: Claims | None, payload: Json, *, hops: int
) -> dict[str, Json] | Failure:
    """`accumulated_json` of the row of a step with this payload and entering context."""
    if claims is None:
        return deeper(entering, hops)
    added = claimed(claims, StepValues(payload=payload, context=dict(entering)))
    grown = added if isinstance(added, Failure) else accrete(entering, added)
    return grown if isinstance(grown, Failure) else _within_bounds(deeper(grown, hops))


def deeper(context: Mapping[str, Json], hops: int) -> dict[str, Json]:
    """The same context, for a step that is `hops` hops away from the root of its chain."""
    own = control(context) or {"route_first_hop": 0}
    return {**context, "ductile": {**own, "route_depth": depth_at(context, hops)}}


def control(context: Mapping[str, Json]) -> dict[str, Json]:
    """The core's own part of a context; empty if there is none."""
    own = context.get("ductile")
    return own if isinstance(own, dict) else {}


def route_depth(context: Mapping[str, Json]) -> int:
    """The number of steps and splits from the instance's root to here; 0 at the root."""
    return int(control(context).get("route_depth") or 0)


def depth_at(context: Mapping[str, Json], hops: int) -> int:
    """The depth in its instance of a step that is entered with this context after these hops.

    It follows from the hops, because a split counts as one and has no context of its own. An
    instance that a hook started has no context and begins with a root job. The contexts of older
    versions do not contain the first hop: there every step is one deeper.
    """
    own = control(context)
    first_hop = own.get("route_first_hop") if own else 0
    return route_depth(context) + 1 if first_hop is None else hops - int(first_hop) + 1


def depth_limit(context: Mapping[str, Json]) -> int | None:
    """The author's limit of steps in this instance; 0 means no limit, None that it is not stored.

    A computed limit is ignored: a reload may have made the pipeline longer, and a pipeline without
    an author's limit cannot loop.
    """
    own = control(context)
    if "route_max_depth" not in own:
        return None
    return 0 if own.get("route_max_depth_computed") else int(own["route_max_depth"] or 0)


def _within_bounds(accumulated: dict[str, Json]) -> dict[str, Json] | Failure:
    if too_deep(accumulated, most=DEEPEST_KEPT):
        return Failure(f"baggage is nested more than {DEEPEST_KEPT} levels deep")
    size = size_of(accumulated)
    if size > MAX_CONTEXT:
        return Failure(f"baggage of {size} bytes exceeds the limit of {MAX_CONTEXT}")
    return accumulated


def _accrete(
    inherited: Mapping[str, Json], added: Mapping[str, Json], above: Keys
) -> dict[str, Json] | Failure:
    grown = dict(inherited)
    for key, value in added.items():
        if key not in grown:
            grown[key] = value
        elif isinstance(grown[key], dict) and isinstance(value, dict):
            below = _accrete(grown[key], value, (*above, key))
            if isinstance(below, Failure):
                return below
            grown[key] = below
        elif not are_equal(grown[key], value):
            path = ".".join((*above, key))
            return Failure(
                f"baggage {path} is already {shorten(grown[key])} and cannot change; "
                f"the step claims {shorten(value)}"
            )
    return grown


def _keys(text: Json, path: Path, problems: list[Problem]) -> Keys:
    keys = tuple(text.split(".")) if isinstance(text, str) else ()
    if not keys or not all(map(_NAME.fullmatch, keys)):
        allowed = "names of letters, digits and _, joined by dots"
        problems.append(Problem("no path for baggage", path, found=shorten(text), allowed=allowed))
    elif keys[0] in RESERVED:
        problems.append(Problem(f"{keys[0]} is reserved", path, found=shorten(text)))
    return keys


def _source(
    text: Json, path: Path, problems: list[Problem], roots: Iterable[str] = ("payload", "context")
) -> Ref:
    ref = parse_ref(text, tuple(roots))
    if isinstance(ref, Failure):
        problems.append(Problem(ref.reason, path, found=shorten(text)))
        return Ref("payload", ())
    return ref
