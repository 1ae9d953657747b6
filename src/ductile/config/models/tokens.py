"""What each token may do: its scopes from file or list, its key for those who refer to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from ductile.config.loader.files import Source
from ductile.config.loader.locate import Places
from ductile.config.models.http import TokenSettings
from ductile.core.values.scopes import ALIASES, is_scope
from ductile.errors import Path, Problem, Severity

SCOPES = "*, plugin jobs events system agents or a plugin's name with :ro or :rw"


class Scopes:
    """Resolves scopes, and gathers what is wrong with them."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        lost: Mapping[str, Problem],
        places: Places,
        *,
        strict: bool,
    ) -> None:
        self.problems: list[Problem] = []
        self._sources = sources
        self._lost = lost
        self._places = places
        self._mismatch = Severity.ERROR if strict else Severity.WARNING

    def resolve(self, token: TokenSettings, path: Path) -> TokenSettings:
        """`token` with the scopes it has; a broken `scopes_hash` leaves it with none."""
        scopes: Iterable[object] = token.scopes
        if token.scopes_file is not None:
            if token.scopes:
                self._refuse((*path, "scopes"), "scopes and scopes_file exclude each other")
            scopes = self._from_file(token, path)
        elif token.scopes_hash is not None:
            self._refuse((*path, "scopes_hash"), "scopes_hash needs a scopes_file")
        return token.model_copy(update={"scopes": self.known(scopes, (*path, "scopes"))})

    def known(self, scopes: Iterable[object], path: Path) -> tuple[str, ...]:
        """`scopes` by their one name, without those that no route asks for."""
        kept = []
        for scope in scopes:
            if isinstance(scope, str) and is_scope(scope):
                kept.append(ALIASES.get(scope, scope))
            else:
                self._say(
                    path, f"{scope!r} is no scope and allows nothing", Severity.WARNING, SCOPES
                )
        return tuple(dict.fromkeys(kept))

    def _from_file(self, token: TokenSettings, path: Path) -> Iterable[object]:
        name = str(token.scopes_file)
        source = self._sources.get(name)
        where = (*path, "scopes_hash" if token.scopes_hash else "scopes_file")
        if source is None:
            severity = self._mismatch if token.scopes_hash else Severity.ERROR
            message = self._lost[name].message if name in self._lost else f"cannot read {name}"
            self._say(where, f"{message}; the token has no scopes", severity)
            return ()
        expected = token.scopes_hash or source.digest
        if expected.removeprefix("blake3:").lower() != source.digest:
            self._say(
                where,
                f"{name} does not match its scopes_hash; the token has no scopes. "
                f"If the file is as it should be, its hash is blake3:{source.digest}",
                self._mismatch,
            )
            return ()
        try:
            document = json.loads(source.data)
        except (ValueError, RecursionError):
            document = None
        scopes = document.get("scopes") if isinstance(document, dict) else document
        if not isinstance(scopes, list):
            self._say(
                where,
                f"{source.path} is no scope file",
                Severity.ERROR,
                '{"scopes": [...]} or a list, as JSON',
            )
            return ()
        return scopes

    def _refuse(self, path: Path, message: str) -> None:
        self._say(path, message, Severity.ERROR)

    def _say(
        self, path: Path, message: str, severity: Severity, allowed: str | None = None
    ) -> None:
        place = self._places.locate(path)
        self.problems.append(place.problem(message, path=path, severity=severity, allowed=allowed))
