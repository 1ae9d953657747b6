"""The grammar of pipelines, by shape."""

from __future__ import annotations

import pytest

from ductile.config.models.pipeline import PipelineSettings
from tests.config.conftest import Home, only

PIPELINE = """
pipelines:
  - name: wisdom-chain
    on: discord.video_link_received
    from_plugin: discord
    if: {all: [{path: payload.n, op: gt, value: 3}]}
    max_depth: 0
    execution_mode: synchronous
    timeout: 3m
    workspace: true
    steps:
      - id: downloader
        uses: yt-dlp-plugin.fetch
        with: {message: "{payload.stdout}", n: 3}
        baggage: {web.url: payload.url}
        on_events:
          validation_failed: [error-notifier]
      - call: standard-audio-wisdom
      - id: delivery
        join: always
        split:
          - uses: discord-notifier
          - steps:
              - uses: s3-archiver
              - relay: {to: lab, event: backup.ready, dedupe_key: payload.id, with: {a: payload.a}}
"""


@pytest.fixture
def pipeline(home: Home) -> PipelineSettings:
    return home.load(PIPELINE).settings.pipelines[0]


def test_everything_of_a_pipeline(pipeline: PipelineSettings) -> None:
    assert (pipeline.name, pipeline.on, pipeline.on_hook) == (
        "wisdom-chain",
        "discord.video_link_received",
        None,
    )
    assert (pipeline.execution_mode, pipeline.timeout, pipeline.max_depth) == (
        "synchronous",
        180,
        0,
    )
    assert (pipeline.from_plugin, pipeline.workspace) == ("discord", True)
    assert pipeline.if_ == {"all": [{"path": "payload.n", "op": "gt", "value": 3}]}


def test_everything_of_a_step(pipeline: PipelineSettings) -> None:
    step = pipeline.steps[0]
    assert (step.id, step.uses) == ("downloader", "yt-dlp-plugin.fetch")
    assert step.with_ == {"message": "{payload.stdout}", "n": 3}
    assert step.baggage == {"web.url": "payload.url"}
    assert step.on_events == {"validation_failed": ("error-notifier",)}


def test_steps_nest(pipeline: PipelineSettings) -> None:
    split = pipeline.steps[2].split
    assert split is not None
    assert pipeline.steps[2].join == "always"
    assert split[1].steps is not None
    relay = split[1].steps[1].relay
    assert relay is not None
    assert (relay.to, relay.event, relay.with_) == ("lab", "backup.ready", {"a": "payload.a"})


def test_on_is_a_key_and_no_boolean(home: Home) -> None:
    assert (
        home.load("pipelines: [{name: a, on: on, steps: [{uses: p}]}]").settings.pipelines[0].on
        == "on"
    )


def test_a_hook_pipeline(home: Home) -> None:
    text = "pipelines: [{name: a, on-hook: job.failed, steps: [{uses: p}]}]"
    assert home.load(text).settings.pipelines[0].on_hook == "job.failed"


@pytest.mark.parametrize("trigger", ["max_depth: 1", "on: a, on-hook: job.failed"])
def test_exactly_one_trigger(home: Home, trigger: str) -> None:
    problem = only(home.refused(f"pipelines: [{{name: a, {trigger}, steps: [{{uses: p}}]}}]"))
    assert "exactly one of on, on-hook" in problem.message


@pytest.mark.parametrize(
    "step", ["{id: x}", "{uses: a, call: b}", "{split: [{uses: a}], steps: [{uses: a}]}"]
)
def test_exactly_one_kind(home: Home, step: str) -> None:
    problem = only(home.refused(f"pipelines: [{{name: a, on: e, steps: [{step}]}}]"))
    assert "exactly one of uses, call, steps, split, relay" in problem.message


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("[]", "steps must not be empty"),
        ("[{split: []}]", "split must not be empty"),
        ("[{uses: a, join: always}]", "join belongs to a split"),
        ("[{uses: a, on_events: {x: y}}]", "must be a list"),
        ("[{uses: a, with: text}]", "must be a mapping"),
        ("[x]", "must be a mapping"),
        ("[{relay: {to: a}}]", "missing key 'event'"),
    ],
)
def test_what_is_no_step(home: Home, steps: str, message: str) -> None:
    assert message in only(home.refused(f"pipelines: [{{name: a, on: e, steps: {steps}}}]")).message


def test_an_unknown_hook_is_refused(home: Home) -> None:
    problem = only(home.refused("pipelines: [{name: a, on-hook: job.fail, steps: [{uses: p}]}]"))
    assert problem.nearest == "job.failed"


def test_a_name_may_occur_once_over_all_files(home: Home) -> None:
    text = "pipelines: [{name: a, on: e, steps: [{uses: p}]}]"
    problem = only(home.refused({"config.yaml": f"include: [b.yaml]\n{text}", "b.yaml": text}))
    assert "already taken" in problem.message
    assert "config.yaml:2" in problem.message
    assert (problem.file or "").endswith("b.yaml")


def test_the_compiler_can_locate_a_step(home: Home) -> None:
    loaded = home.load(PIPELINE)
    path = ("pipelines", 0, "steps", 2, "split", 1, "steps", 0, "uses")
    line = loaded.locate(path)[1]
    assert PIPELINE.splitlines()[line - 1].strip() == "- uses: s3-archiver"


def test_a_pipeline_without_end_of_nesting_is_refused(home: Home) -> None:
    text = "{steps: [" * 60 + "{uses: p}" + "]}" * 60
    assert (
        "nested too deeply"
        in only(home.refused(f"pipelines: [{{name: a, on: e, steps: [{text}]}}]")).message
    )
