"""Requests as documents mean them, where a literal reading loses or refuses something."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.openapi import HOST, api, operation, operations

from toolexec.backend.providers.openapi.operations import Operation
from toolexec.backend.providers.openapi.request import draft_of
from toolexec.net.http import HTTPRequest

FORM = "application/x-www-form-urlencoded"


def sent(made: Operation, **args: Any) -> HTTPRequest:
    """Return the request of a call whose arguments the tool takes."""
    assert made.tool.input_schema.check().violations(args) == ()
    return draft_of(made, args).request()


def posting(schema: Any, media_type: str = "application/json", *, required: bool = True, **parts: Any) -> Operation:
    """Return an operation with a body."""
    encoding = parts.pop("encoding", {})
    body = {"required": required, "content": {media_type: {"schema": schema, "encoding": encoding}}}
    return operation({"requestBody": body}, method="post", **parts)


def test_objects_in_an_array_of_a_form_stay_apart() -> None:
    """Each has its number, also below another one; plain items have none."""
    schema = {"type": "object", "properties": {"lines": {"type": "array"}, "tags": {"type": "array"}}}
    made = posting(
        schema, FORM, encoding={name: {"style": "deepObject", "explode": True} for name in ("lines", "tags")}
    )
    lines = [{"price": "a", "taxes": ["x", "y"]}, {"price": "b", "parts": [{"id": 1}, {"id": 2}]}]
    request = sent(made, lines=lines, tags=["m", "n"])
    written = (request.body or b"").decode().replace("%5B", "[").replace("%5D", "]").split("&")
    assert written == [
        *("lines[0][price]=a", "lines[0][taxes][]=x", "lines[0][taxes][]=y", "lines[1][price]=b"),
        *("lines[1][parts][0][id]=1", "lines[1][parts][1][id]=2", "tags[]=m", "tags[]=n"),
    ]


def test_an_optional_body_is_complete_or_absent() -> None:
    """Each property that a body requires is needed as soon as anything of it is given, and never without it."""
    properties = {name: {"type": "string"} for name in "abc"}
    made = posting({"type": "object", "required": ["a", "b"], "properties": properties}, required=False)
    schema = made.tool.input_schema.check()
    assert sent(made).body is None
    assert sent(made, a="1", b="2").body == b'{"a":"1","b":"2"}'
    for incomplete in ({"a": "1"}, {"b": "2"}, {"c": "3"}, {"a": "1", "c": "3"}):
        assert schema.violations(incomplete)


SCHEMAS = {
    "ID": {"type": "string", "readOnly": True},
    "Base": {"type": "object", "required": ["id"], "properties": {"id": {"$ref": "#/components/schemas/ID"}}},
    "Loop": {"allOf": [{"$ref": "#/components/schemas/Loop"}, {"$ref": "#/components/schemas/Base"}]},
}
NAME = {"properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {
            "type": "object",
            "required": ["id", "name"],
            "properties": {"id": {"$ref": "#/components/schemas/ID"}, **NAME["properties"]},
        },
        {"allOf": [{"$ref": "#/components/schemas/Base"}, {"required": ["id", "name"], **NAME}]},
        {"allOf": [{"$ref": "#/components/schemas/Base"}, NAME], "required": ["id", "name"]},
        {
            "properties": {"id": {"allOf": [{"$ref": "#/components/schemas/ID"}]}, **NAME["properties"]},
            "required": ["id"],
        },
        {"allOf": [{"$ref": "#/components/schemas/Loop"}, {"required": ["id"], **NAME}]},
    ],
    ids=["behind a reference", "of another part", "beside parts", "behind a part", "in a loop"],
)
def test_read_only_properties_are_not_required(schema: Any) -> None:
    """A property that is read-only wherever it says so is not an argument, at the top and further below."""
    components = {"schemas": SCHEMAS}
    if "Loop" not in json.dumps(schema):
        top = posting(schema, components=components)
        assert list(top.tool.input_schema.to_json()["properties"]) == ["name"]
        assert sent(top, name="n").body == b'{"name":"n"}'
        inside = posting({"type": "object", "properties": {"item": schema}}, components=components)
        assert sent(inside, item={"name": "n"}).body == b'{"item":{"name":"n"}}'
    else:  # such a schema can never be met
        assert operations(
            api(
                {"/x": {"post": {"requestBody": {"content": {"application/json": {"schema": schema}}}}}},
                components=components,
            )
        ).skipped


def test_a_property_that_is_required_and_not_declared_is_an_argument() -> None:
    """Any value is taken, since nothing is said of it."""
    made = posting({"type": "object", "required": ["name", "kind"], "properties": {"name": {"type": "string"}}})
    assert sent(made, name="n", kind={"a": 1}).body == b'{"name":"n","kind":{"a":1}}'
    assert made.tool.input_schema.check().violations({"name": "n"})


@pytest.mark.parametrize(
    ("media_type", "value", "written"),
    [
        ("text/plain", "a b", "a%20b"),
        ("text/plain; charset=utf-8", 5, "5"),
        ("application/json", "a b", "%22a%20b%22"),
        ("application/problem+json", {"a": [1]}, "%7B%22a%22%3A%5B1%5D%7D"),
        ("*/*", "a", "%22a%22"),
    ],
)
def test_a_parameter_is_written_as_its_media_type_says(media_type: str, value: Any, written: str) -> None:
    """Text has no quotes around it; JSON has."""
    found = operation({"parameters": [{"name": "q", "in": "query", "content": {media_type: {"schema": {}}}}]})
    assert sent(found, q=value).url == f"{HOST}/x?q={written}"


def test_methods_of_openapi_3_2() -> None:
    """QUERY has a body and reads; further operations have the method that they are listed by."""
    body = {"required": True, "content": {"application/json": {"schema": {"type": "object", "properties": {"q": {}}}}}}
    more = {"COPY": {"operationId": "copy"}, "TRACE": {}, "Connect": {}, "get": {"operationId": "twice"}, "LOCK": 5}
    item = {"query": {"operationId": "find", "requestBody": body}, "additionalOperations": more}
    found = operations(api({"/x": item}, version="3.2.0"))
    find, copy = found.found
    assert (sent(find, q=1).method, sent(find, q=1).body) == ("QUERY", b'{"q":1}')
    assert find.tool.annotations.read_only
    assert sent(copy).method == "COPY"
    assert not copy.tool.annotations.read_only
    assert sorted(found.skipped) == ["LOCK /x", "connect_x"]
