"""Composed tools and transforms that a running server takes over from its file: all of them, or none."""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

from toolexec.backend.offering import OffersMore
from toolexec.config.build import Built, build
from toolexec.config.load import load_settings
from toolexec.config.loaded import LoadedConfig
from toolexec.config.reload import Reload
from toolexec.errors import ConfigurationError, InputValidationError, ToolNotFoundError
from toolexec.exec import Exec

TOOLS = '''
import asyncio

from toolexec import tool

began, go_on = asyncio.Event(), asyncio.Event()


@tool("shop:price", read_only=True)
def price(item: str, count: int = 1, currency: str = "CHF") -> str:
    """Prices an item.

    Args:
        item: Its name.
    """
    return f"{count} {item}: {count * 3} {currency}"


@tool("shop:wait", read_only=True)
async def wait(item: str) -> str:
    """Waits."""
    began.set()
    await go_on.wait()
    return item
'''
PROVIDER = '[providers.shop]\nkind = "python"\ntarget = "reload_shop:price"\n[pinning]\nenabled = false\n'
LOCAL = '[sources]\npython = ["reload_shop"]\n'
FILE = Path("toolexec.toml")
SERVER = Path(__file__).parents[1] / "server" / "offers_server.py"
EURO = '[transforms."shop:price"]\nname = "cost"\n[transforms."shop:price".arguments.currency]\nvalue = "EUR"\n'
TWICE = """[tools.twice]
description = "The price of two"
inputs = ["item: string"]
steps = [{ tool = "shop:price", args = { item = { "$ref" = "inputs.item" }, count = 2 } }]
"""


def read() -> LoadedConfig:
    """Read the settings as a server does."""
    return load_settings([FILE], environment={}, serving=True)


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module with tools."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "reload_shop.py").write_text(TOOLS)


@asynccontextmanager
async def serving(text: str) -> AsyncGenerator[tuple[Built, Reload]]:
    """Build what the file says, started, with what reloads it."""
    FILE.write_text(text)
    built = build(read(), serving=True)
    reload = Reload(built, read)
    try:
        await built.ex.start()
        yield built, reload
    finally:
        await reload.aclose()
        await built.ex.aclose()
        built.close()


async def ids(ex: Exec) -> list[str]:
    """Return the IDs of all tools."""
    return sorted(each.id for each in await ex.search_tools("", 50))


@pytest.mark.parametrize("tools", [PROVIDER, LOCAL])
async def test_transforms_come_change_and_go(tools: str) -> None:
    """A tool of a backend, and one of a Python module, is renamed, gets a fixed argument, is hidden, and is itself
    again; the server had no transform when it started."""
    async with serving(tools) as (built, reload):
        ex = built.ex
        others = [each for each in await ids(ex) if each != "shop:price"]
        assert (await ex.run_tool("shop:price", {"item": "tea"})).value == "1 tea: 3 CHF"
        FILE.write_text(tools + EURO)
        changes = await reload()
        assert changes is not None
        assert (changes.transforms, changes.restart) == (("shop:price",), ())
        assert await ids(ex) == sorted(["shop:cost", *others])
        assert (await ex.run_tool("shop:cost", {"item": "tea"})).value == "1 tea: 3 EUR"
        with pytest.raises(InputValidationError):
            await ex.run_tool("shop:cost", {"item": "tea", "currency": "USD"})
        with pytest.raises(ToolNotFoundError):
            await ex.run_tool("shop:price", {"item": "tea"})
        FILE.write_text(tools + EURO.replace('name = "cost"', 'description = "In euros"').replace("EUR", "GBP"))
        assert await reload()
        assert (await ex.run_tool("shop:price", {"item": "tea"})).value == "1 tea: 3 GBP"
        assert (await ex.get_tool_doc("shop:price")).summary == "In euros"
        FILE.write_text(f'{tools}[transforms."shop:price"]\nhide = true\n')
        assert await reload()
        assert await ids(ex) == others
        FILE.write_text(tools)
        assert await reload()
        assert await ids(ex) == sorted(["shop:price", *others])
        assert (await ex.run_tool("shop:price", {"item": "tea", "currency": "USD"})).value == "1 tea: 3 USD"


async def test_a_running_call_of_a_renamed_tool_finishes() -> None:
    """The call was made by the former name."""
    async with serving(LOCAL) as (built, reload):
        tools = importlib.import_module("reload_shop")
        running = asyncio.create_task(built.ex.run_tool("shop:wait", {"item": "tea"}))
        await tools.began.wait()
        FILE.write_text(f'{LOCAL}[transforms."shop:wait"]\nname = "stay"\n')
        assert await reload()
        with pytest.raises(ToolNotFoundError):
            await built.ex.run_tool("shop:wait", {"item": "tea"})
        tools.go_on.set()
        assert (await running).value == "tea"
        assert (await built.ex.run_tool("shop:stay", {"item": "tea"})).value == "tea"


