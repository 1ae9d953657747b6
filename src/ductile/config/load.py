"""`load`: from files to `Loaded`, or a `ConfigError` with every problem found."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from blake3 import blake3
from pydantic import ValidationError

from ductile._fast_dataclass import dataclass
from ductile.config import checksums
from ductile.config.checksums import Seal
from ductile.config.loader import dotenv
from ductile.config.loader.expand import Expanded, ReferenceValues, expand
from ductile.config.loader.files import Drafts, absolute, is_directory
from ductile.config.loader.include import Sources, gather
from ductile.config.loader.nodes import Locations, MappingNode, ScalarNode
from ductile.config.loader.salvage import Salvage, is_of_files
from ductile.config.loader.secret_sources import SecretSources
from ductile.config.models.fields import RawScalar
from ductile.config.models.service import StateSettings
from ductile.config.models.settings import Settings
from ductile.config.models.tokens import Scopes
from ductile.config.problems import translate
from ductile.config.redact import redact_problems
from ductile.config.sealed_text import add_changed_lines
from ductile.config.validate import validate_whole
from ductile.config.versions.journal import finish_interrupted
from ductile.errors import ConfigError, Problem, Severity, errors_of
from ductile.errors import Path as KeyPath
from ductile.model import Json

FILE = "config.yaml"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A valid configuration."""

    path: Path
    """The path of config.yaml."""
    settings: Settings
    warnings: tuple[Problem, ...]
    files: Mapping[Path, str]
    """Every file that was read, with the BLAKE3 hash of its bytes."""
    secrets: frozenset[str]
    """ReferenceValues of eight or more characters that must not leave the process."""
    seal: Seal | None
    """The `.checksums` that the files were compared with; discovery compares the plugins."""
    config_hash: str
    """Hash of the effective settings: with secrets that are variables or written in the files, and
    the references to those that are kept elsewhere."""
    locations: Locations
    has_unread_secrets: bool = False
    """Whether references to secrets were left as they were written: these are not redacted."""

    def locate(self, path: KeyPath) -> tuple[str, int, int]:
        """File, line and column of a path in the merged configuration, or of its parent."""
        return self.locations.locate(path)


class InvalidConfig(ConfigError):
    """A configuration with errors; `rest` is the configuration without the invalid parts."""

    def __init__(self, problems: Sequence[Problem], rest: Loaded | None, salvage: Salvage) -> None:
        super().__init__(problems)
        self.rest = rest
        """For further checks, never to run; None if nothing useful is left."""
        self.salvage = salvage


def find(explicit: Path | None, environ: Mapping[str, str]) -> Path:
    """The path of config.yaml: `explicit` (file or directory), `$DUCTILE_CONFIG_DIR`, or the
    first of `~/.config/ductile` and `/etc/ductile` that has one."""
    named = explicit or (Path(text) if (text := environ.get("DUCTILE_CONFIG_DIR")) else None)
    if named is not None:
        path = absolute(Path(), named)
        return path / FILE if is_directory(path) else path
    home = environ.get("HOME")
    directories = [Path(home, ".config", "ductile")] if home else []
    directories.append(Path("/etc/ductile"))
    for directory in directories:
        if os.path.lexists(directory / FILE):
            return directory / FILE
    searched = ", ".join(["--config", "$DUCTILE_CONFIG_DIR", *map(str, directories)])
    message = f"there is no {FILE} in {searched}; create one with: ductile config init"
    raise ConfigError([Problem(message)])


def load(
    path: Path | None = None,
    *,
    environ: Mapping[str, str],
    seal: bool | Seal = True,
    secrets: bool = True,
    drafts: Drafts | None = None,
) -> Loaded:
    """Read, verify, expand and validate a configuration; raises `ConfigError`.

    Files are compared with the seal as they are read. If one that must be sealed differs, no
    variable is expanded and the other files are checked as they were written. `seal=False` skips
    the comparison, for a check before `config lock`; a `Seal` is used in place of the stored one.
    `drafts` replace the content of their files, for a check before they are written.
    `secrets=False` leaves references to files, credentials and commands as they were written, for
    what does not run plugins: the operator who lists jobs need not be allowed to read them.
    """
    config = find(path, environ)
    finish_interrupted(config.parent)
    stored, problems = _find_seal(config.parent, seal)
    sources = gather(config, stored, drafts, home=environ.get("HOME"))
    problems += sources.problems
    _refuse_changed_files(config, stored, sources, problems, environ)
    expanded = _expand(sources, environ, problems, secrets=secrets)
    differences = _compare(stored, sources, strict=_is_set(expanded, "strict_mode"))
    validator = _Validator(sources, expanded, environ, secrets=secrets)
    settings = validator.validate_valid_parts(problems)
    problems += _check_symlinks(stored, sources, allowed=_is_set(expanded, "allow_symlinks"))
    if settings and stored:
        differences = add_changed_lines(differences, stored.hashes, settings.state_dir)
    problems += differences
    problems = redact_problems(problems, expanded.secrets.known.long_values)
    problems = sort_problems(problems, sources.reader.hashes)
    errors = errors_of(problems)
    if settings is None:
        raise InvalidConfig(errors, None, validator.salvage)
    loaded = Loaded(
        path=config,
        settings=settings,
        warnings=() if errors else tuple(problems),
        files=sources.reader.hashes,
        secrets=settings.secrets,
        seal=stored,
        config_hash=_hash_as_written(settings, expanded),
        locations=validator.locations,
        has_unread_secrets=expanded.has_unread_secrets,
    )
    if errors:
        raise InvalidConfig(errors, loaded, validator.salvage)
    return loaded


