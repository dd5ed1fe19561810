"""From arguments to requests: places, styles, bodies, and what must never be sent."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.openapi import HOST, api, operation, operations

from toolexec.backend.providers.openapi.request import draft_of
from toolexec.errors import InputValidationError
from toolexec.net.http import HTTPRequest


def request(node: dict[str, Any], args: dict[str, Any], *, path: str = "/x", method: str = "get") -> HTTPRequest:
    """Return the request that the one operation *node* makes of *args*."""
    return draft_of(operation(node, path=path, method=method), args).request()


def parameter(place: str, name: str = "v", **how: Any) -> dict[str, Any]:
    """Return an operation with one parameter."""
    return {"parameters": [{"name": name, "in": place, "required": place == "path", "schema": {}, **how}]}


ARRAY, OBJECT = [3, 4, 5], {"R": 100, "G": 200}


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("simple", False, 5, "5"),
        ("simple", False, ARRAY, "3,4,5"),
        ("simple", True, ARRAY, "3,4,5"),
        ("simple", False, OBJECT, "R,100,G,200"),
        ("simple", True, OBJECT, "R=100,G=200"),
        ("label", False, 5, ".5"),
        ("label", False, ARRAY, ".3,4,5"),
        ("label", True, ARRAY, ".3.4.5"),
        ("label", False, OBJECT, ".R,100,G,200"),
        ("label", True, OBJECT, ".R=100.G=200"),
        ("matrix", False, 5, ";v=5"),
        ("matrix", False, ARRAY, ";v=3,4,5"),
        ("matrix", True, ARRAY, ";v=3;v=4;v=5"),
        ("matrix", False, OBJECT, ";v=R,100,G,200"),
        ("matrix", True, OBJECT, ";R=100;G=200"),
    ],
    ids=str,
)
def test_each_style_of_a_path(style: str, explode: bool, value: Any, expected: str) -> None:
    """The examples of the OpenAPI specification."""
    sent = request(parameter("path", style=style, explode=explode), {"v": value}, path="/x/{v}/y")
    assert sent.url == f"{HOST}/x/{expected}/y"


@pytest.mark.parametrize(
    ("how", "value", "expected"),
    [
        ({}, 5, "v=5"),
        ({}, True, "v=true"),
        ({}, 1.5, "v=1.5"),
        ({}, "a b&c=d#e+f/é", "v=a%20b%26c%3Dd%23e%2Bf%2F%C3%A9"),
        ({}, ARRAY, "v=3&v=4&v=5"),
        ({}, [], ""),
        ({}, None, ""),
        ({}, OBJECT, "R=100&G=200"),
        ({"explode": False}, ARRAY, "v=3,4,5"),
        ({"explode": False}, ["a,b", "c"], "v=a%2Cb,c"),
        ({"explode": False}, OBJECT, "v=R,100,G,200"),
        ({"style": "spaceDelimited"}, ARRAY, "v=3%204%205"),
        ({"style": "pipeDelimited"}, ARRAY, "v=3%7C4%7C5"),
        ({"style": "pipeDelimited", "explode": True}, ARRAY, "v=3&v=4&v=5"),
        ({"style": "deepObject", "explode": True}, OBJECT, "v%5BR%5D=100&v%5BG%5D=200"),
        ({"style": "deepObject"}, {"a": {"b": [1, 2]}, "c": None}, "v%5Ba%5D%5Bb%5D%5B%5D=1&v%5Ba%5D%5Bb%5D%5B%5D=2"),
        ({"allowReserved": True}, "/a?b:c@d&e=f#g+h", "v=/a?b:c@d%26e=f%23g%2Bh"),
        ({"style": "nonsense"}, ARRAY, "v=3&v=4&v=5"),
        ({"schema": None, "content": {"application/json": {"schema": {}}}}, {"a": [1]}, "v=%7B%22a%22%3A%5B1%5D%7D"),
    ],
    ids=str,
)
def test_each_style_of_a_query(how: dict[str, Any], value: Any, expected: str) -> None:
    """Everything that is not a letter, a digit or -._~ is encoded; null and empty arrays are left out."""
    assert urlsplit(request(parameter("query", **how), {"v": value}).url).query == expected


FORM = {"application/x-www-form-urlencoded": {"schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("content", "value", "expected"),
    [
        (FORM, {"a": "x y&z", "b": [1, 2], "c": None, "d": True}, "a=x%20y%26z&b=1&b=2&d=true"),
        (FORM, {}, ""),
        (FORM, None, ""),
        ({"application/json": {"schema": {}}}, {"a": [1]}, "%7B%22a%22%3A%5B1%5D%7D"),
        ({"application/jsonpath": {"schema": {"type": "string"}}}, "$.a.b[1]", "%24.a.b%5B1%5D"),
    ],
    ids=str,
)
def test_a_parameter_that_is_the_whole_query(content: dict[str, Any], value: Any, expected: str) -> None:
    """`in: querystring` of OpenAPI 3.2 has no name in the request."""
    node = {"parameters": [{"name": "v", "in": "querystring", "content": content}]}
    assert urlsplit(request(node, {"v": value}).url).query == expected


def test_a_whole_query_is_the_only_one() -> None:
    """One stands beside no other parameter of the query, and a form of it is made of an object."""
    form = {"name": "v", "in": "querystring", "content": FORM}
    both = {"parameters": [form, {"name": "a", "in": "query", "schema": {}}]}
    assert "the whole query" in operations(api({"/x": {"get": both}})).skipped["get_x"]
    with pytest.raises(InputValidationError, match="made of an object"):
        request({"parameters": [form]}, {"v": "a=1"})


def test_headers_and_cookies() -> None:
    """A header has its value as it is, a cookie encoded."""
    node = {
        "parameters": [
            {"name": "X-List", "in": "header", "schema": {"type": "array"}},
            {"name": "X-Object", "in": "header", "explode": True, "schema": {"type": "object"}},
            {"name": "sid", "in": "cookie", "schema": {"type": "string"}},
            {"name": "n", "in": "cookie", "schema": {"type": "integer"}},
            {"name": "Authorization", "in": "header", "required": True, "schema": {"type": "string"}},
        ]
    }
    args = {"X-List": ARRAY, "X-Object": OBJECT, "sid": "a;b c=d", "n": 3, "Authorization": "forged"}
    sent = request(node, args)
    assert sent.headers == [
        ("Accept", "*/*"),
        ("X-List", "3,4,5"),
        ("X-Object", "R=100,G=200"),
        ("Cookie", "sid=a%3Bb%20c%3Dd; n=3"),
    ]


@pytest.mark.parametrize("value", ["a/b", "a?b=c", "a#b", "a\\b", "%2e.x", "; rm -rf /", "$(id)", "\r\nX: y"])
def test_a_path_argument_stays_one_segment(value: str) -> None:
    """No character of it is structure."""
    sent = request(parameter("path"), {"v": value}, path="/users/{v}/keys")
    path = urlsplit(sent.url).path.split("/")
    assert path[1] == "users"
    assert len(path) == 4
    assert set(path[2]) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%.-_~")


@pytest.mark.parametrize("value", [".", "..", "../../admin", "%2e%2e", "", None, [], {}])
def test_a_path_argument_that_leads_elsewhere_is_refused(value: Any) -> None:
    """Nothing is sent: the server would take it for another path."""
    with pytest.raises(InputValidationError, match="/v: "):
        request(parameter("path"), {"v": value}, path="/users/{v}/keys")


def test_arguments_that_make_dots_together_are_refused() -> None:
    """The segment counts, not the argument."""
    node = {"parameters": [{"name": name, "in": "path", "required": True, "schema": {}} for name in ("a", "b")]}
    with pytest.raises(InputValidationError, match="would lead to another path"):
        request(node, {"a": ".", "b": "."}, path="/x/{a}{b}")
    with pytest.raises(InputValidationError, match="would lead to another path"):
        request(parameter("path", style="label"), {"v": "."}, path="/x/{v}")


@pytest.mark.parametrize("value", ["a\r\nX-Admin: 1", "a\nb", "a\0b", "é", "\x7f"])
def test_a_header_argument_with_another_line_is_refused(value: str) -> None:
    """Nothing is sent."""
    with pytest.raises(InputValidationError, match="one line of printable ASCII"):
        request(parameter("header", "X-V"), {"X-V": value})


def test_parameters_of_the_path_are_merged_with_those_of_the_operation() -> None:
    """The operation's own win; placeholders that nothing declares are arguments too."""
    item = {
        "parameters": [{"name": "q", "in": "query", "schema": {"type": "string"}}, {"name": "id", "in": "path"}],
        "get": {"parameters": [{"name": "q", "in": "query", "required": True, "schema": {"type": "integer"}}]},
    }
    found = operations(api({"/x/{id}/{other}": item})).found[0]
    schema = found.tool.input_schema.to_json()
    assert schema["properties"] == {"id": {}, "other": {"type": ["string", "integer"]}, "q": {"type": "integer"}}
    assert schema["required"] == ["id", "other", "q"]
    assert schema["additionalProperties"] is False
    assert draft_of(found, {"id": 1, "other": "a", "q": 2}).request().url == f"{HOST}/x/1/a?q=2"


