"""Keys accept exactly the words that the core supports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from ductile.config.models.http import EndpointSettings
from ductile.config.models.pipeline import KINDS, PipelineSettings
from ductile.config.models.schedule import ScheduleSettings
from ductile.core.delivery.signatures import PROVIDERS
from ductile.core.pipelines.compiler.parse import StepKind
from ductile.core.pipelines.hooks import HOOKS, RUN_HOOKS
from ductile.core.pipelines.pipeline import MODES
from ductile.core.schedules.decide import CatchUp, IfRunning


def words_of(annotation: Any) -> Iterator[str]:
    for part in get_args(annotation):
        if get_origin(annotation) is Literal:
            yield part
        else:
            yield from words_of(part)


@pytest.mark.parametrize(
    ("section", "key", "known"),
    [
        (PipelineSettings, "on_hook", HOOKS),
        (PipelineSettings, "execution_mode", MODES),
        (ScheduleSettings, "catch_up", CatchUp),
        (ScheduleSettings, "if_running", IfRunning),
        (EndpointSettings, "provider", PROVIDERS),
    ],
)
def test_words_of_a_key_are_those_of_the_core(
    section: type[BaseModel], key: str, known: Iterable[str]
) -> None:
    assert set(words_of(section.model_fields[key].annotation)) == set(known)


def test_lists_for_the_end_of_a_run_are_those_of_the_core() -> None:
    assert set(RUN_HOOKS) <= set(PipelineSettings.model_fields)


def test_kinds_of_steps_are_those_of_the_core() -> None:
    assert tuple(StepKind) == KINDS
