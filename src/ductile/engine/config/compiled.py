"""Everything derived from one loaded configuration; built and replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ductile.config import Loaded, Settings, bundled
from ductile.config.models.plugin import PluginSettings
from ductile.config.redact import redact_problems
from ductile.core.alerts.rules import AlertRule
from ductile.core.flow.keys import FlowKey, compile_key
from ductile.core.flow.limits import Concurrency, OnFull, PluginLimits
from ductile.core.flow.rates import Rate
from ductile.core.jobs.commands import INIT
from ductile.core.jobs.judge import Rules
from ductile.core.jobs.prepare import PluginPlan
from ductile.core.jobs.retry import RetryPolicy
from ductile.core.pipelines.graph import RELAY_PLUGIN, SWITCH_PLUGIN, WAIT_PLUGIN
from ductile.core.pipelines.router import Router
from ductile.core.schedules.breaker import BreakerPolicy
from ductile.core.schedules.decide import IfRunning, Schedule
from ductile.core.values.redact import Redactor
from ductile.engine.config.compile_alerts import rules_of
from ductile.engine.config.compile_routes import compile_router
from ductile.engine.config.compile_schedules import local_zone, schedules_of
from ductile.engine.observability.trace_settings import TracingSettings, read_tracing
from ductile.engine.workspaces import Workspaces
from ductile.errors import Problem, Severity
from ductile.model import CORE_PREFIX
from ductile.plugins.discover import discover
from ductile.plugins.environments.locate import DIRECTORY
from ductile.plugins.environments.warm_start import NoWarmStart, find_warm_start
from ductile.plugins.registry import InstanceSpec, Plugin, Registry
from ductile.plugins.sandbox import list_private, plan_sandbox
from ductile.plugins.trust import PluginSeals
from ductile.plugins.variables import plugin_environment
from ductile.runner.sandbox import restrict
from ductile.runner.sandbox.policy import decode
from ductile.store.tx_config import TxConfig

CORE_RETRY = RetryPolicy(backoff_base=1.0)
"""Switches and relays only write to the ledger: one lost with its gateway is retried soon."""
REMOVED = "plugin removed"
INIT_PENDING = "its init has not run yet"
"""Why a plugin is not ready while its `init` is queued or running."""


@dataclass(frozen=True)
class CompiledConfig:
    """What the rest of the program needs of the configuration."""

    loaded: Loaded
    registry: Registry
    redactor: Redactor
    plans: Mapping[str, PluginPlan]
    caps: Mapping[str, int]
    schedules: tuple[Schedule, ...]
    tx_config: TxConfig
    workspaces: Workspaces
    warnings: tuple[Problem, ...] = ()
    alert_rules: tuple[AlertRule, ...] = ()
    tracing: TracingSettings | None = None
    """None if tracing is off."""
    private: tuple[Path, ...] = ()
    """What no sandbox grants."""

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def snapshot_id(self) -> str | None:
        """The id of this configuration's row in the ledger, when it is in force."""
        return self.tx_config.snapshot_id

    def plugin_settings(self, name: str) -> PluginSettings:
        return _own(self.settings, name)

    def retry_policy(self, plugin: str) -> RetryPolicy:
        if plugin.startswith(CORE_PREFIX):
            return CORE_RETRY
        retry = self.plugin_settings(plugin).retry
        return RetryPolicy(retry.max_attempts, retry.backoff_base)

    def rules(self, plugin: str, command: str) -> Rules:
        """The rules for judging an attempt of this plugin and command, loaded or not."""
        known = self._rules.get((plugin, command))
        if known is None:
            known = self._rules[plugin, command] = self._make_rules(plugin, command)
        return known

    @cached_property
    def _rules(self) -> dict[tuple[str, str], Rules]:
        return {}

    def _make_rules(self, plugin: str, command: str) -> Rules:
        loaded = self.registry.plugins.get(plugin)
        fact = loaded.fact_output(command) if loaded else None
        plan = self.plans.get(plugin)
        return Rules(
            retry=self.retry_policy(plugin),
            redactor=self.redactor,
            router=self.tx_config.router,
            fact_type=fact.fact_type if fact else None,
            mirror_fact=bool(fact and fact.compatibility_view == "mirror_object"),
            init_key=loaded.init_key if loaded and command == INIT else None,
            protocol=loaded.manifest.protocol if loaded else 1,
            timeout=plan.timeout(command) if plan else None,
            sandbox=plan.sandbox.summary if plan and plan.sandbox else None,
        )

    def needs_init(self) -> list[Plugin]:
        return [plugin for plugin in self.registry.plugins.values() if plugin.command(INIT)]

    def held(self) -> frozenset[str]:
        """Refused plugins, whose jobs stay queued."""
        refused = {refusal.name for refusal in self.registry.refused}
        return frozenset(refused - self.registry.plugins.keys())

    @cached_property
    def serial_schedules(self) -> Mapping[str, frozenset[str]]:
        """Per plugin, the schedules whose runs wait for the run before them."""
        serial: dict[str, set[str]] = {}
        for entry in self.schedules:
            if entry.if_running is IfRunning.QUEUE:
                serial.setdefault(entry.plugin, set()).add(entry.id)
        return {plugin: frozenset(ids) for plugin, ids in serial.items()}

    @cached_property
    def placed_elsewhere(self) -> frozenset[str]:
        """The plugins that require labels which this node does not have."""
        labels = self.settings.service.labels
        return frozenset(
            name
            for name in self.plans
            if not _own(self.settings, name).nodes.items() <= labels.items()
        )

    def known(self) -> frozenset[str]:
        """The plugins whose jobs this node can run."""
        return self._loaded_or_built_in - self.placed_elsewhere

    @property
    def _loaded_or_built_in(self) -> frozenset[str]:
        return frozenset({*self.plans, SWITCH_PLUGIN, RELAY_PLUGIN, WAIT_PLUGIN})

    def claimable(self) -> frozenset[str]:
        """The plugins whose jobs this node can run, or end because they never will."""
        return self.known() | self.registry.disabled | self.registry.offered.keys()

    def expects(self, plugin: str) -> bool:
        """Whether the configuration has this plugin, loaded or refused."""
        return plugin in self.plans or plugin.startswith(CORE_PREFIX) or plugin in self.held()

    def gone(self, plugin: str) -> str | None:
        """Why queued jobs of this plugin end without being run; None if they run or wait."""
        if self.expects(plugin):
            return None
        if plugin in self.registry.disabled:
            return "plugin disabled"
        return REMOVED if plugin in self.registry.offered else None

    def absence(self, plugin: str) -> str | None:
        """Why the jobs of a plugin wait that no root has; None for every other plugin."""
        if self.expects(plugin) or self.gone(plugin) is not None:
            return None
        roots = self.registry.unavailable_roots.items()
        cause = ", ".join(f"{root} {reason}" for root, reason in roots)
        return f"no plugin root has a plugin named {plugin}{f': {cause}' if cause else ''}"

    def has_removed(self, plugin: str, earlier: Mapping[str, Any]) -> bool:
        """Whether the configuration has removed an absent plugin since an `earlier` one, as stored
        in its snapshot: its entry under `plugins`, or a plugin root.

        It has not as long as a root is unavailable, because the plugin may be there. A plugin that
        disappeared from an unchanged root was not removed by the configuration.
        """
        if self.absence(plugin) is None or self.registry.unavailable_roots:
            return False
        roots = self.settings.to_document()["plugin_roots"]
        removed_roots = set(earlier.get("plugin_roots", ())) - set(roots)
        return plugin in earlier.get("plugins", {}) or bool(removed_roots)


