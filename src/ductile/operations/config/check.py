"""Check a configuration as a whole, with its plugins, routes, pipelines and schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from ductile.config import InvalidConfig, Loaded
from ductile.engine.config import compile_schedules
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.errors import ConfigError, Problem, Severity


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
    past = compile_schedules.past(loaded, now)
    return CheckedConfig(loaded, compiled, (*compiled.warnings, *past, *_refusals(compiled)))


def _refusals(compiled: CompiledConfig) -> Iterator[Problem]:
    loaded = compiled.loaded
    for refusal in compiled.registry.refused:
        path = ("plugins", refusal.name)
        file, line, column = (
            loaded.locate(path)
            if refusal.name in loaded.settings.plugins
            else (str(refusal.path), None, None)
        )
        message = f"plugin {refusal.name} is refused: {refusal.reason}"
        yield Problem(message, (), file, line, column, severity=Severity.WARNING)
