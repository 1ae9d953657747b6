"""The noun `system` with all its actions, of which each kind stands in a file of its own."""

from __future__ import annotations

from ductile.cli import backup, doctor, facts, inherit, relays, watch
from ductile.cli.system import system

__all__ = ["backup", "doctor", "facts", "inherit", "relays", "system", "watch"]
