"""Prometheus' text format: a name, a kind, a help, and samples with their labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ductile.engine.observability.counters import Histogram

TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


def metric(name: str, kind: str, help: str, samples: Iterable[tuple[Labels, float]]) -> str:
    """A counter or gauge."""
    lines = (f"{name}{_braced(labels)} {value:.10g}\n" for labels, value in samples)
    return f"{_head(name, kind, help)}{''.join(lines)}"


def one(name: str, kind: str, help: str, value: float) -> str:
    """A counter or gauge without labels."""
    return metric(name, kind, help, [((), value)])


def histogram(name: str, help: str, samples: Iterable[tuple[Labels, Histogram]]) -> str:
    lines = (line for labels, found in samples for line in _buckets(name, labels, found))
    return f"{_head(name, 'histogram', help)}{''.join(lines)}"


def _buckets(name: str, labels: Labels, found: Histogram) -> Iterator[str]:
    count = 0
    for bound, more in zip((*found.bounds, "+Inf"), found.counts, strict=True):
        count += more
        yield f"{name}_bucket{_braced((*labels, ('le', str(bound))))} {count}\n"
    yield f"{name}_sum{_braced(labels)} {found.sum:.10g}\n"
    yield f"{name}_count{_braced(labels)} {count}\n"


def _head(name: str, kind: str, help: str) -> str:
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n"


def _braced(labels: Labels) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{{{shown}}}" if shown else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
