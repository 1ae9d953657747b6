"""What the checks work with: the configuration, the ledger, and the gateway if one answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import Any

from ductile.config import Loaded, Settings, find_state, load
from ductile.config.models.service import StateSettings
from ductile.core.jobs.sandbox import ENFORCE
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.instance_lock import LockHolder, find_holder
from ductile.errors import ConfigError, DuctileError, NotFound, Problem
from ductile.operations.restore import is_ledger
from ductile.store.engines.api import Ledger
from ductile.store.engines.migrate import compare_history
from ductile.store.engines.open import open_ledger
from ductile.store.verify import applied_migrations


def exists(path: Path) -> bool:
    """Whether the file exists and this user may see it."""
    try:
        return path.exists()
    except OSError:
        return False


Ask = Callable[[str], Mapping[str, Any]]
"""A GET to the running gateway; `DuctileError` if it does not answer."""


@dataclass
class DoctorContext:
    config: Path | None
    """As given by the caller; None to search the default places."""
    environ: Mapping[str, str]
    now: datetime
    ask: Ask | None = None
    """Set if a gateway listens on its socket."""
    ask_at: Callable[[Path], Ask] | None = None
    """Asks the gateway of another state directory."""
    problems: list[Problem] = field(default_factory=list)
    """Why the configuration does not load."""
    unsealed: bool = False
    """Whether its only problem is its checksums."""
    no_ledger: str | None = None
    """Why the ledger cannot be read."""

    def command(self, line: str) -> str:
        """A `ductile` command line for the same configuration."""
        return self.add_options(f"ductile {line}")

    def add_options(self, line: str) -> str:
        """The command line with the options of this configuration, as far as it is of `ductile`."""
        options = f" --config {quote(str(self.config))}" if self.config else ""
        parts = line.split(" && ")
        return " && ".join(part + options * part.startswith("ductile ") for part in parts)

    @cached_property
    def loaded(self) -> Loaded | None:
        try:
            return load(self.config, environ=self.environ, secrets=False)
        except ConfigError as error:
            self.problems = list(error.problems)
        try:
            loaded = load(self.config, environ=self.environ, seal=False, secrets=False)
        except ConfigError:
            return None
        self.unsealed = True
        return loaded

    @property
    def config_dir(self) -> Path | None:
        return None if self.settings is None else self.settings.config_dir

    @property
    def settings(self) -> Settings | None:
        return None if self.loaded is None else self.loaded.settings

    @cached_property
    def state(self) -> StateSettings | None:
        """Where the gateway keeps its state; often known of an invalid configuration too."""
        if self.settings is not None:
            return self.settings.state
        return find_state(self.config, environ=self.environ)

    @property
    def state_dir(self) -> Path | None:
        return None if self.state is None else self.state.dir

    @cached_property
    def compiled(self) -> CompiledConfig | None:
        if self.loaded is None:
            return None
        try:
            return build(self.loaded, boot_marker="", environ=self.environ)
        except ConfigError as error:
            self.problems += error.problems
            return None

    @cached_property
    def holder(self) -> LockHolder | None:
        """The process that holds the lock of the state directory."""
        return None if self.state_dir is None else find_holder(self.state_dir)

    @property
    def pid(self) -> int | None:
        return None if self.holder is None else self.holder.pid

    @property
    def is_locked(self) -> bool:
        return self.holder is not None

    def health(self) -> Mapping[str, Any]:
        """The body of `/healthz`, also of a gateway that reports an error."""
        assert self.ask is not None
        try:
            return self.ask("/healthz")
        except DuctileError as failure:
            if failure.details.get("status") != "error":
                raise
            return {**failure.details, "error": failure.message}

    @property
    def unready(self) -> Mapping[str, str]:
        """Plugins of the running gateway that wait for their `init`."""
        return {
            name: reason
            for name, reason in self._in_state("unhealthy").items()
            if name not in self._unconfined
        }

    @property
    def _unconfined(self) -> Set[str]:
        """Plugins that do not run because the kernel does not hold their sandbox."""
        rows = {row["name"]: row.get("sandbox") or {} for row in self._plugins}
        return {
            name
            for name, sandbox in rows.items()
            if sandbox.get("level") == ENFORCE and sandbox.get("not_held")
        }

    @property
    def refused(self) -> Mapping[str, str]:
        """Plugins that the running gateway refuses, whatever is on disk now."""
        return self._in_state("refused")

    @property
    def cold(self) -> Mapping[str, str]:
        """Plugins of the running gateway that cannot be started warm as they are to be."""
        rows = {row["name"]: row.get("start") or {} for row in self._plugins}
        return {
            name: start["reason"] for name, start in rows.items() if start.get("mode") == "cold"
        }

    def _in_state(self, state: str) -> Mapping[str, str]:
        return {row["name"]: row["reason"] or "" for row in self._plugins if row["state"] == state}

    @cached_property
    def _plugins(self) -> Sequence[Mapping[str, Any]]:
        rows: Sequence[Mapping[str, Any]] = (
            [] if self.ask is None else self.ask("/plugins")["plugins"]
        )
        return rows

    @cached_property
    def ledger(self) -> Ledger | None:
        """Read-only; None, with the reason in `no_ledger`, if it cannot be read."""
        state, ledger = self.state, None
        if state is None:
            return None
        try:
            ledger = open_ledger(path=state.path, url=state.url, read_only=True)
            if state.url is not None and not ledger.read(is_ledger):
                # Like a file that does not exist yet: the first start creates the tables.
                ledger.close()
                return None
            ledger.read(applied_migrations)
        except NotFound:
            return None
        except DuctileError as error:
            self.no_ledger = error.message
        except Exception as error:  # noqa: BLE001 - any error of an engine is reported
            self.no_ledger = str(error)
        if self.no_ledger is None:
            return ledger
        if ledger is not None:
            ledger.close()
        return None

    @cached_property
    def behind(self) -> int:
        """The number of missing migrations; below 0 if the ledger is of a newer version."""
        if self.ledger is None:
            return 0
        history = compare_history(self.ledger.read(applied_migrations), self.ledger.engine)
        return -1 if history.foreign else len(history.pending)

    @property
    def rows(self) -> Ledger | None:
        """The ledger, if its tables are those of this version."""
        return self.ledger if self.behind == 0 else None

    def close(self) -> None:
        if "ledger" in self.__dict__ and self.ledger is not None:
            self.ledger.close()
