"""From responses to values, parts of content and errors."""

from __future__ import annotations

from typing import Any

import pytest
from tests.openapi import answer, operation

from toolexec.backend.providers.openapi.response import reply_of, reset_after
from toolexec.backend.secrets import Scrubber
from toolexec.errors import RemoteToolError
from toolexec.model.content import ToolReply
from toolexec.net.http import HTTPResponse

PLAIN = operation({})


def reply(response: HTTPResponse) -> Any:
    """Return what a response means to an operation without a schema."""
    return reply_of(PLAIN, response, Scrubber(()))


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (answer({"a": [1, 9007199254740993]}), {"a": [1, 9007199254740993]}),
        (answer(b'"x"', content_type="application/problem+json; charset=utf-8"), "x"),
        (answer(b"", status=204), None),
        (answer(b"", status=304), None),
        (answer(b"", status=200, content_type="application/json"), None),
        (answer("häuser".encode("latin-1"), content_type="text/plain; charset=ISO-8859-1"), "häuser"),
        (answer(b"<a/>", content_type="application/xml"), "<a/>"),
    ],
    ids=range(7),
)
def test_a_body_is_read_as_what_it_says_to_be(response: HTTPResponse, expected: Any) -> None:
    """Integers stay exact, and no content is None."""
    assert reply(response) == expected


def test_images_are_parts_of_content() -> None:
    """Bytes are kept as they are."""
    picture = reply(answer(b"\x89PNG", content_type="image/png"))
    assert picture.content == [{"type": "image", "data": "iVBORw==", "mimeType": "image/png"}]


@pytest.mark.parametrize(("status", "retryable"), [(400, False), (404, False), (429, True), (503, True), (302, False)])
def test_a_status_that_is_not_a_success_is_an_error(status: int, retryable: bool) -> None:
    """Its details have the status and the body, and say whether the same call may succeed later."""
    with pytest.raises(RemoteToolError, match=f"GET /x failed with status {status}") as caught:
        reply(answer({"message": "no such pet"}, status=status))
    assert caught.value.retryable is retryable
    assert caught.value.details["status"] == status
    assert caught.value.details["body"] == {"message": "no such pet"}
    assert caught.value.outcome != "not_sent"


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "30"}, 30.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "2000000030"}, 30.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1999999999"}, 0.0),
        ({"x-ratelimit-remaining": "5", "x-ratelimit-reset": "30"}, None),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"}, None),
        ({}, None),
    ],
    ids=str,
)
def test_the_reset_of_a_limit_is_in_seconds(headers: dict[str, str], expected: float | None) -> None:
    """Servers give the time, or the seconds until then."""
    assert reset_after(headers, now=2_000_000_000.0) == expected


def test_a_refusal_that_says_when_to_come_back_may_be_retried() -> None:
    """Some servers limit rates with 403."""
    with pytest.raises(RemoteToolError) as caught:
        reply(answer({}, status=403, retry_after="3"))
    assert caught.value.retryable
    assert caught.value.details["retry_after"] == 3.0
    with pytest.raises(RemoteToolError) as caught:
        reply(answer({}, status=403, x_ratelimit_remaining="0", x_ratelimit_reset="60"))
    assert caught.value.retryable
    assert caught.value.details["retry_after"] == 60.0


def test_the_next_page_is_in_the_metadata() -> None:
    """The arguments that turn to it are given."""
    parameters = [{"name": name, "in": "query", "schema": {}} for name in ("page", "per_page")]
    paged = operation({"parameters": parameters})
    link = (
        '<https://api.example.com/x?page=1>; rel="prev", <https://api.example.com/x?page=3&per_page=5&z=1>; rel="next"'
    )
    found = reply_of(paged, answer([1, 2], link=link), Scrubber(()))
    assert isinstance(found, ToolReply)
    assert found.structured == [1, 2]
    assert found.meta == {"next_page": {"page": 3, "per_page": 5}}
    assert reply_of(paged, answer([1, 2], link='<https://x/?page=1>; rel="prev"'), Scrubber(())) == [1, 2]


def test_the_output_schema_is_that_of_the_success() -> None:
    """Several successes are alternatives, and one without content is null; what is not JSON has none."""
    one = {"content": {"application/json": {"schema": {"type": "integer"}}}}
    two = {"content": {"application/json": {"schema": {"type": "string"}}}}
    bad = {"content": {"application/json": {"schema": {"type": "boolean"}}}}

    def schema(**responses: Any) -> Any:
        found = operation({"responses": responses}).tool.output_schema
        return None if found is None else found.check().to_json()

    assert schema(**{"200": one, "400": bad}) == {"type": "integer"}
    assert schema(**{"200": one, "201": two, "204": {}}) == {
        "anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]
    }
    assert schema(default=one) == {"type": "integer"}
    assert schema(**{"200": {"content": {"text/plain": {"schema": {"type": "string"}}}}}) is None
    assert schema(**{"200": {"$ref": "#/components/responses/none"}}) is None
    assert schema(**{"204": {}}) is None
