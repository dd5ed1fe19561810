"""Another part of a server is chosen while it is used: its connection and its calls go on."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any

import pytest
from tests.config.test_reload_tools import FILE, SERVER, ids, serving
from tests.waiting import until

from toolexec.errors import BackendNotFoundError, NotOfferedError, ToolExecError, ToolNotFoundError
from toolexec.exec import Exec

DOCS = (
    '[policy]\nremote_destructive = "allow"\n[pinning]\nenabled = false\n'
    f"[mcpServers.docs]\ncommand = '{sys.executable}'\nargs = ['{SERVER}', 'stdio', 'new', '0']\n"
)
SHARED = "toolexec://docs/shared://same"


def pid(ex: Exec) -> Any:
    """Return the process of the server."""
    return next(each.info["pid"] for each in ex.backend_statuses() if each.name == "docs")


async def listed(ex: Exec, tool_id: str) -> bool:
    """Return whether a tool can be found."""
    return tool_id in await ids(ex)


async def test_tools_come_and_go() -> None:
    """Those that are left out are gone at once, those that are added come soon, and others can be called all the time."""
    async with serving(f'{DOCS}include = ["touch", "speak"]\n') as (built, reload):
        ex, before = built.ex, pid(built.ex)
        over = asyncio.Event()
        made: list[object] = []

        async def keep_calling() -> None:
            while not over.is_set():
                result = await ex.run_tool("docs:touch", {})
                made.append(result.raise_for_error().value)

        callers = [asyncio.create_task(keep_calling()) for _ in range(4)]
        for chosen in (["touch"], ["touch", "link"], ["t*"], ["touch", "speak"]):
            FILE.write_text(f"{DOCS}include = {chosen}\n")
            changes = await reload()
            assert changes is not None
            assert (changes.chosen, changes.changed, changes.restart) == (("docs",), (), ())
            assert "parts of servers chosen: docs" in str(changes)
            for name in {"link", "speak"} - {*chosen}:
                with pytest.raises((ToolNotFoundError, BackendNotFoundError)):
                    await ex.run_tool(f"docs:{name}", {})
            for name in {"touch", *chosen} - {"t*"}:
                await until(partial(listed, ex, f"docs:{name}"))
        over.set()
        await asyncio.gather(*callers)
        assert len(made) > 0
        assert pid(ex) == before


async def test_what_can_be_read_is_narrowed_at_once() -> None:
    """A resource, a prompt and a template that are left out cannot be had any more, by a URI that a template fits or
    one that is not listed either; they can once they are chosen again."""
    async with serving(DOCS) as (built, reload):
        ex, before = built.ex, pid(built.ex)
        ann = "toolexec://docs/user://ann/profile"
        for uri in (SHARED, ann, "toolexec://docs/bytes://some"):
            assert await ex.read_resource(uri)
        assert await ex.get_prompt("docs:review", {"code": "x"})
        FILE.write_text(f'{DOCS}include_resources = ["bytes://*", "user://*"]\nexclude_resources = ["user://*"]\n'
                        'exclude_prompts = ["review"]\n')  # fmt: skip
        assert await reload()
        for uri in (SHARED, ann):
            with pytest.raises(ToolExecError):
                await ex.read_resource(uri)
        with pytest.raises(NotOfferedError):
            await ex.get_prompt("docs:review", {"code": "x"})
        assert await ex.read_resource("toolexec://docs/bytes://some")
        assert "docs:review" not in [each.name for each in await ex.list_prompts()]
        FILE.write_text(DOCS)
        assert await reload()
        for uri in (SHARED, ann):
            assert await ex.read_resource(uri)
        assert await ex.get_prompt("docs:review", {"code": "x"})
        assert pid(ex) == before


async def test_patterns_that_cannot_be_used_change_nothing() -> None:
    """The reload says so, and what was chosen stays."""
    async with serving(f'{DOCS}include = ["touch"]\n') as (built, reload):
        too_many = [f"t{number}*" for number in range(1001)]
        FILE.write_text(f"{DOCS}include = {too_many}\n")
        assert await reload() is None
        assert "include of docs" in reload.problem
        assert await listed(built.ex, "docs:touch")


async def test_a_server_that_differs_by_more_is_replaced() -> None:
    """With another argument it is another process."""
    async with serving(f'{DOCS}include = ["touch"]\n') as (built, reload):
        before = pid(built.ex)
        FILE.write_text(DOCS.replace("'0'", "'1'") + 'include = ["t*"]\n')
        changes = await reload()
        assert changes is not None
        assert (changes.chosen, changes.changed) == ((), ("docs",))
        await until(lambda: listed(built.ex, "docs:touch"))
        assert pid(built.ex) != before
