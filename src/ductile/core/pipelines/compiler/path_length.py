"""The number of steps on the longest path of each pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

from ductile.core.pipelines.compiler.header import PipelineHeader
from ductile.core.pipelines.compiler.link import Linked
from ductile.core.values.json_values import shorten
from ductile.errors import Problem, Severity


def measure_longest_paths(linked: Mapping[str, Linked]) -> dict[str, int | None]:
    """The number of steps and splits on the longest path; None if the pipeline can loop."""
    lengths: dict[tuple[str, str], float] = {}
    for name, pipeline in linked.items():
        _measure((name, pipeline.entry), linked, lengths)
    found = {name: lengths[name, pipeline.entry] for name, pipeline in linked.items()}
    return {name: None if length == inf else int(length) for name, length in found.items()}


def _measure(
    start: tuple[str, str],
    linked: Mapping[str, Linked],
    lengths: dict[tuple[str, str], float],
) -> None:
    """Fill in `lengths` for `start` and its successors, depth first, without recursion."""
    open_: set[tuple[str, str]] = set()
    stack = [start]
    while stack:
        key = stack[-1]
        node = linked[key[0]].nodes[key[1]]
        after = [
            (target.pipeline, target.path or linked[target.pipeline].entry)
            for target in node.follows()
        ]
        fresh = [other for other in after if other not in lengths and other not in open_]
        if key not in lengths and key not in open_ and fresh:
            open_.add(key)
            stack += fresh
            continue
        stack.pop()
        if key not in lengths:
            open_.discard(key)
            lengths[key] = 1 + max((lengths.get(other, inf) for other in after), default=0)


def check_length(header: PipelineHeader, longest: int | None, max_hops: int) -> Iterator[Problem]:
    if header.author_depth is not None:
        if longest is not None and 0 < header.author_depth < longest:
            message = f"its longest path has {longest} hops; jobs beyond this depth end as dead"
            found = shorten(header.author_depth)
            yield Problem(
                message, (*header.at, "max_depth"), found=found, severity=Severity.WARNING
            )
    elif longest is None:
        advice = "start them as another pipeline" if header.from_pipeline else "set max_depth"
        message = f"its steps can loop through on_events; {advice} to limit them"
        yield Problem(message, header.at)
    elif longest > max_hops:
        advice = "shorten it" if header.from_pipeline else "set max_depth"
        message = f"its longest path has {longest} hops, more than {max_hops}; {advice}"
        yield Problem(message, header.at)
