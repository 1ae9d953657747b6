"""`job rerun`: repeats the job of a bundle, without a gateway. A bundle is not trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Entropy, to_text
from ductile.core.jobs.limits import DEEPEST_KEPT, too_deep
from ductile.core.jobs.prepare import PluginPlan, sandbox_of
from ductile.core.values.differences import IgnoredPaths
from ductile.core.values.redact import REDACTED
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.workspaces import temporary_tree
from ductile.errors import NotFound, Refused
from ductile.model import MIB, Json, Launch, Settlement, make_unstored_job
from ductile.operations.compare.bundle import FORMAT, MAX_BUNDLE, VERSION
from ductile.operations.compare.bundle_files import BundledFile, read_files, write_files
from ductile.operations.compare.confinement import confine, describe_sandbox
from ductile.operations.compare.removal import SecretRemover
from ductile.operations.compare.temporary_slot import TemporarySlot, describe_attempt
from ductile.operations.compare.verdict import judge_attempt, shorten_value
from ductile.plugins.manifest import is_plugin_name
from ductile.store.jobs.settle import attempt_status

Document = dict[str, Any]
MAX_STATE = MIB
MAX_ATTEMPTS = 1000
MAX_NAME = 255
MAX_PARTS = 5_000_000
"""Maximum number of characters that begin or separate JSON values: each takes up to 100 bytes."""
_REQUEST = ("event", "payload", "context", "state", "config")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle whose parts have the expected types and sizes."""

    job_id: str
    plugin: str
    command: str
    attempt: int
    max_attempts: int
    request: Mapping[str, Json]
    outcome: Document
    duration_ms: float | None
    fingerprint: str | None
    uses_workspace: bool
    files: tuple[BundledFile, ...]
    notes: tuple[str, ...]


def read_bundle(path: Path) -> Bundle:
    """The bundle in a file. Raises `NotFound`, or `Refused` for anything else but a bundle."""
    data = _read_bounded(path)
    if sum(map(data.count, (b"{", b"[", b",", b":"))) > MAX_PARTS:
        raise _unusable(f"{path} has more than {MAX_PARTS:,} parts")
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _unusable(f"{path} is not a job bundle: it is not JSON ({error})") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _unusable(f"{path} is not a job bundle: its `format` is not {FORMAT!r}")
    if document.get("version") != VERSION:
        raise _unusable(f"{path} is a bundle of another version; this ductile reads {VERSION}")
    # The writer of JSON accepts fewer levels than the reader.
    if too_deep(document, data, DEEPEST_KEPT):
        raise _unusable(f"{path} is nested more than {DEEPEST_KEPT} levels deep")
    try:
        return _parse(document)
    except Refused as refusal:
        raise _unusable(refusal.message) from None


def _unusable(why: str) -> Refused:
    return Refused(f"{why}; `ductile job bundle ID -o FILE` writes one of a job")


