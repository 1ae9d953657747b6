"""The configuration in force, and what it compiles to."""

from __future__ import annotations

from typing import Any

from ductile.config.redact import redact_settings
from ductile.core.pipelines.pipeline import Pipeline
from ductile.engine.config.compiled import CompiledConfig


def show_config(compiled: CompiledConfig) -> dict[str, Any]:
    """Return every key with its value or default, without secrets, and the compiled routes.

    `plugins` is also at the top level, where the scripts of the Go program read it.
    """
    router = compiled.tx_config.router
    config = redact_settings(compiled.settings)
    return {
        "config": config,
        "plugins": config["plugins"],
        "config_hash": compiled.loaded.config_hash,
        "snapshot_id": compiled.snapshot_id,
        "compiled_routes": {
            name: _describe_route(pipeline) for name, pipeline in sorted(router.pipelines.items())
        },
        "routes": [
            {"source": {"source_plugin": source, "event_type": kind}, "to": list(plugins)}
            for (source, kind), plugins in sorted(router.routes.items())
        ],
        "warnings": [str(warning) for warning in compiled.warnings],
    }


def _describe_route(pipeline: Pipeline) -> dict[str, Any]:
    return {
        "pipeline": pipeline.name,
        "source": {
            "event_type": pipeline.on,
            "hook": pipeline.hook,
            "source_plugin": pipeline.from_plugin,
            "source_pipeline": pipeline.from_pipeline,
        },
        "if": str(pipeline.condition) if pipeline.condition else None,
        "entry": pipeline.entry,
        "steps": [
            {
                "step": node.path,
                "kind": node.kind.value,
                "plugin": node.plugin or None,
                "command": node.command if node.plugin else None,
                "if": str(node.condition) if node.condition else None,
                "next": node.next,
                "otherwise": node.otherwise,
            }
            for node in pipeline.nodes.values()
        ],
    }
