from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ductile.model import Launch, Outcome, WarmStart
from ductile.runner.client import SlotClient
from ductile.runner.pool import RunnerPool
from ductile.runner.warm.zygote_pool import ZygotePool
from tests.runner.processes import Plugins

LINE = f"#!{sys.executable}"


class Zygotes:
    """Writes Python plugins, and starts zygotes for them."""

    def __init__(self, pool: RunnerPool, plugins: Plugins) -> None:
        self.pool, self.plugins = pool, plugins
        self.started: list[ZygotePool] = []

    def script(self, text: str, name: str = "plugin.py") -> str:
        return self.plugins.script(f"{LINE}\n{text}", name)

    def warm(self, path: str, *preload: str, command: tuple[str, ...] = ()) -> WarmStart:
        command = command or (sys.executable,)
        return WarmStart("p", path, command, path, LINE, preload, self.plugins.env)

    def start(self, path: str, *preload: str, command: tuple[str, ...] = ()) -> ZygotePool:
        zygote = ZygotePool(self.pool, self.warm(path, *preload, command=command))
        self.started.append(zygote)
        zygote.start()
        return zygote

    def slot(self, path: str, *preload: str) -> SlotClient:
        slot = self.start(path, *preload).fork_slot()
        assert slot is not None
        return slot

    def launch(self, path: str, **more: Any) -> Launch:
        return self.plugins.launch(path, **more)

    def both(self, text: str, *preload: str, **more: Any) -> tuple[Outcome, Outcome]:
        """The outcomes of a cold and a warm start of the same plugin."""
        path = self.script(text)
        launch = self.launch(path, **more)
        return self.pool.slot(0).run(launch), self.slot(path, *preload).run(launch)


@pytest.fixture
def zygotes(pool: RunnerPool, plugins: Plugins) -> Iterator[Zygotes]:
    made = Zygotes(pool, plugins)
    yield made
    for zygote in made.started:
        zygote.stop()


Both = Callable[..., tuple[Outcome, Outcome]]
