"""From responses to values, parts of content and errors."""

from __future__ import annotations

from typing import Any

import pytest
from tests.openapi import API, answer, api, operation

from toolexec.backend.providers.openapi.response import reply_of, reset_after
from toolexec.backend.secrets import Scrubber
from toolexec.errors import RemoteToolError
from toolexec.model.call import ToolCall
from toolexec.model.content import ToolReply
from toolexec.net.http import HTTPRequest, HTTPResponse

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


def answering(media: str, schema: Any = None) -> Any:
    """Return an operation whose success has this media type."""
    content = {media: {} if schema is None else {"schema": schema}}
    return {"responses": {"200": {"description": "", "content": content}}}


@pytest.mark.parametrize("media", ["text/plain; charset=utf-8", "text/html", "application/octet-stream", ""])
def test_json_under_another_name_is_what_the_document_says(media: str) -> None:
    """Many servers call their JSON text; what cannot be JSON stays text."""
    found = operation(answering("application/json", {"type": "object"}))
    assert reply_of(found, answer(b'{"a": 1}', content_type=media), Scrubber(())) == {"a": 1}
    assert reply_of(found, answer(b"<h1>no</h1>", content_type=media), Scrubber(())) == "<h1>no</h1>"
    text = operation(answering("text/plain", {"type": "string"}))
    assert reply_of(text, answer(b'{"a": 1}', content_type="text/plain"), Scrubber(())) == '{"a": 1}'


def test_text_that_the_schema_wants_stays_text() -> None:
    """A string such as 123 is not made a number where the document says that a string comes."""
    found = operation(answering("application/json", {"type": "string"}))
    assert reply_of(found, answer(b"123", content_type="text/plain"), Scrubber(())) == "123"
    ranges = operation(answering("text/*"))
    assert reply_of(ranges, answer(b"123", content_type="text/csv"), Scrubber(())) == "123"


@pytest.mark.parametrize("media", ["application/x-ndjson", "application/jsonl", "text/event-stream"])
async def test_a_stream_of_items_is_a_list_and_a_stream(media: str) -> None:
    """The document says which operations stream."""
    body = b"data: 1\n\ndata: 2\n\n" if media.startswith("text/") else b"1\n2\n"
    items = [{"data": 1}, {"data": 2}] if media.startswith("text/") else [1, 2]
    document = api({"/x": {"get": answering(media)}, "/y": {"get": answering("application/json")}})
    found = API(document, answer(body, content_type=media, etag="w", set_cookie="s=1"), response_headers=["ETag"])
    definition = await found.load()
    by_name = {each.tool.name: each for each in definition.tools}
    assert by_name["get_y"].stream is None
    whole = await found.call("get_x")
    assert (whole.structured, whole.meta) == (items, {"response_headers": {"etag": "w"}})
    stream = by_name["get_x"].stream
    assert stream is not None
    events = [event async for event in stream(ToolCall("api:get_x"))]
    assert [event.data for event in events[:-1]] == items
    assert events[-1].data == whole


async def test_headers_are_there_without_content() -> None:
    """A reply to a PUT often has nothing but them."""
    document = api({"/x": {"put": {"responses": {"204": {"description": ""}}}}})
    reply = await API(document, answer(b"", status=204, etag='"2"'), response_headers=["etag"]).call("put_x")
    assert (reply.structured, reply.has_structured, reply.meta["response_headers"]) == (None, True, {"etag": '"2"'})


async def test_a_stream_replaces_a_refused_token_once() -> None:
    """The second request of the stream has the fresh one."""
    flows = {"clientCredentials": {"tokenUrl": "https://id.example.com/token", "scopes": {}}}
    schemes = {"o": {"type": "oauth2", "flows": flows}}
    issued: list[str] = []

    def reply(request: HTTPRequest) -> HTTPResponse:
        if request.url.endswith("/token"):
            issued.append(f"token-number-{len(issued)}")
            return answer({"access_token": issued[-1], "expires_in": 3600})
        fresh = ("Authorization", "Bearer token-number-1") in request.headers
        return answer(b"1\n" if fresh else b"", status=200 if fresh else 401, content_type="application/x-ndjson")

    node = {"security": [{"o": []}], **answering("application/x-ndjson")}
    auth = {"o": {"client_id": "id", "client_secret": "very-secret"}}
    found = API(api({"/x": {"get": node}}, components={"securitySchemes": schemes}), reply, auth=auth)
    [tool] = (await found.load()).tools
    assert tool.stream is not None
    assert [event.kind async for event in tool.stream(ToolCall("api:get_x"))] == ["chunk", "done"]
    assert len(issued) == 2


def test_the_items_of_a_stream_have_a_schema() -> None:
    """OpenAPI 3.2 describes each item; without that, and of server-sent events, nothing is known."""
    item = {"type": "object", "properties": {"n": {"type": "integer"}}}

    def schema(media: str, described: Any) -> Any:
        responses = {"200": {"description": "", "content": {media: described}}}
        found = operation({"responses": responses}, version="3.2.0").tool.output_schema
        return None if found is None else found.check().to_json()

    for media in ("application/x-ndjson", "application/jsonl", "application/json-seq"):
        assert schema(media, {"itemSchema": item}) == {"type": "array", "items": item}
        assert schema(media, {"schema": {"type": "string"}}) is None
    assert schema("text/event-stream", {"itemSchema": item}) is None
