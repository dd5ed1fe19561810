"""Generated calls, both ways: what schemathesis makes of a document arrives as it was made when it goes through the
tools, and what fits the tools' schemas arrives as the document allows, by schemathesis' own check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.backend.providers.service import Seen, Service
from tests.depth import examples
from tests.tiers import missing

from toolexec import Exec

try:
    import schemathesis
    from schemathesis.generation import GenerationMode
except ImportError:
    missing("schemathesis is not installed", "pip install -r requirements-dev.txt -c constraints.txt")

pytestmark = pytest.mark.full

PET = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "age"],
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "weight": {"type": ["number", "null"]},
        "kind": {"enum": ["cat", "dog", None]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
        "owner": {"$ref": "#/components/schemas/Owner"},
    },
}
OWNER = {
    "type": "object",
    "additionalProperties": {"type": "integer"},
    "properties": {"id": {"type": "integer"}, "friend": {"$ref": "#/components/schemas/Owner"}},
}
WORDS = {"type": "array", "items": {"type": "string", "pattern": "^[a-z]{1,5}$"}, "minItems": 1, "maxItems": 4}
ANSWER = {"responses": {"200": {"description": "an echo"}}}


def parameter(place: str, name: str, schema: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return a parameter of an operation."""
    return {"in": place, "name": name, "schema": schema, **({"required": True} if place == "path" else {}), **more}


def document(url: str) -> dict[str, Any]:
    """Return an API with parameters in each place and style, and bodies of three kinds."""
    integer, word = {"type": "integer"}, {"type": "string", "pattern": "^[a-z0-9 _~-]{1,12}$"}
    text, flag = {"type": "string"}, {"type": "boolean"}
    operations: dict[str, dict[str, Any]] = {
        "/pets/{id}/of/{owner}": {
            "operationId": "places",
            "parameters": [
                parameter("path", "id", integer),
                parameter("path", "owner", word),
                parameter("query", "q", text),
                parameter("query", "at most", {"type": "number"}, required=True),
                parameter("query", "on", flag),
                parameter("header", "X-Word", word, required=True),
                parameter("cookie", "session", word),
            ],
        },
        "/styles/{ids}/{matrix}": {
            "operationId": "styles",
            "parameters": [
                parameter("path", "ids", {**WORDS}),
                parameter("path", "matrix", integer, style="matrix"),
                parameter("query", "many", WORDS),
                parameter("query", "few", WORDS, explode=False),
                parameter("query", "piped", WORDS, style="pipeDelimited", explode=False),
                parameter("header", "X-List", WORDS),
            ],
        },
        "/json": {"operationId": "json", "requestBody": body("application/json", {"$ref": "#/components/schemas/Pet"})},
        "/list": {"operationId": "list", "requestBody": body("application/json", {"type": "array", "items": integer})},
        "/form": {
            "operationId": "form",
            "requestBody": body(
                "application/x-www-form-urlencoded",
                {"type": "object", "additionalProperties": False, "required": ["a"],
                 "properties": {"a": word, "n": integer, "all": WORDS}},
            ),
        },
    }  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "Generated", "version": "1"},
        "servers": [{"url": url}],
        "components": {"schemas": {"Pet": PET, "Owner": OWNER}},
        "paths": {path: {"post": {**operation, **ANSWER}} for path, operation in operations.items()},
    }


