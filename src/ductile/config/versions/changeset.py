"""The replacement of a configuration's files by others, checked before it is written."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from shlex import quote

from blake3 import blake3

from ductile._fast_dataclass import dataclass
from ductile.config import checksums
from ductile.config.checksums import FILE, Seal
from ductile.config.load import Loaded, load
from ductile.config.loader.files import Drafts
from ductile.config.loader.include import gather
from ductile.config.versions.copies import KeptFile
from ductile.config.versions.journal import FileReplacement, replace_files
from ductile.errors import Refused


@dataclass(frozen=True, slots=True)
class Changeset:
    """What to write so that the configuration consists of certain files."""

    root: Path
    files: tuple[FileReplacement, ...]
    """Only those that differ."""
    drafts: Drafts
    """The same for `load`."""
    seal: Seal | None
    """The seal with the hashes of the new files; None without a seal."""
    seal_file: FileReplacement | None
    """The replacement of the seal, if it changes."""

    @property
    def rows(self) -> list[dict[str, str | None]]:
        """Each file, what happens to it, and where a file that is moved away goes."""
        return [
            {
                "file": str(file.path),
                "change": _name_change(file),
                "moved_to": None if file.moved_to is None else str(file.moved_to),
            }
            for file in self.files
        ]

    @property
    def changes_seal(self) -> bool:
        return self.seal_file is not None

    def write(self) -> None:
        """Write all files, and the seal with them; `Refused` if one has changed meanwhile."""
        seal = () if self.seal_file is None else (self.seal_file,)
        replace_files(self.root, (*self.files, *seal))


def load_changed(config: Path, environ: Mapping[str, str], changeset: Changeset | None) -> Loaded:
    """`load` the files as they are, or as a changeset would make them."""
    if changeset is None:
        return load(config, environ=environ)
    seal = changeset.seal or True
    return load(config, environ=environ, seal=seal, drafts=changeset.drafts)


def _name_change(file: FileReplacement) -> str:
    if file.after is None:
        return "moved away"
    return "created" if file.before is None else "replaced"


def compare_files(
    config: Path, wanted: Mapping[Path, KeptFile], kept: Mapping[Path, str], now: datetime
) -> Changeset:
    """What makes the configuration consist of the `wanted` files; `config` is its config.yaml.

    Nothing is lost: a file that an include of a directory would read as well is moved away, and the
    content of a file that is replaced is saved next to it, unless `kept`, the hashes of the files
    of which there are copies, has it. Raises `Refused` for a file that was changed after it was
    sealed.
    """
    found = {path: _read(path) for path in wanted}
    drafts: dict[Path, bytes | None] = {
        path: file.data for path, file in wanted.items() if found[path] != file.data
    }
    others = gather(config, None, drafts).listed - wanted.keys()
    found |= {path: _read(path) for path in others}
    drafts |= dict.fromkeys(others)
    # Read first: a seal that is written meanwhile refuses the replacement.
    sealed = _read(config.parent / FILE)
    seal, _ = checksums.read(config.parent)
    replaced = {p: _replacement(p, found[p], wanted.get(p), now) for p in sorted(drafts)}
    saved = [
        _save(file, now)
        for path, file in replaced.items()
        if file.after is not None and _hash(file.before) not in (None, kept.get(path))
    ]
    files = (*replaced.values(), *saved)
    if not seal.exists:
        return Changeset(config.parent, files, drafts, None, None)
    renewed, seal_file = _renew(seal, found, drafts), None
    if renewed.hashes != seal.hashes:
        seal_file = FileReplacement(renewed.path.resolve(), sealed, renewed.render(now))
    return Changeset(config.parent, files, drafts, renewed, seal_file)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from error


def _hash(data: bytes | None) -> str | None:
    return None if data is None else blake3(data).hexdigest()


def _save(file: FileReplacement, now: datetime) -> FileReplacement:
    """A new file with the present content, mode and owner of one that is replaced."""
    found = file.path.stat()
    mode, owner = stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)
    return FileReplacement(_name_away(file.path, now), None, file.before, mode, owner)


def _name_away(real: Path, now: datetime) -> Path:
    return real.with_name(f"{real.name}.replaced-{now:%Y%m%dT%H%M%S%f}")


def _replacement(
    path: Path, before: bytes | None, wanted: KeptFile | None, now: datetime
) -> FileReplacement:
    real = path.resolve()
    if wanted is None:
        return FileReplacement(real, before, None, moved_to=_name_away(real, now))
    return FileReplacement(real, before, wanted.data, wanted.mode, wanted.owner)


def _renew(seal: Seal, found: Mapping[Path, bytes | None], drafts: Drafts) -> Seal:
    hashes = dict(seal.hashes)
    for path, data in drafts.items():
        sealed, before = hashes.pop(str(path), None), found[path]
        if sealed is None and before is not None:
            # The operator has left it out of the seal.
            continue
        if sealed is not None and before is not None and sealed != blake3(before).hexdigest():
            raise Refused(
                f"{path} was changed after it was sealed; review it, then run: "
                f"ductile config lock {quote(str(path))}"
            )
        if data is not None:
            hashes[str(path)] = blake3(data).hexdigest()
    return replace(seal, path=seal.path.parent / FILE, hashes=hashes)
