"""Put a planned configuration in force: the files as they are, those of a directory, or a return.

The configuration that is put in force is the one that was planned: the id of the plan is computed
again from what would be put in force, and anything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.config.loader.include import gather_readable
from ductile.config.redact import redact_settings
from ductile.config.versions.changeset import Changeset, compare_files, load_changed
from ductile.config.versions.copies import KeptFile, has_copy, list_copies, read_copy
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.config.restart_required import RESTART_COMMAND
from ductile.engine.services import Services
from ductile.errors import Refused
from ductile.operations.config.edit import Sealed
from ductile.operations.plan.history import choose_snapshot, find_differences
from ductile.operations.plan.identity import identify_plan
from ductile.operations.plan.plan import compare_compiled
from ductile.operations.plan.watch import AppliedPlan, keep_applied

Document = dict[str, Any]


CHANGED = (
    "the files, the plugins or the configuration in force have changed since the plan; nothing was "
    "applied; plan again"
)


class PlanChanged(Refused):
    code = "plan_changed"


@dataclass(frozen=True, slots=True)
class ConfigProposal:
    """A configuration that can be put in force, not written yet."""

    changeset: Changeset | None = None
    """What to write; None for the files as they are."""
    snapshot_id: str | None = None
    """The one to return to."""

    @property
    def writes_files(self) -> bool:
        return self.changeset is not None and bool(self.changeset.files)


def propose_directory(services: Services, directory: Path, *, lock: bool) -> ConfigProposal:
    """The files of another directory in place of those of this gateway.

    Files that only this gateway has stay, such as a file of secrets that is not in the directory.
    """
    config = services.compiled.loaded.path
    source = directory / config.name
    root, wanted = config.parent, dict[Path, KeptFile]()
    owner = root.stat()
    for path in gather_readable(source).reader.hashes:
        if path.is_relative_to(directory):
            target = root / path.relative_to(directory)
            mode = path.stat().st_mode & 0o777
            wanted[target] = KeptFile(path.read_bytes(), mode, (owner.st_uid, owner.st_gid))
    return ConfigProposal(_compare(services, wanted, lock=lock))


def propose_return(services: Services, snapshot_id: str | None, *, lock: bool) -> ConfigProposal:
    """The files of an earlier configuration; without an id, those of the one before."""
    config = services.compiled.loaded.path
    id = choose_snapshot(services, snapshot_id)
    wanted = read_copy(services.state_dir, id)
    if config not in wanted:
        raise Refused(_of_another_place(id, wanted, config))
    return ConfigProposal(_compare(services, wanted, lock=lock), id)


def propose_files(
    config: Path, state_dir: Path, snapshot_id: str | None, now: datetime, *, lock: bool
) -> ConfigProposal:
    """`propose_return` without a gateway; without an id, those of the last configuration in force
    that the files are not.
    """
    ids = list_copies(state_dir)
    last = read_copy(state_dir, ids[0]) if ids else {}
    kept = {path: blake3(file.data).hexdigest() for path, file in last.items()}
    for id in ids if snapshot_id is None else [snapshot_id]:
        wanted = read_copy(state_dir, id)
        if config not in wanted:
            raise Refused(_of_another_place(id, wanted, config))
        changeset = compare_files(config, wanted, kept, now)
        if changeset.files or snapshot_id is not None:
            _check_seal(changeset, lock=lock)
            return ConfigProposal(changeset, id)
    raise Refused("there is no earlier configuration whose files are kept on this node")


def _of_another_place(id: str, wanted: Mapping[Path, KeptFile], config: Path) -> str:
    return f"snapshot {id} belongs to another location: {min(wanted, default='')}, not {config}"


def _compare(services: Services, wanted: Mapping[Path, KeptFile], *, lock: bool) -> Changeset:
    running = services.compiled
    id = running.snapshot_id
    kept = running.loaded.files if id and has_copy(services.state_dir, id) else {}
    changeset = compare_files(running.loaded.path, wanted, kept, services.clock.now())
    _check_seal(changeset, lock=lock)
    return changeset


def _check_seal(changeset: Changeset, *, lock: bool) -> None:
    if changeset.changes_seal and not lock:
        names = ", ".join(str(file.path) for file in changeset.files)
        raise Sealed(f"sealed files would change ({names}); an operator can renew the seal: --lock")


def preview(services: Services, proposal: ConfigProposal) -> Document:
    """The plan of a proposal, with the id that `put_in_force` needs; nothing is changed."""
    loaded = load_changed(services.compiled.loaded.path, services.environ, proposal.changeset)
    built = build(loaded, boot_marker="", environ=services.environ)
    plan = {"id": identify_plan(services, built), **compare_compiled(services, built)}
    return {"dry_run": True, "plan": plan, **_describe(services, proposal, built)}


def check_plan(services: Services, proposal: ConfigProposal, plan_id: str) -> Document:
    """`preview`; raises `PlanChanged` if it is another plan, and for what needs a restart."""
    shown = preview(services, proposal)
    if shown["plan"]["id"] != plan_id:
        raise PlanChanged(CHANGED)
    if shown["plan"]["restart"]:
        names = ", ".join(row["setting"] for row in shown["plan"]["restart"])
        raise Refused(
            f"{names} cannot be changed by a reload; nothing was written", run=RESTART_COMMAND
        )
    return shown


def put_in_force(
    services: Services, proposal: ConfigProposal, plan_id: str
) -> tuple[AppliedPlan, Document]:
    """Write the files of a proposal, if it has any, and reload; the plan can be watched then.

    Raises `PlanChanged`, with nothing changed, if that would not be what was planned.
    """
    found: list[AppliedPlan] = []

    def approve(compiled: CompiledConfig) -> None:
        if identify_plan(services, compiled) != plan_id:
            raise PlanChanged(CHANGED)
        subjects = compare_compiled(services, compiled)["watched"]
        before = services.compiled.snapshot_id
        found.append(AppliedPlan(plan_id, services.clock.now(), None, before, subjects))

    warnings = [str(warning) for warning in services.reload(approve, proposal.changeset)]
    compiled = services.compiled
    applied = replace(found[0], snapshot_id=compiled.snapshot_id, at=services.clock.now())
    try:
        keep_applied(services.state_dir, applied)
    except OSError as error:
        warnings.append(f"this plan cannot be watched: {error}")
    return applied, {
        "status": "ok",
        "plan_id": plan_id,
        "snapshot_id": applied.snapshot_id,
        "previous_snapshot_id": applied.previous_snapshot_id,
        "warnings": warnings,
        "plugins_refused": {one.name: one.reason for one in compiled.registry.refused},
        **_describe(services, proposal, compiled),
    }


def _describe(services: Services, proposal: ConfigProposal, compiled: CompiledConfig) -> Document:
    document: Document = {
        "files": [] if proposal.changeset is None else proposal.changeset.rows,
    }
    if proposal.snapshot_id is not None:
        document["returns_to"] = proposal.snapshot_id
        document["differs"] = _list_differences(services, proposal.snapshot_id, compiled)
    return document


def _list_differences(
    services: Services, snapshot_id: str, compiled: CompiledConfig
) -> list[Document]:
    """What is not as it was then, although the files are: the values come from elsewhere."""
    hash = compiled.loaded.config_hash
    settings = redact_settings(compiled.settings)
    return services.ledger.read(
        lambda tx: find_differences(tx, snapshot_id, hash, settings, compiled.redactor)
    )
