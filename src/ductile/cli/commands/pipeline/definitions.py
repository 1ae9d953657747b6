"""`ductile pipeline`: list, show and draw pipelines."""

from __future__ import annotations

import sys

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, Noun, explain_unloaded
from ductile.cli.commands.pause import describe as describe_pause
from ductile.cli.explain import describe_action, describe_next, explain_steps, fold_steps
from ductile.cli.options import PIPELINE
from ductile.errors import UsageError

pipeline = Noun("pipeline", "Show and run pipelines; manage their runs.")


def is_terminal() -> bool:
    """Return whether a person reads the output."""
    return sys.stdout.isatty()


@pipeline.read("list")
def listing(context: CommandContext) -> None:
    """List pipelines with their triggers and last runs."""
    with context.target.open_reader() as api:
        page = api.get("/pipelines")
        context.warn_of_difference(api)
    context.show(page, _show_list)


def _show_list(page: Json) -> None:
    output.print_table(
        page["pipelines"],
        {
            "pipeline": "name",
            "trigger": _trigger,
            "mode": "execution_mode",
            "steps": "steps",
            "last run": lambda row: output.format_time(
                (row.get("last_run") or {}).get("started_at")
            ),
            "outcome": lambda row: (row.get("last_run") or {}).get("status"),
            "note": _pause_note,
        },
        empty="no pipelines; define one under `pipelines:` in the config",
    )


def _pause_note(row: Json) -> str | None:
    return describe_pause(row["paused"]) if row["paused"] else None


def _trigger(row: Json) -> str:
    from ductile.core.pipelines.diagram import describe_trigger

    cause = describe_trigger(row["on"], row["on_hook"])
    name = row["from_plugin"] or row["from_pipeline"]
    source = f" from {name}" if name else ""
    return f"{cause}{source}{', if ' + row['if'] if row['if'] else ''}"


@pipeline.read("show")
@click.argument("name", metavar="NAME", type=PIPELINE)
def show(context: CommandContext, name: str) -> None:
    """Show a pipeline's diagram, trigger, settings and steps."""
    context.show(_get(context, name), lambda found: _show_pipeline(context, found))


def _get(context: CommandContext, name: str) -> Json:
    with context.target.open_reader() as api:
        with explain_unloaded(context, name):
            found = api.get(path_to("pipeline", name))
        context.warn_of_difference(api)
        return found


def _show_pipeline(context: CommandContext, found: Json) -> None:
    output.print_text(found["drawing"].rstrip())
    facts = {
        "trigger": _trigger(found),
        "mode": found["execution_mode"],
        "timeout": output.format_duration(found["timeout"]) if found["timeout"] else None,
        "workspace": found["workspace"],
        "max depth": found["max_depth"] or "none",
        "paused": _pause_note(found),
    }
    for name, fact in facts.items():
        if fact is not None:
            output.print_line(f"{name + ':':<11} {fact}")
    output.print_table(
        fold_steps(found["steps"]),
        {
            "step": "step",
            "runs": describe_action,
            "if": "if",
            "next": describe_next,
            "defined in": "source",
        },
    )
    explain_steps(context.note, found["steps"])


@pipeline.read("visualize")
@click.argument("name", metavar="NAME", type=PIPELINE)
@click.option("--text", is_flag=True, help="Draw a tree of text, the default on a terminal.")
@click.option("--mermaid", is_flag=True, help="Print Mermaid, the default in a pipe.")
def visualize(context: CommandContext, name: str, text: bool, mermaid: bool) -> None:
    """Draw a pipeline, as a tree or as a Mermaid diagram."""
    if text and mermaid:
        raise UsageError("--text and --mermaid cannot be combined")
    found = _get(context, name)
    as_text = text or (is_terminal() and not mermaid and not context.as_json)
    drawing = found["drawing" if as_text else "mermaid"]
    explain_steps(context.note, found["steps"])
    context.show(
        {"pipeline": name, "drawing": drawing}, lambda _: output.print_text(drawing.rstrip())
    )
