"""Compiles configured pipelines to frozen graphs, and lists every problem in them.

A compiled pipeline is a map from step paths to nodes, and the path of the first. `call` and
`steps` are inlined; a `split` is a node that opens a scope; an `if` on a step is a switch node
before it. A job's (pipeline, step path) is enough to find the steps that follow. `on_failure`,
`on_success` and `always` become pipelines of their own, which the end of a run starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ductile.core.jobs.limits import MAX_HOPS
from ductile.core.pipelines.compiler.header import read_headers
from ductile.core.pipelines.compiler.link import Authored, Linked, link
from ductile.core.pipelines.compiler.parse import Known
from ductile.core.pipelines.compiler.path_length import check_length, measure_longest_paths
from ductile.core.pipelines.compiler.references import (
    check_references,
    find_call_cycles,
    find_duplicates,
    find_endless_waits,
    without_errors,
)
from ductile.core.pipelines.pipeline import Compiled, PartlyCompiled
from ductile.errors import errors_of
from ductile.model import Json


def compile_pipelines(
    raw: Sequence[Mapping[str, Json]],
    plugins: Mapping[str, frozenset[str]],
    *,
    instances: frozenset[str] | None = None,
    sources: frozenset[str] = frozenset(),
    max_hops: int = MAX_HOPS,
) -> Compiled | PartlyCompiled:
    """Compile the configured pipelines, and list every problem with its path.

    `plugins` maps each known plugin to its commands, `instances` are the remote instances
    that a `relay` may name (None: any), `sources` are further names that
    `from_plugin` may have.
    """
    known = Known(plugins, instances)
    headers = [
        header
        for index, item in enumerate(raw)
        for header in read_headers(item, ("pipelines", index), known, sources)
    ]
    authored: dict[str, Authored] = {}
    for header in headers:
        authored.setdefault(header.name, header.authored)
    problems = [problem for header in headers for problem in header.problems]
    problems += find_duplicates(headers)
    for header in headers:
        problems += check_references(header.authored, authored, known)
    problems += find_call_cycles(authored)
    for header in headers:
        problems += find_endless_waits(header, authored)
    linked = {}
    for name, pipeline in without_errors(authored, problems).items():
        result = link(pipeline, authored, known)
        if isinstance(result, Linked):
            linked[name] = result
        else:
            problems += result
    sound = without_errors(authored, problems)
    longest = measure_longest_paths({name: linked[name] for name in sound})
    for header in headers:
        if header.name in longest:
            problems += check_length(header, longest[header.name], max_hops)
    sound = without_errors(authored, problems)
    kept = (header for header in headers if sound.get(header.name) is header.authored)
    pipelines = MappingProxyType(
        {h.name: h.compiled(linked[h.name], longest[h.name]) for h in kept}
    )
    if errors_of(problems):
        return PartlyCompiled(pipelines, tuple(dict.fromkeys(problems)))
    return Compiled(pipelines, tuple(problems))
