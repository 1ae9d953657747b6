from __future__ import annotations

from tests.engine.conftest import another, make_scheduler, site  # noqa: F401 - fixtures
