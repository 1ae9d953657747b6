"""When a disk counts as almost full."""

from __future__ import annotations

from ductile._fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DiskLimit:
    """The free space below which a disk is almost full: a share of it, or bytes."""

    share: float = 0.0
    size: int = 0

    def is_reached(self, free: int, total: int) -> bool:
        return free < self.size or (total > 0 and free / total < self.share)
