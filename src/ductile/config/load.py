"""The one way in: files to `Loaded`, or a `ConfigError` with every problem there is."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from blake3 import blake3
from pydantic import ValidationError

from ductile.config import checksums
from ductile.config.checksums import Seal
from ductile.config.loader import dotenv
from ductile.config.loader.expand import Expanded, expand
from ductile.config.loader.files import Reader, absolute, is_directory
from ductile.config.loader.include import Sources, gather
from ductile.config.loader.locate import Places
from ductile.config.loader.nodes import Place, Scalar, Table
from ductile.config.loader.salvage import rest
from ductile.config.models.fields import Found
from ductile.config.models.service import StateSettings
from ductile.config.models.settings import Settings
from ductile.config.models.tokens import Scopes
from ductile.config.problems import translate
from ductile.config.redact import hidden
from ductile.config.validate import check
from ductile.errors import ConfigError, Problem, Severity, errors_of
from ductile.errors import Path as KeyPath
from ductile.record import dataclass

FILE = "config.yaml"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration that may run, and what is worth saying about it."""

    path: Path
    """The file that it was loaded from."""
    settings: Settings
    warnings: tuple[Problem, ...]
    files: Mapping[Path, str]
    """Every file that was read, with the BLAKE3 hash of the bytes that were used."""
    secrets: frozenset[str]
    """Values of eight or more characters that must not leave the process."""
    seal: Seal | None
    """The `.checksums` it was held against; the plugins' part is for discovery to judge."""
    config_hash: str
    """Of the effective settings; differs where only a secret differs."""
    places: Places

    def locate(self, path: KeyPath) -> tuple[str, int, int]:
        """File, line and column of a path in the merged configuration, or of its next parent."""
        return self.places.locate(path)


class Flawed(ConfigError):
    """A configuration with errors, and the `rest` of it, without the parts that have them."""

    def __init__(self, problems: Sequence[Problem], rest: Loaded | None) -> None:
        super().__init__(problems)
        self.rest = rest
        """To be judged on, never to run; None where nothing true could be said of it."""


def find(explicit: Path | None, environ: Mapping[str, str]) -> Path:
    """The config.yaml that is meant: `explicit` (file or directory), `$DUCTILE_CONFIG_DIR`,
    `~/.config/ductile`, `/etc/ductile`. One that is named must exist; others are looked for."""
    named = explicit or (Path(text) if (text := environ.get("DUCTILE_CONFIG_DIR")) else None)
    if named is not None:
        path = absolute(Path(), named)
        return path / FILE if is_directory(path) else path
    home = environ.get("HOME")
    places = [Path(home, ".config", "ductile")] if home else []
    places.append(Path("/etc/ductile"))
    for place in places:
        if os.path.lexists(place / FILE):
            return place / FILE
    looked = ", ".join(["--config", "$DUCTILE_CONFIG_DIR", *map(str, places)])
    how = "make one: ductile config init"
    raise ConfigError([Problem(f"there is no {FILE}; looked in {looked}; {how}")])


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str],
    seal: bool = True,
    drafts: Mapping[Path, bytes] | None = None,
) -> Loaded:
    """Read, verify, expand and judge a configuration.

    Files are held against the seal as they are read; once one that must be sealed is not,
    nothing is expanded, and the others are judged as they were written. `seal=False` leaves
    the seal aside, for a check before `config lock`; `drafts` stand for the content of their
    files, for a check before they are written.
    """
    config = find(path, environ)
    stored, problems = checksums.read(config.parent) if seal else (None, [])
    sources = gather(config, stored, drafts)
    problems += sources.problems
    verdict = _judge(stored, sources, strict=_literal_flag(sources, "strict_mode"))
    if config not in sources.reader.hashes or errors_of(verdict):
        problems += [*verdict, *_as_written(sources, environ)]
        raise ConfigError(_ordered(errors_of(problems), sources.reader))
    expanded = expand(sources.tree, sources.variables, values(sources, environ, problems))
    problems += expanded.problems
    problems += _judge(stored, sources, strict=_flag(expanded, "strict_mode"))
    symlinks = {**(stored.symlinks if stored else {}), **sources.reader.symlinks}
    problems += _symlinks(symlinks, allowed=_flag(expanded, "allow_symlinks"))
    places = Places(expanded.places, expanded.keys)
    judge = partial(_validate, expanded, sources, places, environ)
    settings, found = judge(expanded.data, whole=not errors_of(problems))
    problems += found
    flawed = bool(errors_of(problems))
    if flawed:
        settings = _sound(expanded.data, judge, problems)
    told = _ordered(hidden(problems, expanded.secrets), sources.reader)
    if settings is None:
        raise Flawed(errors_of(told), None)
    loaded = Loaded(
        path=config,
        settings=settings,
        warnings=() if flawed else tuple(told),
        files=sources.reader.hashes,
        secrets=settings.secrets,
        seal=stored,
        config_hash=config_hash(settings),
        places=places,
    )
    if flawed:
        raise Flawed(errors_of(told), loaded)
    return loaded


