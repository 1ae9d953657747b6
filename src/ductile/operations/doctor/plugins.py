"""Checks of plugins: refused, interpreter missing, not ready."""

from __future__ import annotations

import re
from collections.abc import Iterator
from shlex import quote

from ductile.engine.config.compiled import CompiledConfig
from ductile.operations.config.fixes import open_in_editor
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.reports.repair import find_entrypoint_flaw, find_failed_init
from ductile.plugins.registry import RefusedPlugin

_IN_MANIFEST = re.compile(r"([\w.-]+\.ya?ml):(\d+):")


def refused(context: DoctorContext) -> Iterator[Finding]:
    if context.compiled is None:
        return
    registry, reload = context.compiled.registry, context.command("system reload")
    for refusal in registry.refused:
        command, place = _find_correction(refusal, context.compiled)
        run = command or context.command("plugin list")
        # A gateway that has loaded the plugin before keeps its environment until then.
        is_new = (command or "").startswith("ductile plugin sync") and context.ask is not None
        if command is not None and (refusal.name in context.refused or is_new):
            run = f"{command} && {reload}"
        yield error("plugins", f"plugin {refusal.name} is refused", refusal.reason + place, run)
    for name in sorted(context.refused.keys() & registry.plugins.keys()):
        yield error(
            "plugins",
            f"the running gateway refuses plugin {name}",
            f"the cause has been fixed since the last load: {context.refused[name]}",
            reload,
        )


def _find_correction(refusal: RefusedPlugin, compiled: CompiledConfig) -> tuple[str | None, str]:
    """The command that corrects what a refusal names or opens its place, and that place."""
    if refusal.command is not None:
        return refusal.command, ""
    if (found := _IN_MANIFEST.match(refusal.reason)) and refusal.path is not None:
        return open_in_editor(str(refusal.path / found[1]), int(found[2])), f" (in {refusal.path})"
    if refusal.path is None and refusal.name in compiled.settings.plugins:
        file, line, _ = compiled.loaded.locate(("plugins", refusal.name))
        return open_in_editor(file, line), f"; it is configured at {file}:{line}"
    return None, ""


def interpreters(context: DoctorContext) -> Iterator[Finding]:
    """Entrypoints whose first line names a missing interpreter."""
    if context.compiled is None:
        return
    for name, plan in sorted(context.compiled.plans.items()):
        flaw = find_entrypoint_flaw(plan)
        if flaw is not None:
            yield error("plugins", f"plugin {name} cannot run: {flaw.what}", flaw.why, flaw.run)


def cold(context: DoctorContext) -> Iterator[Finding]:
    """Plugins that are to be started warm, and are not."""
    for name, reason in sorted(context.cold.items()):
        yield warning(
            "plugins",
            f"plugin {name} is started cold, although it is to be started warm",
            reason,
            context.command(f"plugin show {name}"),
        )


def unready(context: DoctorContext) -> Iterator[Finding]:
    for name, reason in sorted(context.unready.items()):
        yield error(
            "plugins",
            f"plugin {name} is not ready; its jobs stay queued",
            reason or "its init has not succeeded",
            context.command(_explain_init(context, name)),
        )


def _explain_init(context: DoctorContext, plugin: str) -> str:
    """The command that explains the failed `init`."""
    rows = context.rows
    init = None if rows is None else rows.read(lambda tx: find_failed_init(tx, plugin))
    return f"logs {quote(plugin)}" if init is None else f"job why {init['id']}"


def sandboxes(context: DoctorContext) -> Iterator[Finding]:
    """Sandboxes that the kernel cannot enforce."""
    if context.compiled is None:
        return
    for name, plan in sorted(context.compiled.plans.items()):
        if plan.sandbox is None or not plan.sandbox.gaps:
            continue
        show = context.command(f"plugin show {name}")
        if plan.sandbox.refusal:
            yield error("plugins", f"plugin {name} does not run", plan.sandbox.refusal, show)
        else:
            what = f"the sandbox of plugin {name} is enforced only in part"
            yield warning("plugins", what, plan.sandbox.summary, show)
