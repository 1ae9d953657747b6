"""`plugins`: the settings, schedules, retries and limits of each plugin."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ductile.config.models.fields import (
    PRIORITY,
    Flag,
    Name,
    OpaqueTable,
    Priority,
    RawScalar,
    Section,
    Span,
    Text,
    Whole,
    Word,
    refuse,
    span,
    text_of,
)
from ductile.config.models.limits import ConcurrencySettings, RateSettings
from ductile.config.models.sandbox import SandboxSettings
from ductile.config.models.schedule import ScheduleSettings
from ductile.core.jobs.commands import DEFAULT_TIMEOUTS, OTHER_TIMEOUT, POLL
from ductile.core.jobs.retry import DEFAULT_RETRY
from ductile.core.schedules.breaker import DEFAULT_BREAKER

_TIMEOUTS = ", ".join(
    f"{command} {seconds:.0f}s"
    for command, seconds in (*DEFAULT_TIMEOUTS.items(), ("any other", OTHER_TIMEOUT))
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
RESERVED_VARIABLES = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
"""With these a plugin could report to systemd that the gateway is ready or alive."""


class RetrySettings(Section):
    max_attempts: Annotated[Whole, Field(ge=1)] = Field(
        default=DEFAULT_RETRY.max_attempts,
        description="Maximum number of attempts, including the first.",
    )
    backoff_base: Span = span(
        DEFAULT_RETRY.backoff_base,
        "Delay before the first retry; it doubles with each attempt. A random part of up to this "
        "time is added to every delay.",
    )


class BreakerSettings(Section):
    threshold: Annotated[Whole, Field(ge=0)] = Field(
        default=DEFAULT_BREAKER.threshold,
        description="Number of consecutive failures of scheduled jobs that opens the breaker; "
        "0, or `circuit_breaker: off`: it never opens.",
    )
    reset_after: Span = span(
        DEFAULT_BREAKER.reset_after, "Time that the breaker stays open before a probe."
    )


def _read_breaker(value: Any) -> Any:
    given = value.value if isinstance(value, RawScalar) else value
    return {"threshold": 0} if given in ("off", False) else value


def _check_variable(value: Any) -> Any:
    text = text_of(value, "the name of a variable")
    if isinstance(text, str):
        if not _VARIABLE.match(text):
            refuse("is not the name of a variable", allowed="letters, digits and _")
        if text.startswith("DUCTILE_") or text in RESERVED_VARIABLES:
            refuse("is set by the gateway alone; choose another name")
    return text


VariableName = Annotated[str, BeforeValidator(_check_variable)]


class RuntimeSettings(Section):
    """How the processes of a Python plugin are started; overrides its manifest."""

    python: Annotated[Literal["cold", "warm"], Word] | None = Field(
        default=None,
        description="`warm` forks jobs from an interpreter that has imported modules; `cold` "
        "starts an interpreter per job. Default: as its manifest says.",
    )
    preload: tuple[Name, ...] | None = Field(
        default=None,
        description="Modules that a warm start imports. Default: as its manifest says.",
        examples=[["httpx"]],
    )


class PluginSettings(Section):
    enabled: Flag = Field(default=True, description="Load the plugin.")
    uses: Name | None = Field(
        default=None, description="Plugin that this entry is another instance of."
    )
    config: OpaqueTable = Field(
        default_factory=dict,
        description="Settings passed to the plugin with every request.",
        repr=False,
    )
    public_config: tuple[Name, ...] = Field(
        default=(),
        description="Keys of `config` that are not secrets; elsewhere in it, a `${NAME}` is one.",
        examples=[["base_url"]],
    )
    env: Mapping[VariableName, Text] = Field(
        default_factory=dict,
        description="Environment variables of its processes, in addition to those of every plugin.",
        examples=[{"AWS_PROFILE": "backup"}],
        repr=False,
    )
    secrets: tuple[Name, ...] | None = Field(
        default=None,
        description="References that its `config`, its `env` and the `with` of its steps may "
        "contain, without `${}`; default: all.",
        examples=[["GITHUB_TOKEN", "file:/run/secrets/github"]],
    )
    schedules: tuple[ScheduleSettings, ...] = Field(
        default=(), description="When its commands run."
    )
    retry: RetrySettings = Field(
        default_factory=RetrySettings.model_construct, description="Retries of failed jobs."
    )
    nodes: Mapping[str, Text] = Field(
        default_factory=dict,
        description="Run its jobs only on nodes with these `service.labels`.",
        examples=[{"gpu": "true"}],
    )
    timeouts: Mapping[str, Span] = Field(
        default_factory=dict,
        description=f"Maximum run time per command; default: {_TIMEOUTS}.",
        examples=[{POLL: "5m"}],
    )
    circuit_breaker: Annotated[
        BreakerSettings,
        BeforeValidator(
            _read_breaker, json_schema_input_type=BreakerSettings | Literal["off", False]
        ),
    ] = Field(
        default_factory=BreakerSettings.model_construct,
        description="When the scheduler pauses a failing plugin; `off`: never.",
    )
    max_outstanding_polls: Annotated[Whole, Field(ge=1)] = Field(
        default=1,
        description="Maximum number of its polls that are queued or running when a schedule fires.",
    )
    parallelism: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="Maximum number of its jobs that run at once, on all nodes; "
        "default: as its manifest allows.",
    )
    concurrency: ConcurrencySettings | None = Field(
        default=None, description="Maximum number of its jobs that run at once per key."
    )
    rate: RateSettings | None = Field(default=None, description="How often its jobs start.")
    runtime: RuntimeSettings = Field(
        default_factory=RuntimeSettings.model_construct,
        description="How its processes are started, if it is in Python.",
    )
    sandbox: SandboxSettings | None = Field(
        default=None, description="What its processes may touch; default: as its manifest says."
    )
    priority: Priority = span("0s", PRIORITY)
    notify_on_complete: Flag = Field(
        default=False, description="Start `on-hook` pipelines when its root jobs end."
    )