def test_parameters_of_one_name_have_an_argument_each() -> None:
    """The one in the path keeps the name."""
    node = {
        "parameters": [{"name": "id", "in": place, "schema": {}} for place in ("cookie", "header", "query", "path")]
    }
    found = operation(node, path="/x/{id}")
    assert list(found.tool.input_schema.to_json()["properties"]) == ["id", "id_query", "id_header", "id_cookie"]
    sent = draft_of(found, {"id": 1, "id_query": 2, "id_header": 3, "id_cookie": 4}).request()
    assert sent.url == f"{HOST}/x/1?id=2"
    assert sent.headers[1:] == [("id", "3"), ("Cookie", "id=4")]


# -- bodies -----------------------------------------------------------------------------------------------------------

PET = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}, "id": {}},
}


def body(schema: Any, media_type: str = "application/json", **media: Any) -> dict[str, Any]:
    """Return an operation with a body."""
    return {"requestBody": {"required": True, "content": {media_type: {"schema": schema, **media}}}}


def test_the_properties_of_a_json_body_are_arguments() -> None:
    """Properties stand beside the parameters; only what is given is sent."""
    node = body(PET) | {"parameters": [{"name": "dry", "in": "query", "schema": {"type": "boolean"}}]}
    found = operation(node, method="post")
    schema = found.tool.input_schema.to_json()
    assert list(schema["properties"]) == ["dry", "name", "tags", "id"]
    assert schema["required"] == ["name"]
    sent = draft_of(found, {"dry": True, "name": "Rex", "tags": ["a"]}).request()
    assert sent.url == f"{HOST}/x?dry=true"
    assert json.loads(sent.body or b"") == {"name": "Rex", "tags": ["a"]}
    assert ("Content-Type", "application/json") in sent.headers


