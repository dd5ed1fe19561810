"""Documents: JSON and YAML, Swagger 2.0, other documents, and hostile ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.openapi import API, answer, api, operations, tools

from toolexec.backend.providers.openapi.document import read_document
from toolexec.backend.providers.openapi.request import draft_of
from toolexec.errors import BackendUnavailableError, ConfigurationError
from toolexec.model.schema import Schema
from toolexec.net.http import HTTPRequest, HTTPResponse


def test_yaml_is_read_with_the_types_of_json() -> None:
    """Dates, `yes` and `on` are strings, statuses are keys like any other, and aliases and merges work."""
    text = b"""
    openapi: 3.0
    date: 2020-01-01
    yes: no
    on: [true, null, ~, 012, 1e3, '1', 0x1f]
    base: &base {a: 1}
    more: {<<: *base, b: 2}
    200: ok
    """
    assert read_document(text, "x") == {
        "openapi": 3.0,
        "date": "2020-01-01",
        "yes": "no",
        "on": [True, None, None, 12, 1000.0, "1", "0x1f"],
        "base": {"a": 1},
        "more": {"a": 1, "b": 2},
        "200": "ok",
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1,,}', "is not JSON: Expecting property name"),
        (b"a: [1", "is neither JSON nor YAML"),
        (b"- a", "is not an OpenAPI document: it holds list"),
        (b"", "is not an OpenAPI document"),
        (b"\xff\xff", "is not text in UTF-8"),
        (b"[" * 200_000, "is nested too deeply"),
        (b"a: " + b"[" * 5_000, "nested too deeply|neither JSON nor YAML"),
        (b"a: " + b"[{b: " * 200_000, "nested too deeply|neither JSON nor YAML"),
        (b"- " * 100_000, "nested too deeply"),
        (b"\n".join(b" " * n + b"a:" for n in range(2_000)), "nested too deeply"),
        (b"a: &a [*a]", "aliases that multiply"),
        (
            b"a: &a {k: 1}\nb: &b {<<: [" + b"*a," * 900 + b"]}\nc: {<<: [" + b"*b," * 900 + b"]}",
            "merges that multiply",
        ),
        (b"!!python/object/apply:os.system [id]", "neither JSON nor YAML"),
    ],
    ids=range(13),
)
def test_what_is_not_a_document_is_refused(data: bytes, message: str) -> None:
    """The error says why."""
    with pytest.raises(ConfigurationError, match=message):
        read_document(data, "api.yaml")


def test_aliases_that_multiply_are_refused() -> None:
    """Ten levels of ten aliases would be ten billion values."""
    lines = ["a0: &a0 [1,1,1,1,1,1,1,1,1,1]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigurationError, match="aliases that multiply to more than"):
        read_document("\n".join(lines).encode(), "bomb.yaml")


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ({}, "does not say its version"),
        ({"openapi": "4.0"}, "is of version 4.0"),
        ({"swagger": "1.2"}, "is of version 1.2"),
        ({"openapi": "3.0.0", "paths": []}, "has no paths"),
    ],
)
async def test_another_kind_of_document_is_refused(root: dict[str, Any], message: str) -> None:
    """The versions that can be read are named."""
    with pytest.raises(ConfigurationError, match=f"OpenAPI provider api: the document {message}"):
        await API(root or {"x": 1}).load()


async def test_a_document_of_too_many_bytes_is_refused(tmp_path: Path) -> None:
    """Nothing of it is read."""
    path = tmp_path / "api.json"
    path.write_text(json.dumps(api({"/x": {"get": {}}})))
    assert len((await API(path).load()).tools) == 1
    with pytest.raises(ConfigurationError, match="has more than 100 bytes"):
        await API(path, max_spec_bytes=100).load()
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        await API(tmp_path / "none.json").load()


async def test_a_document_is_read_from_a_url() -> None:
    """Its headers go there only, and relative servers are relative to it."""
    root = api({"/x": {"get": {}}}) | {"servers": [{"url": "../v1"}]}

    def reply(request: HTTPRequest) -> HTTPResponse:
        return answer(root if "/api/" in request.url else {"ok": 1})

    found = API("https://docs.example.com/api/spec.json?key=abc", reply, spec_headers={"X-Key": "hidden-value"})
    await found.load()
    assert found.source.info()["spec"] == "https://docs.example.com/api/spec.json"
    assert await found.call("get_x") == {"ok": 1}
    spec, call = found.requests
    assert ("X-Key", "hidden-value") in spec.headers
    assert "hidden-value" not in str(call.headers)
    assert call.url == "https://docs.example.com/v1/x"
    assert [client.settings["hosts"] for client in found.clients] == [["docs.example.com"], ("docs.example.com",)]
    with pytest.raises(BackendUnavailableError, match="the server answered 503"):
        await API("https://docs.example.com/api.json", answer(status=503)).load()


# -- Swagger 2.0 ------------------------------------------------------------------------------------------------------


def swagger(paths: dict[str, Any], **parts: Any) -> dict[str, Any]:
    """Return a document of Swagger 2.0."""
    about = {"swagger": "2.0", "info": {"title": "Old"}, "host": "old.example.com", "basePath": "/v1"}
    return {**about, "schemes": ["http", "https"], "paths": paths, **parts}


def test_swagger_is_converted() -> None:
    """Bodies, forms, lists, responses and definitions work as in OpenAPI 3."""
    pet = {
        "type": "object",
        "required": ["name"],
        "properties": {"name": {"type": "string"}, "x": {"x-nullable": True}},
    }
    root = swagger(
        {
            "/pets": {
                "parameters": [{"name": "trace", "in": "header", "type": "string"}],
                "post": {
                    "operationId": "add",
                    "parameters": [
                        {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
                    ],
                    "responses": {"201": {"schema": {"$ref": "#/definitions/Pet"}}},
                },
                "get": {
                    "operationId": "find",
                    "parameters": [
                        {"name": "tags", "in": "query", "type": "array", "items": {"type": "string"}},
                        {"name": "ids", "in": "query", "type": "array", "items": {}, "collectionFormat": "multi"},
                        {"name": "bars", "in": "query", "type": "array", "items": {}, "collectionFormat": "pipes"},
                        {"$ref": "#/parameters/Limit"},
                    ],
                    "responses": {"200": {"schema": {"type": "file"}}},
                },
                "put": {
                    "operationId": "upload",
                    "consumes": ["multipart/form-data"],
                    "parameters": [
                        {"name": "file", "in": "formData", "type": "file", "required": True},
                        {"name": "note", "in": "formData", "type": "string", "description": "A note."},
                    ],
                },
                "delete": {"operationId": "bad", "parameters": [{"$ref": "#/parameters/None"}]},
            }
        },
        definitions={"Pet": pet},
        parameters={"Limit": {"name": "limit", "in": "query", "type": "integer", "maximum": 9}},
    )
    found = operations(root)
    assert list(found.skipped) == ["bad"]
    by_name = {each.tool.name: each for each in found.found}
    add = by_name["add"].tool.input_schema.to_json()
    assert list(add["properties"]) == ["trace", "name", "x"]
    assert add["required"] == ["name"]
    assert by_name["add"].server == "https://old.example.com/v1"
    assert by_name["add"].tool.output_schema == Schema.of(pet | {"properties": {"name": {"type": "string"}, "x": {}}})
    sent = draft_of(by_name["find"], {"tags": ["a", "b"], "ids": [1, 2], "bars": [1, 2], "limit": 3}).request()
    assert sent.url == "https://old.example.com/v1/pets?tags=a,b&ids=1&ids=2&bars=1%7C2&limit=3"
    sent = draft_of(by_name["upload"], {"file": {"text": "hi"}, "note": "n"}).request()
    assert b'name="file"; filename="file"' in (sent.body or b"")
    assert by_name["upload"].tool.input_schema.to_json()["required"] == ["file"]


async def test_the_security_schemes_of_swagger_are_converted() -> None:
    """Basic authentication, for one, has another name there."""
    root = swagger({"/x": {"get": {}}}, securityDefinitions={"login": {"type": "basic"}})
    found = API(root, auth={"login": "user:pass"})
    await found.call("get_x")
    assert ("Authorization", "Basic dXNlcjpwYXNz") in found.requests[0].headers


# -- other documents --------------------------------------------------------------------------------------------------


def write(directory: Path, name: str, content: Any) -> Path:
    """Write a document."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def split_document(directory: Path) -> Path:
    """Write a document whose parts are in several files, one of them outside of its directory."""
    write(directory, "api/pets.yaml", "get:\n  parameters:\n  - $ref: 'common/parts.json#/q'\n  summary: Get\n")
    parts = {
        "q": {"name": "q", "in": "query", "schema": {"$ref": "#/s"}},
        "s": {"$ref": "../spec.json#/components/schemas/S"},
    }
    write(directory, "api/common/parts.json", parts)
    write(directory, "secret.json", {"get": {"summary": "outside"}})
    paths = {
        "/pets": {"$ref": "pets.yaml"},
        "/out": {"$ref": "../secret.json"},
        "/web": {"$ref": "https://evil.example/x"},
    }
    return write(directory, "api/spec.json", api(paths, components={"schemas": {"S": {"type": "integer"}}}))


