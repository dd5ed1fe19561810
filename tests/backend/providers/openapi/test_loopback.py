"""Calls of a real service: what arrives there is what was given."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from tests.backend.providers.service import Service
from tests.openapi import api, operation

from toolexec import Exec
from toolexec.backend.providers.openapi.request import draft_of
from toolexec.errors import ExecutionError, InputValidationError
from toolexec.net.http import HTTPRequest

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALAR = TEXT | st.integers(-(2**60), 2**60) | st.booleans()
FILE = st.binary(max_size=50)
LEADS_ELSEWHERE = re.compile(r"^$|^[/\\]|\0|(^|[/\\])\s*\.\.?\s*($|[/\\;])")
"""Values that are refused as a part of a path; see `tests/backend/providers/test_paths.py`."""


async def parse(request: HTTPRequest) -> Request:
    """Return what a server that Starlette parses for would see."""
    target, _, query = request.url.removeprefix("https://api.example.com").partition("?")
    headers = [(name.lower().encode(), value.encode()) for name, value in request.headers]
    scope = {"type": "http", "method": request.method, "path": unquote(target), "raw_path": target.encode()}
    scope |= {"query_string": query.encode(), "headers": headers}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": request.body or b"", "more_body": False}

    return Request(scope, receive)


@contextmanager
def form_of(request: HTTPRequest) -> Iterator[FormData]:
    """Parse a form, and close its files."""
    form = asyncio.run(_form(request))
    try:
        yield form
    finally:
        asyncio.run(form.close())


async def _form(request: HTTPRequest) -> FormData:
    return await (await parse(request)).form()


def plain(value: Any) -> str:
    """Write a value as it is written on the wire."""
    return value if isinstance(value, str) else json.dumps(value)


def declared(place: str, *names: str, **how: Any) -> list[dict[str, Any]]:
    """Return parameters of any type."""
    return [{"name": name, "in": place, "required": place == "path", "schema": {}, **how} for name in names]


PLACES = operation(
    {"parameters": [*declared("path", "p"), *declared("query", "q", "a&b=c#d"), *declared("cookie", "c")]},
    path="/x/{p}/y",
)
LISTS = operation(
    {
        "parameters": [
            *declared("query", "many"),
            *declared("query", "few", explode=False),
            *declared("query", "pipes", style="pipeDelimited"),
            *declared("query", "deep", style="deepObject"),
        ]
    }
)


@given(path=TEXT.filter(lambda text: not LEADS_ELSEWHERE.search(text)), query=SCALAR, odd=TEXT, cookie=TEXT)
def test_any_value_arrives_in_its_place(path: str, query: Any, odd: str, cookie: str) -> None:
    """Whatever characters it has, it is one segment, one parameter and one cookie."""
    sent = draft_of(PLACES, {"p": path, "q": query, "a&b=c#d": odd, "c": cookie}).request()
    seen = asyncio.run(parse(sent))
    segments = seen.scope["raw_path"].decode().split("/")
    assert [segments[1], unquote(segments[2]), segments[3]] == ["x", path, "y"]
    assert seen.query_params.multi_items() == [("q", plain(query)), ("a&b=c#d", odd)]
    assert {name: unquote(value) for name, value in seen.cookies.items()} == {"c": cookie}


@given(
    many=st.lists(SCALAR),
    few=st.lists(TEXT, min_size=1),
    deep=st.dictionaries(st.from_regex("[a-z]{1,5}", fullmatch=True), TEXT),
)
def test_any_list_and_object_arrives(many: list[Any], few: list[str], deep: dict[str, str]) -> None:
    """Commas and bars in items differ from those between them."""
    sent = draft_of(LISTS, {"many": many, "few": few, "pipes": few, "deep": deep}).request()
    raw = sent.url.partition("?")[2].split("&")
    by_name: dict[str, list[str]] = {}
    for pair in raw:
        name, _, value = pair.partition("=")
        by_name.setdefault(unquote(name), []).append(value)
    assert [unquote(value) for value in by_name.get("many", [])] == [plain(item) for item in many]
    assert [unquote(item) for item in by_name["few"][0].split(",")] == few
    assert len(by_name["pipes"]) == 1
    assert {name[5:-1]: unquote(value[0]) for name, value in by_name.items() if name.startswith("deep[")} == deep


FIELDS = {"type": "object", "properties": {"t": {"type": "string"}, "n": {"type": "array"}, "o": {"type": "object"}}}


@given(text=TEXT, numbers=st.lists(st.integers()), nested=st.dictionaries(TEXT, SCALAR))
def test_any_form_arrives(text: str, numbers: list[int], nested: dict[str, Any]) -> None:
    """Lists are repeated, and what is nested is JSON."""
    content = {"application/x-www-form-urlencoded": {"schema": FIELDS}}
    made = operation({"requestBody": {"required": True, "content": content}}, method="post")
    with form_of(draft_of(made, {"t": text, "n": numbers, "o": nested}).request()) as form:
        assert form.getlist("t") == [text]
        assert form.getlist("n") == [str(number) for number in numbers]
        assert json.loads(str(form["o"])) == nested


@given(text=TEXT, name=TEXT, content=FILE, more=st.lists(FILE, max_size=3))
def test_any_file_arrives(text: str, name: str, content: bytes, more: list[bytes]) -> None:
    """Bytes are kept, and no name or text ends a part."""
    binary = {"type": "string", "format": "binary"}
    schema = {"properties": {"t": {"type": "string"}, "f": binary, "m": {"type": "array", "items": binary}}}
    media = {"multipart/form-data": {"schema": schema}}
    made = operation({"requestBody": {"content": media}}, method="post")
    file = {"data": base64.b64encode(content).decode(), "filename": name}
    args = {"t": text, "f": file, "m": [base64.b64encode(each).decode() for each in more]}
    with form_of(draft_of(made, args).request()) as form:
        assert form["t"] == text
        found = form["f"]
        assert isinstance(found, UploadFile)
        assert found.file.read() == content
        assert [each.file.read() for each in form.getlist("m") if isinstance(each, UploadFile)] == more


SHOP = {
    "/items": {
        "get": {"operationId": "items", "parameters": declared("query", "q")},
        "post": {
            "operationId": "add",
            "requestBody": {"required": True, "content": {"application/json": {"schema": FIELDS}}},
        },
        "delete": {"operationId": "clear"},
    },
    "/users/{id}/keys": {"get": {"operationId": "keys"}},
    "/head": {"get": {"operationId": "head", "parameters": declared("header", "X-Note")}},
    "/status/{code}": {"get": {"operationId": "status"}},
    "/content/{kind}": {"get": {"operationId": "content"}},
    "/encoded/{kind}": {"get": {"operationId": "encoded"}},
    "/go": {"get": {"operationId": "go", "parameters": declared("query", "to")}},
    "/large": {"get": {"operationId": "large", "parameters": declared("query", "size")}},
}


def shop(service: Service) -> dict[str, Any]:
    """Describe the service."""
    return api(SHOP) | {"servers": [{"url": service.url}]}


async def test_one_line_makes_tools_of_an_api(service: Service) -> None:
    """The document is read from its URL, and calls are checked, sent and answered."""
    service.documents["shop.json"] = ("application/json", json.dumps(shop(service)).encode())
    async with Exec(gate=None) as ex:  # one of them deletes
        [status] = await ex.add_openapi("shop", f"{service.url}/documents/shop.json", headers={"X-Team": "blue"})
        assert (status.available, status.tools) == (True, 10)
        assert (await ex.run_tool("shop:items", {"q": "a b"})).value["total"] == 3
        assert (await ex.run_tool("shop:add", {"t": "x"})).value == {"created": {"t": "x"}}
        assert (await ex.run_tool("shop:clear")).value is None
        with pytest.raises(InputValidationError, match="'qq'"):
            await ex.run_tool("shop:items", {"qq": 1})
    assert [(each.method, each.query) for each in service.seen[1:]] == [
        ("GET", "q=a%20b"),
        ("POST", ""),
        ("DELETE", ""),
    ]
    assert {each.headers.get("x-team") for each in service.seen[1:]} == {"blue"}
    assert "x-team" not in service.seen[0].headers


def test_the_blocking_twin_adds_an_api(service: Service) -> None:
    """The method waits for the document."""
    with Exec().sync as ex:
        assert ex.add_openapi("shop", shop(service)).tools == 10
        assert ex.run_tool("shop:items").value["total"] == 3


async def test_hostile_arguments_arrive_literally(service: Service) -> None:
    """Each is one segment of the path; those that would lead elsewhere send nothing."""
    async with Exec() as ex:
        await ex.add_openapi("shop", shop(service))
        for value in ("admin", "a/b?c=d#e", "; rm -rf /", "$(id)", "a\r\nX-Admin: 1", "%41.x", "é"):
            answered = (await ex.run_tool("shop:keys", {"id": value})).value
            assert unquote(answered["path"]) == f"/users/{value}/keys"
            assert len(answered["path"].split("/")) == 4
            assert "x-admin" not in answered["headers"]
        sent = len(service.seen)
        for name, args in (
            *(("keys", {"id": value}) for value in (".", "..", "", "../../admin", "%2e%2e", "é\0")),
            *(("head", {"X-Note": value}) for value in ("a\r\nX-Admin: 1", "a\0b")),
        ):
            with pytest.raises(InputValidationError):
                await ex.run_tool(f"shop:{name}", args)
        assert len(service.seen) == sent


async def test_errors_and_odd_responses(service: Service) -> None:
    """Each is an error with what the server said, or a part of content."""
    async with Exec() as ex:
        await ex.add_openapi("shop", shop(service), max_response_bytes=1 << 20)

        async def error(name: str, **args: Any) -> Any:
            found = (await ex.run_tool(f"shop:{name}", args)).error
            assert isinstance(found, ExecutionError)
            return found

        busy = await error("status", code=429)
        assert (busy.details["status"], busy.details["retry_after"], busy.retryable) == (429, 7.0, True)
        assert busy.details["body"]["error"] == "no such luck"
        assert not (await error("status", code=404)).retryable
        assert "is not" in (await error("content", kind="broken-json")).message
        assert "longer than" in (await error("large", size=1 << 24)).message
        assert "is refused" in (await error("encoded", kind="bomb-gzip")).message
        assert "redirect" in (await error("go", to="http://169.254.169.254/latest")).message
        assert "redirect" in (await error("go", to="http://127.0.0.1:1/x")).message
        assert (await ex.run_tool("shop:encoded", {"kind": "gzip"})).value["kind"] == "gzip"
        picture = (await ex.run_tool("shop:content", {"kind": "png"})).reply
        assert picture is not None
        assert picture.content[0]["type"] == "image"
