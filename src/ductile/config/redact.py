"""The configuration as it may be shown, and its secrets as they may be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from blake3 import blake3

from ductile.config.expand import URL_PASSWORD
from ductile.config.settings import Settings
from ductile.core.redact import REDACTED as REDACTED
from ductile.core.redact import hide_secret_keys, names_a_secret
from ductile.errors import Path, dotted
from ductile.model import Json


def show(settings: Settings) -> dict[str, Json]:
    """`settings` as JSON, by the keys of the files, with every secret replaced."""
    document = settings.model_dump(mode="json", by_alias=True)
    shown = _hide_passwords(hide_secret_keys(document))
    return {**shown, "config_dir": str(settings.config_dir)}


def fingerprints(settings: Settings, key: bytes) -> list[dict[str, str]]:
    """Each secret as `{purpose: <config path>, fingerprint: <keyed BLAKE3>}`.

    `key` has 32 bytes; without it a fingerprint tells nothing, not even a weak secret.
    """
    document = settings.model_dump(mode="json", by_alias=True)
    return [
        {"purpose": dotted(path), "fingerprint": blake3(text.encode(), key=key).hexdigest()}
        for path, text in _secrets(document, ())
    ]


def _hide_passwords(value: Json) -> Any:
    if isinstance(value, str):
        return URL_PASSWORD.sub(rf"\1:{REDACTED}", value)
    if isinstance(value, Mapping):
        return {key: _hide_passwords(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_hide_passwords(item) for item in value]
    return value


def _secrets(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _secrets(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secrets(item, (*path, index))
    elif value is not None:
        name = next((part for part in reversed(path) if isinstance(part, str)), "")
        if names_a_secret(name):
            yield path, str(value)
        elif isinstance(value, str) and (found := URL_PASSWORD.search(value)):
            yield path, found[2]