def _find_seal(directory: Path, seal: bool | Seal) -> tuple[Seal | None, list[Problem]]:
    if isinstance(seal, Seal):
        return seal, []
    return checksums.read(directory) if seal else (None, [])


def _refuse_changed_files(
    config: Path,
    stored: Seal | None,
    sources: Sources,
    problems: list[Problem],
    environ: Mapping[str, str],
) -> None:
    """Raise `ConfigError` if a sealed file differs or config.yaml cannot be read.

    It has every problem that can be found without expanding a variable.
    """
    differences = _compare(stored, sources, strict=_is_literally_set(sources, "strict_mode"))
    if config in sources.reader.hashes and not errors_of(differences):
        return
    if stored and (state := find_state(config, environ=environ)):
        differences = add_changed_lines(differences, stored.hashes, state.dir)
    problems += [*differences, *_check_unexpanded(sources, environ)]
    raise ConfigError(sort_problems(errors_of(problems), sources.reader.hashes))


def _expand(
    sources: Sources, environ: Mapping[str, str], problems: list[Problem], *, secrets: bool
) -> Expanded:
    variables = read_variables(sources, environ, problems)
    values = ReferenceValues(variables, SecretSources(sources.root, environ), secrets)
    expanded = expand(sources.tree, sources.variables, values)
    problems += expanded.problems
    return expanded


def find_state(path: Path | None, *, environ: Mapping[str, str]) -> StateSettings | None:
    """The `state` section of a configuration, even if other sections are invalid.

    None if it cannot be determined.
    """
    try:
        return load(path, environ=environ, seal=False, secrets=False).settings.state
    except InvalidConfig as invalid:
        is_unknown = invalid.salvage.is_unknown("state")
        if invalid.rest is None or is_unknown or not all(p.path for p in invalid.problems):
            return None
        return invalid.rest.settings.state
    except ConfigError:
        return None


class _Validator:
    """Validates expanded data, whole or without its invalid parts."""

    def __init__(
        self,
        sources: Sources,
        expanded: Expanded,
        environ: Mapping[str, str],
        *,
        secrets: bool = True,
    ) -> None:
        self._secrets = secrets
        self.locations = Locations(expanded.locations, expanded.keys)
        self.salvage = Salvage(expanded.data, expanded.broken)
        self._sources = sources
        self._expanded = expanded
        self._context = {
            "config_dir": sources.root,
            "home": environ.get("HOME"),
            "secrets": expanded.secrets.known,
        }

    def validate(
        self, data: dict[str, Any], *, whole: bool
    ) -> tuple[Settings | None, list[Problem]]:
        """Validate by the schema and, with `whole`, the sections together."""
        try:
            settings = Settings.model_validate(
                data, context=self._context, by_alias=True, by_name=False
            )
        except ValidationError as error:
            return None, translate(error, data, self.locations, self._expanded.broken)
        if not whole:
            return settings, []
        scopes = Scopes(
            self._sources.scope_files,
            self._sources.lost_scopes,
            self.locations,
            strict=settings.service.strict_mode,
        )
        return validate_whole(
            settings,
            scopes,
            self.locations,
            received=self._expanded.received,
            secrets=self._secrets,
        )

    def validate_valid_parts(self, problems: list[Problem]) -> Settings | None:
        """The settings without the parts that have `problems`; more problems are added to them."""
        salvage, unset = self.salvage, self._expanded.unset
        is_complete = not any(map(is_of_files, errors_of(problems)))
        errors = [*errors_of(problems), *unset]
        settings, found = self.validate(self._expanded.data, whole=not errors)
        # A variable may be set in a file that could not be read.
        problems += [*found, *unset] if is_complete else found
        errors += errors_of(found)
        while errors and salvage.remove(errors):
            settings, found = self.validate(salvage.data, whole=True)
            errors = errors_of(found)
            problems += salvage.drop_follow_ups(errors)
        return settings