_DEFAULTS = PluginSettings.model_construct()
"""Not validated: that would build a second schema only for this."""


def _own(settings: Settings, plugin: str) -> PluginSettings:
    return settings.plugins.get(plugin) or _DEFAULTS


def build(loaded: Loaded, *, boot_marker: str, environ: Mapping[str, str]) -> CompiledConfig:
    """Discover the plugins and compile everything."""
    return compile_config(*discover_plugins(loaded), boot_marker=boot_marker, environ=environ)


def compile_config(
    loaded: Loaded, registry: Registry, *, boot_marker: str, environ: Mapping[str, str]
) -> CompiledConfig:
    """Compile a configuration with its discovered plugins.

    Refused plugins are not an error; routes and pipelines that cannot run raise `ConfigError`.
    """
    settings = loaded.settings
    router, warnings = compile_router(loaded, registry)
    tracing = read_tracing(environ)
    env = plugin_environment(environ, settings.service.plugin_env_passthrough, boot_marker)
    private = list_private(loaded, environ)
    plans = {
        name: _plan(plugin, settings, env, private) for name, plugin in registry.plugins.items()
    }
    caps = {
        name: cap
        for name, plugin in registry.plugins.items()
        if (cap := _cap(plugin, settings)) is not None
    }
    return CompiledConfig(
        loaded=loaded,
        registry=registry,
        redactor=Redactor(loaded.secrets),
        plans=plans,
        caps=caps,
        schedules=schedules_of(settings, local_zone(environ)),
        tx_config=_tx_config(settings, router, traced=tracing is not None),
        tracing=tracing,
        private=private,
        workspaces=_workspaces(settings, router),
        warnings=(*loaded.warnings, *warnings, *_warn_of_plugins(loaded, registry)),
        alert_rules=rules_of(settings, router.pipelines),
    )


