"""`ductile plugin new`, `test` and `validate`: commands for authors of plugins."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.client import Json
from ductile.cli.command import CommandContext, compile_config, read, write
from ductile.cli.display import print_routing
from ductile.cli.options import PLUGIN, AliasedChoice, choose_command, read_json
from ductile.cli.progress import show_waiting
from ductile.core.jobs.commands import HANDLE
from ductile.core.values.suggest import did_you_mean
from ductile.errors import NotFound, Problem, Refused, UsageError, errors_of

if TYPE_CHECKING:
    from ductile.engine.config.compiled import CompiledConfig
    from ductile.operations.dry_run.plugin import PluginTest
    from ductile.plugins.validate import Inspection

LANGUAGES = AliasedChoice(
    ["python", "sh", "node"],
    {
        **dict.fromkeys(("bash", "shell", "zsh", "dash", "ksh"), "sh"),
        **dict.fromkeys(("py", "python3"), "python"),
        **dict.fromkeys(("js", "javascript", "nodejs", "mjs", "ts", "typescript"), "node"),
    },
)
TARGET = "NAME|DIR"


@write("new")
@click.argument("name")
@click.option(
    "--lang",
    type=LANGUAGES,
    default="python",
    show_default=True,
    help="Language of the program.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    help="Parent directory. Default: the first of plugin_roots.",
)
def new(context: CommandContext, name: str, lang: str, root: Path | None) -> None:
    """Create a working plugin from a template.

    Writes a manifest, a program, a test and a README. Existing files are not overwritten.
    """
    from ductile.plugins import scaffold

    texts = scaffold.render_files(name, lang)
    if root is None:
        refuse_loaded(context, name)
    where = (root or first_root(context)).absolute()
    target = where / name
    if context.dry_run:
        scaffold.refuse_to_overwrite(target)
        files = [target / file for file in texts]
    else:
        files = scaffold.create(where, name, lang)
    document = {
        "plugin": name,
        "language": lang,
        "directory": str(target),
        "files": [str(path) for path in files],
        "dry_run": context.dry_run,
    }
    context.show(document, _show_new)


def refuse_loaded(context: CommandContext, name: str) -> None:
    from ductile.operations.authoring import plugins as authoring

    authoring.refuse_loaded(compile_config(context.target.loaded).registry, name)


def first_root(context: CommandContext) -> Path:
    """Return the first plugin root that is not the bundled one."""
    from ductile.operations.authoring.plugins import find_first_root

    return find_first_root(context.target.loaded.settings)


def _show_new(document: Json) -> None:
    for path in document["files"]:
        output.print_line(f"{'would write' if document['dry_run'] else 'wrote'} {path}")
    if not document["dry_run"]:
        from shlex import quote

        output.print_line(f"next: ductile plugin test {quote(_short(Path(document['directory'])))}")


def _short(path: Path) -> str:
    """Return the path as one types it here; with a slash, it is taken for a directory."""
    here = Path.cwd()
    return f"./{path.relative_to(here)}" if path.is_relative_to(here) else str(path)


@read("test")
@click.argument("target", metavar=TARGET, type=PLUGIN)
@click.option(
    "--command", metavar="C", help="Command to run. Default: poll, handle or the only one."
)
@click.option(
    "--payload", metavar="JSON|@FILE|-", help="Payload of the job; for handle, of the event."
)
@click.option("--event", metavar="FILE|-", help="Whole event for handle: {type, payload, ...}.")
@click.option(
    "--webhook",
    metavar="JSON|@FILE|-",
    help="Webhook request: {name, provider, headers, body, ...}.",
)
@click.option("--state", metavar="FILE|-", help="Plugin state. Default: empty.")
@click.option(
    "--config-json", metavar="JSON|@FILE|-", help="Plugin config instead of the configured one."
)
def test(
    context: CommandContext,
    target: str,
    command: str | None,
    payload: str | None,
    event: str | None,
    webhook: str | None,
    state: str | None,
    config_json: str | None,
) -> int:
    """Run a plugin once, as a test, and check its response.

    The process is real: it has the same slot, environment, limits and request as in a gateway.
    Nothing is recorded: state, facts, events and retries are only shown. A directory is run
    with default settings, unless --config names a configuration. Exit 1 if the job would fail.
    """
    from ductile.operations.dry_run import plugin as trial

    if sum(given is not None for given in (payload, event, webhook)) > 1:
        raise UsageError("--payload, --event and --webhook cannot be combined")
    config = _read_object(config_json, "--config-json")
    compiled, name = prepare_plugin(context, target, config)
    if event is not None and command not in (None, HANDLE):
        raise UsageError(f"--event works with the command {HANDLE}, not with {command}")
    known = {c.name: c.type.value for c in compiled.registry.plugins[name].manifest.commands}
    default = HANDLE if event is not None or (webhook is not None and command is None) else command
    chosen = choose_command(name, known, default)
    given = read_json(payload) if event is None else _read_event(event)
    baggage: Mapping[str, Any] = {}
    if webhook is not None:
        from ductile.operations.dry_run.webhook import read_webhook

        request = read_json(webhook, "--webhook")
        sent = read_webhook(compiled.settings, name, chosen, request)
        given, baggage = sent.payload, sent.context
    job_input = {} if given is None else given
    wanted = trial.PluginTest(name, chosen, job_input, _read_state(state), baggage)
    done = _run_trial(context, compiled, wanted)
    context.show(done, lambda done: _show_trial(context, done))
    return 0 if done["status"] == "succeeded" else 1


def _run_trial(context: CommandContext, compiled: CompiledConfig, wanted: PluginTest) -> Json:
    from ductile.cli.errors import sigterm_as_interrupt
    from ductile.clock import SystemClock, SystemEntropy
    from ductile.operations.dry_run import plugin as trial

    context.note(f"running {' '.join(compiled.plans[wanted.plugin].argv)}")
    progress = f"running {wanted.plugin} {wanted.command}"
    with sigterm_as_interrupt(), show_waiting(progress):
        return trial.run(compiled, wanted, SystemClock().now(), SystemEntropy())


def _read_object(text: str | None, option: str) -> Json | None:
    given = read_json(text, option)
    if given is not None and not isinstance(given, dict):
        raise UsageError(f"{option} must be a JSON object")
    return given


def _read_event(file: str) -> Json:
    event = _read_object(file if file == "-" else f"@{file}", "--event") or {}
    if not event.keys() & {"type", "payload"}:
        raise UsageError(
            'an event must be {"type": "...", "payload": {...}}; use --payload for anything else'
        )
    return event


def _read_state(file: str | None) -> Json:
    if file is None:
        return {}
    return _read_object(file if file == "-" else f"@{file}", "--state") or {}


def prepare_named(
    context: CommandContext, name: str, config: Mapping[str, Any] | None
) -> CompiledConfig:
    """Return the configuration with a plugin of its roots, and with all secrets."""
    from ductile.operations.dry_run import plugin as trial

    compiled = compile_config(trial.with_plugin(context.target.runnable, name, config))
    if name not in compiled.registry.plugins:
        raise _not_loaded(compiled, name)
    return compiled


def prepare_plugin(
    context: CommandContext, target: str, config: Mapping[str, Any] | None
) -> tuple[CompiledConfig, str]:
    """Return the configuration with the plugin, and its name; may raise `InvalidPlugin`."""
    from ductile.operations.dry_run import plugin as trial

    if not is_directory(context, target):
        return prepare_named(context, target, config), target
    inspection = _inspect(resolve_path(target), context)
    if not inspection.is_valid:
        raise InvalidPlugin([inspection])
    name, directory = inspection.name, inspection.directory
    if context.config is None:
        loaded = trial.unconfigured(directory, name, config or {})
    else:
        loaded = trial.with_plugin(context.target.runnable, name, config, directory.parent)
    compiled = compile_config(loaded)
    if name not in compiled.registry.plugins:
        raise _not_loaded(compiled, name, target)
    return compiled, name


def is_directory(context: CommandContext, target: str) -> bool:
    """Return whether a target is a plugin's directory, not its name."""
    from ductile.plugins.manifest import MANIFEST_NAME

    if "/" in target or target in (".", ".."):
        return True
    return context.config is None and (Path(target) / MANIFEST_NAME).exists()


