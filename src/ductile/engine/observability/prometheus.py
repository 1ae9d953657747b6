"""One metric in the Prometheus text format; `metrics` collects and renders them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ductile.engine.observability.counters import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Labels = tuple[tuple[str, str], ...]


def format_metric(name: str, kind: str, help: str, samples: Iterable[tuple[Labels, float]]) -> str:
    """A counter or gauge."""
    lines = (f"{name}{_format_labels(labels)} {value:.10g}\n" for labels, value in samples)
    return f"{_format_head(name, kind, help)}{''.join(lines)}"


def format_value(name: str, kind: str, help: str, value: float) -> str:
    """A counter or gauge without labels."""
    return format_metric(name, kind, help, [((), value)])


def format_histogram(name: str, help: str, samples: Iterable[tuple[Labels, Histogram]]) -> str:
    lines = (line for labels, found in samples for line in _format_buckets(name, labels, found))
    return f"{_format_head(name, 'histogram', help)}{''.join(lines)}"


def _format_buckets(name: str, labels: Labels, found: Histogram) -> Iterator[str]:
    count = 0
    for bound, more in zip((*found.bounds, "+Inf"), found.counts, strict=True):
        count += more
        yield f"{name}_bucket{_format_labels((*labels, ('le', str(bound))))} {count}\n"
    yield f"{name}_sum{_format_labels(labels)} {found.sum:.10g}\n"
    yield f"{name}_count{_format_labels(labels)} {count}\n"


def _format_head(name: str, kind: str, help: str) -> str:
    return f"# HELP {name} {help}\n# TYPE {name} {kind}\n"


def _format_labels(labels: Labels) -> str:
    shown = ",".join(f'{key}="{_escape(text)}"' for key, text in labels)
    return f"{{{shown}}}" if shown else ""


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
