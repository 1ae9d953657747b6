"""Check a configuration as a whole, with its plugins, routes, pipelines and schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ductile.config import InvalidConfig, Loaded
from ductile.engine.config import compile_schedules
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.errors import ConfigError, Problem, Severity, errors_of


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

    If sections have errors, the routes and pipelines of the others are checked as well.
    """
    try:
        loaded = load()
    except InvalidConfig as invalid:
        problems = list(invalid.problems)
        if invalid.rest is not None:
            try:
                build(invalid.rest, boot_marker="", environ=environ)
            except ConfigError as error:
                problems += error.problems
        raise ConfigError(problems) from None
    compiled = build(loaded, boot_marker="", environ=environ)
    refusals = list(_refusals(compiled))
    if errors := errors_of(refusals):
        raise ConfigError(errors)
    past = compile_schedules.past(loaded, now)
    return CheckedConfig(loaded, compiled, (*compiled.warnings, *past, *refusals))


def _refusals(compiled: CompiledConfig) -> Iterator[Problem]:
    """Refused plugins; an error where a schedule would create jobs that only wait."""
    loaded = compiled.loaded
    for refusal in compiled.registry.refused:
        own = loaded.settings.plugins.get(refusal.name)
        is_scheduled = own is not None and own.schedules and refusal.name in compiled.held()
        path = ("plugins", refusal.name)
        file, line, column = (
            loaded.locate(path)
            if refusal.name in loaded.settings.plugins
            else (str(refusal.path), None, None)
        )
        message = f"plugin {refusal.name} is refused: {refusal.reason}"
        if is_scheduled:
            message += "; its schedules would not run"
        severity = Severity.ERROR if is_scheduled else Severity.WARNING
        yield Problem(message, (), file, line, column, severity=severity)