def _check_unexpanded(sources: Sources, environ: Mapping[str, str]) -> list[Problem]:
    """The problems of the files that could be used, without expanding variables.

    The schema requires keys only in entries of lists, each of which is in one file. So no key is
    reported as missing because a file was left out.
    """
    problems: list[Problem] = []
    read_variables(sources, {}, problems)
    expanded = expand(sources.tree, sources.variables, None)
    _, found = _Validator(sources, expanded, environ).validate(expanded.data, whole=False)
    problems += [*expanded.problems, *found]
    return redact_problems(problems, expanded.secrets.known.long_values)


PER_NODE = (
    ("service", ("node", "labels", "max_workers")),
    ("state", ("path", "dir", "workspaces")),
    ("api", ("listen",)),
    ("webhooks", ("listen",)),
)
"""Settings that may differ between the nodes of one ledger."""


def hash_shared_settings(settings: Settings) -> str:
    """BLAKE3 of the settings that the nodes of one ledger have in common, secrets included."""
    document = settings.model_dump(mode="json", by_alias=True)
    for section, keys in PER_NODE:
        content = document.get(section)
        if isinstance(content, dict):
            document[section] = {key: item for key, item in content.items() if key not in keys}
    return _hash_document(document)


def _hash_as_written(settings: Settings, expanded: Expanded) -> str:
    """BLAKE3 of the settings with references to secrets that are kept elsewhere as written.

    So it is the same for a process that may not read them, and after a rotation.
    """
    # A token's key occurs again as the secret of an endpoint that refers to the token.
    by_value = {found: text for text, found in expanded.as_written.values()}

    def restore(value: Json, path: KeyPath) -> Json:
        if isinstance(value, dict):
            return {key: restore(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [restore(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str):
            return value
        return expanded.as_written.get(path, (by_value.get(value, value), ""))[0]

    document = settings.model_dump(mode="json", by_alias=True)
    return _hash_document({key: restore(item, (key,)) for key, item in document.items()})


def _hash_document(document: dict[str, Any]) -> str:
    return blake3(json.dumps(document, sort_keys=True).encode()).hexdigest()


def _compare(stored: Seal | None, sources: Sources, *, strict: bool) -> list[Problem]:
    if stored is None:
        return []
    scopes = {source.path for source in sources.scope_files.values()}
    return stored.compare(sources.reader.hashes, scopes | sources.granting, strict=strict)


def read_variables(
    sources: Sources, environ: Mapping[str, str], problems: list[Problem]
) -> dict[str, str]:
    """The variables of the environment and, below it, of the .env files; the first one wins."""
    found: dict[str, str] = {}
    for source in sources.env_files:
        text = source.text()
        if isinstance(text, Problem):
            problems.append(text)
            continue
        more, invalid = dotenv.parse(text, str(source.path))
        problems += invalid
        found = {**more, **found}
    return {**found, **environ}


def _is_set(expanded: Expanded, name: str) -> bool:
    """A boolean of `service`, usable although other settings may be invalid."""
    service = expanded.data.get("service")
    found = service.get(name) if isinstance(service, dict) else None
    return isinstance(found, RawScalar) and found.value is True


def _is_literally_set(sources: Sources, name: str) -> bool:
    """A boolean of `service` before expansion; a variable counts as false."""
    service = sources.tree.get("service")
    node = service.get(name) if isinstance(service, MappingNode) else None
    return isinstance(node, ScalarNode) and not node.style and node.text.lower() == "true"


def _check_symlinks(stored: Seal | None, sources: Sources, *, allowed: bool) -> list[Problem]:
    symlinks = {**(stored.symlinks if stored else {}), **sources.reader.symlinks}
    severity = Severity.WARNING if allowed else Severity.ERROR
    advice = "" if allowed else "; replace it with its target, or set service.allow_symlinks: true"
    return [
        location.problem(f"{path} is a symlink{advice}", severity=severity)
        for path, location in symlinks.items()
    ]


def sort_problems(problems: Iterable[Problem], files: Iterable[Path]) -> list[Problem]:
    """Without duplicates, by file in the order of `files`, then by line."""
    rank = {str(path): number for number, path in enumerate(files)}
    return sorted(
        dict.fromkeys(problems),
        key=lambda p: (rank.get(p.file or "", len(rank)), p.line or 0, p.column or 0),
    )
