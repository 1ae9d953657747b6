"""Request bodies of each route. Unknown keys are refused."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import ConfigDict, Field, model_validator

from ductile.core.agents.reminder import LARGEST_PAYLOAD
from ductile.core.delivery.retry_policy import RETRIABLE, DeliveryStatus
from ductile.core.delivery.signatures import decode_standard_key
from ductile.core.flow.pauses import LONGEST_REASON
from ductile.core.jobs.limits import LONGEST_NAME, LONGEST_PRIORITY
from ductile.core.values.scopes import ALL, is_scope
from ductile.core.waits.decision import MAX_COMMENT
from ductile.http.models.fields import (
    AnyJson,
    BodyDuration,
    BodyFlag,
    BodyInteger,
    BodyText,
    FieldType,
    OneOf,
    Payload,
    PresentJson,
    RequestModel,
    Timestamp,
)
from ductile.http.models.job_selector import JobSelector
from ductile.http.requests import row_id

MAX_DEDUPE_TTL = 10 * 366 * 86_400
MAX_PAUSE = 10 * 366 * 86_400
MAX_BULK_JOBS, DEFAULT_BULK_JOBS = 1000, 100
MAX_BULK_DELIVERIES = 10_000
MAX_DISCARDED = 1000
MAX_TOKEN_NAME = 100
MAX_BUDGET = 1_000_000_000
MAX_WEBHOOK_TEXT = 200
MIN_SECRET, MAX_SECRET = 8, 512

Text = Annotated[str | None, BodyText()]
Name = Annotated[str, BodyText(most=LONGEST_NAME, required=True)]
Flag = Annotated[bool, BodyFlag()]
Time = Annotated[datetime | None, Timestamp()]
Priority = Annotated[float | None, BodyDuration(LONGEST_PRIORITY)]
Budget = Annotated[int | None, BodyInteger(0, MAX_BUDGET)]
WebhookText = Annotated[str, BodyText(most=MAX_WEBHOOK_TEXT, required=True)]


class ActionBody(RequestModel):
    """The body of an action that takes no other argument."""

    dry_run: Flag = Field(False, description="Return what would be done; change nothing.")


class DecisionBody(ActionBody):
    comment: Annotated[str | None, BodyText(most=MAX_COMMENT)] = Field(
        None, description="Text to record with the decision."
    )


class PauseBody(ActionBody):
    """Without `duration` and `until`, the pause lasts until it is resumed."""

    reason: Annotated[str | None, BodyText(most=LONGEST_REASON)] = Field(
        None, description="Why; shown with every job that is held."
    )
    duration: Annotated[float | None, BodyDuration(MAX_PAUSE)] = Field(
        None, description="Resume after this time: `2h`, or seconds."
    )
    until: Time = Field(None, description="Resume at this time; not together with `duration`.")


class PluginStateBody(ActionBody):
    key: Annotated[str, BodyText(most=LONGEST_REASON)] = Field(description="The key of the state.")
    value: Annotated[Any, AnyJson({})] = Field(None, description="Its new value.")
    remove: Flag = Field(False, description="Remove the key instead of setting it.")


class SilenceBody(ActionBody):
    """Exactly one of `duration` and `until` is required."""

    duration: Annotated[float | None, BodyDuration(MAX_PAUSE)] = Field(
        None, description="How long no messages are sent: `2h`, or seconds."
    )
    until: Time = Field(None, description="Until when no messages are sent.")


class StartBody(ActionBody):
    """What starts a job or a pipeline."""

    payload: Annotated[Any, Payload()] = Field(
        default_factory=dict, description="The job's payload; an empty object by default."
    )
    dedupe_key: Text = Field(
        None, description="Skip if a job with the same plugin, command and key exists."
    )
    dedupe_ttl: Annotated[float | None, BodyDuration(MAX_DEDUPE_TTL)] = Field(
        None, description="How long the key is remembered: `1h`, or seconds."
    )


class TriggerBody(StartBody):
    priority: Priority = Field(
        None, description="Start as if enqueued this much earlier: `10m`, or seconds, up to a week."
    )


class PipelineStartBody(StartBody):
    payload: Annotated[Any, Payload()] = Field(
        default_factory=dict, description="The payload of the event that starts the pipeline."
    )
    dedupe_key: Text = Field(None, description="Skip if a first job with this key exists.")
    priority: Priority = Field(
        None,
        description="Start the first jobs as if enqueued this much earlier: `10m`, or seconds.",
    )


class CancelBody(ActionBody):
    force: Flag = Field(False, description="End a running job whose node does not answer.")


class ReplayBody(ActionBody):
    step: Text = Field(None, description="Replay the job of this step instead.")
    payload: Annotated[Any, PresentJson()] = Field(
        None, description="Another payload, for a `handle` job that of its event."
    )


class BulkBody(ActionBody):
    filter: JobSelector = Field(description="The jobs to act on; at least one key is required.")
    limit: Annotated[int, BodyInteger(1, MAX_BULK_JOBS)] = Field(
        DEFAULT_BULK_JOBS, description="Maximum number of jobs."
    )
    expected: Annotated[int | None, BodyInteger(0, MAX_BULK_JOBS)] = Field(
        None, description="The count of the preview: refused if it differs by now."
    )


class AnyTexts(FieldType):
    """Texts that a later check judges."""

    schema = {"type": "array", "items": {"type": "string"}}

    def parse(self, value: Any) -> list[str]:
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ValueError("must be a list of texts")
        return value


class ScopeList(FieldType):
    schema = {"type": "array", "items": {"type": "string"}, "minItems": 1}

    def parse(self, value: Any) -> list[str]:
        if not isinstance(value, list) or not value:
            raise ValueError("must be a list of scopes")
        for scope in value:
            if not isinstance(scope, str) or not is_scope(scope):
                raise ValueError(
                    f"{scope!r} is not a valid scope; "
                    "allowed: *, or a noun or plugin with :ro or :rw"
                )
        return value


class TokenBudget(RequestModel):
    """How often the token may act; an absent key is no limit."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    runs: Budget = Field(None, description="Jobs and pipeline runs to start.")
    retries: Budget = Field(None, description="Jobs and deliveries to retry.")

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.runs is None and self.retries is None:
            raise ValueError("must name at least one of runs, retries")
        return self


