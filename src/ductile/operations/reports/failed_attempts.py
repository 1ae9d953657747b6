"""What made the last attempt of a job fail: its place, and what has to be done before a retry."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.judge import LAST_LINE
from ductile.core.jobs.prepare import PluginPlan
from ductile.core.jobs.response_advice import find_hint
from ductile.core.values.suggest import nearest
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import Path as KeyPath
from ductile.errors import dotted
from ductile.operations.config.fixes import open_in_editor
from ductile.store.engines.api import Tx
from ductile.store.jobs import read

REPEATABLE = frozenset({"failed", "timed_out", "dead"})
RELOAD = "ductile system reload"
MOST_ANCESTORS = 64
SHOWN_STEPS = 6
LONGEST_PATH = 256
"""Of a file below the plugin's directory: without a limit, a text of the plugin takes seconds."""
MOST_FILES = 20
"""That an error may name."""
BUGS = ("Syntax", "Indentation", "Name", "UnboundLocal", "Type", "Attribute", "Import")
"""Python's errors that a retry does not change, without `Error`."""
_TRACEBACK = "Traceback (most recent call last)"
_MISSING_PATH = re.compile(r"payload((?:\.[\w-]+)+) does not exist")
_EXPRESSION = re.compile(r"(with|if): |(?P<map>baggage|relay)[ .:]")
_TIMED_OUT = re.compile(r"timed out after [\d.]+ s(;|$)")
_HOPS = re.compile(r"hop \d+ exceeds the limit of \d+")


@dataclass(frozen=True, slots=True)
class FailureCause:
    why: str
    run: tuple[str, ...] = ()
    """The commands before a retry; empty if nothing is known but to try again."""
    has_retry: bool = True
    """Whether a retry follows them."""


def find_cause(tx: Tx, job: Mapping[str, Any], compiled: CompiledConfig) -> FailureCause | None:
    """Only of a job that has failed, and only what a person has to change."""
    if job["status"] not in REPEATABLE:
        return None
    error = str(job.get("last_error") or "")
    if _HOPS.fullmatch(error):
        return _find_loop(tx, job, compiled)
    # A response with these words is the plugin's own.
    has_run = job["result"] is not None
    if job.get("pipeline") and not has_run and (name := _EXPRESSION.match(error)):
        return _find_expression(job, name[1] or name["map"], error, compiled)
    plan = compiled.plans.get(job["plugin"])
    if plan is None:
        return _find_refusal(job["plugin"], compiled)
    return _find_flaw_of_program(job, error, plan, compiled)


def _find_refusal(plugin: str, compiled: CompiledConfig) -> FailureCause | None:
    """A refused plugin: its jobs stay queued until the cause is removed."""
    refusal = compiled.registry.refusal(plugin)
    if refusal is None:
        return None
    run = refusal.command or f"ductile plugin validate {quote(plugin)}"
    return FailureCause(f"Plugin {plugin} is refused: {refusal.reason}.", (run, RELOAD))


def _show_place(compiled: CompiledConfig, at: KeyPath) -> tuple[str, str]:
    """A place of the configuration for a sentence, and the command that opens it."""
    file, line, _ = compiled.loaded.locate(at)
    return f"{file}:{line}", open_in_editor(file, line)


def _find_expression(
    job: Mapping[str, Any], name: str, error: str, compiled: CompiledConfig
) -> FailureCause | None:
    """The expression of a step that could not be evaluated."""
    node = compiled.tx_config.router.node(job["pipeline"], job["step_path"] or "")
    if node is None:
        return None
    place, edit = _show_place(compiled, (*node.at, name))
    known = _describe_payload(job["payload"], error)
    return FailureCause(f"Its `{name}` is at {place}{known}.", (edit, RELOAD))


def _describe_payload(request: Any, error: str) -> str:
    """The keys that the payload has where the error misses one."""
    missing = _MISSING_PATH.search(error)
    if missing is None or not isinstance(request, dict):
        return ""
    *parents, last = missing[1][1:].split(".")
    found, path = request.get("payload", request), "payload"
    for name in parents:
        if not isinstance(found, dict) or name not in found:
            last = name
            break
        found, path = found[name], f"{path}.{name}"
    if not isinstance(found, dict):
        return f"; {path} is not an object"
    keys, close = ", ".join(sorted(found)[:SHOWN_STEPS]), nearest(last, found)
    meant = f", of which {close!r} is the nearest" if close else ""
    return f"; {path} has {keys or 'no keys'}{meant}"


def _find_loop(tx: Tx, job: Mapping[str, Any], compiled: CompiledConfig) -> FailureCause | None:
    """The jobs whose events led back to the one that exceeds the limit of hops."""
    chain = [job, *_list_ancestors(tx, job)]
    names = [_name_of(each) for each in chain]
    if names[0] not in names[1:]:
        return None
    length = names.index(names[0], 1)
    shown = [*reversed(names[: length + 1])]
    loop = " → ".join(shown[:SHOWN_STEPS]) + (" → ..." if len(shown) > SHOWN_STEPS else "")
    at = _find_link(chain[1], chain[0], compiled)
    if at is None:
        return FailureCause(f"Its events lead back to it: {loop}.")
    place, edit = _show_place(compiled, at)
    why = f"Its events lead back to it: {loop}, by {dotted(at)} ({place})"
    return FailureCause(f"{why}; remove one of these links.", (edit, RELOAD), has_retry=False)