def discover_plugins(loaded: Loaded) -> tuple[Loaded, Registry]:
    """The plugins, and the configuration with the secrets that their manifests mark."""
    settings = loaded.settings
    instances = {
        name: InstanceSpec(enabled=plugin.enabled, uses=plugin.uses, config=plugin.config)
        for name, plugin in settings.plugins.items()
    }
    registry = discover(
        settings.plugin_roots,
        instances,
        allow_symlinks=settings.service.allow_symlinks,
        offers=(bundled.directory(),),
        seals=_sealed(loaded),
        environments=settings.state_dir / DIRECTORY,
    )
    marked = settings.mark_secrets(registry.secret_marks)
    return replace(loaded, settings=marked, secrets=marked.secrets), registry


def _sealed(loaded: Loaded) -> PluginSeals:
    plugins = loaded.seal.plugin_fingerprints if loaded.seal else ()
    prints = {
        str(plugin.get("name")): str(plugin["fingerprint"])
        for plugin in plugins
        if "fingerprint" in plugin
    }
    return PluginSeals(prints, strict=loaded.settings.service.strict_mode)


def _warn_of_plugins(loaded: Loaded, registry: Registry) -> list[Problem]:
    """Warnings about the discovered plugins and their settings."""
    warnings = [Problem(text, severity=Severity.WARNING) for text in registry.warnings]
    for name, plugin in registry.plugins.items():
        cap = _own(loaded.settings, name).parallelism
        if cap is not None and cap > 1 and not plugin.manifest.concurrency_safe:
            path = ("plugins", name, "parallelism")
            message = f"{cap} at once, though the plugin's manifest says concurrency_safe: false"
            place = loaded.locate(path)
            warnings.append(Problem(message, path, *place, severity=Severity.WARNING))
    return redact_problems(warnings, loaded.secrets)


