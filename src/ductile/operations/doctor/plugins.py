"""Checks of plugins: refused, interpreter missing, not ready."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.plugins.validate import find_similar_interpreter
from ductile.runner.exec_errors import first_line, has_crlf_shebang, missing_interpreter


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
        entrypoint = plan.argv[-1]
        if len(plan.argv) > 1:
            continue  # It is not started by its first line.
        if has_crlf_shebang(entrypoint):
            yield error(
                "plugins",
                f"plugin {name} cannot run: {entrypoint} has CRLF line endings",
                "the kernel takes the carriage return as part of the interpreter's name",
                f"sed -i 's/\\r$//' {quote(entrypoint)}",
            )
            continue
        search_path = plan.env.get("PATH", "")
        missing = missing_interpreter(first_line(entrypoint) or b"", search_path)
        if missing is not None:
            close = find_similar_interpreter(missing, search_path)
            edit = quote(f"1s|{missing}|{close}|")
            yield error(
                "plugins",
                f"plugin {name} cannot run: {missing} is missing",
                f"the first line of {entrypoint} names it",
                f"sed -i {edit} {quote(entrypoint)}" if close else f"command -v {quote(missing)}",
            )


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