def resolve_path(target: str) -> Path:
    """Return the directory with its parent resolved, since a plugin may not be a link itself."""
    path = Path(os.path.normpath(Path(target).absolute()))
    return path.parent.resolve() / path.name


def _not_loaded(compiled: CompiledConfig, name: str, directory: str | None = None) -> Exception:
    """With the directory of a plugin that no configuration names."""
    from ductile.engine.ingress.enqueue import enable_command

    registry = compiled.registry
    refusal = registry.refusal(name)
    if refusal is not None:
        reason = refusal.reason
        if directory is not None and (refusal.command or "").startswith("ductile plugin sync"):
            reason = f"{reason.removesuffix(name)}{quote(directory)}"
        return Refused(f"plugin {name} is refused: {reason}", plugin=name)
    if name in registry.disabled:
        return Refused(
            f"plugin {name} is disabled (enabled: false)", plugin=name, run=enable_command(name)
        )
    hint = did_you_mean(name, registry.plugins)
    return NotFound(f"there is no plugin {name!r}{hint}", plugin=name)


def _show_trial(context: CommandContext, done: Json) -> None:
    _note_request(context, done)
    name = click.style(output.escape(f"{done['plugin']} {done['command']}"), bold=True)
    took = output.format_duration(done["duration_ms"] / 1000)
    click.echo(f"{name} {output.format_status(done['status'])} in {took}  (nothing was recorded)")
    if done["error"]:
        output.print_section("error", done["error"])
    for advice in done["advice"]:
        word = advice["severity"]
        output.print_line(f"{word}: {advice['what']}", fg=output.colour_of(word))
        output.print_line(f"  hint: {advice['hint']}")
    for heading in ("response", "stdout", "stderr"):
        if done[heading]:
            output.print_section(heading, output.format_value(done[heading]))
    _show_consequences(done)


