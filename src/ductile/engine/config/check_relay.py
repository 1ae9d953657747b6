"""Checks `instances`, `remote_ingress` and relay steps against each other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote

from ductile.config import Settings
from ductile.config.models.relay import InstanceSettings
from ductile.core.delivery.relay import ANYWHERE
from ductile.core.delivery.ssrf import Forbidden, parse_url
from ductile.core.jobs.limits import LONGEST_NAME
from ductile.core.pipelines.graph import Node
from ductile.core.pipelines.pipeline import Pipeline
from ductile.errors import Path, Problem, Severity

_HEADER = re.compile(rf"[!-~][ -~]{{0,{LONGEST_NAME - 1}}}", re.ASCII)
"""Text that a header can carry unchanged."""


def problems(settings: Settings, pipelines: Mapping[str, Pipeline]) -> Iterator[Problem]:
    instances = {instance.name: instance for instance in settings.instances}
    for pipeline in pipelines.values():
        for node in pipeline.nodes.values():
            yield from _step(node, instances)
    for index, instance in enumerate(settings.instances):
        if instance.enabled:
            yield from _instance(instance, settings.service.name, ("instances", index))
    if any(instance.enabled for instance in settings.instances):
        yield from _header(settings.service.name, ("service", "name"))
    yield from _shared_secrets(settings)


def _step(node: Node, instances: Mapping[str, InstanceSettings]) -> Iterator[Problem]:
    """Relay steps whose event would never be sent."""
    if node.relay is None:
        return
    instance = instances[node.relay.to]
    if instance.allow and node.relay.event not in instance.allow:
        message = f"instance {instance.name} does not allow this event type"
        allowed = ", ".join(instance.allow)
        at = (*node.at, "relay", "event")
        yield Problem(message, at, found=node.relay.event, allowed=allowed)
    elif not instance.enabled:
        message = f"instance {instance.name} is disabled: relays to it stay queued"
        yield _warning(message, (*node.at, "relay", "to"))


def _instance(instance: InstanceSettings, us: str, at: Path) -> Iterator[Problem]:
    try:
        parse_url(instance.url, ANYWHERE)
    except Forbidden as refusal:
        yield Problem(f"nothing can be sent there: {refusal}", (*at, "base_url"))
    if instance.key_id is not None:
        yield from _header(instance.key_id, (*at, "key_id"))
    if unquote(instance.ingress_path).rpartition("/")[2] != us:
        message = f"its last part is not service.name ({us}): the receiver would reject our events"
        yield _warning(message, (*at, "ingress_path"))


def _header(text: str, at: Path) -> Iterator[Problem]:
    if _HEADER.fullmatch(text) is None:
        allowed = f"1 to {LONGEST_NAME} characters of plain ASCII"
        yield Problem("other gateways receive this value in a header", at, allowed=allowed)


def _shared_secrets(settings: Settings) -> Iterator[Problem]:
    first: dict[str, str] = {}
    for index, peer in enumerate(settings.remote_ingress.peers):
        if not peer.enabled or not peer.secret:
            continue
        other = first.setdefault(peer.secret, peer.name)
        if other != peer.name:
            key = "secret_ref" if peer.secret_ref else "secret"
            message = f"peer {other} has the same secret: each can impersonate the other"
            yield _warning(message, ("remote_ingress", "peers", index, key))


def _warning(message: str, at: Path) -> Problem:
    return Problem(message, at, severity=Severity.WARNING)
