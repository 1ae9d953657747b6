#!/usr/bin/env python3
"""Runs a command from the configuration; an event never chooses the program. See README.md."""

from __future__ import annotations

import os
import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from protocol import EX_CONFIG, ConfigError, Failure, Request, Response, serve
from settings import read_flag, read_seconds, read_size, read_texts
from template import MISSING, collect_values, find, has_placeholder, parse_placeholder, to_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from process import ProcessResult

MAX_REMEMBERED = 200
MAX_ARGUMENT = 64 * 1024
RESERVE = 5.0
"""Seconds before the deadline at which the command is terminated, to report the result."""
SHELL = "/bin/sh"
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER")
MARK = "DUCTILE_BOOT"
"""The gateway finds orphaned processes of a job by this variable."""
SHORTEST_SECRET = 8
MAX_LINE = 500


class Command:
    """The validated settings."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.argv = _read_command(config)
        self.cwd = _read_cwd(config)
        self.own_env = _read_env(config)
        self.inherited = read_texts(config, "inherit_env") or INHERITED
        self.timeout = read_seconds(config, "timeout", 60.0, minimum=0.1, maximum=86_400)
        self.max_output = read_size(config, "max_output", 64 * 1024, minimum=0, maximum=1024 * 1024)
        self.success_codes = config.get("success_codes", [0])
        if not isinstance(self.success_codes, list) or not all(
            type(code) is int for code in self.success_codes
        ):
            raise ConfigError("success_codes must be a list of exit codes")
        self.pipes_payload = _read_word(config, "stdin", ("none", "payload")) == "payload"
        self.emits_failure = _read_word(config, "on_failure", ("fail", "emit")) == "emit"
        self.parses_json = _read_word(config, "parse", ("text", "json")) == "json"
        self.secrets = [text for text in self.own_env.values() if len(text) >= SHORTEST_SECRET]
        """Programs print their environment in errors, and its values are often secrets."""

    def environment(self, request: Request) -> dict[str, str]:
        names = (*self.inherited, MARK)
        kept = {name: os.environ[name] for name in names if name in os.environ}
        described = {
            "DUCTILE_JOB_ID": request.job_id,
            "DUCTILE_EVENT_TYPE": request.event.get("type") or "",
            "DUCTILE_EVENT_ID": request.event.get("event_id") or "",
        }
        return {
            **kept,
            **{k: str(v).replace("\0", "") for k, v in described.items()},
            **self.own_env,
        }

    def arguments(self, request: Request) -> list[str]:
        """argv with its placeholders replaced, each by exactly one argument."""
        scope = collect_values(request)
        filled: list[str] = []
        for element in self.argv:
            placeholder = parse_placeholder(element)
            filled.append(
                element if placeholder is None else _get_argument(scope, *placeholder, filled)
            )
        return filled


def _read_command(config: dict[str, Any]) -> list[str]:
    command = config.get("command")
    if read_flag(config, "shell"):
        if not isinstance(command, str) or not command.strip() or "\0" in command:
            raise ConfigError("command must be text if shell is true")
        if has_placeholder(command):
            raise ConfigError(
                "a shell command must not contain placeholders, which could run any program; "
                "read the payload from stdin (stdin: payload), or write the command as a list"
            )
        return [SHELL, "-c", command]
    if not isinstance(command, list) or not command:
        raise ConfigError("command must be a list of the program and its arguments")
    argv = [str(part) if type(part) in (int, float) else part for part in command]
    for part in argv:
        if not isinstance(part, str) or "\0" in part:
            raise ConfigError("command must contain only texts and numbers")
        if has_placeholder(part) and parse_placeholder(part) is None:
            raise ConfigError(
                f"{part!r}: a placeholder such as {{payload.x}} must be a whole argument"
            )
    if not argv[0] or has_placeholder(argv[0]):
        raise ConfigError("the program must not be a placeholder")
    return argv


def _get_argument(scope: dict[str, Any], path: str, default: str | None, before: list[str]) -> str:
    """An argument from the event: a scalar, and not an option unless `--` precedes it."""
    value = find(scope, path)
    if value is MISSING:
        if default is not None:
            return default
        raise Failure(f"the event has no {path}, which the command refers to", retry=False)
    if value is None or isinstance(value, dict | list):
        raise Failure(
            f"{path} is neither text nor a number, so it cannot be an argument", retry=False
        )
    text = to_text(value)
    if "\0" in text or len(text) > MAX_ARGUMENT:
        raise Failure(f"{path} is too long for an argument or contains a NUL", retry=False)
    if text.startswith("-") and "--" not in before:
        raise Failure(
            f"{path} starts with '-', so the program could read it as an option; "
            "put '--' before it in the command",
            retry=False,
        )
    return text


def _read_cwd(config: dict[str, Any]) -> str | None:
    cwd = config.get("cwd")
    if cwd is None:
        return None
    path = os.path.expanduser(cwd) if isinstance(cwd, str) else ""
    if not os.path.isabs(path) or "\0" in path:
        raise ConfigError("cwd must be an absolute path")
    return path


def _read_env(config: dict[str, Any]) -> dict[str, str]:
    env = config.get("env") or {}
    if not isinstance(env, dict):
        raise ConfigError("env must be a mapping of names to values")
    values = {}
    for name, value in env.items():
        plain = isinstance(value, str | int | float) and "\0" not in str(value)
        if not plain or not name or "=" in name or "\0" in name:
            raise ConfigError("env must be a mapping of names to texts and numbers")
        values[name] = str(value)
    return values


def _read_word(config: dict[str, Any], key: str, words: tuple[str, ...]) -> str:
    word = config.get(key, words[0])
    if word not in words:
        raise ConfigError(f"{key} must be one of {', '.join(words)}")
    return str(word)


def run(request: Request) -> Response:
    from process import launch

    command = Command(request.config)
    done = _get_done_jobs(request)
    if request.job_id in done:
        return Response("skipped: this job has already run the command")
    argv = command.arguments(request)
    stdin = b""
    if command.pipes_payload:
        import json

        stdin = json.dumps(request.payload, ensure_ascii=False).encode("utf-8", "replace")
    limit = min(command.timeout, request.remaining() - RESERVE)
    if limit <= 0:
        raise Failure("there is no time left to run the command")
    env = command.environment(request)
    ended = launch(argv, stdin, env, command.cwd, limit, command.max_output)
    succeeded = ended.exit_code in command.success_codes
    if not succeeded and not command.emits_failure:
        raise _build_failure(
            ended, command, _describe(ended, command), ended.exit_code != EX_CONFIG
        )
    response = Response(ended.summary, state={"done": [*done, request.job_id][-MAX_REMEMBERED:]})
    payload = _build_payload(ended, command)
    if succeeded and command.parses_json:
        payload["output"] = _parse_output(ended, command)
    response.emit(
        "exec.done" if succeeded else "exec.failed", payload, key=f"exec:{request.job_id}"
    )
    return response


def _get_done_jobs(request: Request) -> list[str]:
    done = request.state.get("done")
    return [one for one in done if isinstance(one, str)] if isinstance(done, list) else []


def _build_payload(ended: ProcessResult, command: Command) -> dict[str, Any]:
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


def _parse_output(ended: ProcessResult, command: Command) -> Any:
    from strict_json import parse

    if ended.stdout.truncated:
        raise _build_failure(
            ended, command, "the command wrote more JSON than max_output allows", retry=False
        )
    try:
        return parse(ended.stdout.plain)
    except ValueError as error:
        reason = f"the output of the command is not valid JSON: {error}"
        raise _build_failure(ended, command, reason, retry=False) from None


def _build_failure(ended: ProcessResult, command: Command, reason: str, retry: bool) -> Failure:
    """A failure with the end of both outputs as its details."""
    details = ""
    for name, stream in (("stdout", ended.stdout), ("stderr", ended.stderr)):
        text = stream.end(command.secrets)
        omitted = f" ({stream.omitted} bytes before this omitted)" if stream.omitted else ""
        if text or omitted:
            details += f"{name} of the command{omitted}:\n{text.rstrip()}\n"
    return Failure(reason, retry=retry, details=details)


def _describe(ended: ProcessResult, command: Command) -> str:
    """The exit status and the last line of output, which usually has the error."""
    for stream in (ended.stderr, ended.stdout):
        lines = stream.end(command.secrets).strip().splitlines()
        if lines:
            return f"{ended.summary}: {lines[-1][:MAX_LINE]}"
    return ended.summary


def health(request: Request) -> Response:
    import shutil

    command = Command(request.config)
    if command.cwd is not None and not os.path.isdir(command.cwd):
        raise Failure("cwd is not a directory")
    path = command.environment(request).get("PATH")
    if shutil.which(command.argv[0], path=path) is None:
        raise Failure(f"the program {command.argv[0]!r} does not exist")
    return Response("ok")


if __name__ == "__main__":
    serve({"poll": run, "handle": run, "health": health})
