"""`service`, `state` and `gateway`: how one gateway runs and where it keeps what it knows."""

import os
from collections.abc import Iterator
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
    Whole,
    Word,
    refuse,
    span,
    text_of,
)
from ductile.core.jobs.limits import MAX_HOPS

DEFAULT_STATE = "./data/state.db"
DEFAULT_STATE_DIR = "./data"
POSTGRES = ("postgresql://", "postgres://")


def _spare_cores() -> int:
    return max(1, len(os.sched_getaffinity(0)) - 1)


class ServiceSettings(Section):
    name: Name = Field(
        default="ductile", description="The gateway's name, also towards relay peers."
    )
    tick_interval: Span = span("60s", "The longest time between two looks at what is due.")
    log_level: Annotated[Literal["debug", "info", "warn", "error"], Word] = Field(
        default="info", description="The least severe line that is logged."
    )
    log_format: Annotated[Literal["json", "text"], Word] = Field(
        default="json", description="How log lines are written."
    )
    dedupe_ttl: Span = span("24h", "How long a succeeded job's dedupe key drops repeats.")
    job_log_retention: Span = span("30d", "When rows of the job log are pruned.")
    job_queue_retention: Span = span("30d", "When ended jobs are pruned.")
    job_transitions_retention: Span = span("30d", "When job transitions are pruned.")
    job_attempts_retention: Span = span("30d", "Known for compatibility; attempts are log rows.")
    breaker_transitions_retention: Span = span("90d", "When breaker transitions are pruned.")
    plugin_facts_retention: Span | None = Field(
        default=None,
        description="When plugin facts are pruned, the newest of a type staying; unset, never.",
        examples=["365d"],
    )
    max_workers: Annotated[Whole, Field(ge=1)] = Field(
        default_factory=_spare_cores,
        description="Jobs that run at once; by default one less than there are cores.",
        examples=[1, 4],
    )
    strict_mode: Flag = Field(
        default=False, description="Refuse to start when any file differs from its seal."
    )
    allow_symlinks: Flag = Field(
        default=False,
        description="Follow symlinks in config and plugin paths that stay in their root.",
    )
    plugin_env_passthrough: tuple[Name, ...] = Field(
        default=(),
        description="Environment variables that plugins inherit.",
        examples=[["HTTPS_PROXY"]],
    )
    shutdown_grace: Seconds = span("10s", "How long running jobs may take to end at a stop.")
    max_hops: Annotated[Whole, Field(ge=1)] = Field(
        default=MAX_HOPS, description="The longest chain of jobs that may follow from one another."
    )
    workspaces: Flag = Field(
        default=False, description="Give every pipeline a workspace directory."
    )
    workspace_clone: Annotated[Literal["copy", "hardlink"], Word] = Field(
        default="copy",
        description="How a workspace is cloned: a copy (reflinked where the filesystem can), or "
        "hard links, through which a write in place reaches other branches.",
    )
    workspace_retention: Span = span("24h", "When workspaces are removed.")


def _postgres(value: Any) -> str:
    text = str(text_of(value, "a URL"))
    if not text.startswith(POSTGRES):
        refuse("must be the URL of a PostgreSQL database", allowed="postgresql://...")
    return text


class StateSettings(Section):
    """Where the ledger is: a SQLite file, or a PostgreSQL database with a local directory."""

    path: FilePath | None = Field(
        default=None, description="The SQLite ledger.", examples=[DEFAULT_STATE]
    )
    url: Annotated[str, BeforeValidator(_postgres)] | None = Field(
        default=None,
        description="A PostgreSQL ledger, for several nodes.",
        examples=["postgresql://ductile:${DB_PASSWORD}@db/ductile"],
        repr=False,
    )
    dir: FilePath = Field(
        default=Path(DEFAULT_STATE_DIR),
        description="With `url`: lock, socket and workspaces live here.",
    )

    @classmethod
    def completed(cls, data: dict[str, Any]) -> dict[str, Any]:
        if "url" in data:
            return {"dir": DEFAULT_STATE_DIR, **data}
        if "dir" in data and "path" not in data:
            return {**data, "path": str(Path(str(text_of(data["dir"], "a path"))) / "state.db")}
        path = data.get("path", DEFAULT_STATE)
        return {**data, "path": path, "dir": str(Path(str(text_of(path, "a path"))).parent)}

    @classmethod
    def complaints(cls, data: dict[str, Any]) -> Iterator[str]:
        if "url" in data and "path" in data:
            yield "path and url exclude each other"
        elif "dir" in data and "path" in data:
            yield "dir goes with url; with path it is the directory of path"


def _network(value: Any) -> str:
    from ipaddress import ip_network

    text = str(text_of(value, "a network"))
    try:
        return str(ip_network(text))
    except ValueError as error:
        refuse(str(error), allowed="a network such as 10.0.0.0/8")


Network = Annotated[str, BeforeValidator(_network)]


class GatewaySettings(Section):
    """The agents' side of the API, under /gateway/."""

    open: Flag = Field(default=False, description="Take heartbeats and messages without a token.")
    allowed_networks: tuple[Network, ...] = Field(
        default=(),
        description="Networks that deliveries may reach though private, or without TLS.",
        examples=[["10.0.0.0/8", "127.0.0.1/32"]],
    )
