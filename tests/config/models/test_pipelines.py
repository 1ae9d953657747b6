"""Settings of pipelines and steps."""

from __future__ import annotations

import pytest

from ductile.config.models.pipeline import PipelineSettings
from tests.config.conftest import ConfigDir, only

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
def pipeline(config_dir: ConfigDir) -> PipelineSettings:
    return config_dir.load(PIPELINE).settings.pipelines[0]


def test_every_key_of_a_pipeline(pipeline: PipelineSettings) -> None:
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


def test_every_key_of_a_step(pipeline: PipelineSettings) -> None:
    step = pipeline.steps[0]
    assert (step.id, step.uses) == ("downloader", "yt-dlp-plugin.fetch")
    assert step.with_ == {"message": "{payload.stdout}", "n": 3}
    assert step.baggage == {"web.url": "payload.url"}
    assert step.on_events == {"validation_failed": ("error-notifier",)}


def test_nested_steps(pipeline: PipelineSettings) -> None:
    split = pipeline.steps[2].split
    assert split is not None
    assert pipeline.steps[2].join == "always"
    assert split[1].steps is not None
    relay = split[1].steps[1].relay
    assert relay is not None
    assert (relay.to, relay.event, relay.with_) == ("lab", "backup.ready", {"a": "payload.a"})


def test_on_is_text_and_not_a_boolean(config_dir: ConfigDir) -> None:
    assert (
        config_dir.load("pipelines: [{name: a, on: on, steps: [{uses: p}]}]")
        .settings.pipelines[0]
        .on
        == "on"
    )


def test_on_hook(config_dir: ConfigDir) -> None:
    text = "pipelines: [{name: a, on-hook: job.failed, steps: [{uses: p}]}]"
    assert config_dir.load(text).settings.pipelines[0].on_hook == "job.failed"


@pytest.mark.parametrize("key", ["on_failure", "on_success", "always"])
def test_steps_for_the_end_of_a_run(config_dir: ConfigDir, key: str) -> None:
    text = "pipelines: [{{name: a, on: e, steps: [{{uses: p}}], {}: [{}]}}]"
    [pipeline] = config_dir.load(text.format(key, "{uses: n, with: {x: 1}}")).settings.pipelines
    [step] = getattr(pipeline, key)
    assert (step.uses, step.with_) == ("n", {"x": 1})
    problem = only(config_dir.load_errors(text.format(key, "")))
    assert f"{key} must not be empty" in problem.message


@pytest.mark.parametrize("trigger", ["max_depth: 1", "on: a, on-hook: job.failed"])
def test_pipeline_has_exactly_one_trigger(config_dir: ConfigDir, trigger: str) -> None:
    problem = only(
        config_dir.load_errors(f"pipelines: [{{name: a, {trigger}, steps: [{{uses: p}}]}}]")
    )
    assert "exactly one of on and on-hook" in problem.message


@pytest.mark.parametrize(
    "step", ["{id: x}", "{uses: a, call: b}", "{split: [{uses: a}], steps: [{uses: a}]}"]
)
def test_step_has_exactly_one_kind(config_dir: ConfigDir, step: str) -> None:
    problem = only(config_dir.load_errors(f"pipelines: [{{name: a, on: e, steps: [{step}]}}]"))
    assert "exactly one of uses, call, steps, split, relay" in problem.message


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ("[]", "steps must not be empty"),
        ("[{split: []}]", "split must not be empty"),
        ("[{uses: a, join: always}]", "join is only valid with split"),
        ("[{uses: a, on_events: {x: y}}]", "must be a list"),
        ("[{uses: a, with: text}]", "must be a mapping"),
        ("[x]", "must be a mapping"),
        ("[{relay: {to: a}}]", "missing key 'event'"),
    ],
)
def test_invalid_steps_are_rejected(config_dir: ConfigDir, steps: str, message: str) -> None:
    assert (
        message
        in only(config_dir.load_errors(f"pipelines: [{{name: a, on: e, steps: {steps}}}]")).message
    )


def test_unknown_hook_is_rejected(config_dir: ConfigDir) -> None:
    problem = only(
        config_dir.load_errors("pipelines: [{name: a, on-hook: job.fail, steps: [{uses: p}]}]")
    )
    assert problem.nearest == "job.failed"


def test_pipeline_name_is_unique_across_files(config_dir: ConfigDir) -> None:
    text = "pipelines: [{name: a, on: e, steps: [{uses: p}]}]"
    problem = only(
        config_dir.load_errors({"config.yaml": f"include: [b.yaml]\n{text}", "b.yaml": text})
    )
    assert "already used" in problem.message
    assert "config.yaml:2" in problem.message
    assert (problem.file or "").endswith("b.yaml")


def test_step_can_be_located(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(PIPELINE)
    path = ("pipelines", 0, "steps", 2, "split", 1, "steps", 0, "uses")
    line = loaded.locate(path)[1]
    assert PIPELINE.splitlines()[line - 1].strip() == "- uses: s3-archiver"


def test_nesting_of_steps_is_limited(config_dir: ConfigDir) -> None:
    text = "{steps: [" * 60 + "{uses: p}" + "]}" * 60
    assert (
        "nested too deeply"
        in only(config_dir.load_errors(f"pipelines: [{{name: a, on: e, steps: [{text}]}}]")).message
    )
