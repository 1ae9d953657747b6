"""The noun `system` with all its actions; importing a module registers its commands."""

from __future__ import annotations

from ductile.cli.commands.system import backup, doctor, facts, import_go, watch
from ductile.cli.commands.system.gateway import system

__all__ = ["backup", "doctor", "facts", "import_go", "system", "watch"]
