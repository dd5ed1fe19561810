"""One ID, several backends: the order in which they are configured says whose tool it is."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec, Gate, Policy, Rule, Tool
from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.source import Definition, ProvidedTool
from toolexec.discovery.index import get_tool
from toolexec.errors import PolicyError
from toolexec.model.call import ToolCall
from toolexec.run.pinning import Pins


class Place:
    """A source of tools that all answer with its name, read once it is let go."""

    kind = "fake"

    def __init__(self, name: str, *tools: Tool) -> None:
        self.name = name
        self.tools: Sequence[Tool] = tools
        self.open = asyncio.Event()

    async def load(self) -> Definition:
        """Return the tools."""
        await self.open.wait()
        return Definition(tools=[ProvidedTool(tool, self._call, destination=self.name) for tool in self.tools])

    async def _call(self, call: ToolCall) -> str:
        return self.name

    async def aclose(self) -> None:
        """Do nothing."""

    def info(self) -> dict[str, Any]:
        """Return nothing."""
        return {}


def send(description: str = "Sends.") -> Tool:
    return Tool(name="send", namespace="mail", description=description, input_schema={"type": "object"})


ORDERS = pytest.mark.parametrize("order", [("main", "mirror"), ("mirror", "main")], ids=" first, then ".join)
OTHERS = pytest.mark.parametrize("other", [send(), send("Sends, too.")], ids=["same", "different"])


def is_available(ex: Exec, name: str) -> bool:
    """Return whether a backend has connected."""
    return next(status for status in ex.backend_statuses() if status.name == name).available


async def connect(ex: Exec, places: Sequence[Place], order: Sequence[str]) -> None:
    """Have the backends of *places* connect one after the other in this *order*."""
    for place in places:
        ex.add_backends(SourceBackend(place.name, place))
    by_name = {place.name: place for place in places}
    starting = asyncio.ensure_future(ex.start())
    for name in order:
        by_name[name].open.set()
        await until(partial(is_available, ex, name), pause=0)
    await starting


@ORDERS
@OTHERS
async def test_the_first_backend_of_the_configuration_owns_the_tool(order: Sequence[str], other: Tool) -> None:
    """Calls go to the same backend, also after each has been read again."""
    async with Exec() as ex:
        await connect(ex, [Place("main", send()), Place("mirror", other)], order)
        assert (await ex.run_tool("mail:send")).value == "main"
        bindings = [binding.backend for binding in get_tool(ex.index, "mail:send").bindings]
        assert bindings == (["main", "mirror"] if other == send() else ["main"])
        for name in order:
            await ex.refresh(name)
            assert (await ex.run_tool("mail:send")).value == "main"
        [status] = [each for each in ex.backend_statuses() if each.name == "mirror"]
        assert ("mail:send" in status.skipped) == (other != send())


@ORDERS
@OTHERS
async def test_rules_by_backend_and_pins_go_by_the_owner(order: Sequence[str], other: Tool, tmp_path: Path) -> None:
    """A rule against one of two backends holds for its tools only, in whatever order they connect."""
    for denied, outcome in (("mirror", "main"), ("main", None)):
        policy = Policy([Rule("deny", backends=[f"provider:{denied}"])], remote_destructive="allow")
        gate = Gate(policy=policy, pinning=Pins(tmp_path / f"{denied}.db"))
        async with Exec(gate=gate) as ex:
            await connect(ex, [Place("main", send()), Place("mirror", other)], order)
            if outcome is None:
                with pytest.raises(PolicyError):
                    await ex.run_tool("mail:send")
                assert await ex.search_tools("send") == []
            else:
                assert (await ex.run_tool("mail:send")).value == outcome
                assert [status.backend for status in Pins(tmp_path / f"{denied}.db").statuses()] == ["main"]


@ORDERS
async def test_another_backend_takes_over_what_the_owner_no_longer_has(order: Sequence[str]) -> None:
    """The second one's tool is there as long as the first has none, and when that is removed."""
    main, mirror = Place("main", send()), Place("mirror", send("Sends, too."))
    async with Exec() as ex:
        await connect(ex, [main, mirror], order)
        main.tools = ()
        await ex.refresh("main")
        assert (await ex.run_tool("mail:send")).value == "mirror"
        assert get_tool(ex.index, "mail:send").tool.description == "Sends, too."
        main.tools = [send("Sends again.")]
        await ex.refresh("main")
        assert (await ex.run_tool("mail:send")).value == "main"
        await ex.remove("main")
        assert (await ex.run_tool("mail:send")).value == "mirror"
        await ex.remove("mirror")
        assert ex.index.find("mail:send") is None


async def test_an_owner_may_change_a_tool_that_others_host_too() -> None:
    """The new definition counts, and the others are left out until they have it, too."""
    main, mirror = Place("main", send()), Place("mirror", send())
    async with Exec() as ex:
        await connect(ex, [main, mirror], ["mirror", "main"])
        main.tools = [send("Sends again.")]
        await ex.refresh("main")
        assert [binding.backend for binding in get_tool(ex.index, "mail:send").bindings] == ["main"]
        mirror.tools = [send("Sends again.")]
        await ex.refresh("mirror")
        assert [binding.backend for binding in get_tool(ex.index, "mail:send").bindings] == ["main", "mirror"]


@ORDERS
async def test_tools_of_this_program_stay(order: Sequence[str]) -> None:
    """A local tool is not taken over by backends that connect later."""
    async with Exec() as ex:
        ex.add(send("Here."), handler=lambda args: "here")
        await connect(ex, [Place("main", send()), Place("mirror", send("Here."))], order)
        assert (await ex.run_tool("mail:send")).value == "here"


async def test_another_destination_takes_the_place_of_the_old_one() -> None:
    """A binding that is listed again says where it leads now, and listeners of the index are notified."""
    main = Place("main", send())
    async with Exec() as ex:
        await connect(ex, [main], ["main"])
        assert get_tool(ex.index, "mail:send").binding.destination == "main"
        events: list[str] = []
        ex.index.on_change(lambda event: events.append(event.type))
        await ex.refresh("main")
        assert events == []
        main.name = "elsewhere"
        await ex.refresh("main")
        assert get_tool(ex.index, "mail:send").binding.destination == "elsewhere"
        assert events == ["updated"]
