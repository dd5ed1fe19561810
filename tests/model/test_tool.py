"""Tools, annotations and icons."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from toolexec.errors import (
    ExternalRefError,
    InvalidSchemaError,
    InvalidToolError,
    InvalidVersionError,
)
from toolexec.model import Icon, Tool, ToolAnnotations

OBJECT: dict[str, Any] = {"type": "object"}
FULL = Tool(
    name="log",
    namespace="git",
    version="1.2.0",
    title="Log",
    description="Shows the history",
    input_schema={"type": "object", "properties": {"n": {"type": "integer"}}},
    output_schema={"type": "array"},
    annotations=ToolAnnotations(title="A", read_only=True, idempotent=True, destructive=False, open_world=False),
    icons=[Icon(src="https://example.com/i.png", mime_type="image/png", sizes=("48x48",), theme="dark")],
    tags=["VCS", "vcs", "History Log"],
    meta={"summary": "s", "nested": {"list": [1, 2]}},
)


class TestIdentity:
    @pytest.mark.parametrize(
        ("parts", "expected"),
        [
            ({"name": "t"}, "t"),
            ({"name": "t", "namespace": ""}, "t"),
            ({"name": "t", "namespace": "n"}, "n:t"),
            ({"name": "t", "namespace": "n", "version": "1.0.0"}, "n:t:1.0.0"),
        ],
    )
    def test_id(self, parts: dict[str, str], expected: str) -> None:
        """The ID has as many parts as the tool."""
        assert Tool(**parts, input_schema=OBJECT).id == expected

    @pytest.mark.parametrize(
        ("parts", "field"),
        [
            ({"name": ""}, "name"),
            ({"name": "x" * 129}, "name"),
            ({"name": "bad:name"}, "name"),
            ({"name": "t", "namespace": "a:b"}, "namespace"),
            ({"name": "t", "namespace": "n", "version": "1:0"}, "version"),
            ({"name": "t", "version": "1.0.0"}, "namespace"),
        ],
    )
    def test_refuses_illegal_parts(self, parts: dict[str, str], field: str) -> None:
        """Every part is checked, and a bare tool cannot have a version that its ID would lose."""
        with pytest.raises(InvalidToolError) as caught:
            Tool(**parts, input_schema=OBJECT)
        assert caught.value.details == {"field": field}

    def test_all_foreign_characters_are_named(self) -> None:
        """The message shows each once, in order."""
        with pytest.raises(InvalidToolError, match="'@' '#'"):
            Tool(name="bad@name#here@", input_schema=OBJECT)

    def test_parsed_version(self) -> None:
        """The version as one that compares; raises when there is none."""
        assert str(FULL.parsed_version).lstrip("v") == "1.2.0"
        with pytest.raises(InvalidVersionError):
            _ = Tool(name="t", input_schema=OBJECT).parsed_version

    def test_display_name(self) -> None:
        """Title, else the annotations' title, else the name."""
        assert FULL.display_name == "Log"
        assert FULL.replace(title="").display_name == "A"
        assert Tool(name="t", input_schema=OBJECT).display_name == "t"


class TestSchemas:
    @pytest.mark.parametrize(
        ("schema", "error"),
        [
            (None, InvalidSchemaError),
            ("just text", InvalidSchemaError),
            ({"$ref": "#"}, InvalidSchemaError),
            ({"$ref": "https://example.com/s.json"}, ExternalRefError),
            ({"$schema": "http://json-schema.org/draft-04/schema#"}, InvalidSchemaError),
        ],
    )
    @pytest.mark.parametrize("part", ["input_schema", "output_schema"])
    def test_unsafe_schemas_are_refused_at_once(self, part: str, schema: Any, error: type[Exception]) -> None:
        """A tool never holds a schema that could hang or fetch; only the output schema may be missing."""
        parts = {"input_schema": OBJECT, part: schema}
        if part == "output_schema" and schema is None:
            assert Tool(name="t", **parts).output_schema is None
            return
        with pytest.raises(error):
            Tool(name="t", **parts)


class TestImmutable:
    def test_cannot_be_changed(self) -> None:
        """Setting and deleting raise, and say what to do instead."""
        with pytest.raises(AttributeError, match=r"tool\.replace\(name="):
            FULL.name = "x"
        with pytest.raises(AttributeError):
            del FULL.name

    def test_nothing_is_shared_with_the_caller(self) -> None:
        """Changing what a tool was made of, or what it gave out, does not change the tool."""
        schema, meta = {"type": "object", "required": ["a"]}, {"nested": {"k": 1}}
        tool = Tool(name="t", input_schema=schema, meta=meta)
        schema["required"].append("b")  # type: ignore[attr-defined]
        meta["nested"]["k"] = 2
        tool.input_schema.to_json()["required"].append("c")
        tool.meta["nested"]["k"] = 3
        tool.to_dict()["inputSchema"]["required"].append("d")
        assert tool.input_schema.to_json() == {"type": "object", "required": ["a"]}
        assert tool.meta == {"nested": {"k": 1}}

    @pytest.mark.parametrize("meta", [{"f": object()}, {"n": float("nan")}, {"b": b"x"}])
    def test_meta_must_be_json(self, meta: dict[str, Any]) -> None:
        """Refuses meta that could not be sent anywhere."""
        with pytest.raises(InvalidToolError, match="meta is not JSON"):
            Tool(name="t", input_schema=OBJECT, meta=meta)

    def test_meta_that_contains_itself(self) -> None:
        """An endless value is refused, not followed."""
        meta: dict[str, Any] = {}
        meta["self"] = meta
        with pytest.raises(InvalidToolError, match="meta is not JSON"):
            Tool(name="t", input_schema=OBJECT, meta=meta)

    def test_replace_gives_a_checked_copy(self) -> None:
        """Other parts stay; unknown ones are refused."""
        changed = FULL.replace(title="New")
        assert (changed.title, changed.id, FULL.title) == ("New", FULL.id, "Log")
        with pytest.raises(InvalidToolError):
            FULL.replace(name="")
        with pytest.raises(InvalidToolError, match="Tool has no setting 'colour'"):
            FULL.replace(colour="red")

    def test_copies_and_pickles(self) -> None:
        """A copy is equal."""
        assert copy.deepcopy(FULL) == FULL
        assert pickle.loads(pickle.dumps(FULL)) == FULL