def body(media: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body that a request must have."""
    return {"required": True, "content": {media: {"schema": schema}}}


NAMES = ("places", "styles", "json", "list", "form")


@pytest.fixture(scope="module")
def tools(running: Service) -> Iterator[Any]:
    """Give a function that calls a tool and returns the request that has arrived."""
    with Exec().sync as ex:
        ex.exec.add_openapi("api", document(running.url))
        ex.start()

        def call(name: str, args: Mapping[str, Any]) -> Seen:
            running.seen.clear()
            ex.run_tool(f"api:{name}", args).raise_for_error()
            [seen] = running.seen
            return seen

        call.ex = ex  # type: ignore[attr-defined]
        yield call


def operation_of(running: Service, name: str) -> Any:
    """Return an operation as schemathesis reads it."""
    schema = schemathesis.openapi.from_dict(document(running.url))
    found = (each.ok() for each in schema.get_all_operations())
    return next(each for each in found if each.definition.raw["operationId"] == name)


def generated(operation: Any) -> st.SearchStrategy[Any]:
    """Return the cases that fit an operation."""
    return operation.as_strategy(generation_mode=GenerationMode.POSITIVE)


MODEST = settings(
    max_examples=examples(25), deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
)
SEPARATED: Mapping[str, str] = {"ids": ",", "few": ",", "piped": "|", "X-List": ","}
CONVERTED: Mapping[str, Callable[[Any], Any]] = {
    "id": int,
    "matrix": lambda text: int(text.removeprefix(";matrix=")),
    "at most": float,
    "on": {"true": True, "false": False}.__getitem__,
    "n": int,
}


def restored(name: str, value: Any) -> Any:
    """Return a parameter that was written for a request as the value that it stands for."""
    if not isinstance(value, str):
        return value
    if name in SEPARATED:
        return value.split(SEPARATED[name])
    return CONVERTED.get(name, str)(value)


def arguments_of(case: Any) -> dict[str, Any]:
    """Return the arguments of a tool for a case of schemathesis."""
    path = {name: unquote(value) if isinstance(value, str) else value for name, value in case.path_parameters.items()}
    parts = (path, case.query, case.headers, case.cookies)
    args = {name: restored(name, value) for part in parts for name, value in (part or {}).items()}
    if case.media_type:
        args |= case.body if isinstance(case.body, dict) else {"body": case.body}
    return args


def pairs(text: str) -> list[tuple[str, str]]:
    """Return what a query or a form says."""
    return parse_qsl(text, keep_blank_values=True)


def body_of(seen: Seen) -> Any:
    """Return the body of a request as data."""
    if not seen.body:
        return None
    return pairs(seen.body.decode()) if "urlencoded" in seen.headers["content-type"] else seen.json


def cookies_of(seen: Seen) -> dict[str, str]:
    """Return the cookies of a request."""
    found = (each.strip().partition("=") for each in seen.headers.get("cookie", "").split(";") if each.strip())
    return {name: unquote(value) for name, _, value in found}


@pytest.mark.parametrize("name", NAMES)
def test_what_schemathesis_makes_arrives_as_it_was_made(running: Service, tools: Any, name: str) -> None:
    """Each case is sent by the tool and by schemathesis itself, and the service gets the same from both."""

    @MODEST
    @given(generated(operation_of(running, name)))
    def arrives(case: Any) -> None:
        ours = tools(name, arguments_of(case))
        running.seen.clear()
        case.call(base_url=running.url)
        [theirs] = running.seen
        assert (ours.method, unquote(ours.path)) == (theirs.method, unquote(theirs.path))
        assert sorted(pairs(ours.query)) == sorted(pairs(theirs.query))
        assert body_of(ours) == body_of(theirs)
        assert cookies_of(ours) == cookies_of(theirs)
        for header in ("x-word", "x-list"):
            assert ours.headers.get(header) == theirs.headers.get(header)

    arrives()


@pytest.mark.parametrize("name", NAMES)
def test_what_fits_a_tool_arrives_as_the_document_allows(running: Service, tools: Any, name: str) -> None:
    """Arguments that the schema of a tool allows make requests whose every part schemathesis finds valid."""
    operation = operation_of(running, name)
    schema = json.loads(
        tools.ex.exec.index.get(f"api:{name}").tool.input_schema.text.replace("#/$defs/", "#/components/schemas/")
    )
    defined = schema.pop("$defs", {})
    own = schemathesis.openapi.from_dict(
        {
            "openapi": "3.1.0",
            "info": {"title": "tool", "version": "1"},
            "components": {"schemas": defined},
            "paths": {"/": {"post": {"requestBody": body("application/json", schema), **ANSWER}}},
        }
    )
    [arguments] = [each.ok() for each in own.get_all_operations()]

    @MODEST
    @given(generated(arguments))
    def allowed(case: Any) -> None:
        check(operation, tools(name, case.body))

    allowed()


def check(operation: Any, seen: Seen) -> None:
    """Raise for a request with a part that does not fit the document, as schemathesis reads it."""
    template, path = operation.path.split("/"), seen.path.split("/")
    assert len(template) == len(path)
    found = {name[1:-1]: unquote(text) for name, text in zip(template, path, strict=True) if name.startswith("{")}
    _validate(operation.path_parameters, found)
    query: dict[str, Any] = {}
    for name, text in pairs(seen.query):
        query[name] = [*query.get(name, []), text] if name == "many" else text
    _validate(operation.query, query)
    named = {each.name.lower(): each.name for each in operation.headers}
    _validate(operation.headers, {named[key]: text for key, text in seen.headers.items() if key in named})
    _validate(operation.cookies, cookies_of(seen))
    for each in operation.body:
        data = body_of(seen)
        if "urlencoded" in each.media_type:
            form = dict(data)
            if "all" in form:
                form["all"] = [text for key, text in data if key == "all"]
            data = {name: restored(name, value) for name, value in form.items()}
        each.validate(data)


def _validate(parameters: Any, found: Mapping[str, Any]) -> None:
    values = {name: restored(name, value) for name, value in found.items()}
    parameters.get_strict_validator().validate(values)
