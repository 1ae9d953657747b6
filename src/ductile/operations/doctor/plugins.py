"""Checks of plugins: refused, interpreter missing, not ready."""

from __future__ import annotations

from collections.abc import Iterator

from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.reports.repair import find_entrypoint_flaw


def refused(context: DoctorContext) -> Iterator[Finding]:
    if context.compiled is None:
        return
    registry, reload = context.compiled.registry, context.command("system reload")
    for refusal in registry.refused:
        # A reason contains the command to run, if there is one.
        _, marked, command = refusal.reason.rpartition("run: ")
        run = command if marked else context.command("plugin list")
        if marked and refusal.name in context.refused:
            run = f"{command} && {reload}"
        yield error("plugins", f"plugin {refusal.name} is refused", refusal.reason, run)
    for name in sorted(context.refused.keys() & registry.plugins.keys()):
        yield error(
            "plugins",
            f"the running gateway refuses plugin {name}",
            f"the cause has been fixed since the last load: {context.refused[name]}",
            reload,
        )


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
            context.command(f"logs {name}"),
        )


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
