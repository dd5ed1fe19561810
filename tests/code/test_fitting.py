"""Refused arguments, as their tool takes them."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec import Exec, Tool, ToolAnnotations
from toolexec.code.fitting import fitted, positional


def tool_of(properties: dict[str, Any], required: list[str], *, read_only: bool = False) -> Tool:
    """A tool with these arguments, and no others."""
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    hints = ToolAnnotations(read_only=read_only)
    return Tool(name="get_order", namespace="shop", input_schema=schema, annotations=hints)


TEXT, WHOLE = {"type": "string"}, {"type": "integer"}
MANY = {"type": "array", "items": TEXT}
FITTED: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"max_words": WHOLE}, {"maxWords": 3}, {"max_words": 3}),
    ({"maxWords": WHOLE}, {"max_words": 3}, {"maxWords": 3}),
    ({"target_lang": TEXT}, {"target_language": "de"}, {"target_lang": "de"}),
    ({"id": WHOLE}, {"order_id": 3}, {"id": 3}),
    ({"order_id": WHOLE}, {"id": "3"}, {"order_id": 3}),
    ({"id": WHOLE}, {"id": "-12"}, {"id": -12}),
    ({"total": {"type": "number"}}, {"total": "2.50"}, {"total": 2.5}),
    ({"id": {"anyOf": [WHOLE, {"type": "null"}]}}, {"id": "3"}, {"id": 3}),
    ({"id": {"type": ["integer", "null"]}}, {"id": "3"}, {"id": 3}),
    ({"is_open": {"type": "boolean"}}, {"is_open": "False"}, {"is_open": False}),
    ({"zip": TEXT}, {"zip": 8001}, {"zip": "8001"}),
    ({"tags": MANY}, {"tags": "new"}, {"tags": ["new"]}),
    ({"tags": MANY}, {"tags": '["new", "old"]'}, {"tags": ["new", "old"]}),
    ({"where": {"type": "object"}}, {"where": '{"a": 1}'}, {"where": {"a": 1}}),
]
REFUSED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"id": WHOLE}, {"user_id": 3}),
    ({"id": WHOLE}, {"number": 3}),
    ({"id": WHOLE}, {"id": 3, "units": "metric"}),
    ({"id": WHOLE}, {"id": "007"}),
    ({"id": WHOLE}, {"id": "3.5"}),
    ({"id": WHOLE}, {"id": "three"}),
    ({"id": WHOLE}, {"id": 3.5}),
    ({"id": WHOLE}, {"id": True}),
    ({"zip": TEXT}, {"zip": 80.5}),
    ({"tags": MANY}, {"tags": "new, old"}),
    ({"is_open": {"type": "boolean"}}, {"is_open": "yes"}),
    ({"is_open": {"type": "boolean"}}, {"is_open": 1}),
    ({"where": {"type": "object"}}, {"where": "{"}),
    ({"a_b": WHOLE, "aB": WHOLE}, {"AB": 1}),
    ({"id": WHOLE}, {"id": 1, "ID": 2}),
]


class TestFitted:
    """What is certain, and what is not."""

    @pytest.mark.parametrize(("properties", "given", "meant"), FITTED)
    def test_what_is_certain(self, properties: dict[str, Any], given: dict[str, Any], meant: dict[str, Any]) -> None:
        """Another spelling, a word of the tool's own name, and one type as the text of another are understood."""
        found = fitted(given, tool_of(properties, [*properties]))
        assert found is not None
        assert found[0] == meant
        assert found[1]

    @pytest.mark.parametrize(("properties", "given"), REFUSED)
    def test_what_is_not(self, properties: dict[str, Any], given: dict[str, Any]) -> None:
        """Anything else stays refused."""
        assert fitted(given, tool_of(properties, [])) is None
        assert fitted(given, tool_of(properties, [*properties])) is None

    def test_only_a_tool_that_changes_nothing_takes_another_name(self) -> None:
        """The one unknown name may be the one that is missing only where a wrong guess does no harm."""
        given = {"location": "Lima"}
        assert fitted(given, tool_of({"city": TEXT}, ["city"])) is None
        found = fitted(given, tool_of({"city": TEXT}, ["city"], read_only=True))
        assert found == ({"city": "Lima"}, ["`location` of shop:get_order was passed as `city`"])

    def test_secrets_are_not_said(self) -> None:
        """Notes of a change have names in them, no values."""
        found = fitted({"apiKey": 123456}, tool_of({"api_key": TEXT}, ["api_key"]))
        assert found is not None
        assert "123456" not in " ".join(found[1])


def test_values_without_a_name() -> None:
    """Values stand for the only argument that is required; for several only of a tool that changes nothing."""
    both = {"days": WHOLE, "city": TEXT}
    assert positional(tool_of(both, ["city"])) == ["city"]
    assert positional(tool_of(both, ["city", "days"])) == []
    assert positional(tool_of(both, [])) == []
    assert positional(tool_of({"city": TEXT}, [])) == ["city"]
    assert positional(tool_of(both, ["city"], read_only=True)) == ["city", "days"]
    assert positional(Tool(name="x", input_schema={"type": "object"})) == []
    long = {"city": {**TEXT, "description": "x" * 20_000}}
    for _ in range(2):
        assert positional(tool_of(long, [])) == ["city"]
        positional(tool_of(both, ["city"])).clear()  # what is remembered is not the caller's
    assert positional(tool_of(both, ["city"])) == ["city"]


class TestRuns:
    """In programs."""

    async def test_a_note_says_it(self) -> None:
        """The call is made once, with the arguments that are recorded; notes say what was changed."""
        seen: list[Any] = []

        def get_order(order_id: int, with_items: bool = False) -> str:
            seen.append((order_id, with_items))
            return "ok"

        async with Exec() as ex:
            ex.add(get_order, "shop:get_order")
            result = await ex.execute_code("tools.shop.get_order(orderId='3', withItems='true')")
            assert result.value == "ok", result.error
            assert seen == [(3, True)]
            assert [call.args for call in result.tool_calls] == [{"order_id": 3, "with_items": True}]
            assert [call.error for call in result.tool_calls] == [None]
            assert len(result.notes) == 4
            assert result.notes[0] == "`orderId` of shop:get_order was passed as `order_id`"

    async def test_a_call_from_outside_is_refused(self) -> None:
        """Only calls of programs are understood so."""
        async with Exec() as ex:
            ex.add(lambda order_id: order_id, "shop:get_order")
            with pytest.raises(Exception, match="not a known name"):
                await ex.run_tool("shop:get_order", {"orderId": 3})

    async def test_what_a_tool_within_refuses(self) -> None:
        """The refusal of a call that a tool itself makes has that tool run once."""
        runs: list[int] = []
        async with Exec() as ex:

            async def outer(n: int) -> Any:
                runs.append(n)
                return (await ex.run_tool("shop:inner", {"n": "x"})).value

            def inner(n: int) -> int:
                return n

            ex.add(outer, "shop:outer")
            ex.add(inner, "shop:inner")
            result = await ex.execute_code("tools.shop.outer(n=1)")
            assert result.error is not None
            assert runs == [1]