def state_of(path: Path | None, *, environ: Mapping[str, str]) -> StateSettings | None:
    """Where a gateway of this configuration has its state, whatever else is wrong with it.

    None where nobody can say, for what is wrong may be just that.
    """
    try:
        return load(path, environ=environ, seal=False).settings.state
    except Flawed as flawed:
        told = any("state" in (*p.path[:1], p.nearest) for p in flawed.problems)
        return None if told or flawed.rest is None else flawed.rest.settings.state
    except ConfigError:
        return None


class _Judge(Protocol):
    def __call__(
        self, data: dict[str, Any], *, whole: bool
    ) -> tuple[Settings | None, list[Problem]]: ...


def _sound(data: dict[str, Any], judge: _Judge, problems: list[Problem]) -> Settings | None:
    """What is left without the parts that have problems; those of the rest are added to them."""
    settings, errors = None, errors_of(problems)
    while errors:
        left = rest(data, errors)
        if left is None or left == data:
            return None
        data = left
        settings, found = judge(data, whole=True)
        errors = errors_of(found)
        problems += errors
    return settings


def _validate(
    expanded: Expanded,
    sources: Sources,
    places: Places,
    environ: Mapping[str, str],
    data: dict[str, Any],
    *,
    whole: bool,
) -> tuple[Settings | None, list[Problem]]:
    """Judge by schema and, where nothing of it is missing, as a whole."""
    context = {
        "config_dir": sources.root,
        "home": environ.get("HOME"),
        "secrets": expanded.secrets,
    }
    try:
        settings = Settings.model_validate(data, context=context, by_alias=True, by_name=False)
    except ValidationError as error:
        return None, translate(error, data, places, expanded.broken)
    if not whole:
        return settings, []
    scopes = Scopes(
        sources.scope_files,
        sources.lost_scopes,
        places,
        strict=settings.service.strict_mode,
    )
    return check(settings, scopes, places)


def _as_written(sources: Sources, environ: Mapping[str, str]) -> list[Problem]:
    """What is wrong with the files that could be used, nothing of them expanded.

    The schema misses keys only in entries of lists, which are in one file whole: none that a
    file which was left out could have.
    """
    problems: list[Problem] = []
    values(sources, {}, problems)
    expanded = expand(sources.tree, sources.variables, None)
    places = Places(expanded.places, expanded.keys)
    _, found = _validate(expanded, sources, places, environ, expanded.data, whole=False)
    return hidden([*problems, *expanded.problems, *found], expanded.secrets)


def config_hash(settings: Settings) -> str:
    """BLAKE3 of the effective settings, secrets included."""
    document = settings.model_dump(mode="json", by_alias=True)
    return blake3(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _judge(stored: Seal | None, sources: Sources, *, strict: bool) -> list[Problem]:
    if stored is None:
        return []
    scopes = [source.path for source in sources.scope_files.values()]
    return stored.judge(sources.reader.hashes, scopes, strict=strict)


def values(sources: Sources, environ: Mapping[str, str], problems: list[Problem]) -> dict[str, str]:
    """The environment over the .env files, the first of which wins over the next."""
    found: dict[str, str] = {}
    for source in sources.env_files:
        text = source.text()
        if isinstance(text, Problem):
            problems.append(text)
            continue
        more, wrong = dotenv.parse(text, str(source.path))
        problems += wrong
        found = {**more, **found}
    return {**found, **environ}


def _flag(expanded: Expanded, name: str) -> bool:
    """A switch of `service` that counts even while the rest has problems."""
    service = expanded.data.get("service")
    found = service.get(name) if isinstance(service, dict) else None
    return isinstance(found, Found) and found.value is True


def _literal_flag(sources: Sources, name: str) -> bool:
    """The same before anything is expanded: a variable does not count yet."""
    service = sources.tree.get("service")
    node = service.get(name) if isinstance(service, Table) else None
    return isinstance(node, Scalar) and not node.style and node.text.lower() == "true"


def _symlinks(met: Mapping[Path, Place], *, allowed: bool) -> list[Problem]:
    severity = Severity.WARNING if allowed else Severity.ERROR
    hint = None if allowed else "service.allow_symlinks: true"
    return [
        place.problem(f"{path} is a symlink", severity=severity, allowed=hint)
        for path, place in met.items()
    ]


def _ordered(problems: Iterable[Problem], reader: Reader) -> list[Problem]:
    """As somebody mends them: file by file as they were read, from top to bottom, none twice."""
    rank = {str(path): number for number, path in enumerate(reader.hashes)}
    unique: Iterable[Problem] = dict.fromkeys(problems)
    return sorted(
        unique,
        key=lambda p: (rank.get(p.file or "", len(rank)), p.line or 0, p.column or 0),
    )
