"""Redact secrets in settings and problems, and fingerprint them for comparison."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from blake3 import blake3

from ductile.config.loader.secrets import KnownSecrets, hide_url_secrets
from ductile.config.models.settings import Settings
from ductile.core.values.redact import REDACTED, Redactor
from ductile.errors import Path, Problem, dotted
from ductile.model import Json


def redact_settings(settings: Settings) -> dict[str, Json]:
    """`settings` as a JSON document in the notation of the files, with secrets replaced."""
    hidden = _hide_secrets(settings.to_document(), (), settings.known_secrets)
    document = Redactor(settings.secrets).document(hidden)
    return {**_hide_url_secrets(document), "config_dir": str(settings.config_dir)}


def redact_problems(problems: Iterable[Problem], secrets: Iterable[str]) -> list[Problem]:
    """The same problems with every secret in their texts replaced."""
    redactor = Redactor(secrets)
    return [
        replace(
            problem,
            message=redactor.text(problem.message),
            path=tuple(redactor.text(p) if isinstance(p, str) else p for p in problem.path),
            found=redactor.optional_text(problem.found),
            allowed=redactor.optional_text(problem.allowed),
            nearest=redactor.optional_text(problem.nearest),
        )
        for problem in problems
    ]


def fingerprint_secrets(settings: Settings, key: bytes) -> list[dict[str, str]]:
    """A `{purpose: <config path>, fingerprint: <keyed BLAKE3>}` for each redacted scalar.

    `key` has 32 bytes; without it even a weak secret cannot be guessed from its fingerprint.
    """
    document = settings.model_dump(mode="json", by_alias=True)
    redactor, known = Redactor(settings.secrets), settings.known_secrets
    return [
        {"purpose": dotted(path), "fingerprint": blake3(text.encode(), key=key).hexdigest()}
        for path, text in _scalars(document, ())
        if known.is_secret(path) or hide_url_secrets(redactor.text(text)) != text
    ]


def _hide_secrets(value: Json, path: Path, known: KnownSecrets) -> Json:
    if isinstance(value, Mapping):
        return {key: _hide_secrets(item, (*path, key), known) for key, item in value.items()}
    if isinstance(value, list):
        return [_hide_secrets(item, (*path, index), known) for index, item in enumerate(value)]
    return REDACTED if value is not None and known.is_secret(path) else value


def _hide_url_secrets(value: Json) -> Any:
    if isinstance(value, str):
        return hide_url_secrets(value)
    if isinstance(value, Mapping):
        return {key: _hide_url_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_hide_url_secrets(item) for item in value]
    return value


def _scalars(value: Json, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _scalars(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _scalars(item, (*path, index))
    elif value is not None:
        yield path, str(value)
