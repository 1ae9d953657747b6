"""Check a configuration as a whole, with its plugins, routes, pipelines and schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ductile.config import InvalidConfig, Loaded
from ductile.config.load import sort_problems
from ductile.config.loader.salvage import Salvage
from ductile.engine.config import compile_schedules
from ductile.engine.config.compiled import CompiledConfig, compile_config, discover_plugins
from ductile.errors import ConfigError, Path, Problem, Severity, errors_of
from ductile.plugins.registry import Registry
from ductile.plugins.validate import find_similar_interpreter
from ductile.runner.exec_errors import first_line, has_crlf_shebang, missing_interpreter


@dataclass(frozen=True)
class CheckedConfig:
    """A configuration that can run."""

    loaded: Loaded
    compiled: CompiledConfig
    warnings: tuple[Problem, ...]


def check(
    load: Callable[[], Loaded], *, environ: Mapping[str, str], now: datetime
) -> CheckedConfig:
    """Load and compile a configuration; raise `ConfigError` with every error found.

    If parts of it have errors, the others are checked as well.
    """
    problems: list[Problem] = []
    salvage: Salvage | None = None
    try:
        loaded = load()
    except InvalidConfig as invalid:
        if invalid.rest is None:
            raise
        loaded, problems, salvage = invalid.rest, list(invalid.problems), invalid.salvage
    loaded, registry = discover_plugins(loaded)
    refusals = list(_refusals(loaded, registry))
    further = errors_of(refusals)
    try:
        compiled = compile_config(loaded, registry, boot_marker="", environ=environ)
    except ConfigError as error:
        further += error.problems
    problems += further if salvage is None else salvage.drop_follow_ups(further)
    if problems:
        raise ConfigError(sort_problems(problems, loaded.files))
    past = compile_schedules.past(loaded, now)
    found = (*compiled.warnings, *past, *refusals, *_unstartable(compiled))
    return CheckedConfig(loaded, compiled, found)


def _unstartable(compiled: CompiledConfig) -> Iterator[Problem]:
    """Programs that the kernel cannot start, because of their first line."""
    for name, plan in sorted(compiled.plans.items()):
        if len(plan.argv) > 1:
            continue  # It is not started by its first line.
        entrypoint, search_path = plan.argv[0], plan.env.get("PATH", "")
        missing = missing_interpreter(first_line(entrypoint) or b"", search_path)
        if has_crlf_shebang(entrypoint):
            why = "CRLF line endings; save it with LF line endings"
        elif missing is not None:
            close = find_similar_interpreter(missing, search_path)
            advice = f"did you mean {close}?" if close else "install it"
            why = f"its first line names {missing}, which is not installed; {advice}"
        else:
            continue
        message = f"plugin {name} cannot run: {why}"
        yield Problem(message, (), entrypoint, 1, None, severity=Severity.WARNING)


def _refusals(loaded: Loaded, registry: Registry) -> Iterator[Problem]:
    """Refused plugins; an error where a schedule would create jobs that only wait."""
    for refusal in registry.refused:
        own = loaded.settings.plugins.get(refusal.name)
        path: Path = () if own is None else ("plugins", refusal.name)
        file, line, column = (str(refusal.path), None, None) if own is None else loaded.locate(path)
        message = f"plugin {refusal.name} is refused: {refusal.reason}"
        severity = Severity.WARNING
        if own is not None and own.schedules and refusal.name not in registry.plugins:
            message += "; its schedules would not run"
            severity = Severity.ERROR
        yield Problem(message, path, file, line, column, severity=severity)
