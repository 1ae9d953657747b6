"""Seal a configuration: record the hashes of its files and plugins in `.checksums`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from shlex import quote
from typing import Any

from blake3 import blake3

from ductile.config import Loaded, checksums, create_seal, find_state, load
from ductile.config.checksums import Seal
from ductile.config.edit.editor import FileEdit
from ductile.config.sealed_text import keep_texts
from ductile.engine.config.compiled import build
from ductile.errors import ConfigError, Problem, Refused
from ductile.plugins.manifest import MANIFEST_NAME
from ductile.plugins.registry import Plugin
from ductile.plugins.trust import hash_executable, read_file


@dataclass(frozen=True)
class NewSeal:
    """A seal of the files as they are now."""

    seal: Seal
    files: Mapping[str, str]
    """Each file with `new`, `changed`, `same` or `gone`, compared with the previous seal."""
    problems: tuple[Problem, ...]
    """Errors of the configuration; with any, its plugins are not part of the seal."""
    plugins: Mapping[str, str] = field(default_factory=dict)
    """Each plugin that is `new`, `changed` or `gone`, compared with the previous seal."""


def measure_files(path: Path, environ: Mapping[str, str]) -> NewSeal:
    """Return the seal of the configuration at `path`, without writing it."""
    before, _ = checksums.read(path.parent)
    problems: tuple[Problem, ...] = ()
    fingerprints: list[dict[str, Any]] = []
    try:
        loaded = load(path, environ=environ, seal=False, secrets=False)
        plugins = build(loaded, boot_marker="", environ=environ).registry.plugins.values()
        fingerprints = [_fingerprint(plugin, loaded) for plugin in plugins]
    except ConfigError as error:
        problems = tuple(error.problems)
    seal = create_seal(path, plugin_fingerprints=fingerprints)
    files = {name: _compare(before, name, digest) for name, digest in seal.hashes.items()}
    files.update(dict.fromkeys(before.hashes.keys() - seal.hashes.keys(), "gone"))
    return NewSeal(seal, files, problems, {} if problems else _compare_plugins(before, seal))


def _compare_plugins(before: Seal, after: Seal) -> dict[str, str]:
    old, new = (
        {str(entry.get("name")): entry for entry in seal.plugin_fingerprints}
        for seal in (before, after)
    )
    added = {name: "new" for name in new if name not in old}
    changed = {name: "changed" for name in new if name in old and _is_changed(old[name], new[name])}
    return {**added, **changed, **dict.fromkeys(old.keys() - new.keys(), "gone")}


def _is_changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    # A seal of the Go program has no `fingerprint`.
    keys = ("manifest_hash", "entrypoint_hash", "fingerprint")
    return any(old[key] != new[key] for key in keys if key in old)


def accept_files(path: Path, names: Sequence[Path], environ: Mapping[str, str]) -> NewSeal:
    """Return the seal in force with the present hashes of these files only.

    Other files and the plugins keep their seals. Raises `Refused` for a file that is not part of
    the configuration.
    """
    before, _ = checksums.read(path.parent)
    measured = measure_files(path, environ)
    hashes, states = dict(before.hashes), {}
    for name in names:
        key = str(name.absolute())
        if key not in measured.files:
            known = ", ".join(sorted(measured.files))
            raise Refused(f"{key} is not a file of this configuration; its files: {known}")
        states[key] = measured.files[key]
        hashes.pop(key, None)
        if key in measured.seal.hashes:
            hashes[key] = measured.seal.hashes[key]
    seal = replace(before, path=measured.seal.path, hashes=hashes)
    return NewSeal(seal, states, measured.problems)


def write_seal(
    seal: Seal, config: Path, *, environ: Mapping[str, str], now: datetime
) -> str | None:
    """Write a seal and keep the texts of its files, to show what changes later.

    Return why the texts could not be kept, or None. The seal is valid without them.
    """
    seal.write(now)
    state = find_state(config, environ=environ)
    if state is None:
        return "the configuration does not say where the state directory is"
    try:
        keep_texts(state.dir, seal)
    except OSError as error:
        return f"{state.dir} cannot be written: {error.strerror}"
    return None


def accept_plugin(path: Path, name: str, environ: Mapping[str, str]) -> NewSeal:
    """Return the seal in force with the present fingerprint of a plugin, and of its aliases."""
    seal = seal_plugin(path, name, environ)
    if seal is None:
        raise Refused(
            "this configuration does not seal plugins; seal all of it: ductile config lock"
        )
    before, _ = checksums.read(path.parent)
    return NewSeal(seal, {}, (), _compare_plugins(before, seal))


def seal_plugin(path: Path, name: str, environ: Mapping[str, str]) -> Seal | None:
    """Return the seal in force with the present fingerprint of a plugin and of its aliases.

    None if the configuration does not seal plugins. Other files and plugins keep their seals.
    Raises `ConfigError` if the configuration is invalid, or if the plugin is not loaded.
    """
    before, _ = checksums.read(path.parent)
    if not before.plugin_fingerprints:
        return None
    loaded = load(path, environ=environ, seal=False, secrets=False)
    registry = build(loaded, boot_marker="", environ=environ).registry
    plugins = [p for p in registry.plugins.values() if p.manifest.name == name]
    if not plugins:
        refusal = registry.refusal(name)
        reason = refusal.reason if refusal else "it is not loaded"
        raise ConfigError([Problem(f"plugin {name} is refused: {reason}")])
    names = {plugin.name for plugin in plugins}
    kept = [entry for entry in before.plugin_fingerprints if entry.get("name") not in names]
    fresh = [_fingerprint(plugin, loaded) for plugin in plugins]
    return replace(before, plugin_fingerprints=(*kept, *fresh))


def _compare(before: Seal, name: str, digest: str) -> str:
    if name not in before.hashes:
        return "new"
    return "same" if before.hashes[name] == digest else "changed"


def _fingerprint(plugin: Plugin, loaded: Loaded) -> dict[str, Any]:
    manifest = plugin.directory / MANIFEST_NAME
    own = loaded.settings.plugins.get(plugin.name)
    return {
        "name": plugin.name,
        "enabled": True,
        **({"uses": own.uses} if own and own.uses else {}),
        "manifest_path": str(manifest),
        "manifest_hash": blake3(read_file(manifest.resolve())).hexdigest(),
        "entrypoint_path": str(plugin.entrypoint),
        "entrypoint_hash": hash_executable(plugin.entrypoint).digest.hex(),
        "fingerprint": plugin.fingerprint,
    }


def seal_with_edit(root: Path, edit: FileEdit, *, must_match: bool) -> Seal | None:
    """Return the seal in `root` updated for an edited file, or None if the file is not sealed.

    With `must_match`, raise `Refused` if the file had been changed after it was sealed.
    """
    seal, _ = checksums.read(root)
    sealed = seal.hashes.get(str(edit.file))
    if sealed is None:
        return None
    if must_match and sealed != blake3(edit.before).hexdigest():
        raise Refused(
            f"{edit.file} was changed after it was sealed; review it, then run: "
            f"ductile config lock {quote(str(edit.file))}"
        )
    return replace(seal, hashes={**seal.hashes, str(edit.file): blake3(edit.after).hexdigest()})
