"""Which claims can have reached a step that reads the context.

A claim reaches what comes after it on its own branch. A join goes on with the context that
entered the split, so what is claimed in a branch ends there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set

from ductile.core.pipelines.baggage import Claims, Keys
from ductile.core.pipelines.conditions import refs as refs_of_condition
from ductile.core.pipelines.graph import Node
from ductile.core.pipelines.link import Linked
from ductile.core.pipelines.templates import Entries, Template
from ductile.core.pipelines.templates import refs as refs_of_template
from ductile.core.values.json_values import Ref
from ductile.errors import Path, Problem, Severity
from ductile.record import dataclass

_Place = tuple[str, str]
"""A pipeline and a path in it."""


@dataclass(frozen=True, slots=True)
class _Read:
    at: Path
    ref: Ref
    of_own: bool = False
    """Whether it sees what its own step claims."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """A claim in a branch of a split, and where its chain goes on without it."""

    keys: Keys
    by: str
    split: str
    join: _Place


def lost_claims(linked: Mapping[str, Linked]) -> Iterator[Problem]:
    """A warning for each read of what was claimed only in a branch of a split before it."""
    graph = _Graph(linked)
    unmet = graph.unmet_reads()
    ended = graph.claims_that_end() if unmet else {}
    told: set[tuple[Path, Ref]] = set()
    for place, reads in unmet.items():
        for read in reads:
            for claim in ended.get(read.ref.keys[0], ()):
                # Steps that several pipelines call are told of once.
                if (read.at, read.ref) in told or not _meet(claim.keys, read.ref.keys):
                    continue
                if place in graph.after([claim.join]):
                    told.add((read.at, read.ref))
                    yield _lost(read, claim)


def _lost(read: _Read, claim: _Ended) -> Problem:
    message = (
        f"{read.ref} is never there: only {claim.by} claims it, and what a branch of "
        f"{claim.split} claims ends with the branch"
    )
    return Problem(message, read.at, severity=Severity.WARNING)


class _Graph:
    """The nodes of all pipelines, for a chain can go from one into another."""

    def __init__(self, linked: Mapping[str, Linked]) -> None:
        self._linked = linked
        self.nodes: Mapping[_Place, Node] = {
            (name, path): node
            for name, pipeline in linked.items()
            for path, node in pipeline.nodes.items()
        }

    def unmet_reads(self) -> Mapping[_Place, list[_Read]]:
        """Reads of what no step on any way to them claims."""
        reading = {place: reads for place, node in self.nodes.items() if (reads := _reads(node))}
        arrived = self._arrived() if reading else {}
        unmet = {
            place: [read for read in reads if not self._is_met(read, place, arrived[place])]
            for place, reads in reading.items()
        }
        return {place: reads for place, reads in unmet.items() if reads}

    def _is_met(self, read: _Read, place: _Place, arrived: Set[Keys]) -> bool:
        known = arrived | self._own(place) if read.of_own else arrived
        return any(_meet(keys, read.ref.keys) for keys in known)

    def after(self, starts: Iterable[_Place]) -> Iterator[_Place]:
        """These, and all that a chain can come to from them."""
        found = list(dict.fromkeys(starts))
        seen = set(found)
        for place in found:
            yield place
            fresh = [to for to in dict.fromkeys(self._follows(place)) if to not in seen]
            seen.update(fresh)
            found += fresh

    def claims_that_end(self) -> Mapping[str, list[_Ended]]:
        """What is claimed in the branches of splits that something follows, by its first key."""
        found: dict[str, list[_Ended]] = {}
        for (pipeline, split), node in self.nodes.items():
            if node.next is not None:
                starts = [(pipeline, branch.entry) for branch in node.branches]
                for place in self.after(starts):
                    for keys in self._own(place):
                        claim = _Ended(keys, place[1], split, (pipeline, node.next))
                        found.setdefault(keys[0], []).append(claim)
        return found

    def _arrived(self) -> Mapping[_Place, frozenset[Keys]]:
        """For each node the claims that one way or another can have been made before it."""
        found = {(name, item.entry): frozenset[Keys]() for name, item in self._linked.items()}
        open_ = list(found)
        while open_:
            place = open_.pop()
            known = found[place] | self._own(place)
            for to in self._follows(place):
                if to not in found or not known <= found[to]:
                    found[to] = known | found.get(to, frozenset())
                    open_.append(to)
        return found

    def _own(self, place: _Place) -> frozenset[Keys]:
        return _claims(self.nodes[place])

    def _follows(self, place: _Place) -> Iterator[_Place]:
        for target in self.nodes[place].follows():
            yield target.pipeline, target.path or self._linked[target.pipeline].entry


def _claims(node: Node) -> frozenset[Keys]:
    return frozenset(keys for keys, _ in _of(node.baggage))


def _of(claims: Claims | None) -> tuple[tuple[Keys, Ref], ...]:
    return (*claims.values, *claims.objects) if claims else ()


def _meet(one: Keys, other: Keys) -> bool:
    """Whether one of the paths lies on the other."""
    return all(a == b for a, b in zip(one, other, strict=False))


def _reads(node: Node) -> list[_Read]:
    """Where a step reads a path of the context."""
    return [read for read in _all_reads(node) if read.ref.root == "context" and read.ref.keys]


def _all_reads(node: Node) -> Iterator[_Read]:
    if node.condition is not None:
        yield from (_Read(node.at, ref) for ref in refs_of_condition(node.condition))
    if node.with_ is not None:
        yield from _in_template(node.with_, (*node.at, "with"), of_own=True)
    yield from _in_claims(node.baggage, (*node.at, "baggage"))
    if node.relay is not None:
        at = (*node.at, "relay")
        for key, template in (("with", node.relay.with_), ("dedupe_key", node.relay.dedupe_key)):
            if template is not None:
                yield from _in_template(template, (*at, key))
        yield from _in_claims(node.relay.baggage, (*at, "baggage"))


def _in_template(template: Template, at: Path, *, of_own: bool = False) -> Iterator[_Read]:
    parts = template.entries if isinstance(template, Entries) else ((None, template),)
    for key, part in parts:
        where = at if key is None else (*at, key)
        yield from (_Read(where, ref, of_own) for ref in refs_of_template(part))


def _in_claims(claims: Claims | None, at: Path) -> Iterator[_Read]:
    for keys, ref in _of(claims):
        yield _Read((*at, ".".join(keys)), ref)