def test_a_body_whose_names_clash_is_one_argument() -> None:
    """The same goes for one that is not an object, or is more than its properties."""
    clashing = body(PET) | {"parameters": [{"name": "id", "in": "path", "required": True, "schema": {}}]}
    found = operation(clashing, path="/x/{id}", method="put")
    assert list(found.tool.input_schema.to_json()["properties"]) == ["id", "body"]
    assert draft_of(found, {"id": 1, "body": {"id": 2, "name": "Rex"}}).request().body == b'{"id":2,"name":"Rex"}'
    for schema in (
        {"type": "array", "items": {}},
        {"oneOf": [PET, PET]},
        {"type": "object"},
        {**PET, "minProperties": 1},
    ):
        found = operation(body(schema), method="post")
        assert list(found.tool.input_schema.to_json()["properties"]) == ["body"]
    named = body({"type": "array"}) | {"parameters": [{"name": "body", "in": "query", "schema": {}}]}
    assert list(operation(named, method="post").tool.input_schema.to_json()["properties"]) == ["body", "request_body"]


def test_the_parts_of_a_body_are_merged() -> None:
    """`allOf` and references are followed, and what is read-only is left out."""
    base = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer", "readOnly": True}}}
    whole = {"allOf": [{"$ref": "#/components/schemas/Base"}, PET | {"properties": {"name": {"type": "string"}}}]}
    schemas = {"Base": base, "Whole": whole}
    found = operation(body({"$ref": "#/components/schemas/Whole"}), method="post", components={"schemas": schemas})
    schema = found.tool.input_schema.to_json()
    assert schema["properties"] == {"name": {"type": "string"}}
    assert schema["required"] == ["name"]


def test_an_optional_body_is_left_out_where_nothing_is_given() -> None:
    """A required one is sent empty."""
    node = body(PET)
    node["requestBody"]["required"] = False
    assert request(node, {}, method="patch").body is None
    assert request(node, {"id": 1}, method="patch").body == b'{"id":1}'
    assert request(body(PET), {}, method="patch").body == b"{}"


def test_further_properties_reach_the_body_where_the_schema_says_so() -> None:
    """Else an unknown argument is refused, because it is likely misspelt."""
    open_ = operation(body({**PET, "additionalProperties": {"type": "integer"}}), method="post")
    assert open_.tool.input_schema.to_json()["additionalProperties"] == {"type": "integer"}
    assert draft_of(open_, {"name": "Rex", "age": 3}).request().body == b'{"name":"Rex","age":3}'
    closed = operation(body(PET), method="post")
    assert not closed.tool.input_schema.accepts({"name": "Rex", "age": 3})


