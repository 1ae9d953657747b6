"""Checks across sections: unique names, lengths, references, and schedules that never run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import Any, TypeVar

from ductile.config.loader.expand import ReceivedReferences
from ductile.config.loader.nodes import Locations
from ductile.config.loader.secrets import PUBLIC_VARIABLES
from ductile.config.models.http import HEALTH, ApiTokenSettings, EndpointSettings, TokenSettings
from ductile.config.models.relay import InstanceSettings, PeerSettings
from ductile.config.models.schedule import PipelineScheduleSettings
from ductile.config.models.settings import Settings
from ductile.config.models.tokens import Scopes
from ductile.core.delivery.signatures import decode_standard_key
from ductile.core.jobs.limits import LONGEST_NAME, fits, size
from ductile.core.values.scopes import normalize
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem, Severity

INSTALL_MCP = "pip install 'ductile-gateway[mcp]'"
SHORTEST_SECRET = 16
"""Characters of a token or secret below which it causes a warning."""
Signed = TypeVar("Signed", EndpointSettings, InstanceSettings, PeerSettings)


def validate_whole(
    settings: Settings,
    scopes: Scopes,
    locations: Locations,
    *,
    received: Iterable[ReceivedReferences],
    secrets: bool,
) -> tuple[Settings, list[Problem]]:
    """`settings` with scopes and referenced secrets filled in, and the problems found.

    `received` are the references in what plugins receive; `secrets` is false if those that are kept
    elsewhere were not read.
    """
    checker = _Checker(locations)
    checker.check_api(settings)
    checker.check_ports(settings)
    checker.check_unique_names(settings)
    checker.check_lengths(settings)
    checker.check_schedules(settings)
    checker.check_endpoints(settings)
    checker.check_workspaces(settings)
    resolved = checker.resolve_references(settings, scopes)
    checker.check_shared_keys(resolved)
    checker.check_scopes(resolved)
    checker.check_allowed_secrets(settings, received)
    checker.check_spaces(settings)
    if secrets:
        checker.check_secrets(resolved)
    return resolved, [*checker.problems, *scopes.problems]


NO_TOKEN = "the API is enabled, but there is no token"
_ANY_HOST = frozenset({"0.0.0.0", "::"})


def _host_key(host: str) -> str:
    """Names of the same interface as one name, as far as that is known without a lookup."""
    return "127.0.0.1" if host.lower() == "localhost" else host.lower()


class _Checker:
    def __init__(self, locations: Locations) -> None:
        self.problems: list[Problem] = []
        self._locations = locations

    def _report(self, path: Path, message: str, **more: Any) -> None:
        self.problems.append(self._locations.locate(path).problem(message, path=path, **more))

    def _warn(self, path: Path, message: str) -> None:
        self._report(path, message, severity=Severity.WARNING)

    def check_api(self, settings: Settings) -> None:
        if settings.api.enabled and not settings.all_tokens:
            self._report(
                ("api", "enabled"),
                NO_TOKEN,
                allowed="at least one token in api.auth.tokens or in an included tokens.yaml; "
                "more can be created with `ductile token create`",
            )
        if settings.api.mcp and find_spec("mcp") is None:
            self._report(("api", "mcp"), f"needs the extra mcp; install it: {INSTALL_MCP}")

    def check_ports(self, settings: Settings) -> None:
        """The second listener on a port could not be opened."""
        if not (settings.api.enabled and settings.webhooks_enabled):
            return
        (api_host, api_port), (host, port) = settings.api.address, settings.webhooks.address
        is_shared = _ANY_HOST & {api_host, host} or _host_key(api_host) == _host_key(host)
        if port and port == api_port and is_shared:
            section = "webhooks" if "listen" in settings.webhooks.model_fields_set else "api"
            self._report(
                (section, "listen"),
                "api.listen and webhooks.listen use the same port; choose another one",
                found=str(port),
            )

    def check_spaces(self, settings: Settings) -> None:
        """Secrets that begin or end with white space, mostly from a file or a variable."""
        for path, values in settings.known_secrets.by_path.items():
            if any(value.strip() not in ("", value) for value in values):
                self._warn(
                    path,
                    "this secret begins or ends with a space or a line break, which is part of it; "
                    "remove it where the secret is stored",
                )

    def check_unique_names(self, settings: Settings) -> None:
        for group, key, names in _group_names(settings):
            first: dict[str, int] = {}
            for index, name in enumerate(names):
                if name in first:
                    before = self._locations.locate((*group, first[name], key))
                    taken = f"{name!r} is already used in {before.file}:{before.line}"
                    self._report((*group, index, key), f"{taken}; choose another name")
                first.setdefault(name, index)

    def check_lengths(self, settings: Settings) -> None:
        """Names are keys in the ledger, which limits their length."""
        for path, name in _list_names(settings):
            if not fits(name, LONGEST_NAME):
                found, allowed = f"{size(name)} bytes", f"at most {LONGEST_NAME} bytes of UTF-8"
                self._report(path, "is too long", found=found, allowed=allowed)

    def check_endpoints(self, settings: Settings) -> None:
        for index, endpoint in enumerate(settings.webhooks.endpoints):
            if endpoint.path == HEALTH:
                message = (
                    f"{HEALTH} is the health endpoint, so no webhook arrives here; use another path"
                )
                self._warn(("webhooks", "endpoints", index, "path"), message)

    def check_workspaces(self, settings: Settings) -> None:
        """Warn of workspaces that the next step may not find, because another node runs it."""
        wanted = settings.service.workspaces or any(p.workspace for p in settings.pipelines)
        if settings.state.url is not None and settings.state.workspaces is None and wanted:
            message = (
                "with several nodes a step fails if another node has the files of the step before "
                "it; set state.workspaces to a directory that all nodes share"
            )
            self._warn(("state", "url"), message)

    def check_shared_keys(self, settings: Settings) -> None:
        """Warn of tokens with equal keys: only the scopes of the first one apply."""
        first: dict[str, TokenSettings] = {}
        for path, token in _list_tokens(settings):
            if not token.scopes:
                continue
            before = first.setdefault(token.key, token)
            if normalize(before.scopes) != normalize(token.scopes):
                self._warn(path, f"is the same key as that of {before.name!r}, whose scopes apply")

    def check_scopes(self, settings: Settings) -> None:
        """Warn of tokens that nothing accepts, and of secrets that are tokens as well."""
        keys = {token.key: token.name for token in settings.all_tokens if token.scopes}
        for path, token in _list_tokens(settings):
            if not token.scopes and path[0] == "api":
                self._warn(path, "has no scopes, so requests with it are refused; add scopes")
            elif not token.scopes and token.key in keys:
                name = keys[token.key]
                self._warn(path, f"is a secret, but also the key of the token {name!r}; change one")

    def check_secrets(self, settings: Settings) -> None:
        """Refuse an empty key; warn of tokens and secrets that can be guessed."""
        for path, secret in _list_secrets(settings):
            if len(secret) < SHORTEST_SECRET:
                self._warn_short(path, f"{len(secret)} characters")
        for index, endpoint in enumerate(settings.webhooks.endpoints):
            if endpoint.provider != "standard" or endpoint.secret is None:
                continue
            key = decode_standard_key(endpoint.secret)
            name = "secret_ref" if endpoint.secret_ref else "secret"
            path = ("webhooks", "endpoints", index, name)
            if not key:
                allowed = "whsec_ and the base64 of a key of 24 to 64 bytes"
                self._report(path, "is an empty key, with which everyone can sign", allowed=allowed)
            elif len(key) < SHORTEST_SECRET <= len(endpoint.secret):
                self._warn_short(path, f"a key of {len(key)} bytes")

    def check_allowed_secrets(
        self, settings: Settings, received: Iterable[ReceivedReferences]
    ) -> None:
        """Refuse references of a plugin's settings and steps that its `secrets` do not list."""
        for found in received:
            own = settings.plugins.get(found.plugin)
            if own is not None and own.secrets is None and own.uses is not None:
                own = settings.plugins.get(own.uses)
            if own is None or own.secrets is None:
                continue
            for name in found.names:
                if name not in own.secrets and name not in PUBLIC_VARIABLES:
                    self._report(
                        found.path,
                        f"the plugin {found.plugin} may not receive ${{{name}}}; "
                        f"add it to plugins.{found.plugin}.secrets, or remove it here",
                        allowed=", ".join(own.secrets) or "no reference",
                    )

    def _warn_short(self, path: Path, found: str) -> None:
        needed = f"use at least {SHORTEST_SECRET} random ones"
        self._warn(path, f"is short enough to be guessed ({found}); {needed}")

    def check_schedules(self, settings: Settings) -> None:
        groups: dict[Path, tuple[PipelineScheduleSettings, ...]] = {
            ("plugins", plugin): entry.schedules for plugin, entry in settings.plugins.items()
        }
        for place, pipeline in enumerate(settings.pipelines):
            groups["pipelines", place] = pipeline.schedules
        for owner, entries in groups.items():
            for index, schedule in enumerate(entries):
                at: Path = (*owner, "schedules", index)
                if schedule.catch_up not in _catch_up_words(schedule):
                    self._warn(
                        (*at, "catch_up"),
                        "has no effect here; `run_once` applies to schedules with `every` or "
                        "`cron`, `run_all` to those with `every`",
                    )
                if schedule.cron is not None and not _can_run(schedule.cron):
                    self._warn((*at, "cron"), "no date matches this expression, so it never runs")

    def resolve_references(self, settings: Settings, scopes: Scopes) -> Settings:
        tokens = tuple(
            scopes.resolve(token, ("tokens", index)) for index, token in enumerate(settings.tokens)
        )
        keys = {token.name: token.key for token in tokens}
        changes: dict[str, Any] = {"tokens": tokens} if tokens else {}
        if inline := settings.api.auth.tokens:
            auth = settings.api.auth.model_copy(update={"tokens": _filter_scopes(inline, scopes)})
            changes["api"] = settings.api.model_copy(update={"auth": auth})
        if endpoints := settings.webhooks.endpoints:
            group = self._resolve_secrets(endpoints, ("webhooks", "endpoints"), keys)
            changes["webhooks"] = settings.webhooks.model_copy(update={"endpoints": group})
        if settings.instances:
            changes["instances"] = self._resolve_secrets(settings.instances, ("instances",), keys)
        if peers := settings.remote_ingress.peers:
            senders = self._resolve_secrets(peers, ("remote_ingress", "peers"), keys)
            changes["remote_ingress"] = settings.remote_ingress.model_copy(
                update={"peers": senders}
            )
        return settings.model_copy(update=changes) if changes else settings

    def _resolve_secrets(
        self, entries: Iterable[Signed], path: Path, keys: dict[str, str]
    ) -> tuple[Signed, ...]:
        """`entries`, each with its own `secret` or that of the token which `secret_ref` names."""
        resolved = []
        for index, entry in enumerate(entries):
            reference = entry.secret_ref
            if entry.secret is None and reference is not None:
                if reference in keys:
                    entry = entry.model_copy(update={"secret": keys[reference]})
                elif getattr(entry, "enabled", True):
                    self._report(
                        (*path, index, "secret_ref"),
                        "there is no token with this name",
                        found=repr(reference),
                        allowed=", ".join(sorted(keys)) or "a token of an included tokens.yaml",
                        nearest=nearest(reference, keys),
                    )
            resolved.append(entry)
        return tuple(resolved)


