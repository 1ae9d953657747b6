"""Whether a Python plugin is started warm: in words for operators."""

from __future__ import annotations

from typing import Any

from ductile.engine.config.compiled import CompiledConfig
from ductile.runner.warm.slots import WarmSlots


def describe_start(
    compiled: CompiledConfig, warm_slots: WarmSlots | None, name: str
) -> dict[str, Any] | None:
    """Whether jobs of a plugin are forked from a zygote, or why not; None if that was not asked
    for."""
    plan = compiled.plans.get(name)
    if plan is None or (plan.warm is None and not plan.cold_reason):
        return None
    if plan.warm is None:
        return _cold(plan.cold_reason)
    if warm_slots is None:
        return _cold("no gateway runs")
    report = warm_slots.report(plan.warm)
    if not report.is_warm:
        return _cold(compiled.redactor.text(report.reason), is_idle=report.is_idle)
    return {
        "mode": "warm",
        "reason": None,
        "memory_bytes": report.memory_kib * 1024,
        "slots": report.slots,
    }


def _cold(reason: str, *, is_idle: bool = False) -> dict[str, Any]:
    mode = "idle" if is_idle else "cold"
    return {"mode": mode, "reason": reason, "memory_bytes": 0, "slots": 0}