def _list_ancestors(tx: Tx, job: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for _ in range(MOST_ANCESTORS):
        parent = job.get("parent_job_id")
        found = None if parent is None else read.describe_job(tx, parent)
        if found is None:
            return
        job = found
        yield job


def _name_of(job: Mapping[str, Any]) -> str:
    if job.get("pipeline"):
        return f"{job['pipeline']}/{job['step_path']}"
    return str(job["plugin"])


def _find_link(
    parent: Mapping[str, Any], job: Mapping[str, Any], compiled: CompiledConfig
) -> KeyPath | None:
    """The setting by which an event of one job led to the other."""
    if pipeline := job.get("pipeline"):
        found = compiled.tx_config.router.pipelines.get(pipeline)
        return None if found is None else tuple(found.at)
    for index, route in enumerate(compiled.settings.routes):
        if (route.from_, route.to) == (parent["plugin"], job["plugin"]):
            return ("routes", index)
    return None


def _find_flaw_of_program(
    job: Mapping[str, Any], error: str, plan: PluginPlan, compiled: CompiledConfig
) -> FailureCause | None:
    """What its plugin has to do otherwise, as far as its output shows it."""
    attempts: Sequence[Mapping[str, Any]] = job.get("attempts") or ()
    if not attempts or job["plugin"] not in compiled.registry.plugins:
        return None
    plugin, command, entrypoint = job["plugin"], job["command"], plan.argv[-1]
    if not os.access(entrypoint, os.X_OK) and Path(entrypoint).exists():
        why = f"Its program {entrypoint} is not executable."
        return FailureCause(why, (f"chmod +x {quote(entrypoint)}",))
    if _TIMED_OUT.match(error):
        at = ("plugins", plugin, "timeouts", command)
        place, _ = _show_place(compiled, at)
        return FailureCause(
            f"Its limit of {plan.timeout(command):g} s is {dotted(at)} ({place}); if it needs "
            "longer, raise it before the retry."
        )
    reload = (RELOAD,) if plan.stat else ()
    stderr = str(attempts[-1].get("stderr") or "")
    if _TRACEBACK in stderr or error.startswith("exit code "):
        return _find_crash(plugin, stderr, entrypoint, reload)
    stdout = attempts[-1].get("stdout")
    if stdout is None and "stdout is empty" not in error:
        return None
    # The last line of stderr may contain any words.
    hint = find_hint(stdout or "", error.partition(LAST_LINE)[0])
    why = f"Its program {entrypoint} has to respond otherwise: {hint}."
    return FailureCause(why, (open_in_editor(entrypoint, None), *reload))


def _find_crash(
    plugin: str, stderr: str, entrypoint: str, reload: tuple[str, ...]
) -> FailureCause | None:
    """Where the program ended, and what it lacks."""
    file, line = _find_line(stderr, entrypoint)
    if file is None:
        return None
    place, edit = f"{file}:{line}", open_in_editor(file, line)
    last = stderr.rstrip().rpartition("\n")[2]
    if name := re.match(r"ModuleNotFoundError: No module named '([\w.]+)'$", last):
        why = f"Its program needs the module {name[1]!r} ({place}), which is not installed"
        sync = f"ductile plugin sync {quote(plugin)}"
        return FailureCause(
            f"{why}: declare it as a dependency, and run `{sync}`.", (edit, sync, *reload)
        )
    if "os.environ" in stderr and (name := re.match(r"KeyError: '([A-Za-z_]\w*)'$", last)):
        why = f"Its program needs the variable {name[1]} ({place})"
        set_variable = f"config set {quote(f'plugins.{plugin}.env.{name[1]}')} '${{{name[1]}}}'"
        return FailureCause(
            f"{why}; a plugin inherits few variables: plugins.{plugin}.env adds one.",
            (f"ductile {set_variable}", RELOAD),
        )
    is_bug = re.match(rf"({'|'.join(BUGS)})Error\b", last) is not None
    return FailureCause(f"Its program ended at {place}.", (edit, *reload) if is_bug else ())


def _find_line(stderr: str, entrypoint: str) -> tuple[str, int] | tuple[None, None]:
    """The line of the plugin's own files that an error names: the last of a Python traceback, the
    first of others. The text is the plugin's, so only an existing file of its directory counts.
    """
    directory = str(Path(entrypoint).parent)
    file_name = rf"{re.escape(directory)}/[\w./-]{{1,{LONGEST_PATH}}}"
    pattern = rf'({file_name})(?:", line |: ?(?:line )?)(\d{{1,6}})\b'
    found = re.findall(pattern, stderr)
    if _TRACEBACK in stderr:
        found.reverse()
    for file in [*dict.fromkeys(file for file, _ in found)][:MOST_FILES]:
        if _is_in(file, directory):
            return file, int(next(line for name, line in found if name == file))
    return None, None


def _is_in(file: str, directory: str) -> bool:
    try:
        path = Path(file).resolve()
        return path.is_relative_to(Path(directory).resolve()) and path.is_file()
    except (OSError, RuntimeError):
        return False  # A loop of links, or a name that is too long.