def _list_tokens(settings: Settings) -> Iterator[tuple[Path, TokenSettings]]:
    inline: Path = ("api", "auth", "tokens")
    locations = [(*inline, index, "token") for index in range(len(settings.api.auth.tokens))]
    locations += [("tokens", index, "key") for index in range(len(settings.tokens))]
    yield from zip(locations, settings.all_tokens, strict=True)


def _list_secrets(settings: Settings) -> Iterator[tuple[Path, str]]:
    """Every token and every secret with its place; a referenced secret is that of its token."""
    for path, token in _list_tokens(settings):
        yield path, token.key
    groups: list[tuple[Path, Iterable[EndpointSettings | InstanceSettings | PeerSettings]]] = [
        (("webhooks", "endpoints"), settings.webhooks.endpoints),
        (("instances",), settings.instances),
        (("remote_ingress", "peers"), settings.remote_ingress.peers),
    ]
    for group, entries in groups:
        for index, entry in enumerate(entries):
            if entry.secret is not None and entry.secret_ref is None:
                yield (*group, index, "secret"), entry.secret


def _can_run(rule: str) -> bool:
    from ductile.core.schedules import cron

    return cron.has_match(rule)


def _filter_scopes(
    tokens: Iterable[ApiTokenSettings], scopes: Scopes
) -> tuple[ApiTokenSettings, ...]:
    return tuple(
        token.model_copy(
            update={
                "scopes": scopes.filter_known(
                    token.scopes, ("api", "auth", "tokens", index, "scopes")
                )
            }
        )
        for index, token in enumerate(tokens)
    )


