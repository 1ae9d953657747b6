"""What a measurement found, held against what was wanted of it."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"


@dataclass(frozen=True)
class Check:
    """One figure; without a target it only informs."""

    what: str
    measured: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool | None:
        if self.at_least is not None:
            return self.measured >= self.at_least
        if self.at_most is not None:
            return self.measured <= self.at_most
        return None

    @property
    def target(self) -> str:
        if self.at_least is not None:
            return f">= {shown(self.at_least)} {self.unit}".rstrip()
        if self.at_most is not None:
            return f"<= {shown(self.at_most)} {self.unit}".rstrip()
        return ""

    @property
    def verdict(self) -> str:
        return {True: "met", False: "MISSED", None: ""}[self.met]


@dataclass
class Findings:
    """All that one measurement has to say."""

    name: str
    checks: list[Check] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    others: float = 0.0
    """The share of the machine that other programs had meanwhile: above some percent, measure
    again."""

    def as_dict(self) -> dict[str, Any]:
        checks = [{**asdict(c), "target": c.target, "met": c.met} for c in self.checks]
        return {
            "name": self.name,
            "machine": machine(),
            "others_share": self.others,
            "checks": checks,
            **self.details,
        }

    def write(self) -> None:
        OUT.mkdir(exist_ok=True)
        text = json.dumps(self.as_dict(), indent=2, default=str)
        (OUT / f"{self.name}.json").write_text(text + "\n")


def machine() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "commit": _commit(),
    }


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def shown(value: float) -> str:
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def table(rows: Sequence[Mapping[str, object]]) -> str:
    """Columns as wide as their content; figures are aligned to the right."""
    if not rows:
        return ""
    names = list(rows[0])
    cells = [names, *[[_cell(row[name]) for name in names] for row in rows]]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    right = [isinstance(rows[0][name], int | float) for name in names]
    lines = []
    for line in cells:
        parts = [
            text.rjust(width) if flush else text.ljust(width)
            for text, width, flush in zip(line, widths, right, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _cell(value: object) -> str:
    return shown(value) if isinstance(value, float) else str(value)


def summary(found: Sequence[Findings]) -> str:
    return table(
        [
            {
                "measurement": findings.name,
                "what": check.what,
                "target": check.target,
                "measured": f"{shown(check.measured)} {check.unit}".rstrip(),
                "": check.verdict,
            }
            for findings in found
            for check in findings.checks
        ]
    )
