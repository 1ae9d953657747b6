"""Compiled pipelines: the steps by path, and the limits on hops and depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ductile._fast_dataclass import dataclass
from ductile.core.pipelines.conditions import Condition, evaluate, explain
from ductile.core.pipelines.graph import Node, NodeKind
from ductile.core.values.json_values import Failure, StepValues
from ductile.errors import Path, Problem
from ductile.model import Json

ASYNC, SYNCHRONOUS = MODES = ("async", "synchronous")


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A compiled pipeline. Either `on` or `hook` is set."""

    name: str
    at: Path
    on: str | None
    hook: str | None
    from_plugin: str | None
    from_pipeline: str | None
    """For the steps of an `on_failure`, `on_success` or `always`: the pipeline that has them."""
    condition: Condition | None
    execution_mode: str
    timeout: Json
    """As configured."""
    workspace: bool | None
    author_depth: int | None
    """`max_depth` if the author set it; 0 means no limit."""
    longest: int | None
    """The number of steps and splits on its longest path; None if its steps can loop."""
    entry: str
    nodes: Mapping[str, Node]

    @property
    def max_depth(self) -> int:
        """The value of `route_max_depth`: the author's limit, else the longest path; 0: none."""
        return self.author_depth if self.author_depth is not None else self.longest or 0

    def hop_limit(self, max_hops: int) -> int:
        """The maximum number of hops between a job of this pipeline and its root.

        `max_depth: 0` removes the limit on depth, not this one, which ends every loop; this one
        allows at least the longest path.
        """
        raised = self.longest if self.author_depth == 0 else self.author_depth
        return max(max_hops, raised or 0)

    def admits(self, payload: Json, context: Mapping[str, Json]) -> bool | Failure:
        """Whether the pipeline's own `if` accepts an event; without one it accepts every event."""
        if self.condition is None:
            return True
        return evaluate(self.condition, StepValues(payload, dict(context)))

    def explain_refusal(self, payload: Json, context: Mapping[str, Json]) -> str:
        """The values for which the pipeline's own `if` is false."""
        assert self.condition is not None
        return explain(self.condition, StepValues(payload, dict(context)))

    def first_jobs(self) -> tuple[Node, ...]:
        """The nodes of the first jobs: several if the pipeline starts with a split."""
        return tuple(self._jobs_from(self.entry))

    def paths(self) -> list[str]:
        """The step paths in the order of execution."""
        found, seen = [self.entry], {self.entry}
        for path in found:
            for to in self.nodes[path].follows():
                if to.path and to.pipeline == self.name and to.path not in seen:
                    seen.add(to.path)
                    found.append(to.path)
        return found

    def _jobs_from(self, path: str) -> Iterator[Node]:
        node = self.nodes[path]
        if node.kind is not NodeKind.SPLIT:
            yield node
        for branch in node.branches:
            yield from self._jobs_from(branch.entry)


@dataclass(frozen=True, slots=True)
class Compiled:
    """All pipelines of a config, by name."""

    pipelines: Mapping[str, Pipeline]
    warnings: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class PartlyCompiled:
    """The pipelines of a config with errors that have none and call none with errors."""

    pipelines: Mapping[str, Pipeline]
    problems: tuple[Problem, ...]


def describe_excess(
    max_hops: int, pipeline: Pipeline | None, hops: int, depth: int = 1, max_depth: int = 0
) -> str | None:
    """The limit that a job at this place would exceed, if any."""
    limit = max_hops
    if pipeline is not None:
        if 0 < max_depth < depth:
            return f"step {depth} of its pipeline exceeds max_depth {max_depth}"
        limit = max(pipeline.hop_limit(limit), max_depth)
    return f"hop {hops} exceeds the limit of {limit}" if hops > limit else None