def test_a_form_is_encoded_as_its_encoding_says() -> None:
    """Arrays repeat the name unless it says otherwise; what is nested is JSON."""
    schema = {"type": "object", "properties": {name: {} for name in ("a", "list", "csv", "o")}}
    node = body(schema, "application/x-www-form-urlencoded", encoding={"csv": {"style": "form", "explode": False}})
    sent = request(node, {"a": "x y&z", "list": [1, 2], "csv": [1, 2], "o": {"k": 1}}, method="post")
    assert sent.body == b"a=x%20y%26z&list=1&list=2&csv=1,2&o=%7B%22k%22%3A1%7D"


def test_a_multipart_body_has_fields_and_files() -> None:
    """A file is base64, or an object with text, a name and a media type."""
    schema = {
        "type": "object",
        "properties": {
            "note": {"type": "string"},
            "data": {"type": "object"},
            "file": {"type": "string", "format": "binary", "description": "The picture."},
            "more": {"type": "array", "items": {"type": "string", "format": "binary"}},
        },
    }
    found = operation(
        body(schema, "multipart/form-data", encoding={"file": {"contentType": "image/png"}}), method="post"
    )
    assert found.tool.input_schema.to_json()["properties"]["file"]["title"] == "The picture."
    args = {
        "note": 'a"b',
        "data": {"k": 1},
        "file": base64.b64encode(b"\x89PNG").decode(),
        "more": [{"text": "hi", "filename": 'a"\r\nb.txt', "media_type": "text/plain"}],
    }
    assert found.tool.input_schema.accepts(args)
    sent = draft_of(found, args).request()
    boundary = dict(sent.headers)["Content-Type"].partition("boundary=")[2]
    parts = (sent.body or b"").split(f"--{boundary}".encode())
    assert parts[1] == b'\r\nContent-Disposition: form-data; name="note"\r\n\r\na"b\r\n'
    assert parts[2].endswith(b'name="data"\r\nContent-Type: application/json\r\n\r\n{"k":1}\r\n')
    assert parts[3].endswith(b'name="file"; filename="file"\r\nContent-Type: image/png\r\n\r\n\x89PNG\r\n')
    assert parts[4].endswith(b'filename="a%22%0D%0Ab.txt"\r\nContent-Type: text/plain\r\n\r\nhi\r\n')
    assert parts[5] == b"--\r\n"


@pytest.mark.parametrize(
    "file", ["not base64!", {"text": "a", "data": "YQ=="}, 5, {"text": "a", "media_type": "a\r\nb: c"}]
)
def test_a_file_that_is_not_one_is_refused(file: Any) -> None:
    """Nothing is sent."""
    node = body({"type": "object", "properties": {"f": {"type": "string", "format": "binary"}}}, "multipart/form-data")
    with pytest.raises(InputValidationError, match="/f: "):
        request(node, {"f": file}, method="post")


def test_text_and_binary_bodies_are_sent_as_they_are() -> None:
    """Both are the argument `body`."""
    assert request(body({}, "text/plain"), {"body": "a\r\né"}, method="post").body == "a\r\né".encode()
    sent = request(body({}, "application/octet-stream"), {"body": base64.b64encode(b"\0\1").decode()}, method="post")
    assert sent.body == b"\0\1"
    sent = request(body({}, "image/*"), {"body": {"data": "AA==", "media_type": "image/png"}}, method="put")
    assert sent.headers[-1] == ("Content-Type", "image/png")


def test_json_is_preferred_among_media_types() -> None:
    """A media type of JSON's family keeps its name."""
    content = {"application/xml": {}, "application/merge-patch+json": {"schema": PET}, "text/plain": {}}
    sent = request({"requestBody": {"content": content}}, {"name": "Rex"}, method="patch")
    assert sent.headers[-1] == ("Content-Type", "application/merge-patch+json")


def test_operations_may_differ_in_a_fragment_or_a_query() -> None:
    """The fragment is never sent, the query always."""
    node = {"parameters": [{"name": "q", "in": "query", "schema": {}}]}
    assert request(node, {"q": 1}, path="/#Action=List").url == f"{HOST}/?q=1"
    assert request(node, {"q": 1}, path="/x?do=list").url == f"{HOST}/x?do=list&q=1"


def test_what_is_asked_for_are_the_media_types_of_the_success() -> None:
    """JSON first."""
    content = {"text/csv": {}, "application/json": {}}
    sent = request({"responses": {"200": {"content": content}, "400": {"content": {"x/y": {}}}}}, {})
    assert sent.headers == [("Accept", "application/json, text/csv, */*;q=0.1")]
