"""This node's row in the registry of nodes."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import ductile
from ductile.config.load import hash_shared_settings
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.instance_lock import compute_state_dir_id
from ductile.engine.recovery.boot_record import read_last_boot
from ductile.engine.workspaces import read_marker
from ductile.errors import LedgerError
from ductile.store import nodes
from ductile.store.engines.api import Ledger, Tx
from ductile.store.engines.migrate import load_migrations
from ductile.store.nodes import NodeRecord

SUFFIX = 4
"""Characters of the state directory's id: two gateways on one machine have different names."""


def name_node(configured: str | None, state_dir: Path) -> str:
    """The name from `service.node`, or one that this state directory always has here."""
    return configured or f"{socket.gethostname()}-{compute_state_dir_id(state_dir)[:SUFFIX]}"


def refuse_taken_name(ledger: Ledger, name: str, state_dir: Path) -> None:
    """Raise `LedgerError` if another living node has this name.

    The last boot of this state directory has ended, even if its session still seems to live.
    """
    boot = ledger.read(lambda tx: nodes.find_boot(tx, name))
    if boot is None or boot == read_last_boot(state_dir) or ledger.boot_is_dead(boot):
        return
    raise LedgerError(
        f"another node that is running is named {name}; give this one a name of its own",
        run=f"ductile system start --node {quote(f'{name}-2')}",
    )


def prove_shared_workspaces(ledger: Ledger, root: Path | None, boot: str) -> str | None:
    """The id of the shared directory for workspaces; None if it is not configured.

    Raises `LedgerError` if a node that is running sees another directory.
    """
    if root is None:
        return None
    try:
        marker = read_marker(root, boot)
    except OSError as error:
        raise LedgerError(
            f"state.workspaces cannot be used: {error}", run=f"ls -ld {quote(str(root))}"
        ) from error
    for row in ledger.read(nodes.list_nodes):
        other = row["workspaces"]
        if row["stopped_at"] is None and other not in (None, marker):
            if ledger.boot_is_dead(row["boot"]):
                continue
            raise LedgerError(
                f"state.workspaces ({root}) is not the directory that node {row['name']} uses; "
                "mount the same directory on all nodes",
                run=f"findmnt -T {quote(str(root))}",
            )
    return marker


def make_registration(
    name: str, boot: str, *, is_only_node: bool, workspaces: str | None = None
) -> Callable[[Tx, CompiledConfig], None]:
    """The part of a transaction that registers this node with a configuration.

    `workspaces` is the id of the shared directory that the node sees.
    """

    engine = "sqlite" if is_only_node else "postgres"
    schema_version = load_migrations(engine)[-1].number

    def register(tx: Tx, compiled: CompiledConfig) -> None:
        settings = compiled.settings
        record = NodeRecord(
            name=name,
            boot=boot,
            version=ductile.__version__,
            config_hash=hash_shared_settings(settings),
            labels=settings.service.labels,
            plugins=compiled.known() | compiled.held(),
            pipelines=compiled.tx_config.router.pipelines.keys(),
            workers=settings.service.max_workers,
            schema_version=schema_version,
            workspaces=workspaces,
        )
        nodes.register(tx, record, is_only_node=is_only_node)

    return register