async def test_other_documents_are_refused_unless_allowed(tmp_path: Path) -> None:
    """Nothing is read, neither files nor hosts."""
    found = API(split_document(tmp_path))
    definition = await found.load()
    assert not definition.tools
    assert definition.skipped["/pets"] == "it refers to 'pets.yaml', outside of the document; allow_refs permits that"
    assert not found.requests


async def test_other_documents_are_read_where_they_are_allowed(tmp_path: Path) -> None:
    """Those below the document's directory are; others need to be named."""
    definition = await API(split_document(tmp_path), allow_refs=True).load()
    assert [each.tool.name for each in definition.tools] == ["get_pets"]
    assert definition.tools[0].tool.input_schema.check().to_json()["properties"]["q"]["$ref"] == "#/$defs/s"
    assert definition.skipped.keys() == {"/out", "/web"}
    web = answer({"get": {"summary": "from the web"}})
    found = API(split_document(tmp_path), web, allow_refs=[str(tmp_path), "evil.example"])
    assert [each.tool.name for each in (await found.load()).tools] == ["get_pets", "get_out", "get_web"]


async def test_a_document_from_a_host_refers_to_no_file(tmp_path: Path) -> None:
    """Only its own host may be referred to."""
    write(tmp_path, "secret.json", {"get": {}})
    paths = {"/a": {"$ref": "file:///etc/passwd"}, "/b": {"$ref": f"file://{tmp_path}/secret.json"}}
    paths |= {"/c": {"$ref": "parts.json#/c"}, "/d": {"$ref": "//other.example/d"}}

    def reply(request: HTTPRequest) -> HTTPResponse:
        return answer(api(paths) if request.url.endswith("spec.json") else {"c": {"get": {}}})

    found = API("https://docs.example.com/spec.json", reply, allow_refs=True)
    definition = await found.load()
    assert [each.tool.name for each in definition.tools] == ["get_c"]
    assert {request.url for request in found.requests} == {
        "https://docs.example.com/spec.json",
        "https://docs.example.com/parts.json",
    }


def test_documents_that_refer_to_themselves_end() -> None:
    """A loop of path items, parameters or bodies is the reason why they are skipped."""
    found = operations(
        api(
            {
                "/a": {"$ref": "#/paths/~1b"},
                "/b": {"$ref": "#/paths/~1a"},
                "/c": {"get": {"parameters": [{"$ref": "#/components/parameters/P"}]}, "put": {}},
                "/d": {"post": {"requestBody": {"$ref": "#/components/requestBodies/B"}}},
            },
            components={
                "parameters": {"P": {"$ref": "#/components/parameters/P"}},
                "requestBodies": {"B": {"$ref": "#/components/requestBodies/B"}},
            },
        )
    )
    assert [each.tool.name for each in found.found] == ["put_c"]
    assert set(found.skipped) == {"/a", "/b", "get_c", "post_d"}
    assert all("form a loop" in reason for reason in found.skipped.values())


def test_half_characters_in_a_document_are_replaced() -> None:
    """No text on the wire can have them."""
    text = json.dumps(api({"/x": {"get": {"summary": "a\ud800b"}}}))
    assert "\\ud800" in text
    assert tools(read_document(text.encode(), "x"))["get_x"].title == "a\ufffdb"
