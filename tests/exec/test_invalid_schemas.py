"""Invalid schemas are named with their place: refused for tools of this program, a reason for those of others."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import Field

from toolexec import Exec, LocalBackend, Tool, tool
from toolexec.backend import ProviderBackend
from toolexec.errors import InvalidSchemaError, ToolNotFoundError
from toolexec.testing.mcp_server import ScriptedServer, ScriptedTool

OBJECT = {"type": "object"}
INVALID: list[tuple[dict[str, Any], str, str]] = [
    (
        {**OBJECT, "properties": {"a": {"type": "strnig"}}},
        "/properties/a/type",
        "'strnig' is not a type; did you mean string?",
    ),
    ({**OBJECT, "properties": {"a": {"pattern": "("}}}, "/properties/a/pattern", "regex"),
    ({**OBJECT, "required": "a"}, "/required", '"array"'),
    ({**OBJECT, "properties": {"a/b": {"minimum": "3"}}}, "/properties/a~1b/minimum", '"number"'),
    ({**OBJECT, "properties": {"x": {"items": [{"type": 3}]}}}, "/properties/x/items", "not"),
    ({**OBJECT, "anyOf": []}, "/anyOf", "[] has less than 1 item"),
    ({**OBJECT, "properties": {"a": {"$ref": "#/$defs/no"}}}, "/properties/a/$ref", "/$defs/no"),
    ({"type": "objekt"}, "/type", "'objekt' is not a type; did you mean object?"),
]


@pytest.mark.parametrize(("schema", "pointer", "reason"), INVALID)
@pytest.mark.parametrize("which", ["input_schema", "output_schema"])
async def test_a_tool_of_this_program_is_refused(which: str, schema: Any, pointer: str, reason: str) -> None:
    """By `add`, with the tool, the schema, the place in it and the reason; nothing is added."""
    parts: dict[str, Any] = {"input_schema": OBJECT, which: schema}
    wrong = Tool(name="wrong", namespace="a", **parts)
    async with Exec() as ex:
        with pytest.raises(InvalidSchemaError) as caught:
            ex.add(wrong, handler=lambda args: args)
        message = str(caught.value)
        assert message.startswith(f"the {which} of a:wrong is not valid at {pointer}: ")
        assert reason in message
        assert caught.value.details == {"pointer": pointer, "schema": which}
        assert caught.value.tool_id == "a:wrong"
        assert len(ex.index) == 0
        with pytest.raises(ToolNotFoundError):
            await ex.run_tool("a:wrong")


def test_a_declared_function_is_refused() -> None:
    """A schema that comes from annotations can be invalid, too; on each way to add it."""

    @tool("a:f")
    def function(text: Annotated[str, Field(json_schema_extra={"minLength": "3"})]) -> str:
        return text

    for add in (Exec().add, LocalBackend().add):
        with pytest.raises(InvalidSchemaError, match=r"a:f is not valid at /properties/text/minLength"):
            add(function)


@pytest.mark.parametrize(("schema", "pointer", "reason"), INVALID)
async def test_a_remote_tool_is_unavailable_with_the_reason(schema: Any, pointer: str, reason: str) -> None:
    """Search and documentation say so; a call names the place; the others of its backend work."""

    async def call(name: str, args: Any) -> Any:
        return [name, args]

    tools = [Tool(name="wrong", input_schema=schema), Tool(name="right", input_schema=OBJECT)]
    async with Exec() as ex:
        await ex.add_backends(ProviderBackend("shop", call, tools=tools))
        found = {summary.id: summary.unavailable for summary in await ex.search_tools("")}
        assert found["shop:right"] is None
        assert pointer in (found["shop:wrong"] or "")
        assert reason in (found["shop:wrong"] or "")
        assert pointer in ((await ex.get_tool_doc("shop:wrong")).unavailable or "")
        with pytest.raises(InvalidSchemaError, match=r"the input_schema of shop:wrong is not valid at ") as caught:
            await ex.run_tool("shop:wrong", {"a": 1})
        assert caught.value.details["pointer"] == pointer
        assert (await ex.run_tool("shop:right", {"a": 1})).value == ["right", {"a": 1}]
        assert [status.available for status in ex.backend_statuses() if status.name == "shop"] == [True]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "required": "a"},
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"a": 3}},
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "strnig"}}},
    ],
)
async def test_a_server_with_one_invalid_tool(schema: Any) -> None:
    """The same over MCP: one tool cannot be used, with the reason, and the rest of the server is there."""
    script = ScriptedServer(tools=[ScriptedTool("wrong", input_schema=schema), ScriptedTool("echo")])
    async with Exec() as ex:
        [status] = await ex.add_mcp("s", command=script.command())
        assert status.available, status.reason
        found = {summary.id: summary.unavailable for summary in await ex.search_tools("")}
        assert found["s:echo"] is None
        assert "nputSchema" in status.skipped.get("wrong", "") or "not valid at /" in (found["s:wrong"] or "")
        assert (await ex.run_tool("s:echo", {"x": 1})).ok