def _tx_config(settings: Settings, router: Router, *, traced: bool) -> TxConfig:
    plugins = settings.plugins
    return TxConfig(
        traced=traced,
        router=router,
        attempts={name: plugin.retry.max_attempts for name, plugin in plugins.items()},
        breakers={
            name: BreakerPolicy(
                plugin.circuit_breaker.threshold, plugin.circuit_breaker.reset_after
            )
            for name, plugin in plugins.items()
        },
        notify=frozenset(name for name, plugin in plugins.items() if plugin.notify_on_complete),
        dedupe_ttl=settings.service.dedupe_ttl,
        limits={
            name: limits
            for name, plugin in plugins.items()
            if (limits := _limits(plugin)) is not None
        },
        run_limits={
            pipeline.name: Concurrency(own.limit, _key(own.key), OnFull(own.on_full))
            for pipeline in settings.pipelines
            if (own := pipeline.concurrency) is not None
        },
        priorities={name: plugin.priority for name, plugin in plugins.items() if plugin.priority},
        pipeline_priorities={
            pipeline.name: pipeline.priority for pipeline in settings.pipelines if pipeline.priority
        },
    )


def _limits(plugin: PluginSettings) -> PluginLimits | None:
    own, rate = plugin.concurrency, plugin.rate
    if own is None and rate is None:
        return None
    return PluginLimits(
        None if own is None else Concurrency(own.limit, _key(own.key), OnFull(own.on_full)),
        None if rate is None else Rate(rate.limit, rate.per, rate.burst, _key(rate.key)),
    )


def _key(text: str | None) -> FlowKey | None:
    if text is None:
        return None
    key = compile_key(text)
    assert isinstance(key, FlowKey), "the configuration's models have checked it"
    return key


def _workspaces(settings: Settings, router: Router) -> Workspaces:
    service = settings.service
    own = {name: pipeline.workspace for name, pipeline in router.pipelines.items()}

    def wanted(pipeline: str) -> bool:
        chosen = own.get(pipeline)
        return bool(pipeline) and (service.workspaces if chosen is None else chosen)

    first = {
        (pipeline.name, node.path)
        for pipeline in router.pipelines.values()
        for node in pipeline.first_jobs()
    }
    # Where nodes share the ledger, the previous step may have run on a node with other files.
    dependent = {
        (pipeline.name, path)
        for pipeline in router.pipelines.values()
        if pipeline.workspace or settings.state.url
        for path in pipeline.paths()
    }
    return Workspaces(
        settings.workspaces_dir,
        wanted,
        first=first,
        dependent=dependent,
        hardlink=service.workspace_clone == "hardlink",
    )


def _plan(
    plugin: Plugin, settings: Settings, env: Mapping[str, str], private: Sequence[Path]
) -> PluginPlan:
    own = _own(settings, plugin.name)
    own_env = {**env, **own.env, "DUCTILE_PLUGIN": plugin.name}
    runtime, default = own.runtime, plugin.manifest.runtime
    sandbox = plan_sandbox(
        plugin,
        None if own.sandbox is None else own.sandbox.to_spec(),
        settings.service.sandbox,
        private=private,
        state_dir=settings.state_dir,
        env=own_env,
        support=restrict.probe(),
    )
    warm, cold_reason = None, ""
    if (runtime.python or default.python) == "warm":
        preload = default.preload if runtime.preload is None else runtime.preload
        try:
            written = None if sandbox is None else decode(sandbox.policy).write
            warm = find_warm_start(plugin, preload, own_env, written)
        except NoWarmStart as error:
            cold_reason = str(error)
    return PluginPlan(
        name=plugin.name,
        protocol=plugin.manifest.protocol,
        argv=plugin.argv,
        env=own_env,
        commands=frozenset(command.name for command in plugin.manifest.commands),
        config=plugin.config_json,
        timeouts=_own(settings, plugin.name).timeouts,
        stat=plugin.entrypoint_stat if settings.service.strict_mode else b"",
        warm=warm,
        cold_reason=cold_reason,
        sandbox=sandbox,
    )


def _cap(plugin: Plugin, settings: Settings) -> int | None:
    chosen = _own(settings, plugin.name).parallelism
    return 1 if chosen is None and not plugin.manifest.concurrency_safe else chosen
