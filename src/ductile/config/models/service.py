"""`service`, `state` and `gateway`: the process, its ledger and the agents' endpoints."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from ductile.config.models.fields import (
    FilePath,
    Flag,
    Name,
    Seconds,
    Section,
    Span,
    Text,
    Whole,
    Word,
    refuse,
    span,
    text_of,
)
from ductile.config.models.sandbox import SandboxLevel
from ductile.core.jobs.limits import MAX_HOPS

DEFAULT_STATE = "./data/state.db"
DEFAULT_STATE_DIR = "./data"
POSTGRES = ("postgresql://", "postgres://")


def _count_default_workers() -> int:
    return max(1, len(os.sched_getaffinity(0)) - 1)


def _check_node_name(value: Any) -> str:
    text = str(text_of(value, "a name"))
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", text):
        refuse("is not a valid name", allowed="up to 63 letters, digits, dots, - and _")
    return text


NodeName = Annotated[str, BeforeValidator(_check_node_name)]


class ServiceSettings(Section):
    name: Name = Field(default="ductile", description="Name of the gateway, also for relay peers.")
    node: NodeName | None = Field(
        default=None,
        description="Name of this node among those that share a PostgreSQL ledger; default: the "
        "host name and four characters of the state directory's id. A change needs a restart.",
        examples=["a"],
    )
    labels: Mapping[NodeName, Text] = Field(
        default_factory=dict,
        description="Properties of this node, which `plugins.NAME.nodes` can require.",
        examples=[{"gpu": "true"}],
    )
    tick_interval: Span = span("60s", "Maximum time between two checks for due schedules.")
    log_level: Annotated[Literal["debug", "info", "warn", "error"], Word] = Field(
        default="info", description="Lowest level that is logged."
    )
    log_format: Annotated[Literal["json", "text"], Word] = Field(
        default="json", description="Format of log lines."
    )
    dedupe_ttl: Span = span(
        "24h", "Time for which the dedupe key of a succeeded job drops repeats."
    )
    job_log_retention: Span = span("30d", "Age at which rows of the job log are deleted.")
    job_queue_retention: Span = span("30d", "Age at which finished jobs are deleted.")
    job_transitions_retention: Span = span("30d", "Age at which job transitions are deleted.")
    job_attempts_retention: Span = span(
        "30d", "Accepted for compatibility; attempts are part of the job log."
    )
    breaker_transitions_retention: Span = span(
        "90d", "Age at which breaker transitions are deleted."
    )
    plugin_facts_retention: Span | None = Field(
        default=None,
        description="Age at which plugin facts are deleted, except the newest of each type; "
        "default: never.",
        examples=["365d"],
    )
    max_workers: Annotated[Whole, Field(ge=1)] = Field(
        default_factory=_count_default_workers,
        description="Maximum number of jobs that run at once; default: number of cores minus one.",
        examples=[1, 4],
    )
    strict_mode: Flag = Field(
        default=False, description="Refuse to start if any file differs from the seal."
    )
    sandbox: SandboxLevel = Field(
        default="off", description="Least strict level of the sandboxes of all plugins."
    )
    allow_symlinks: Flag = Field(
        default=False,
        description="Follow symlinks in config and plugin paths, unless they leave their root.",
    )
    plugin_env_passthrough: tuple[Name, ...] = Field(
        default=(),
        description="Additional environment variables that plugins inherit.",
        examples=[["HTTPS_PROXY"]],
    )
    shutdown_grace: Seconds = span(
        "10s", "Time that running jobs get to finish when the gateway stops."
    )
    max_hops: Annotated[Whole, Field(ge=1)] = Field(
        default=MAX_HOPS, description="Maximum number of successive jobs that one job can lead to."
    )
    workspaces: Flag = Field(
        default=False, description="Give the jobs of every pipeline a workspace directory."
    )
    workspace_clone: Annotated[Literal["copy", "hardlink"], Word] = Field(
        default="copy",
        description="How a workspace is cloned: `copy` (by reflinks if the filesystem has them) "
        "or `hardlink` (writes in place are visible in other branches).",
    )
    workspace_retention: Span = span("24h", "Age at which workspaces are deleted.")


def _check_postgres_url(value: Any) -> str:
    text = str(text_of(value, "a URL"))
    if not text.startswith(POSTGRES):
        refuse("must be the URL of a PostgreSQL database", allowed="postgresql://...")
    return text


class StateSettings(Section):
    """The location of the ledger: a SQLite file, or a PostgreSQL database and a directory."""

    path: FilePath | None = Field(
        default=None,
        description="SQLite file of the ledger. A change needs a restart.",
        examples=[DEFAULT_STATE],
    )
    url: Annotated[str, BeforeValidator(_check_postgres_url)] | None = Field(
        default=None,
        description="PostgreSQL database of the ledger, which several nodes can share. A change "
        "needs a restart.",
        examples=["postgresql://ductile:${DB_PASSWORD}@db/ductile"],
        repr=False,
    )
    dir: FilePath = Field(
        default=Path(DEFAULT_STATE_DIR),
        description="With `url`: directory for lock, socket and workspaces. A change needs a "
        "restart.",
    )

    workspaces: FilePath | None = Field(
        default=None,
        description="With `url`: directory for the workspaces of pipelines that all nodes share, "
        "for example on NFS; default: `workspaces` in `dir`. A change needs a restart.",
        examples=["/mnt/shared/ductile"],
    )

    @classmethod
    def derive_defaults(cls, data: dict[str, Any]) -> dict[str, Any]:
        if "url" in data:
            return {"dir": DEFAULT_STATE_DIR, **data}
        if "dir" in data and "path" not in data:
            return {**data, "path": str(Path(str(text_of(data["dir"], "a path"))) / "state.db")}
        path = data.get("path", DEFAULT_STATE)
        return {**data, "path": path, "dir": str(Path(str(text_of(path, "a path"))).parent)}

    @classmethod
    def find_conflicts(cls, data: dict[str, Any]) -> Iterator[str]:
        if "url" in data and "path" in data:
            yield "path and url cannot both be set; remove one"
        elif "dir" in data and "path" in data:
            yield "dir cannot be set together with path; remove dir"


def _parse_network(value: Any) -> str:
    from ipaddress import ip_network

    text = str(text_of(value, "a network"))
    try:
        return str(ip_network(text))
    except ValueError as error:
        refuse(str(error), allowed="a network such as 10.0.0.0/8")


Network = Annotated[str, BeforeValidator(_parse_network)]


class GatewaySettings(Section):
    """The endpoints for agents, below /gateway/."""

    open: Flag = Field(default=False, description="Accept heartbeats and messages without a token.")
    allowed_networks: tuple[Network, ...] = Field(
        default=(),
        description="Networks that deliveries may reach although they are private, or without TLS.",
        examples=[["10.0.0.0/8", "127.0.0.1/32"]],
    )
