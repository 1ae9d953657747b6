#!/usr/bin/env python3
"""Runs a command of the configuration: its argv is the config's, never the event's."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from protocol import EX_CONFIG, Answer, Failure, Misconfigured, Request, serve
from quantities import flag, seconds, size, texts
from template import MISSING, as_text, find, has_place, scope_of, whole_place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from process import Ended

REMEMBERED = 200
LONGEST_ARGUMENT = 64 * 1024
RESERVE = 5.0
"""Seconds before the gateway's deadline at which the command is ended, so that we can tell."""
SHELL = "/bin/sh"
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
MARK = "DUCTILE_BOOT"
"""By this the gateway finds what a job left running."""
SHORTEST_SECRET = 8
LONGEST_LINE = 500


class Command:
    """What the config says, checked."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.argv = _argv(config)
        self.cwd = _cwd(config)
        self.own_env = _env(config)
        self.inherited = texts(config, "inherit_env") or INHERITED
        self.timeout = seconds(config, "timeout", 60.0, least=0.1, most=86_400)
        self.max_output = size(config, "max_output", 64 * 1024, least=0, most=1024 * 1024)
        self.good = config.get("success_codes", [0])
        if not isinstance(self.good, list) or not all(type(code) is int for code in self.good):
            raise Misconfigured("success_codes must be a list of exit codes")
        self.feeds = _one_of(config, "stdin", ("none", "payload")) == "payload"
        self.emits_failure = _one_of(config, "on_failure", ("fail", "emit")) == "emit"
        self.parses = _one_of(config, "parse", ("text", "json")) == "json"
        self.secrets = [text for text in self.own_env.values() if len(text) >= SHORTEST_SECRET]
        """Programs quote their environment when they fail; its values are often secrets."""

    def environment(self, request: Request) -> dict[str, str]:
        names = (*self.inherited, MARK)
        kept = {name: os.environ[name] for name in names if name in os.environ}
        told = {
            "DUCTILE_JOB_ID": request.job_id,
            "DUCTILE_EVENT_TYPE": request.event.get("type") or "",
            "DUCTILE_EVENT_ID": request.event.get("event_id") or "",
        }
        return {**kept, **{k: str(v).replace("\0", "") for k, v in told.items()}, **self.own_env}

    def arguments(self, request: Request) -> list[str]:
        """argv with its places filled in, each by one whole element."""
        scope = scope_of(request)
        filled: list[str] = []
        for element in self.argv:
            place = whole_place(element)
            filled.append(element if place is None else _value(scope, *place, filled))
        return filled


def _argv(config: dict[str, Any]) -> list[str]:
    command = config.get("command")
    if flag(config, "shell"):
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            raise Misconfigured("with shell: true the command must be text")
        if has_place(command):
            raise Misconfigured(
                "a shell command takes no {payload...}: it could run anything; "
                "read it from stdin (stdin: payload), or write the command as a list"
            )
        return [SHELL, "-c", command]
    if not isinstance(command, list) or not command:
        raise Misconfigured("command must be a list: the program and its arguments")
    argv = [str(part) if type(part) in (int, float) else part for part in command]
    for part in argv:
        if not isinstance(part, str) or "\0" in part:
            raise Misconfigured("command must hold texts and numbers alone")
        if has_place(part) and whole_place(part) is None:
            raise Misconfigured(f"{part!r}: a place like {{payload.x}} must be a whole argument")
    if not argv[0] or has_place(argv[0]):
        raise Misconfigured("the program itself must be written out")
    return argv


def _value(scope: dict[str, Any], path: str, default: str | None, before: list[str]) -> str:
    """One argument out of the event: a plain value, and no option unless `--` went before."""
    value = find(scope, path)
    if value is MISSING:
        if default is not None:
            return default
        raise Failure(f"the event has no {path}, which the command names", retry=False)
    if value is None or isinstance(value, dict | list):
        raise Failure(f"{path} is no text and no number, so it cannot be an argument", retry=False)
    text = as_text(value)
    if "\0" in text or len(text) > LONGEST_ARGUMENT:
        raise Failure(f"{path} is too long for an argument, or holds a NUL", retry=False)
    if text.startswith("-") and "--" not in before:
        raise Failure(
            f"{path} begins with '-', which the program could take for an option; "
            "put '--' before it in the command",
            retry=False,
        )
    return text


def _cwd(config: dict[str, Any]) -> str | None:
    cwd = config.get("cwd")
    if cwd is None:
        return None
    path = os.path.expanduser(cwd) if isinstance(cwd, str) else ""
    if not os.path.isabs(path) or "\0" in path:
        raise Misconfigured("cwd must be an absolute path")
    return path


def _env(config: dict[str, Any]) -> dict[str, str]:
    env = config.get("env") or {}
    if not isinstance(env, dict):
        raise Misconfigured("env must be a mapping of names to values")
    values = {}
    for name, value in env.items():
        plain = isinstance(value, str | int | float) and "\0" not in str(value)
        if not plain or not name or "=" in name or "\0" in name:
            raise Misconfigured("env must be a mapping of names to plain values")
        values[name] = str(value)
    return values


def _one_of(config: dict[str, Any], key: str, words: tuple[str, ...]) -> str:
    word = config.get(key, words[0])
    if word not in words:
        raise Misconfigured(f"{key} must be one of {', '.join(words)}")
    return str(word)


def run(request: Request) -> Answer:
    from process import launch

    command = Command(request.config)
    done = _remembered(request)
    if request.job_id in done:
        return Answer("this job ran the command already")
    argv = command.arguments(request)
    fed = b""
    if command.feeds:
        import json

        fed = json.dumps(request.payload, ensure_ascii=False).encode("utf-8", "replace")
    limit = min(command.timeout, request.remaining() - RESERVE)
    if limit <= 0:
        raise Failure("no time is left to run the command")
    env = command.environment(request)
    ended = launch(argv, fed, env, command.cwd, limit, command.max_output)
    good = ended.exit_code in command.good
    if not good and not command.emits_failure:
        raise _failure(ended, command, _reason(ended, command), ended.exit_code != EX_CONFIG)
    answer = Answer(ended.summary, state={"done": [*done, request.job_id][-REMEMBERED:]})
    payload = _payload(ended, command)
    if good and command.parses:
        payload["output"] = _parsed(ended, command)
    answer.emit("exec.done" if good else "exec.failed", payload, key=f"exec:{request.job_id}")
    return answer


def _remembered(request: Request) -> list[str]:
    done = request.state.get("done")
    return [one for one in done if isinstance(one, str)] if isinstance(done, list) else []


def _payload(ended: Ended, command: Command) -> dict[str, Any]:
    return {
        "program": os.path.basename(command.argv[0]),
        "exit_code": ended.exit_code,
        "signal": ended.signal,
        "timed_out": ended.timed_out,
        "duration_ms": round(ended.seconds * 1000),
        "stdout": ended.stdout.text(command.secrets),
        "stderr": ended.stderr.text(command.secrets),
        "stdout_truncated": ended.stdout.truncated,
        "stderr_truncated": ended.stderr.truncated,
    }


def _parsed(ended: Ended, command: Command) -> Any:
    from document import parse

    if ended.stdout.truncated:
        raise _failure(ended, command, "the command wrote more JSON than max_output", retry=False)
    try:
        return parse(ended.stdout.plain)
    except ValueError as error:
        reason = f"the command wrote no JSON: {error}"
        raise _failure(ended, command, reason, retry=False) from None


def _failure(ended: Ended, command: Command, reason: str, retry: bool) -> Failure:
    """With how both outputs ended, for whoever looks for the cause."""
    said = ""
    for name, stream in (("stdout", ended.stdout), ("stderr", ended.stderr)):
        text = stream.ending(command.secrets)
        left_out = f" ({stream.unseen} bytes before this are left out)" if stream.unseen else ""
        if text or left_out:
            said += f"{name} of the command{left_out}:\n{text.rstrip()}\n"
    return Failure(reason, retry=retry, said=said)


def _reason(ended: Ended, command: Command) -> str:
    """How it ended, and the last line that it wrote, which mostly says why."""
    for stream in (ended.stderr, ended.stdout):
        lines = stream.ending(command.secrets).strip().splitlines()
        if lines:
            return f"{ended.summary}: {lines[-1][:LONGEST_LINE]}"
    return ended.summary


def health(request: Request) -> Answer:
    import shutil

    command = Command(request.config)
    if command.cwd is not None and not os.path.isdir(command.cwd):
        raise Failure("cwd is no directory")
    path = command.environment(request).get("PATH")
    if shutil.which(command.argv[0], path=path) is None:
        raise Failure(f"there is no program {command.argv[0]!r}")
    return Answer("the program is there")


if __name__ == "__main__":
    serve({"poll": run, "handle": run, "health": health})
