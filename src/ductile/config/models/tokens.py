"""The scopes of each token, from its scope file or its list."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ductile.config.loader.files import Source
from ductile.config.loader.nodes import Locations
from ductile.config.models.http import TokenSettings
from ductile.core.values.scopes import ALIASES, is_scope
from ductile.errors import Path, Problem, Severity

SCOPES = "*, or plugin, jobs, events, system, agents, approvals or a plugin's name, with :ro or :rw"


class Scopes:
    """Resolves scopes and collects the problems found."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        lost: Mapping[str, Problem],
        locations: Locations,
        *,
        strict: bool,
    ) -> None:
        self.problems: list[Problem] = []
        self._sources = sources
        self._lost = lost
        self._locations = locations
        self._mismatch = Severity.ERROR if strict else Severity.WARNING

    def resolve(self, token: TokenSettings, path: Path) -> TokenSettings:
        """`token` with its scopes; with none if its `scopes_hash` does not match."""
        scopes: Iterable[object] = token.scopes
        if token.scopes_file is not None:
            if token.scopes:
                self._refuse(
                    (*path, "scopes"), "scopes and scopes_file cannot both be set; remove one"
                )
            scopes = self._from_file(token, path)
        elif token.scopes_hash is not None:
            self._refuse(
                (*path, "scopes_hash"),
                "scopes_hash is set without scopes_file; set both or neither",
            )
        return token.model_copy(update={"scopes": self.filter_known(scopes, (*path, "scopes"))})

    def filter_known(self, scopes: Iterable[object], path: Path) -> tuple[str, ...]:
        """`scopes` with aliases resolved and without invalid ones, which cause a warning."""
        kept = []
        for scope in scopes:
            if isinstance(scope, str) and is_scope(scope):
                kept.append(ALIASES.get(scope, scope))
            else:
                self._report(
                    path,
                    f"{scope!r} is not a valid scope and grants nothing",
                    Severity.WARNING,
                    SCOPES,
                )
        return tuple(dict.fromkeys(kept))

    def _from_file(self, token: TokenSettings, path: Path) -> Iterable[object]:
        name = str(token.scopes_file)
        source = self._sources.get(name)
        where = (*path, "scopes_hash" if token.scopes_hash else "scopes_file")
        if source is None:
            severity = self._mismatch if token.scopes_hash else Severity.ERROR
            message = self._lost[name].message if name in self._lost else f"{name} cannot be read"
            self._report(where, f"{message}; until then the token has no scopes", severity)
            return ()
        expected = token.scopes_hash or source.digest
        if expected.removeprefix("blake3:").lower() != source.digest:
            self._report(
                where,
                f"{name} does not match its scopes_hash, so the token has no scopes; "
                f"if the file is correct, set scopes_hash to blake3:{source.digest}",
                self._mismatch,
            )
            return ()
        try:
            document = json.loads(source.data)
        except (ValueError, RecursionError):
            document = None
        scopes = document.get("scopes") if isinstance(document, dict) else document
        if not isinstance(scopes, list):
            self._report(
                where,
                f"{source.path} is not a valid scope file",
                Severity.ERROR,
                'JSON: {"scopes": [...]} or a list',
            )
            return ()
        return scopes

    def _refuse(self, path: Path, message: str) -> None:
        self._report(path, message, Severity.ERROR)

    def _report(
        self, path: Path, message: str, severity: Severity, allowed: str | None = None
    ) -> None:
        location = self._locations.locate(path)
        self.problems.append(
            location.problem(message, path=path, severity=severity, allowed=allowed)
        )
