"""Names are keys in the ledger, so their length is limited."""

from __future__ import annotations

from tests.config.conftest import ConfigDir

PLUGIN = "plugins:\n  echo:\n    schedules:\n      - {{every: 5m, id: {id}, command: {command}}}\n"
WIDE = """
instances: [{{name: {n}, base_url: 'https://lab.example', ingress_path: /p, secret: {secret}}}]
remote_ingress: {{peers: [{{name: {n}, secret: {secret}}}]}}
webhooks: {{endpoints: [{{path: /{n}, plugin: echo, secret: {secret}}}]}}
pipelines: [{{name: {n}, on: go, steps: [{{uses: echo}}]}}]
"""
LONG = "€" * 85
"""255 bytes."""


def test_names_of_255_bytes_are_accepted(config_dir: ConfigDir) -> None:
    config_dir.load(
        PLUGIN.format(id=LONG, command=LONG) + WIDE.format(n="n" * 254, secret="s" * 16)
    )


def test_longer_names_are_reported_with_their_locations(config_dir: ConfigDir) -> None:
    text = PLUGIN.format(id=LONG + "x", command=LONG + "x")
    problems = config_dir.load_errors(text + WIDE.format(n="n" * 256, secret="s" * 16))
    assert {problem.path for problem in problems} == {
        ("plugins", "echo", "schedules", 0, "id"),
        ("plugins", "echo", "schedules", 0, "command"),
        ("instances", 0, "name"),
        ("remote_ingress", "peers", 0, "name"),
        ("webhooks", "endpoints", 0, "path"),
        ("pipelines", 0, "name"),
    }
    assert {problem.found for problem in problems} == {"256 bytes", "257 bytes"}
    assert all(problem.line for problem in problems)
