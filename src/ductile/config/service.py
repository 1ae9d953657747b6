"""`service`, `state` and `gateway`: how one gateway runs and where it keeps what it knows."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ductile.config.fields import (
    FilePath,
    Flag,
    Found,
    Name,
    Seconds,
    Section,
    Span,
    Text,
    Whole,
    Word,
    refuse,
    span,
)

DEFAULT_STATE = "./data/state.db"
DEFAULT_STATE_DIR = "./data"


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
        default=20, description="The longest chain of jobs that may follow from one another."
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


class StateSettings(Section):
    """Where the ledger is: a SQLite file, or a PostgreSQL database with a local directory."""

    path: FilePath | None = Field(
        default=None, description="The SQLite ledger.", examples=[DEFAULT_STATE]
    )
    url: Text | None = Field(
        default=None,
        description="A PostgreSQL ledger, for several nodes.",
        examples=["postgresql://ductile:${DB_PASSWORD}@db/ductile"],
        pattern=r"^postgres(ql)?://",
    )
    dir: FilePath = Field(
        default=Path(DEFAULT_STATE_DIR),
        description="With `url`: lock, socket and workspaces live here.",
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        given = {key: value for key, value in data.items() if value is not None}
        if "url" in given:
            if "path" in given:
                refuse("path and url exclude each other")
            return {"dir": DEFAULT_STATE_DIR, **given}
        if "path" in given:
            if "dir" in given:
                refuse("dir goes with url; with path it is the directory of path")
        elif "dir" in given:
            given["path"] = str(Path(_plain_text(given["dir"])) / "state.db")
        else:
            given["path"] = DEFAULT_STATE
        return {**given, "dir": str(Path(_plain_text(given["path"])).parent)}


def _plain_text(value: Any) -> str:
    return value.text if isinstance(value, Found) else str(value)


class GatewaySettings(Section):
    """The agents' side of the API, under /gateway/."""

    open: Flag = Field(default=False, description="Take heartbeats and messages without a token.")
    allowed_networks: tuple[Name, ...] = Field(
        default=(),
        description="Private networks that outbound deliveries may reach.",
        examples=[["10.0.0.0/8", "127.0.0.1/32"]],
    )

    @model_validator(mode="after")
    def _are_networks(self) -> Self:
        if self.allowed_networks:
            from ipaddress import ip_network

            for network in self.allowed_networks:
                try:
                    ip_network(network)
                except ValueError:
                    refuse(f"{network!r} is no network", allowed="addresses such as 10.0.0.0/8")
        return self
