"""Nodes: the gateways that share a ledger, what each can run, and when it was last seen.

`seen_at` is renewed and compared by the database's clock, so that no clocks have to agree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.model import Cancellation
from ductile.store.engines.api import Tx

RESTART_SECONDS = 60.0
"""A node that has stopped and was seen within this time may be restarting."""
_DOCUMENTS = ("labels", "plugins", "pipelines")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """What a node registers when it adopts a configuration."""

    name: str
    boot: str
    version: str
    config_hash: str
    """Of the settings that all nodes have in common."""
    labels: Mapping[str, str]
    plugins: Collection[str]
    """The plugins whose jobs it runs, or keeps queued because they are refused now."""
    pipelines: Collection[str]
    workers: int
    schema_version: int = 0
    """The newest migration that it knows."""
    workspaces: str | None = None
    """The id in the marker of `state.workspaces`; None if the node keeps workspaces to itself."""


@dataclass(frozen=True, slots=True)
class Renewal:
    is_drained: bool
    """Whether an operator has drained the node."""


def hold_registry(tx: Tx) -> None:
    """Let no node register until the transaction ends.

    A node registers its plugins before it enqueues jobs for them, so that the holder sees either
    the registration or none of these jobs.
    """
    tx.hold("nodes", "registry", wait=True)


def register(tx: Tx, node: NodeRecord, *, is_only_node: bool) -> None:
    """Insert or replace the row of this name, and name the boot after it."""
    hold_registry(tx)
    tx.run(
        "register_node",
        name=node.name,
        boot=node.boot,
        version=node.version,
        config_hash=node.config_hash,
        labels=_encode(dict(node.labels)),
        plugins=_encode(sorted(node.plugins)),
        pipelines=_encode(sorted(node.pipelines)),
        workers=node.workers,
        workspaces=node.workspaces,
        schema_version=node.schema_version,
    )
    tx.run("name_boot", name=node.name, boot=node.boot)
    if is_only_node:
        tx.run("delete_other_nodes", name=node.name)
    else:
        tx.run("delete_unseen_nodes")


def renew(tx: Tx, boot: str) -> Renewal | None:
    """Record that the node lives; None if its row is gone."""
    row = tx.one("renew_node", boot=boot)
    return None if row is None else Renewal(is_drained=row[0] is not None)


def set_drained(tx: Tx, name: str, *, drained: bool) -> None:
    """Let the node claim no more jobs, or claim them again."""
    tx.run("drain_node" if drained else "resume_node", name=name)


def forget(tx: Tx, name: str, boot: str) -> None:
    """Delete the row of a node that has ended."""
    hold_registry(tx)
    tx.run("delete_node", name=name, boot=boot)


def stop(tx: Tx, boot: str) -> None:
    """Record that the node has stopped regularly."""
    tx.run("stop_node", boot=boot)


def find_boot(tx: Tx, name: str) -> str | None:
    """The boot of the node of this name, unless it has stopped regularly."""
    row = tx.one("boot_of_node", name=name)
    return None if row is None else row[0]


def list_nodes(tx: Tx) -> list[dict[str, Any]]:
    """All registered nodes by name, with the number of their running jobs."""
    rows = tx.dicts("nodes")
    for row in rows:
        row["seconds_since_seen"] = round(max(0.0, float(row["seconds_since_seen"])), 3)
        for name in _DOCUMENTS:
            row[name] = orjson.loads(row[name])
    return rows


def list_present(tx: Tx) -> frozenset[str]:
    """The names of the nodes that run, restart or are lost: all but those stopped for a minute.

    A lost node stays until it is forgotten, because its state is unknown.
    """
    return frozenset(name for (name,) in tx.all("present_nodes", seconds=RESTART_SECONDS))


def list_others_with_plugin(tx: Tx, plugin: str, boot: str) -> list[str]:
    """The registered nodes, except that of `boot`, that have the plugin, running or not."""
    return [
        row["name"] for row in list_nodes(tx) if row["boot"] != boot and plugin in row["plugins"]
    ]


def list_pipelines_of_others(tx: Tx, boot: str) -> set[str]:
    """The pipelines that registered nodes except that of `boot` know, running or not."""
    rows = tx.all("pipelines_of_other_nodes", boot=boot)
    return {pipeline for (known,) in rows for pipeline in orjson.loads(known)}


def list_running_with_pipeline(tx: Tx, pipeline: str) -> list[str]:
    """The boots of the nodes that know the pipeline and have not stopped."""
    rows = tx.all("pipelines_of_running_nodes")
    return [boot for boot, known in rows if pipeline in orjson.loads(known)]


def list_running_without_pipeline(tx: Tx, pipeline: str) -> list[str]:
    """The boots of the nodes that do not know the pipeline and have not stopped."""
    rows = tx.all("pipelines_of_running_nodes")
    return [boot for boot, known in rows if pipeline not in orjson.loads(known)]


class RequestKind(StrEnum):
    CANCEL = "cancel"
    """End a job."""
    RELOAD = "reload"
    """Load the configuration again, and answer how that went."""
    WAITS = "waits"
    """Look for waits that another node has decided."""


_REASONS = {
    why.value: why for why in Cancellation if why not in (Cancellation.STOP, Cancellation.NO_WORKER)
}


@dataclass(frozen=True, slots=True)
class NodeRequest:
    """What a node is asked to do."""

    id: str
    boot: str
    kind: RequestKind
    job_id: str | None = None
    reason: str | None = None

    @property
    def why(self) -> Cancellation | None:
        """The reason of a cancellation; None if no request may have it."""
        return _REASONS.get(self.reason or "")


def add_request(tx: Tx, request: NodeRequest, now: str) -> None:
    """Ask a node; nothing changes if it was asked the same before."""
    tx.run(
        "insert_node_request",
        id=request.id,
        boot=request.boot,
        kind=request.kind.value,
        job_id=request.job_id,
        reason=request.reason,
        now=now,
    )
    tx.effects.requests += 1


def list_requests(tx: Tx, boot: str) -> list[NodeRequest]:
    """What this node is asked to do and has neither done nor answered."""
    rows = tx.all("open_node_requests", boot=boot)
    return [NodeRequest(id, boot, RequestKind(kind), *rest) for id, kind, *rest in rows]


def delete_requests(tx: Tx, ids: Sequence[str]) -> None:
    tx.run("delete_node_requests", ids=orjson.dumps(list(ids)).decode())


def answer_request(tx: Tx, id: str, answer: str, now: datetime) -> None:
    tx.run("answer_node_request", id=id, answer=answer, now=to_text(now))


def find_answers(tx: Tx, ids: Sequence[str]) -> dict[str, str]:
    """The answers so far, by the id of the request."""
    return dict(tx.all("answers_of_nodes", ids=orjson.dumps(list(ids)).decode()))


def _encode(value: object) -> str:
    return orjson.dumps(value).decode()