class NewTokenBody(ActionBody):
    name: Annotated[str, BodyText(most=MAX_TOKEN_NAME, required=True)] = Field(
        description="A name that is not in use."
    )
    scopes: Annotated[list[str], ScopeList()] = Field(
        description="`*`, or nouns or plugins with `:ro` or `:rw`."
    )
    expires_in: Text = Field(None, description="`30d`; by default the token does not expire.")
    lease: Flag = Field(
        False, description="Record every run in the audit log; needs `expires_in` or `budget`."
    )
    budget: TokenBudget | None = Field(
        None, description="The token ends by use; implies `lease`, and excludes the scope `*`."
    )

    @model_validator(mode="after")
    def _check_lease(self) -> Self:
        if self.budget is not None and ALL in self.scopes:
            raise ValueError(
                "a token with a budget must not have the scope *, which may create tokens"
            )
        if self.lease and self.budget is None and self.expires_in is None:
            raise ValueError("a lease must have an end: expires_in or budget")
        return self


class TokenRotationBody(ActionBody):
    expires_in: Text = Field(None, description="A new lifetime: `30d`.")
    overlap: Text = Field(
        None, description="How long the old secret stays valid: `1h`; by default it is void."
    )


class LoginBody(RequestModel):
    """Give either `token` or `code`."""

    token: Text = Field(None, description="A bearer token, whose scopes the session has.")
    code: Text = Field(None, description="A one-use code of `ductile ui`.")


class BackupBody(ActionBody):
    path: Text = Field(None, description="An absolute path; on the local socket only.")
    replace: Flag = Field(False, description="Overwrite an existing file.")


class NewReminderBody(ActionBody):
    """Give either `delay_ms` or `schedule`."""

    # `core/agents/reminder` judges the values, with error codes of its own.

    agent_id: Annotated[Any, AnyJson({"type": "string"})] = Field(
        None, description="The agent to remind."
    )
    delay_ms: Annotated[Any, AnyJson({"type": "integer", "minimum": 1})] = Field(
        None, description="Remind once, after this number of milliseconds."
    )
    schedule: Annotated[Any, AnyJson({"type": "string"})] = Field(
        None, description="Remind repeatedly, by a cron expression of five fields in UTC."
    )
    payload: Annotated[Any, Payload()] = Field(
        default_factory=dict, description=f"An object of at most {LARGEST_PAYLOAD} bytes."
    )

    @model_validator(mode="after")
    def _check_time(self) -> Self:
        if (self.schedule is None) is (self.delay_ms is None):
            raise ValueError("give either delay_ms or schedule")
        return self


