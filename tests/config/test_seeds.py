"""Two complete example configurations load as documented."""

from __future__ import annotations

from tests.config.conftest import ConfigDir

SENECHAL = """
service:
  name: senechal-gw
  tick_interval: 60s           # scheduler tick frequency
  log_level: info              # debug | info | warn | error
  log_format: json
  dedupe_ttl: 24h              # deduplication window
  job_log_retention: 30d       # prune completed jobs older than this

state:
  path: ./data/state.db

plugins_dir: ./plugins

plugins:
  withings:
    enabled: true
    schedule:
      every: 6h
      jitter: 30m
      preferred_window:
        start: "06:00"
        end: "22:00"
    config:
      client_id: ${WITHINGS_CLIENT_ID}
      client_secret: ${WITHINGS_CLIENT_SECRET}
    retry:
      max_attempts: 4          # default: 4 (1 original + 3 retries)
      backoff_base: 30s        # default: 30s
    timeouts:
      poll: 60s                # default: 60s
      handle: 120s             # default: 120s
    circuit_breaker:
      threshold: 3             # default: 3 consecutive failures
      reset_after: 30m         # default: 30m
    max_outstanding_polls: 1   # default: 1

  google-calendar:
    enabled: true
    schedule:
      every: 15m
      jitter: 3m
    config:
      credentials_file: ${GOOGLE_CREDS_PATH}

webhooks:
  listen: 127.0.0.1:8081
  endpoints:
    - path: /hook/github
      plugin: github-handler
      secret: ${GITHUB_WEBHOOK_SECRET}
      signature_header: X-Hub-Signature-256
      max_body_size: 1MB

routes:
  - from: withings
    event_type: new_health_data
    to: health-analyzer

  - from: health-analyzer
    event_type: alert
    to: notify
"""

DUCTILE = {
    "config.yaml": """
include: [tokens.yaml, webhooks.yaml, pipelines/]
service: {max_workers: 4, strict_mode: true}
plugin_roots: [/opt/ductile/plugins, /opt/ductile/plugins-private]
plugins:
  withings:
    schedules:
      - id: hourly
        every: 1h
        command: poll
        payload:
          source: heartbeat
api:
  enabled: true
  listen: "localhost:8080"
  auth:
    tokens:
      - token: ${ADMIN_API_TOKEN}
        scopes: ["*"]
""",
    "tokens.yaml": """
tokens:
  - name: github-integration
    key: ${GITHUB_API_KEY}
    scopes_file: scopes/github-integration.json
  - name: github_webhook_secret
    key: ${GITHUB_WEBHOOK_SECRET}
""",
    "scopes/github-integration.json": """
{"scopes": ["read:jobs", "read:events", "github-handler:rw", "withings:ro"]}
""",
    "webhooks.yaml": """
webhooks:
  - name: github
    path: /webhook/github
    plugin: github-handler
    secret_ref: github_webhook_secret
    signature_header: X-Hub-Signature-256
""",
    "pipelines/youtube.yaml": """
pipelines:
  - name: youtube-summary
    on: discord.command.youtube    # Trigger event type
    execution_mode: synchronous     # Optional: async | synchronous
    timeout: 3m                    # Optional: duration (default 30s)
    steps:
      - id: download               # Optional
        uses: youtube.download     # plugin.command
      - id: summarize
        uses: fabric.summarize
      - id: notify
        uses: discord.respond
""",
}


def test_single_file_example(config_dir: ConfigDir) -> None:
    loaded = config_dir.load(
        SENECHAL,
        WITHINGS_CLIENT_ID="id",
        WITHINGS_CLIENT_SECRET="secret-value",
        GOOGLE_CREDS_PATH="/creds",
        GITHUB_WEBHOOK_SECRET="hook-secret-0123456789",
    )
    withings = loaded.settings.plugins["withings"]
    entry = withings.schedules[0]
    assert (entry.every, entry.jitter, entry.window) == (21600, 1800, "06:00-22:00")
    assert withings.config == {"client_id": "id", "client_secret": "secret-value"}
    assert loaded.settings.webhooks.endpoints[0].secret == "hook-secret-0123456789"
    assert [route.to for route in loaded.settings.routes] == ["health-analyzer", "notify"]
    assert loaded.warnings == ()


def test_directory_example(config_dir: ConfigDir) -> None:
    config_dir.write(DUCTILE)
    config_dir.lock()
    loaded = config_dir.load(
        ADMIN_API_TOKEN="admin-token-0123456789",
        GITHUB_API_KEY="api-key-0123456789",
        GITHUB_WEBHOOK_SECRET="hook-secret-0123456789",
    )
    settings = loaded.settings
    assert loaded.warnings == ()
    assert [token.scopes for token in settings.all_tokens] == [
        ("*",),
        ("jobs:ro", "events:ro", "github-handler:rw", "withings:ro"),
        (),
    ]
    assert settings.webhooks.endpoints[0].secret == "hook-secret-0123456789"
    assert settings.pipelines[0].timeout == 180
    assert settings.plugins["withings"].schedules[0].payload == {"source": "heartbeat"}
    assert len(loaded.files) == len(DUCTILE)
