"""`ductile api`: call any route of the running gateway."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import GatewayClient, RemoteClient
from ductile.cli.command import CommandContext, write
from ductile.core.values.terminal import escape_controls, escape_json
from ductile.errors import NotRunning

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
METHODS = click.Choice(["GET", "POST", "DELETE"], case_sensitive=False)


@write("api")
@click.argument("path")
@click.option(
    "-X", "--method", type=METHODS, help="HTTP method. Default: GET, or POST with -f or -d."
)
@click.option(
    "-f",
    "--field",
    "fields",
    multiple=True,
    metavar="KEY=VALUE",
    help="Body field, or query parameter with GET; JSON is parsed.",
)
@click.option("-d", "--data", metavar="JSON", help="Whole request body; - reads stdin.")
@click.option(
    "-H",
    "--header",
    "headers",
    multiple=True,
    metavar="'NAME: VALUE'",
    help="Request header, such as an Idempotency-Key.",
)
def api(
    context: CommandContext,
    path: str,
    method: str | None,
    fields: tuple[str, ...],
    data: str | None,
    headers: tuple[str, ...],
) -> int:
    """Call any API route of the running gateway."""
    method = (method or ("POST" if fields or data is not None else "GET")).upper()
    path = f"/{path.lstrip('/')}"
    body, extra_headers = _parse_body(fields, data), _parse_headers(headers)
    if context.dry_run:
        plan = {"dry_run": True, "method": method, "path": path, "body": body}
        # Without the values of the headers, which may be secrets.
        output.print_json({**plan, "headers": list(extra_headers)})
        return 0
    client = context.target.client() or _configured_api(context)
    if client is None:
        raise NotRunning(
            "no gateway is running; start one (ductile start), or name one with --api-url"
        )
    if method == "GET" and fields:
        from urllib.parse import urlencode

        path, body = f"{path}{'&' if '?' in path else '?'}{urlencode(_parse_fields(fields))}", None
    raw_body = None if body is None else json.dumps(body).encode()
    status, raw = client.request(method, path, raw_body, extra_headers)
    click.echo(_format(raw), nl=False)
    return 0 if status < 400 else 1


def _configured_api(context: CommandContext) -> GatewayClient | None:
    """Return a client of the configured API address with the first token, as in the Go program."""
    settings = context.target.loaded.settings
    keys = [token.key for token in settings.all_tokens if token.scopes]
    if not settings.api.enabled or not keys:
        return None
    return RemoteClient(f"http://{settings.api.listen}", keys[0])


def _parse_fields(fields: tuple[str, ...]) -> list[tuple[str, str]]:
    pairs = []
    for field in fields:
        name, divided, value = field.partition("=")
        if not divided or not name:
            raise click.BadParameter(f"{field!r} is not KEY=VALUE", param_hint="-f")
        pairs.append((name, value))
    return pairs


def _parse_body(fields: tuple[str, ...], data: str | None) -> Any:
    if data is None:
        return {name: _parse_value(text) for name, text in _parse_fields(fields)} or None
    if fields:
        raise click.UsageError("-f and -d cannot be combined")
    text = sys.stdin.read() if data == "-" else data
    try:
        return json.loads(text)
    except ValueError as error:
        raise click.BadParameter(f"not valid JSON: {error}", param_hint="-d") from None


def _parse_headers(lines: tuple[str, ...]) -> dict[str, str]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name.strip()) or not _is_plain(value):
            # Without the header itself, which may be a secret.
            raise click.BadParameter("a header must be NAME: VALUE, on one line", param_hint="-H")
        headers[name.strip()] = value.strip()
    return headers


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable()


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _format(raw: bytes) -> str:
    """Indent JSON, and escape the control characters in any text."""
    try:
        return escape_json(json.dumps(json.loads(raw), indent=2, ensure_ascii=False)) + "\n"
    except ValueError:
        return escape_controls(raw.decode("utf-8", "replace"))