class TestEquality:
    def test_equal_tools(self) -> None:
        """The order of keys in schemas and meta does not matter."""
        left = Tool(name="t", input_schema={"type": "object", "required": []}, meta={"a": 1, "b": 2})
        right = Tool(name="t", input_schema='{"required":[],"type":"object"}', meta={"b": 2, "a": 1})
        assert left == right
        assert hash(left) == hash(right)
        assert left != "t"

    @pytest.mark.parametrize(
        "changes",
        [
            {"title": "x"},
            {"description": "x"},
            {"annotations": ToolAnnotations()},
            {"icons": []},
            {"meta": None},
            {"input_schema": {"type": "object"}},
            {"output_schema": None},
        ],
        ids=lambda changes: next(iter(changes)),
    )
    def test_each_part_of_the_definition_counts(self, changes: dict[str, Any]) -> None:
        """Another title, schema or hint is another definition."""
        assert not FULL.same_definition(FULL.replace(**changes))
        assert FULL != FULL.replace(**changes)

    def test_tags_are_no_part_of_the_definition(self) -> None:
        """Search words may differ without a conflict, though the tools are not equal."""
        other = FULL.replace(tags=["x"])
        assert FULL.same_definition(other)
        assert FULL != other


class TestData:
    def test_round_trip(self) -> None:
        """`from_dict` reads what `to_dict` wrote."""
        assert Tool.from_dict(FULL.to_dict()) == FULL
        assert FULL.to_dict()["tags"] == ["vcs", "history-log"]

    def test_mcp_form_has_no_extensions(self) -> None:
        """Namespace, version and tags stay out, and come back empty."""
        data = FULL.to_mcp()
        assert not data.keys() & {"namespace", "version", "tags"}
        back = Tool.from_mcp(data | {"namespace": "ignored", "version": "9", "tags": ["x"]})
        assert (back.id, back.tags) == ("log", ())
        assert back.same_definition(FULL)
        assert Tool.from_mcp(data, namespace="git").id == "git:log"

    def test_small_tools_stay_small(self) -> None:
        """Empty fields are left out."""
        assert Tool(name="t", input_schema=True).to_dict() == {"name": "t", "inputSchema": True}

    @pytest.mark.parametrize(
        "junk",
        [
            {"title": 7, "description": None, "annotations": "x", "icons": [1, None], "_meta": [], "tags": [1]},
            {"annotations": {"readOnlyHint": "yes", "destructiveHint": 1, "title": []}, "icons": None, "tags": None},
        ],
    )
    def test_wrongly_typed_optionals_count_as_absent(self, junk: dict[str, Any]) -> None:
        """A sloppy server's tool is still a tool."""
        assert Tool.from_dict({"name": "t", "inputSchema": OBJECT, **junk}) == Tool(name="t", input_schema=OBJECT)

    @pytest.mark.parametrize(
        "data", [{}, {"name": "t"}, {"name": 7, "inputSchema": {}}, {"name": "t", "inputSchema": None}]
    )
    def test_name_and_schema_are_required(self, data: dict[str, Any]) -> None:
        """Without them there is no tool."""
        with pytest.raises(InvalidToolError):
            Tool.from_dict(data)


class TestHints:
    def test_annotations_round_trip(self) -> None:
        """MCP's spelling, without what is unset."""
        assert ToolAnnotations().to_mcp() == {}
        hints = ToolAnnotations(title="T", read_only=True, idempotent=True, destructive=False, open_world=True)
        assert ToolAnnotations.from_mcp(hints.to_mcp()) == hints

    def test_icons_round_trip(self) -> None:
        """Only the source is always there; odd sizes are dropped."""
        assert Icon(src="data:,").to_mcp() == {"src": "data:,"}
        assert Icon.from_mcp(FULL.icons[0].to_mcp()) == FULL.icons[0]
        assert Icon.from_mcp({"src": 1, "sizes": ["1x1", 2], "theme": None}) == Icon(src="", sizes=("1x1",))
        assert Icon.from_mcp({"src": "s", "sizes": 7}).sizes == ()

    def test_repr_is_the_id(self) -> None:
        """A tool in a log line is short."""
        assert repr(FULL) == "Tool('git:log:1.2.0')"