class DeliveryBody(ActionBody):
    """Give either `webhook_id`, or `source_identifier` and `event_type`."""

    webhook_id: Annotated[Any, AnyJson({"type": "integer", "minimum": 0})] = Field(
        None, description="The webhook, by its id."
    )
    source_identifier: Text = Field(None, description="The webhook, together with `event_type`.")
    event_type: Text = Field(None, description="The webhook, with `source_identifier`.")
    payload: Annotated[Any, AnyJson({})] = Field(
        default_factory=dict, description="The body to send."
    )

    @model_validator(mode="after")
    def _check_webhook(self) -> Self:
        id, names = self.webhook_id, (self.source_identifier, self.event_type)
        by_id = type(id) is int and row_id(str(id)) is not None and names == (None, None)
        by_name = id is None and None not in names and "".join(map(str, names)).isprintable()
        if not (by_id or by_name):
            raise ValueError("name webhook_id, or source_identifier and event_type")
        return self


class RedeliveryBody(ActionBody):
    status: Annotated[
        DeliveryStatus, OneOf(sorted(RETRIABLE - {DeliveryStatus.PENDING}), required=True)
    ] = Field(description="The deliveries to retry.")
    since: Time = Field(None, description="Deliveries attempted, or else created, since this time.")
    webhook: Annotated[int | None, BodyInteger(1, 2**53)] = Field(
        None, description="Only deliveries of the webhook with this id."
    )
    limit: Annotated[int, BodyInteger(1, MAX_BULK_DELIVERIES)] = Field(
        MAX_BULK_DELIVERIES, description="Maximum number of deliveries."
    )
    expected: Annotated[int | None, BodyInteger(0, MAX_BULK_DELIVERIES)] = Field(
        None, description="The count of the preview: refused if it differs by now."
    )


class RelayBody(ActionBody):
    to: Name = Field(description="The gateway, by its name in `instances`.")
    event: Name = Field(description="The type of the event.")
    payload: Annotated[Any, Payload()] = Field(
        default_factory=dict, description="The event's payload; an empty object by default."
    )
    dedupe_key: Text = Field(None, description="The event's dedupe key at the receiver.")
    baggage: Annotated[Any, AnyJson({"type": "object"})] = Field(
        default_factory=dict, description="Values for the run at the receiver."
    )

    @model_validator(mode="after")
    def _check_baggage(self) -> Self:
        if not isinstance(self.baggage, dict):
            raise ValueError("baggage must be an object")
        return self


class DiscardBody(ActionBody):
    until: Time = Field(
        None, description="Only those last attempted, or else created, before this time."
    )
    limit: Annotated[int, BodyInteger(1, MAX_DISCARDED)] = Field(
        MAX_DISCARDED, description="Maximum number of dead ones to delete."
    )


class NewWebhookBody(ActionBody):
    """Give at most one of `target_url`, `plugin` and `pipeline`."""

    source_identifier: WebhookText = Field(description="The sender.")
    event_type: WebhookText = Field(description="The type of the events.")
    agent_intent: Annotated[str | None, BodyText(most=MAX_WEBHOOK_TEXT)] = Field(
        None, description="What an agent should do with an event."
    )
    target_session: WebhookText = Field(description="The session of the agent.")
    target_url: Text = Field(None, description="Where outbound events are sent.")
    plugin: Text = Field(None, description="The plugin that handles inbound events.")
    pipeline: Text = Field(None, description="The pipeline that inbound events start.")
    secret: Annotated[str | None, BodyText(MIN_SECRET, MAX_SECRET)] = Field(
        None, description="By default a secret is generated and returned once."
    )

    @model_validator(mode="after")
    def _check_target(self) -> Self:
        if sum(target is not None for target in (self.target_url, self.plugin, self.pipeline)) > 1:
            raise ValueError("name at most one of target_url, plugin and pipeline")
        return self

    @model_validator(mode="after")
    def _check_secret(self) -> Self:
        if self.secret is not None and len(decode_standard_key(self.secret)) < MIN_SECRET:
            raise ValueError(f"secret must be a key of at least {MIN_SECRET} bytes")
        return self
