"""The settings of a pipeline without its steps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from ductile.core.jobs.limits import LONGEST_NAME, fits
from ductile.core.pipelines.compiler.link import Authored, Linked
from ductile.core.pipelines.compiler.parse import Known, read_steps, walk
from ductile.core.pipelines.conditions import Condition, compile_condition, roots
from ductile.core.pipelines.hooks import HOOKS, RUN_HOOKS
from ductile.core.pipelines.pipeline import MODES, Pipeline
from ductile.core.values.json_values import shorten
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem, Severity
from ductile.model import Json


class PipelineHeader:
    """The settings of a pipeline without its steps."""

    def __init__(
        self,
        raw: Json,
        at: Path,
        known: Known,
        sources: frozenset[str],
        from_pipeline: str | None = None,
    ) -> None:
        self.problems: list[Problem] = []
        self.at = at
        self.from_pipeline = from_pipeline
        if not isinstance(raw, Mapping):
            self.report((), "a pipeline must be a mapping", raw)
            raw = {}
        self.raw = {key: value for key, value in raw.items() if value is not None}
        self.name: str = self.text("name") or ""
        self.on, self.hook = self.text("on"), self.text("on-hook")
        self.from_plugin = self.text("from_plugin")
        self.condition = self.read_condition()
        self.mode: str = self.raw.get("execution_mode", MODES[0])
        self.author_depth = self.raw.get("max_depth")
        steps_at = at if from_pipeline is not None else (*at, "steps")
        steps = read_steps(self.raw.get("steps"), steps_at, known, self.problems)
        self.authored = Authored.of(self.name, at, steps)
        self.check(known, sources)

    def report(
        self,
        key: Path,
        message: str,
        found: Json = None,
        allowed: Iterable[str] = (),
        nearest: str | None = None,
    ) -> None:
        self.problems.append(
            Problem(
                message,
                (*self.at, *key),
                found=None if found is None else shorten(found),
                allowed=", ".join(allowed) or None,
                nearest=nearest,
            )
        )

    def text(self, key: str) -> str | None:
        value = self.raw.get(key)
        if value is not None and (not isinstance(value, str) or not value.strip()):
            self.report((key,), f"{key} must be text", value)
            return None
        return value

    def read_condition(self) -> Condition | None:
        if "if" not in self.raw:
            return None
        compiled = compile_condition(self.raw["if"], (*self.at, "if"))
        if isinstance(compiled, list):
            self.problems.extend(compiled)
            return None
        if "config" in roots(compiled):
            self.problems.append(
                Problem(
                    "the `if` of a pipeline cannot read config.*: it is always missing",
                    (*self.at, "if"),
                    severity=Severity.WARNING,
                )
            )
        return compiled

    def check(self, known: Known, sources: frozenset[str]) -> None:
        if self.from_pipeline is None:
            self.check_header(known, sources)
        elif not fits(self.name, LONGEST_NAME):
            message = "the name is too long: the runs of these steps are named after the pipeline"
            allowed = (f"at most {LONGEST_NAME} bytes",)
            self.report((), message, self.name, allowed)
        seen: set[str] = set()
        for step in (step for step in walk(self.authored.steps) if step.named):
            if step.id in seen:
                message = "another step in the pipeline has this id"
                self.problems.append(Problem(message, (*step.at, "id"), found=shorten(step.id)))
            seen.add(step.id)

    def check_header(self, known: Known, sources: frozenset[str]) -> None:
        if "name" not in self.raw:
            self.report(("name",), "a pipeline needs a name")
        elif "/" in self.name or self.name in (".", ".."):
            # It is one part of a path in the API: such a pipeline could not be started.
            allowed = ("a name without `/`, other than `.` and `..`",)
            self.report(("name",), "the name cannot be part of a URL", self.name, allowed)
        triggers = ("on" in self.raw) + ("on-hook" in self.raw)
        if triggers > 1 or (triggers == 0 and not self.raw.get("schedules")):
            self.report((), "a pipeline requires either on or on-hook, or schedules")
        if self.hook is not None and self.hook not in HOOKS:
            self.report(("on-hook",), "no such hook", self.hook, HOOKS, nearest(self.hook, HOOKS))
        if self.hook and self.condition is not None and "context" in roots(self.condition):
            self.report(("if",), "a hook has no context: its `if` cannot read context.*")
        source = self.from_plugin
        if source and source not in known.plugins and source not in sources:
            close = nearest(source, known.plugins)
            self.report(("from_plugin",), "an unknown plugin", source, nearest=close)
        if self.mode not in MODES:
            self.report(("execution_mode",), "no such mode", self.mode, MODES)
        depth = self.author_depth
        if depth is not None and (type(depth) is not int or depth < 0):
            self.report(("max_depth",), "must be a whole number; 0 means no limit", depth)

    def compiled(self, linked: Linked, longest: int | None) -> Pipeline:
        return Pipeline(
            name=self.name,
            at=self.at,
            on=self.on,
            hook=self.hook,
            from_plugin=self.from_plugin,
            from_pipeline=self.from_pipeline,
            condition=self.condition,
            execution_mode=self.mode,
            timeout=self.raw.get("timeout"),
            workspace=self.raw.get("workspace"),
            author_depth=self.author_depth,
            longest=longest,
            entry=linked.entry,
            nodes=MappingProxyType(dict(linked.nodes)),
        )


def read_headers(
    raw: Json, at: Path, known: Known, sources: frozenset[str]
) -> Iterator[PipelineHeader]:
    """The pipeline, and its steps for the end of a run as pipelines that a hook starts."""
    pipeline = PipelineHeader(raw, at, known, sources)
    yield pipeline
    for key, hook in RUN_HOOKS.items():
        if key in pipeline.raw:
            own = {
                "name": f"{pipeline.name}.{key}",
                "on-hook": hook,
                "timeout": pipeline.raw.get("timeout"),
                "workspace": pipeline.raw.get("workspace"),
                "steps": pipeline.raw[key],
            }
            yield PipelineHeader(own, (*at, key), known, sources, pipeline.name)