async def test_composed_tools_come_change_and_go() -> None:
    """A changed one is the new one from the next call on; its hints follow the tools that it names."""
    async with serving(PROVIDER) as (built, reload):
        FILE.write_text(PROVIDER + TWICE)
        changes = await reload()
        assert changes is not None
        assert (changes.tools, changes.restart) == (("twice",), ())
        assert (await built.ex.run_tool("skill:twice", {"item": "tea"})).value == "2 tea: 6 CHF"
        doc = await built.ex.get_tool_doc("skill:twice")
        assert doc.tool is not None
        assert doc.tool.annotations.read_only
        FILE.write_text(PROVIDER + TWICE.replace("count = 2", "count = 3"))
        assert await reload()
        assert (await built.ex.run_tool("skill:twice", {"item": "tea"})).value == "3 tea: 9 CHF"
        FILE.write_text(
            PROVIDER + TWICE.replace("count = 2", "count = 4") + '[transforms."skill:twice"]\nname = "four"\n'
        )
        assert await reload()
        assert await ids(built.ex) == ["shop:price", "skill:four"]
        assert (await built.ex.run_tool("skill:four", {"item": "tea"})).value == "4 tea: 12 CHF"
        FILE.write_text(PROVIDER)
        assert await reload()
        assert await ids(built.ex) == ["shop:price"]
        assert not built.ex.skills


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('[transforms."shop:price".arguments.size]\nvalue = 1\n', "size"),
        ('[transforms."shop:price"]\nname = "wait"\n', "there is a tool shop:wait already"),
        ('[transforms."shop:price"]\nnam = "cost"\n', "nam"),
        (TWICE.replace("inputs.item", "inputs.itm"), "itm"),
        (TWICE.replace("twice", "two") + TWICE + '[transforms."skill:two"]\nname = "twice"\n', "skill:twice already"),
    ],
)
async def test_what_does_not_fit_changes_nothing(text: str, why: str) -> None:
    """Neither is what is right in the same file taken over."""
    async with serving(LOCAL) as (built, reload):
        before = await ids(built.ex)
        FILE.write_text(f'{LOCAL}[policy]\ndefault = "deny"\n{text}')
        assert await reload() is None
        assert why in reload.problem
        assert await ids(built.ex) == before
        assert (await built.ex.run_tool("shop:price", {"item": "tea"})).value == "1 tea: 3 CHF"


async def test_a_backend_s_tool_that_its_transform_does_not_fit_is_left_out_with_the_reason() -> None:
    """The other settings are taken over, as at a start: what a server has may change at any time."""
    async with serving(PROVIDER) as (built, reload):
        FILE.write_text(f'{PROVIDER}[transforms."shop:price".arguments.size]\nvalue = 1\n')
        assert await reload()
        [status] = [each for each in built.ex.backend_statuses() if each.name == "shop"]
        assert "size" in status.skipped["shop:price"]
        assert await ids(built.ex) == []
        FILE.write_text(PROVIDER)
        assert await reload()
        assert await ids(built.ex) == ["shop:price"]


async def test_examples_of_a_transform_go_with_it() -> None:
    """Examples are shown as long as the transform has them."""
    given = '[transforms."shop:price"]\nexamples = [{ description = "Tea", args = { item = "tea" } }]\n'
    async with serving(PROVIDER) as (built, reload):
        for text, count in ((PROVIDER + given, 1), (PROVIDER, 0)):
            FILE.write_text(text)
            assert await reload()
            assert len(built.ex.docs.list_examples("shop:price")) == count


async def test_prompts_of_a_running_server_are_shown_in_another_form() -> None:
    """The server itself goes on: it is asked again what it has."""
    server = f"[mcpServers.docs]\ncommand = '{sys.executable}'\nargs = ['{SERVER}', 'stdio', 'new', '0']\n"
    async with serving(server) as (built, reload):

        def pid() -> Any:
            return next(each.info["pid"] for each in built.ex.backend_statuses() if each.name == "docs")

        before = pid()
        assert "docs:review" in [each.name for each in await built.ex.list_prompts()]
        FILE.write_text(f'{server}[transforms."docs:review:+prompt"]\nname = "critique"\n')
        assert await reload()
        backend = built.ex.backends.get("docs")
        assert isinstance(backend, OffersMore)
        await until(lambda: backend.offered("docs:critique:+prompt"))
        names = [each.name for each in await built.ex.list_prompts()]
        assert ("docs:critique" in names, "docs:review" in names) == (True, False)
        assert pid() == before


async def test_only_an_exec_whose_gate_is_live_exchanges_tools() -> None:
    """That of a program of one's own has the transforms that it was given."""
    async with Exec() as ex:
        with pytest.raises(ConfigurationError, match="LiveGate"):
            ex.prepare_tools({})
