"""Command lines of the Go program whose options differ: each is translated, or refused with the
command that replaces it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from ductile.errors import UsageError

UNAVAILABLE: Mapping[tuple[str, ...], str] = {
    ("config", "token", "inspect"): "list tokens with: ductile token list",
    ("config", "token", "rehash"): "change the scopes in the file, then run: ductile config lock",
    ("config", "token"): "manage tokens with: ductile token create, list, revoke",
    ("config", "scope"): "give a token of tokens.yaml all its scopes with: "
    "ductile config scope set TOKEN SCOPES; or change its scope file, then run: "
    "ductile config lock; or create another one: ductile token create NAME --scope SCOPE",
    ("config", "route", "remove"): "delete the route from the configuration file",
    ("config", "webhook", "remove"): "delete the endpoint from the configuration file",
}
"""Its commands that have no counterpart of the same form."""
FORMAT = "--format"


def wants_json(args: list[str]) -> bool:
    """Return whether `--format json` is among the arguments."""
    return (
        bool(args) and args[0] in FORMATTED and _take_options(args, FORMAT)[0] == {FORMAT: "json"}
    )


def translate_go(args: list[str]) -> list[str]:
    """Return our command line for one of the Go program; other ones are returned as they are.

    Raises `UsageError`, with the replacement, for a command that is not available.
    """
    if args and args[0] in FORMATTED:
        taken, args = _take_options(args, FORMAT)
        args = [*args, "--json"] if taken.get(FORMAT) == "json" else args
    for words, build in TRANSLATIONS.items():
        if tuple(args[: len(words)]) == words:
            return build(args[len(words) :])
    for words, advice in UNAVAILABLE.items():
        if tuple(args[: len(words)]) == words:
            name = " ".join(args[: len(words) + 1])
            raise UsageError(f"{name!r} is a command of the Go program; here, {advice}")
    return args


def _create_token(rest: list[str]) -> list[str]:
    given, rest = _take_options(rest, "--name", "--scopes", "--description")
    names = [given["--name"]] if "--name" in given else []
    scopes = [scope.strip() for scope in given.get("--scopes", "").split(",") if scope.strip()]
    return ["token", "create", *names, *(w for s in scopes for w in ("--scope", s)), *rest]


def _set_scopes(rest: list[str]) -> list[str]:
    name, scopes, *options = [*rest, "", ""][: max(len(rest), 2)]
    if not name or not scopes or name.startswith("-") or scopes.startswith("-"):
        raise UsageError("use: ductile config scope set TOKEN SCOPE,SCOPE")
    given = [scope.strip() for scope in scopes.split(",") if scope.strip()]
    value = json.dumps(given, separators=(",", ":"))
    return ["config", "set", f"tokens[{name}].scopes", value, "--lock", *options]


def _add_route(rest: list[str]) -> list[str]:
    given, rest = _take_options(rest, "--from", "--event", "--event-type", "--to")
    keys = {"--from": "from", "--event": "event_type", "--event-type": "event_type", "--to": "to"}
    usage = "config route add --from PLUGIN --event-type TYPE --to PLUGIN"
    return _append("routes[+]", {keys[name]: value for name, value in given.items()}, rest, usage)


def _add_webhook(rest: list[str]) -> list[str]:
    names = ("name", "path", "plugin", "secret", "secret-ref", "signature-header", "max-body-size")
    given, rest = _take_options(rest, *(f"--{name}" for name in names))
    entry = {name.lstrip("-").replace("-", "_"): value for name, value in given.items()}
    usage = "config webhook add --path PATH --plugin PLUGIN --secret-ref NAME"
    return _append("webhooks.endpoints[+]", entry, rest, usage)


def _append(path: str, entry: Mapping[str, str], rest: list[str], usage: str) -> list[str]:
    if not entry:
        raise UsageError(f"use: ductile {usage}")
    # JSON is YAML, and quotes what YAML would read as something else.
    return ["config", "set", path, json.dumps(entry), *rest]


def _back_up(rest: list[str]) -> list[str]:
    given, rest = _take_options(rest, "--to", "--output")
    paths = list(given.values())
    return ["system", "backup", *paths, "--with-config", *rest]


FORMATTED = frozenset({"config"})
"""The nouns whose commands have `--format` there."""
TRANSLATIONS: Mapping[tuple[str, ...], Callable[[list[str]], list[str]]] = {
    ("config", "token", "create"): _create_token,
    ("config", "token", "list"): lambda rest: ["token", "list", *rest],
    ("config", "token", "delete"): lambda rest: ["token", "revoke", *rest],
    ("config", "scope", "set"): _set_scopes,
    ("config", "route", "add"): _add_route,
    ("config", "webhook", "add"): _add_webhook,
    ("config", "backup"): _back_up,
    ("system", "scheduler"): lambda rest: ["schedule", "list", *rest],
}


def _take_options(args: list[str], *names: str) -> tuple[dict[str, str], list[str]]:
    """Return the values of these options, with one dash or two, and the other arguments."""
    taken: dict[str, str] = {}
    rest: list[str] = []
    words = iter(args)
    for word in words:
        name, equals, value = word.partition("=")
        long = f"-{name}" if name.startswith("-") and not name.startswith("--") else name
        if long not in names:
            rest.append(word)
        else:
            taken[long] = value if equals else next(words, "")
    return taken, rest
