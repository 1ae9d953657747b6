"""The configurations that were in force, from their redacted snapshots, and what differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ductile.config.versions.copies import has_copy
from ductile.core.values.redact import REDACTED, Redactor
from ductile.engine.services import Services
from ductile.errors import NotFound, Path, Refused, dotted
from ductile.store import snapshots
from ductile.store.engines.api import Tx
from ductile.store.snapshots import Snapshot

Document = dict[str, Any]
HISTORY = 1000
"""Maximum number of snapshots among which the one before is searched."""


def list_history(services: Services, limit: int) -> Document:
    """The configurations that were in force, and whether their files can be restored here."""
    rows = services.ledger.read(lambda tx: snapshots.list_snapshots(tx, limit))
    current = services.compiled.snapshot_id
    return {
        "snapshots": [
            {
                **row,
                "in_force": row["id"] == current,
                "restorable": has_copy(services.state_dir, row["id"]),
            }
            for row in rows
        ]
    }


def choose_snapshot(services: Services, id: str | None) -> str:
    """The snapshot with this id or, without one, the last other one that has its files here."""
    if id is not None:
        return services.ledger.read(lambda tx: _find(tx, id)).id
    for row in list_history(services, HISTORY)["snapshots"]:
        if row["restorable"] and not row["in_force"]:
            found: str = row["id"]
            return found
    raise Refused("there is no earlier configuration whose files are kept on this node")


def find_differences(
    tx: Tx, id: str, config_hash: str, settings: Mapping[str, Any], redactor: Redactor
) -> list[Document]:
    """What differs between a snapshot and a configuration; empty if they are the same one."""
    snapshot = _find(tx, id)
    if snapshot.config_hash == config_hash:
        return []
    rows: list[Document] = redactor.document(_compare(snapshot.config, settings))
    # A secret that differs is the same text in both.
    return rows or [{"setting": "a secret", "before": REDACTED, "after": REDACTED}]


def diff_snapshots(tx: Tx, older: str | None, newer: str | None, redactor: Redactor) -> Document:
    """What differs between two snapshots; by default the last change of the configuration.

    `redactor` hides values that were public then and are secret now.
    """
    after = _find(tx, newer) if newer else _newest(tx, 0)
    before = _find(tx, older) if older else _newest(tx, 1)
    return {
        "from": before.id,
        "to": after.id,
        "settings": redactor.document(_compare(before.config, after.config)),
        "secrets": _compare_secrets(before.fingerprints, after.fingerprints),
    }


def _find(tx: Tx, id: str) -> Snapshot:
    found = snapshots.find_snapshot(tx, id)
    if found is None:
        raise NotFound(f"there is no snapshot {id}; ductile config history lists them")
    return found


def _newest(tx: Tx, place: int) -> Snapshot:
    """The snapshot at this place from the newest one; the oldest one if there are fewer."""
    rows = snapshots.list_snapshots(tx, place + 1)
    if not rows:
        raise NotFound("no configuration was in force yet")
    return _find(tx, rows[-1]["id"])


def _compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Document]:
    was, will = dict(_scalars(before, ())), dict(_scalars(after, ()))
    return [
        {"setting": path, "before": was.get(path), "after": will.get(path)}
        for path in sorted(was.keys() | will.keys())
        if was.get(path) != will.get(path)
    ]


def _scalars(value: Any, path: Path) -> Iterator[tuple[str, Any]]:
    """Every value that is not a table or a list, by its path; empty ones as they are."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _scalars(item, (*path, key))
    elif isinstance(value, list) and value:
        names = [item.get("name", item.get("id")) for item in value if isinstance(item, dict)]
        is_named = len(set(map(str, names))) == len(value) and None not in names
        for index, item in enumerate(value):
            # By its name an entry is the same one at another place.
            yield from _scalars(item, (*path, str(names[index]) if is_named else index))
    else:
        yield dotted(path), value


def _compare_secrets(before: list[Document], after: list[Document]) -> list[str]:
    """The places of the secrets that were added, removed or changed."""
    was = {each["purpose"]: each["fingerprint"] for each in before}
    will = {each["purpose"]: each["fingerprint"] for each in after}
    return sorted(path for path in was.keys() | will.keys() if was.get(path) != will.get(path))
