"""Responses about the nodes that share a ledger."""

from __future__ import annotations

from typing import Literal

from ductile.http.models.responses.fields import OMITTED, ResponseModel, Timestamp


class ClusterNodeModel(ResponseModel):
    """A gateway that uses this ledger. Times are by the database's clock."""

    name: str
    boot: str
    """The id of its current or last lifetime; running jobs name it as their `owner`."""
    state: Literal["running", "draining", "drained", "stopped", "lost"]
    """`lost`: it has not been seen for 15 seconds and has not stopped regularly."""
    version: str
    schema_version: int | None
    """The newest migration that its version knows; null for one that does not register it."""
    config_hash: str
    """Of the settings that nodes have in common: nodes with different values have drifted."""
    labels: dict[str, str]
    plugins: list[str]
    """The plugins whose jobs it runs."""
    pipelines: list[str]
    workers: int
    workspaces: str | None
    """Equal for nodes that share `state.workspaces`; null if workspaces are local."""
    jobs: int
    """The number of jobs that it runs."""
    started_at: Timestamp
    seen_at: Timestamp
    seconds_since_seen: float
    stopped_at: Timestamp | None
    drained_at: Timestamp | None
    """When the operator has drained it."""


class ClusterNodesModel(ResponseModel):
    """The nodes that share the ledger, by name."""

    node: str
    """The node that answers."""
    nodes: list[ClusterNodeModel]
    waiting_migration: str | None
    """A migration of the answering node that waits until no older node runs, and these nodes."""


class NodeActionModel(ResponseModel):
    """A node after an action, or before it with `dry_run`."""

    name: str
    state: Literal["running", "draining", "drained", "stopped", "lost"]
    jobs: int
    """The number of jobs that it still runs."""
    dry_run: bool = OMITTED


class NodeReloadModel(ResponseModel):
    """How one node has reloaded its configuration."""

    name: str
    status: Literal["reloaded", "refused", "failed", "no answer", "would reload"]
    problems: list[str] = OMITTED
    """Why it was refused: the configuration before stays in force."""
    warnings: list[str] = OMITTED


class NodeReloadsModel(ResponseModel):
    """The answer of every node that has not stopped."""

    nodes: list[NodeReloadModel]
    dry_run: bool = OMITTED
