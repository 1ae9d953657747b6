"""The id of a plan: equal only for the same files, plugins and secrets on both sides."""

from __future__ import annotations

import json
from typing import Any

from blake3 import blake3

from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.config.fingerprint_key import fingerprint_key
from ductile.engine.services import Services

LENGTH = 24


def identify_plan(services: Services, built: CompiledConfig) -> str:
    """Return the id of the change from the configuration in force to another one.

    It is keyed, because secrets that are kept elsewhere are part of it.
    """
    running = services.compiled
    document = {
        "from": [running.snapshot_id, _describe(running)],
        "to": [built.settings.model_dump(mode="json", by_alias=True), _describe(built)],
    }
    text = json.dumps(document, sort_keys=True)
    key = fingerprint_key(services.state_dir)
    return blake3(text.encode(), key=key).hexdigest()[:LENGTH]


def _describe(compiled: CompiledConfig) -> dict[str, Any]:
    registry = compiled.registry
    return {
        "config_hash": compiled.loaded.config_hash,
        "files": {str(path): digest for path, digest in compiled.loaded.files.items()},
        "plugins": {name: plugin.fingerprint for name, plugin in registry.plugins.items()},
        "refused": {refusal.name: refusal.reason for refusal in registry.refused},
    }
