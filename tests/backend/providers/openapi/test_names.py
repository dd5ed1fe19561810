"""Which operations become tools, and what they are called."""

from __future__ import annotations

import pytest
from tests.openapi import API, api, operations, tools

from toolexec.backend.providers.openapi.selection import Selection
from toolexec.errors import ConfigurationError

PETS = api(
    {
        "/pets": {
            "get": {"operationId": "pets/list", "tags": ["pets"], "summary": "List pets"},
            "post": {"operationId": "pets/create", "tags": ["pets", "write"]},
        },
        "/pets/{petId}": {"get": {"tags": ["pets"]}, "delete": {"operationId": "удалить", "tags": ["write"]}},
        "/owners": {"get": {"operationId": "pets list"}, "head": {"operationId": "pets/list"}},
    }
)


def test_operations_are_named_by_their_id_or_else_by_their_route() -> None:
    """An ID with illegal characters gets legal ones, and a name that is taken a number."""
    assert list(tools(PETS)) == [
        "pets-list",
        "pets-create",
        "get_pets_by_petId",
        "delete_pets_by_petId",
        "pets-list_2",
        "pets-list_3",
    ]
    assert tools(PETS)["pets-list"].id == "api:pets-list"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({"include": ["pets-*"], "exclude": ["*_3"]}, ["pets-list", "pets-create", "pets-list_2"]),
        ({"include": ["GET /pets*"]}, ["pets-list", "get_pets_by_petId"]),
        ({"include": ["pets/create"]}, ["pets-create"]),
        ({"tags": ["write"]}, ["pets-create", "delete_pets_by_petId"]),
        ({"tags": ["pets"], "exclude": ["POST *"]}, ["pets-list", "get_pets_by_petId"]),
        ({"rename": {"pets/create": "add", "GET /owners": "owners"}, "include": ["add", "owners"]}, ["add", "owners"]),
    ],
    ids=str,
)
def test_rules_select_and_rename(rules: dict[str, object], expected: list[str]) -> None:
    """Leaving some out changes no name of the others."""
    assert list(tools(PETS, selection=Selection(**rules))) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"pets/lst": "list"}, "no operation 'pets/lst'; did you mean pets/list"),
        ({"pets/list": "a b"}, "the name for 'pets/list' contains ' '"),
        ({"pets/list": "a", "pets/create": "a"}, "two operations are given the same name"),
    ],
)
def test_a_wrong_new_name_is_refused(rename: dict[str, str], message: str) -> None:
    """The nearest operation is named."""
    with pytest.raises(ConfigurationError, match=message):
        operations(PETS, selection=Selection(rename=rename))


def test_a_long_name_is_cut_and_stays_unique() -> None:
    """Its number is kept."""
    names = list(tools(api({f"/{n}": {"get": {"operationId": "x" * 200}} for n in range(3)})))
    assert [len(name) for name in names] == [128, 128, 128]
    assert len(set(names)) == 3


def test_hints_follow_the_method() -> None:
    """GET only reads, DELETE destroys, PUT may be repeated, and POST says nothing."""
    found = tools(api({"/x": {method: {} for method in ("get", "head", "put", "post", "patch", "delete")}}))
    hints = {
        name: (t.annotations.read_only, t.annotations.idempotent, t.annotations.destructive)
        for name, t in found.items()
    }
    assert hints == {
        "get_x": (True, True, False),
        "head_x": (True, True, False),
        "put_x": (False, True, None),
        "post_x": (False, False, None),
        "patch_x": (False, False, None),
        "delete_x": (False, True, True),
    }


def test_descriptions_are_bounded() -> None:
    """Summary and description make the tool's; both are cut."""
    found = tools(api({"/x": {"get": {"summary": "Get it", "description": "d" * 10_000, "deprecated": True}}}))["get_x"]
    assert found.title == "Get it"
    assert found.description.startswith("Deprecated.\n\nGet it\n\nddd")
    assert len(found.description) < 4100


def test_pages_are_described() -> None:
    """The arguments that turn pages, and where the next one is named, are in the description and the metadata."""
    parameters = [{"name": name, "in": "query", "schema": {"type": "integer"}} for name in ("page", "per_page", "q")]
    linked = {"200": {"description": "ok", "headers": {"Link": {}}}}
    found = tools(api({"/x": {"get": {"parameters": parameters, "responses": linked}}}))["get_x"]
    assert "Pages: `page` (page), `per_page` (size); the next is named by the Link header." in found.description
    assert found.meta["pages"] == {"arguments": {"page": "page", "per_page": "size"}, "next": "the Link header"}
    cursor = [{"name": "cursor", "in": "query", "schema": {}}]
    schema = {"properties": {"items": {}, "meta": {"properties": {"next_cursor": {"type": "string"}}}}}
    content = {"200": {"content": {"application/json": {"schema": schema}}}}
    found = tools(api({"/x": {"get": {"parameters": cursor, "responses": content}}}))["get_x"]
    assert found.meta["pages"]["next"] == "`meta.next_cursor` of the result"


def test_links_of_the_author_are_kept() -> None:
    """Search suggests chains by them."""
    link = {"operationId": "get_pet", "parameters": {"id": "$response.body#/id"}, "description": "d"}
    found = tools(api({"/x": {"post": {"responses": {"201": {"links": {"Get": link}}}}}}))["post_x"]
    assert found.meta["openapi_links"] == {
        "Get": {"operationId": "get_pet", "parameters": {"id": "$response.body#/id"}}
    }


def test_a_broken_operation_does_not_stop_the_others() -> None:
    """Each is named with its reason."""
    found = operations(
        api(
            {
                "/a": {"get": {"parameters": [{"in": "query"}]}, "post": "x", "put": {}},
                "/b": {"get": {"parameters": [{"$ref": "#/components/parameters/none"}]}},
                "/c": {"$ref": "other.yaml#/paths/c"},
                "d": {"get": {}},
                "/e": {"get": {"servers": [{"url": "ftp://e"}]}, "x-note": 1, "parameters": "x", "summary": 5},
            }
        )
    )
    assert [each.tool.name for each in found.found] == ["put_a"]
    assert found.skipped == {
        "get_a": "GET /a: a parameter has no name, or is not in one of path, query, header, cookie, querystring",
        "POST /a": "it is str, not an object",
        "get_b": "GET /b: it refers to '#/components/parameters/none', which is not in the document",
        "/c": "it refers to 'other.yaml#/paths/c', outside of the document; allow_refs permits that",
        "get_d": "GET d: its path does not begin with a slash",
        "get_e": "GET /e: its server 'ftp://e' is not one of HTTP",
    }


async def test_the_namespace_is_the_name_unless_it_is_set() -> None:
    """Two providers may share one."""
    definition = await API(PETS, namespace="zoo").load()
    assert definition.tools[0].tool.id == "zoo:pets-list"