def _note_request(context: CommandContext, done: Json) -> None:
    context.note_value("request:", done["request"])
    context.note(f"environment: {' '.join(done['environment'])}")
    context.note(f"time limit: {done['timeout']:g} s")


def _show_consequences(done: Json) -> None:
    """Print what a gateway would do next."""
    retry, state = done["retry"], done["state"]
    if retry["would_retry"]:
        turn = f"attempt {retry['attempt']} of {retry['max_attempts']}"
        output.print_line(
            f"would be retried: {turn} after {output.format_duration(retry['after_seconds'])}"
        )
    elif retry["why"]:
        output.print_line(f"would not be retried: {retry['why']}")
    if state["updates"]:
        fact = f"record a fact {done['fact']} and " if done["fact"] else ""
        output.print_section(f"would {fact}set the state to", output.format_value(state["after"]))
    print_routing(done)
    taken = {job["event"] for job in done["goes_to"]}
    for event in done["events"]:
        if event["type"] not in taken:
            output.print_line(
                f"event {event['type']} would not be routed: no route or pipeline matches it"
            )


@read("validate")
@click.argument("targets", metavar=f"[{TARGET}]...", type=PLUGIN, nargs=-1)
def validate(context: CommandContext, targets: tuple[str, ...]) -> int:
    """Validate plugin manifests and files.

    Every problem is reported with its place. Without a name, every plugin in plugin_roots is
    validated. Exit 1 if a plugin has an error.
    """
    inspections = list(_inspect_all(context, targets))
    context.show(_to_document(inspections), lambda _: _show_inspections(inspections))
    return 0 if all(inspection.is_valid for inspection in inspections) else 1


def _inspect_all(context: CommandContext, targets: tuple[str, ...]) -> Iterator[Inspection]:
    from ductile.plugins.validate import plugin_directories

    if not targets:
        for directory in plugin_directories(context.target.loaded.settings.plugin_roots):
            yield _inspect(directory, context, configured=True)
    for target in targets:
        if is_directory(context, target):
            yield _inspect(resolve_path(target), context, configured=context.config is not None)
        else:
            yield _inspect(_directory_of(context, target), context, configured=True)


def _directory_of(context: CommandContext, name: str) -> Path:
    from ductile.operations.authoring.plugins import find_directory

    loaded = context.target.loaded
    return find_directory(compile_config(loaded).registry, loaded.settings, name)


def _inspect(directory: Path, context: CommandContext, *, configured: bool = False) -> Inspection:
    from ductile.operations.authoring.plugins import inspect_plugin
    from ductile.plugins.validate import Inspection

    search_path = os.environ.get("PATH")
    if configured:
        return inspect_plugin(directory, context.target.loaded.settings, search_path)
    return Inspection(directory, allow_symlinks=False, config=None, search_path=search_path)


class InvalidPlugin(Refused):
    """A plugin that cannot run, with all its problems."""

    code = "plugin_invalid"

    def __init__(self, inspections: list[Inspection]) -> None:
        problems = errors_of(p for inspection in inspections for p in inspection.problems)
        text = "\n".join(str(problem) for problem in problems)
        super().__init__(text, problems=[problem.document() for problem in problems])


def _to_document(inspections: list[Inspection]) -> Json:
    from ductile.operations.authoring.plugins import describe_inspection

    return {
        "ok": all(inspection.is_valid for inspection in inspections),
        "plugins": [describe_inspection(inspection) for inspection in inspections],
    }


def _show_inspections(inspections: list[Inspection]) -> None:
    for inspection in inspections:
        for problem in inspection.problems:
            _show_problem(problem)
    valid = sum(inspection.is_valid for inspection in inspections)
    output.print_line(f"{valid} of {output.format_count(len(inspections), 'plugin')} valid")


def _show_problem(problem: Problem) -> None:
    word = problem.severity.value
    output.print_line(f"{word}: {problem}", fg=output.colour_of(word))
