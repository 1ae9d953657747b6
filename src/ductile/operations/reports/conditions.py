"""Why the `if` of a step was true or false, with its place in the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ductile.core.pipelines.graph import SWITCH_PLUGIN, SWITCH_SUFFIX
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import Path


def describe_place(compiled: CompiledConfig, at: Path) -> str:
    file, line, _ = compiled.loaded.locate(at)
    return f"{file}:{line}"


def explain_condition(
    job: Mapping[str, Any], pipeline: str, path: str | None, compiled: CompiledConfig
) -> str | None:
    """For a job of `core.switch` at a step: the verdict and the values that decided it."""
    if job["plugin"] != SWITCH_PLUGIN or not path:
        return None  # Of a pruned job only its log is left.
    result = job["result"].get("result") if isinstance(job["result"], dict) else None
    if not isinstance(result, dict) or "matched" not in result:
        return None
    node = compiled.tx_config.router.node(pipeline, path)
    text = "" if node is None else f" {node.condition}"
    place = "" if node is None else f" ({describe_place(compiled, node.at)})"
    because = f": {result['because']}" if result.get("because") else ""
    verdict = "is true" if result["matched"] else "is false, so it did not run"
    return f"The `if`{text} of step {path.removesuffix(SWITCH_SUFFIX)} {verdict}{because}{place}."


def explain_false_conditions(
    jobs: list[dict[str, Any]], pipeline: str, compiled: CompiledConfig
) -> dict[str, str]:
    """By the step of a `core.switch` whose `if` was false: why."""
    found = {job["step"]: explain_condition(job, pipeline, job["step"], compiled) for job in jobs}
    return {step: why for step, why in found.items() if why is not None and " is false" in why}
