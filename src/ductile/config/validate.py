"""What only the whole configuration can tell: names that meet, references that lead somewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from ductile.config.loader.locate import Places
from ductile.config.models.http import HEALTH, ApiTokenSettings, EndpointSettings, TokenSettings
from ductile.config.models.relay import InstanceSettings, PeerSettings
from ductile.config.models.settings import Settings
from ductile.config.models.tokens import Scopes
from ductile.core.jobs.limits import LONGEST_NAME, fits, size
from ductile.core.values.scopes import normalized
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem, Severity

Signed = TypeVar("Signed", EndpointSettings, InstanceSettings, PeerSettings)


def check(settings: Settings, scopes: Scopes, places: Places) -> tuple[Settings, list[Problem]]:
    """`settings` with scopes and secrets in place, and all that does not fit together."""
    checker = _Checker(places)
    checker.api(settings)
    checker.names(settings)
    checker.lengths(settings)
    checker.schedules(settings)
    checker.endpoints(settings)
    resolved = checker.references(settings, scopes)
    checker.keys(resolved)
    return resolved, [*checker.problems, *scopes.problems]


class _Checker:
    def __init__(self, places: Places) -> None:
        self.problems: list[Problem] = []
        self._places = places

    def _say(self, path: Path, message: str, **more: Any) -> None:
        self.problems.append(self._places.locate(path).problem(message, path=path, **more))

    def _warn(self, path: Path, message: str) -> None:
        self._say(path, message, severity=Severity.WARNING)

    def api(self, settings: Settings) -> None:
        if settings.api.enabled and not settings.all_tokens:
            self._say(
                ("api", "enabled"),
                "the API is enabled without any token",
                allowed="a first one in api.auth.tokens or in an included tokens.yaml; "
                "`ductile token create` makes others beside it",
            )

    def names(self, settings: Settings) -> None:
        """Within one list a name says who is meant, so it may occur only once."""
        for group, key, names in _names(settings):
            first: dict[str, int] = {}
            for index, name in enumerate(names):
                if name in first:
                    before = self._places.locate((*group, first[name], key))
                    self._say(
                        (*group, index, key),
                        f"{name!r} is already taken in {before.file}:{before.line}",
                    )
                first.setdefault(name, index)

    def lengths(self, settings: Settings) -> None:
        """The ledger finds rows by them."""
        for path, name in _keys(settings):
            if not fits(name, LONGEST_NAME):
                found, allowed = f"{size(name)} bytes", f"at most {LONGEST_NAME} bytes of UTF-8"
                self._say(path, "is too long", found=found, allowed=allowed)

    def endpoints(self, settings: Settings) -> None:
        for index, endpoint in enumerate(settings.webhooks.endpoints):
            if endpoint.path == HEALTH:
                message = "the listener answers here how the gateway is: no delivery arrives"
                self._warn(("webhooks", "endpoints", index, "path"), message)

    def keys(self, settings: Settings) -> None:
        """Whoever comes with a key is the first who has it."""
        inline: Path = ("api", "auth", "tokens")
        places = [(*inline, index, "token") for index in range(len(settings.api.auth.tokens))]
        places += [("tokens", index, "key") for index in range(len(settings.tokens))]
        first: dict[str, TokenSettings] = {}
        for path, token in zip(places, settings.all_tokens, strict=True):
            before = first.setdefault(token.key, token)
            if normalized(before.scopes) != normalized(token.scopes):
                self._warn(path, f"the same as of {before.name}, whose scopes alone count")

    def schedules(self, settings: Settings) -> None:
        for plugin, entry in settings.plugins.items():
            for index, schedule in enumerate(entry.schedules):
                at: Path = ("plugins", plugin, "schedules", index)
                if schedule.catch_up != "skip" and schedule.every is None:
                    self._warn(
                        (*at, "catch_up"), "catch_up is for `every` alone and has no effect here"
                    )
                if schedule.cron is not None and not _comes(schedule.cron):
                    self._warn((*at, "cron"), "no date matches this: it never comes")

    def references(self, settings: Settings, scopes: Scopes) -> Settings:
        tokens = tuple(
            scopes.resolve(token, ("tokens", index)) for index, token in enumerate(settings.tokens)
        )
        keys = {token.name: token.key for token in tokens}
        changes: dict[str, Any] = {"tokens": tokens} if tokens else {}
        if inline := settings.api.auth.tokens:
            auth = settings.api.auth.model_copy(update={"tokens": _known(inline, scopes)})
            changes["api"] = settings.api.model_copy(update={"auth": auth})
        if endpoints := settings.webhooks.endpoints:
            group = self._signed(endpoints, ("webhooks", "endpoints"), keys)
            changes["webhooks"] = settings.webhooks.model_copy(update={"endpoints": group})
        if settings.instances:
            changes["instances"] = self._signed(settings.instances, ("instances",), keys)
        if peers := settings.remote_ingress.peers:
            senders = self._signed(peers, ("remote_ingress", "peers"), keys)
            changes["remote_ingress"] = settings.remote_ingress.model_copy(
                update={"peers": senders}
            )
        return settings.model_copy(update=changes) if changes else settings

    def _signed(
        self, entries: Iterable[Signed], path: Path, keys: dict[str, str]
    ) -> tuple[Signed, ...]:
        """`entries`, each with its own `secret` or the one that its `secret_ref` names."""
        resolved = []
        for index, entry in enumerate(entries):
            reference = entry.secret_ref
            if entry.secret is None and reference is not None:
                if reference in keys:
                    entry = entry.model_copy(update={"secret": keys[reference]})
                elif getattr(entry, "enabled", True):
                    self._say(
                        (*path, index, "secret_ref"),
                        "no entry of tokens has this name",
                        found=repr(reference),
                        allowed=", ".join(sorted(keys)) or "an entry of an included tokens.yaml",
                        nearest=nearest(reference, keys),
                    )
            resolved.append(entry)
        return tuple(resolved)


def _comes(rule: str) -> bool:
    from ductile.core.schedules import cron

    return cron.comes(rule)


def _known(tokens: Iterable[ApiTokenSettings], scopes: Scopes) -> tuple[ApiTokenSettings, ...]:
    return tuple(
        token.model_copy(
            update={
                "scopes": scopes.known(token.scopes, ("api", "auth", "tokens", index, "scopes"))
            }
        )
        for index, token in enumerate(tokens)
    )


def _keys(settings: Settings) -> Iterator[tuple[Path, str]]:
    for group, key, names in _names(settings):
        for index, name in enumerate(names):
            yield (*group, index, key), name
    for plugin, entry in settings.plugins.items():
        for index, schedule in enumerate(entry.schedules):
            yield ("plugins", plugin, "schedules", index, "command"), schedule.command


def _names(settings: Settings) -> Iterator[tuple[Path, str, list[str]]]:
    yield ("pipelines",), "name", [item.name for item in settings.pipelines]
    yield ("tokens",), "name", [item.name for item in settings.tokens]
    yield ("instances",), "name", [item.name for item in settings.instances]
    yield ("remote_ingress", "peers"), "name", [p.name for p in settings.remote_ingress.peers]
    yield ("webhooks", "endpoints"), "path", [e.path for e in settings.webhooks.endpoints]
    for name, plugin in settings.plugins.items():
        yield ("plugins", name, "schedules"), "id", [item.id for item in plugin.schedules]
