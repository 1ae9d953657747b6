"""The sandbox of comparisons: a plugin writes nowhere but in its copy of the workspace.

It has no network unless the operator allows what it has in a gateway.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ductile.core.jobs.prepare import PluginPlan
from ductile.core.jobs.sandbox import (
    BEST_EFFORT,
    LEVELS,
    NO_NETWORK,
    WHOLE_NETWORK,
    SandboxSpec,
    narrow,
)
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import Refused
from ductile.plugins.sandbox import plan_sandbox
from ductile.runner.sandbox import restrict
from ductile.runner.sandbox.policy import NETWORK, Support

MAX_JOB_SECONDS = 20.0
"""A job of a comparison ends after this time, whatever the plugin's own limit is."""


def confine(
    compiled: CompiledConfig,
    name: str,
    *,
    allow_network: bool,
    reads_everything: bool,
    temporary: Path,
    support: Support | None = None,
) -> PluginPlan:
    """The plan of a plugin with the sandbox of comparisons.

    A plugin that declares no sandbox, and for which the configuration has none, reads every file
    that it would read in a gateway, except for the gateway's own; without `reads_everything` only
    the system's and its own. Its temporary files are below `temporary`. Raises `Refused` where the
    kernel cannot isolate it from the network, or cannot enforce what the plugin requires.
    """
    plan = compiled.plans[name]
    sandbox = plan_sandbox(
        compiled.registry.plugins[name],
        _grant(compiled, name, allow_network=allow_network, reads_everything=reads_everything),
        BEST_EFFORT,
        private=compiled.private,
        state_dir=temporary,
        env=plan.env,
        support=support or restrict.probe(),
    )
    assert sandbox is not None, "its level is not `off`"
    if sandbox.refusal is not None:
        raise Refused(f"plugin {name}: {sandbox.refusal}")
    if not allow_network and NETWORK in sandbox.gaps:
        raise Refused(
            f"this machine cannot isolate a plugin from the network ({sandbox.gaps[NETWORK]}); "
            "run it with its network: --allow-network"
        )
    limits = {command: min(plan.timeout(command), MAX_JOB_SECONDS) for command in plan.commands}
    # A new process in any case: the sandbox cannot be applied to a warm one.
    return replace(plan, sandbox=sandbox, timeouts=limits, warm=None)


def _grant(
    compiled: CompiledConfig, name: str, *, allow_network: bool, reads_everything: bool
) -> SandboxSpec:
    """What a comparison grants the plugin: no more than it has as a job, and no writing."""
    own, declared = compiled.plugin_settings(name).sandbox, compiled.registry.plugins[name].manifest
    operator = SandboxSpec() if own is None else own.to_spec()
    author = None if declared.sandbox is None else declared.sandbox.to_spec()
    level = narrow(author, operator, compiled.settings.service.sandbox).level or BEST_EFFORT
    granted = replace(operator, level=max(level, BEST_EFFORT, key=LEVELS.index), write=())
    if own is None and author is None:
        read = ("/",) if reads_everything else ()
        granted = replace(granted, network=WHOLE_NETWORK, read=read)
    return granted if allow_network else replace(granted, network=NO_NETWORK)


def describe_sandbox(plan: PluginPlan) -> dict[str, Any]:
    """The network that the plugin had, and what the kernel did not hold."""
    assert plan.sandbox is not None
    document = plan.sandbox.to_document()
    return {"network": document["network"], "not_held": document["not_held"]}
