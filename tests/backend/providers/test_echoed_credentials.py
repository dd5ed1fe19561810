"""Credentials of the settings, written out or not, never come back: in answers, errors, states or logs."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pytest
from tests.backend.providers.service import Service
from tests.openapi import api

from toolexec import Exec
from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.kinds import source_of
from toolexec.backend.secrets import Scrubber
from toolexec.errors import ConfigurationError

SECRET = "hunter2hunter2"
PAIR = base64.b64encode(f"me:{SECRET}".encode()).decode()
BASIC = {"type": "http", "scheme": "basic"}
DOCUMENT = api(
    {"/x": {"get": {"operationId": "it", "responses": {"200": {"description": "ok"}}}}},
    components={"securitySchemes": {"basic": BASIC}},
    security=[{"basic": []}],
)


def shows(text: str) -> bool:
    """Say whether *text* has the secret, or base64 that nothing but the secret makes."""
    return SECRET in text or SECRET.encode().hex() in text or PAIR.rstrip("=") in text


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("http", {"auth": {"username": "me", "password": SECRET}, "tools": {"it": {"path": "/x"}}}),
        ("http", {"headers": {"Authorization": f"Basic {PAIR}"}, "tools": {"it": {"path": "/x"}}}),
        ("http", {"tools": {"it": {"path": f"/x?api_key={SECRET}"}}}),
        ("http", {"tools": {"it": {"path": "/x", "query": {"token": SECRET}}}}),
        ("http", {"tools": {"it": {"path": "/x", "headers": {"X-Api-Key": SECRET}}}}),
        ("openapi", {"spec": DOCUMENT, "auth": {"basic": f"me:{SECRET}"}}),
        ("openapi", {"spec": DOCUMENT, "auth": {"basic": {"username": "me", "password": SECRET}}}),
        ("openapi", {"spec": DOCUMENT, "headers": {"X-Api-Key": SECRET}, "auth": {"basic": "a:b"}}),
    ],
    ids=lambda given: given if isinstance(given, str) else "-".join(given),
)
async def test_what_a_service_repeats(
    service: Service, kind: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Hide the credential that the service was sent, and repeats."""
    with caplog.at_level(logging.DEBUG):
        async with Exec(gate=None) as ex:
            made = source_of(kind, "api", {"base_url": service.url, **settings})
            await ex.add_backends(SourceBackend("api", made))
            done = await ex.run_tool("api:it", {})
            states = str([each.to_dict() for each in ex.backend_statuses()])
    assert done.ok, done.error
    [seen] = service.seen
    assert SECRET in seen.query or SECRET in str(seen.headers) or PAIR in str(seen.headers)
    assert not shows(str(done.value))
    assert not shows(states)
    assert not shows(caplog.text)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("openapi", {"spec": "{url}/nowhere.json?token=" + SECRET}),
        ("openapi", {"spec": "http://me:" + SECRET + "@127.0.0.1:9/openapi.json"}),
        ("http", {"base_url": "{url}", "tools": {"it": {"path": "http://me:" + SECRET + "@api.example.com/x"}}}),
        ("http", {"base_url": "http://me:" + SECRET + "@api.example.com", "tools": {"it": {"path": "/x"}}}),
        ("http", {"base_url": "{url}", "tools": {"it": {"path": "/{a?b}/x?token=" + SECRET}}}),
    ],
)
async def test_urls_that_cannot_be_used(
    service: Service, kind: str, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The reason is shown without the token in the URL, wherever it is shown."""
    given = {
        name: text.replace("{url}", service.url) if isinstance(text, str) else text for name, text in settings.items()
    }
    with caplog.at_level(logging.DEBUG):
        try:
            made = source_of(kind, "api", given)
        except ConfigurationError as error:
            said = f"{error} {error.details}"
        else:
            async with Exec(gate=None) as ex:
                await ex.add_backends(SourceBackend("api", made))
                said = str([each.to_dict() for each in ex.backend_statuses()])
    assert said
    assert not shows(said)
    assert not shows(caplog.text)


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_more_than_the_secret(before: str, encode: Any) -> None:
    """Of longer data the characters that depend on the secret are hidden, at each place in a group of three bytes."""
    scrubbed = Scrubber([SECRET]).text(encode(f"{before}{SECRET}:and more".encode()).decode())
    assert "[REDACTED]" in scrubbed
    assert len(scrubbed) <= len(before) * 4 // 3 + len("[REDACTED]") + 20
