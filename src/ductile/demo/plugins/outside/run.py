#!/usr/bin/env python3
"""Plays what is usually outside: a shop that sends signed webhooks, and an agent that is alive."""

import hashlib
import hmac
import json
import random
import sys
import urllib.request
from typing import Any

Document = dict[str, Any]

ARTICLES = ("umbrella", "sun hat", "raincoat", "sled")
TIMEOUT = 5.0


def post(url: str, body: bytes, **headers: str) -> Document:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **named})
    with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
        answer: Document = json.load(response)
    return answer


def order(config: Document) -> str:
    number, article = random.randrange(10**6), random.choice(ARTICLES)
    body = json.dumps({"order": number, "article": article}).encode()
    signature = hmac.new(config["webhook_secret"].encode(), body, hashlib.sha256).hexdigest()
    answer = post(config["webhook_url"], body, X_Hub_Signature_256=f"sha256={signature}")
    return f"order {number} ({article}) became job {answer['job_id']}"


def heartbeat(config: Document) -> str:
    body = {"type": "heartbeat", "agent_id": "stock-keeper", "cluster_id": "demo"}
    token = f"Bearer {config['api_token']}"
    answer = post(config["api_url"], json.dumps(body).encode(), Authorization=token)
    return f"the heartbeat was answered with {answer['status']}"


COMMANDS = {"order": order, "heartbeat": heartbeat}

request = json.load(sys.stdin)
result = COMMANDS[request["command"]](request["config"])
json.dump({"status": "ok", "result": result}, sys.stdout)