def _read_bounded(path: Path) -> bytes:
    try:
        # A FIFO would keep the reader waiting.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise NotFound(
            f"there is no file {path}; `ductile job bundle ID -o FILE` writes the bundle of a job"
        ) from None
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Refused(f"{path} is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(2 * MAX_BUNDLE + 1)
    if len(data) > 2 * MAX_BUNDLE:
        raise Refused(f"{path} is larger than {2 * MAX_BUNDLE // MIB} MiB")
    return data


def _parse(document: Document) -> Bundle:
    job, request, outcome, workspace, plugin = (
        _object(document, name) for name in ("job", "request", "outcome", "workspace", "plugin")
    )
    for name in ("state", "context", "config"):
        _object(request, name, "request.")
    if len(orjson.dumps(request["state"])) > MAX_STATE:
        raise Refused(f"the bundle is not valid: request.state exceeds {MAX_STATE // MIB} MiB")
    response, error, duration = (outcome.get(k) for k in ("response", "error", "duration_ms"))
    notes = document.get("notes")
    if not is_plugin_name(_text(job, "plugin")):
        raise Refused("the bundle is not valid: job.plugin is not the name of a plugin")
    return Bundle(
        job_id=_text(job, "id"),
        plugin=_text(job, "plugin"),
        command=_text(job, "command"),
        attempt=_number(job, "attempt"),
        max_attempts=_number(job, "max_attempts"),
        request={name: request[name] for name in _REQUEST if name in request},
        outcome={
            "status": _text(outcome, "status"),
            "error": error if isinstance(error, str) else None,
            "response": response if isinstance(response, dict) else None,
        },
        duration_ms=duration if isinstance(duration, int | float) else None,
        fingerprint=print_ if isinstance(print_ := plugin.get("fingerprint"), str) else None,
        uses_workspace=workspace.get("used") is True,
        files=read_files(workspace.get("files")),
        notes=tuple(
            str(shorten_value(note)) for note in (notes if isinstance(notes, list) else [])[:20]
        ),
    )


def _object(document: Mapping[str, Json], name: str, place: str = "") -> Document:
    value = document.get(name, {} if place else None)
    if not isinstance(value, dict):
        raise Refused(f"the bundle is not valid: {place}{name} must be an object")
    return value


def _text(document: Mapping[str, Json], name: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= MAX_NAME or not value.isprintable():
        raise Refused(f"the bundle is not valid: {name} must be a text of 1 to {MAX_NAME}")
    return value


def _number(document: Mapping[str, Json], name: str) -> int:
    value = document.get(name)
    if type(value) is not int or not 0 < value <= MAX_ATTEMPTS:
        raise Refused(f"the bundle is not valid: {name} must be a number from 1 to {MAX_ATTEMPTS}")
    return value


@dataclass(frozen=True, slots=True)
class Rerun:
    """How to repeat a bundle."""

    plugin: str
    """Of the configuration; its name there."""
    ignored: IgnoredPaths = IgnoredPaths()
    allow_network: bool = False
    allow_files: bool = False
    """Whether a plugin without a declared sandbox reads what its user can read."""


def rerun(
    compiled: CompiledConfig, bundle: Bundle, wanted: Rerun, now: datetime, entropy: Entropy
) -> Document:
    """The repeated attempt, and how it differs from the recorded one."""
    if bundle.command not in compiled.plans[wanted.plugin].commands:
        known = ", ".join(sorted(compiled.plans[wanted.plugin].commands))
        raise Refused(f"plugin {wanted.plugin} has no command {bundle.command!r}; it has: {known}")
    # Everything of this run is below one directory, which nothing else uses.
    with temporary_tree() as directory:
        plan = confine(
            compiled,
            wanted.plugin,
            allow_network=wanted.allow_network,
            reads_everything=wanted.allow_files,
            temporary=directory / "slot",
        )
        workspace = None
        if bundle.uses_workspace:
            workspace = directory / "workspace"
            workspace.mkdir(mode=0o700)
            write_files(workspace, bundle.files)
        launch = _launch(plan, bundle, workspace, now)
        slot = TemporarySlot()
        with slot.open(directory / "slot"):
            job = make_unstored_job(
                bundle.job_id,
                wanted.plugin,
                bundle.command,
                {},
                now,
                attempt=bundle.attempt,
                max_attempts=bundle.max_attempts,
            )
            settlement = slot.run(compiled, plan, job, launch, now, entropy.uniform())
    return _describe(compiled, plan, bundle, wanted, settlement)


def _launch(plan: PluginPlan, bundle: Bundle, workspace: Path | None, now: datetime) -> Launch:
    timeout = plan.timeout(bundle.command)
    request = {
        "protocol": plan.protocol,
        "job_id": bundle.job_id,
        "command": bundle.command,
        **bundle.request,
        "config": orjson.Fragment(plan.config),
        "deadline_at": to_text(now + timedelta(seconds=timeout)),
    }
    if workspace is not None:
        request["workspace_dir"] = str(workspace)
    return Launch(
        argv=plan.argv,
        env=plan.env,
        request=orjson.dumps(request, option=orjson.OPT_APPEND_NEWLINE),
        timeout=timeout,
        stat=plan.stat,
        sandbox=sandbox_of(plan, None if workspace is None else str(workspace)),
    )


def _describe(
    compiled: CompiledConfig,
    plan: PluginPlan,
    bundle: Bundle,
    wanted: Rerun,
    settlement: Settlement,
) -> Document:
    # In the same way as the bundle, so that what was removed there is no difference here.
    remover = SecretRemover(compiled.loaded.secrets, plan.env)
    response = orjson.loads(settlement.result) if settlement.result else None
    repeated = _cleaned(
        remover, attempt_status(settlement).value, settlement.error, response, compiled
    )
    recorded = _cleaned(
        remover,
        bundle.outcome["status"],
        bundle.outcome["error"],
        bundle.outcome["response"],
        compiled,
    )
    verdict, differences = judge_attempt(recorded, repeated, wanted.ignored)
    removed = orjson.dumps(dict(bundle.request)).count(REDACTED.encode())
    notes = list(bundle.notes)
    if removed:
        notes.append(
            f"{removed} values of the request were removed as secrets; the plugin gets [REDACTED]"
        )
    plugin = compiled.registry.plugins[wanted.plugin]
    return {
        "job_id": bundle.job_id,
        "plugin": wanted.plugin,
        "command": bundle.command,
        "directory": str(plugin.directory),
        "version": plugin.manifest.version,
        "same_program": bundle.fingerprint == plugin.fingerprint,
        "sandbox": describe_sandbox(plan),
        "verdict": verdict.value,
        "recorded": recorded,
        "repeated": repeated,
        "recorded_duration_ms": bundle.duration_ms,
        "duration_ms": round(settlement.duration * 1000, 1),
        **differences,
        "stdout": None if settlement.stdout is None else remover.text(settlement.stdout),
        "stderr": None if settlement.stderr is None else remover.text(settlement.stderr),
        "notes": notes,
    }


def _cleaned(
    remover: SecretRemover,
    status: str,
    error: str | None,
    response: Document | None,
    compiled: CompiledConfig,
) -> Document:
    text = None if error is None else remover.text(error)
    return describe_attempt(status, text, remover.document(response), compiled.redactor)
