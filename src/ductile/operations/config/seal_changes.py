"""What has changed in the sealed files since they were sealed."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

from ductile.config import checksums, create_seal, find_state
from ductile.config.edit.editor import FileEdit
from ductile.config.loader.secrets import KnownSecrets
from ductile.config.sealed_text import describe_lines, find_changed_lines, read_text
from ductile.core.values.redact import Redactor
from ductile.errors import ConfigError
from ductile.operations.config.edit import find_known_secrets


def describe_changes(path: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return what has changed in each file since it was sealed, as a difference without secrets.

    The manifests and programs of sealed plugins are included. Files whose sealed text was not kept
    are left out.
    """
    seal, _ = checksums.read(path.parent)
    state = find_state(path, environ=environ)
    if state is None:
        return {}
    known, found = find_known_secrets(path, environ), {}
    present = create_seal(path).hashes
    for name, sealed in {**seal.plugin_hashes, **seal.hashes}.items():
        if present.get(name) == sealed or not Path(name).is_file():
            continue
        before, after = read_text(state.dir, sealed), Path(name).read_bytes()
        if before is not None and before != after:
            found[name] = _describe_change(FileEdit((), Path(name), before, after), known)
    return found


def _describe_change(edit: FileEdit, known: KnownSecrets) -> str:
    lines = describe_lines(find_changed_lines(edit.before, edit.after))
    try:
        if edit.file.suffix not in (".yaml", ".yml", ".json"):
            raise ValueError("a file that is not YAML or JSON may be a secret as a whole")
        before, after = (text.splitlines() for text in edit.redacted(known))
    except (ConfigError, ValueError):
        return f"{edit.file}: {lines} changed"
    name = str(edit.file)
    difference = list(unified_diff(before, after, f"{name} (sealed)", name, n=1, lineterm=""))
    shown = Redactor(known.long_values).text("\n".join(difference))
    return shown or f"{edit.file}: only a secret changed, in {lines}"