def _list_names(settings: Settings) -> Iterator[tuple[Path, str]]:
    for group, key, names in _group_names(settings):
        for index, name in enumerate(names):
            yield (*group, index, key), name
    for plugin, entry in settings.plugins.items():
        for index, schedule in enumerate(entry.schedules):
            yield ("plugins", plugin, "schedules", index, "command"), schedule.command


def _group_names(settings: Settings) -> Iterator[tuple[Path, str, list[str]]]:
    yield ("pipelines",), "name", [item.name for item in settings.pipelines]
    yield ("tokens",), "name", [item.name for item in settings.tokens]
    yield ("alerts",), "name", [item.name for item in settings.alerts]
    yield ("instances",), "name", [item.name for item in settings.instances]
    yield ("remote_ingress", "peers"), "name", [p.name for p in settings.remote_ingress.peers]
    yield ("webhooks", "endpoints"), "path", [e.path for e in settings.webhooks.endpoints]
    for name, plugin in settings.plugins.items():
        yield ("plugins", name, "schedules"), "id", [item.id for item in plugin.schedules]
    for index, pipeline in enumerate(settings.pipelines):
        yield ("pipelines", index, "schedules"), "id", [item.id for item in pipeline.schedules]


def _catch_up_words(schedule: PipelineScheduleSettings) -> tuple[str, ...]:
    """The values of `catch_up` that have an effect."""
    if schedule.every is not None:
        return ("skip", "run_once", "run_all")
    return ("skip", "run_once") if schedule.cron is not None else ("skip",)
