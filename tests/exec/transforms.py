"""What holds of a tool in another form than its own, on every path: for each kind of tool, a test of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

import pytest
from tests.server.harness import connect
from tests.server.harness import serving as serving_tools

from toolexec import Exec, Step
from toolexec.errors import InputValidationError

SHOWN = {
    "name": "see",
    "description": "Looks at an item.",
    "arguments": {
        "id": {"name": "item", "description": "Which item."},
        "n": {"default": 3},
        "lang": {"value": "en"},
        "debug": {"hide": True},
    },
}
"""A form for a tool with the arguments `id`, `n`, `lang` and `debug`."""


@dataclass(frozen=True)
class Kind:
    """A kind of tool: `make` gives an Exec with the tool `far:see`; `sent` is what the tool was sent for an item, as it
    says in its value, and `hidden` are the arguments that callers do not see."""

    make: Callable[[], AbstractAsyncContextManager[Exec]]
    sent: Callable[[str, int], dict[str, Any]]
    hidden: tuple[str, ...] = ("lang", "debug")


async def check_every_path(kind: Kind) -> None:
    """Check that a call, a step of a chain, a program and a client all use the form that is shown, and the tool gets its own."""
    async with kind.make() as ex:
        value = (await ex.run_tool("far:see", {"item": "a"})).value
        assert value is not None
        assert kind.sent("a", 3).items() <= value.items()
        assert not value.get("note")
        chained = (await ex.run_chain([Step("far:see", {"item": "b", "n": 5})])).value
        assert kind.sent("b", 5).items() <= chained.items()
        run = await ex.execute_code("tools.far.see(item='c')")
        assert run.error is None, run.error
        assert kind.sent("c", 3).items() <= run.value.items()
        async with serving_tools(ex) as server, connect(server, "auto") as client:
            reply = await client.call_tool("run_tool", {"tool_id": "far:see", "args": {"item": "d"}})
            text = json.dumps(reply.model_dump(mode="json"))
            assert not reply.is_error, text
            assert str(kind.sent("d", 3).popitem()[1]) in text


async def check_what_is_shown(kind: Kind) -> None:
    """Check that callers see the new names and descriptions, and nothing of what is fixed or hidden; that is refused."""
    async with kind.make() as ex:
        doc = ex.docs.describe("far:see", "full")
        assert doc.tool is not None
        schema = doc.tool.input_schema.to_json()
        assert doc.summary.startswith("Looks at an item")
        assert schema["properties"]["item"]["description"] == "Which item."
        assert not schema["properties"].keys() & {*kind.hidden, "id", "name"}
        for hidden in kind.hidden:
            with pytest.raises(InputValidationError):
                await ex.run_tool("far:see", {"item": "a", hidden: "x"})
        with pytest.raises(InputValidationError, match="/item"):
            await ex.run_tool("far:see", {"item": 5})
