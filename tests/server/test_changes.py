"""Telling clients that the tools have changed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import mcp_types as types
import pytest
from tests.server.harness import connect, serving
from tests.waiting import until

from toolexec import Exec


class Ear:
    def __init__(self) -> None:
        self.count = 0

    async def __call__(self, message: Any) -> None:
        self.count += isinstance(message, types.ToolListChangedNotification)


def grow(ex: Exec, *names: str) -> None:
    for name in names:
        ex.add(lambda: 1, f"t:{name}")


async def test_one_notice_per_burst_in_the_handshake_era() -> None:
    """Many changes in a row are one notice for each client; a later change is another one."""
    ex, first, second = Exec(), Ear(), Ear()
    async with serving(ex, list_changed_debounce=0.05) as server:
        async with connect(server, "legacy", message_handler=first) as client:
            assert client.server_capabilities.tools.list_changed is True
            async with connect(server, "legacy", message_handler=second):
                grow(ex, "a", "b", "c")
                await until(lambda: first.count == second.count == 1)
                await asyncio.sleep(0.15)
                assert first.count == 1
            grow(ex, "d")
            await until(lambda: first.count == 2)
            await asyncio.sleep(0.1)
            assert second.count == 1


async def test_listeners_of_the_newer_era() -> None:
    """In the newer era those who listen hear it, once per burst; the stream ends well when the server closes."""
    ex = Exec()
    received: list[Any] = []
    async with serving(ex, list_changed_debounce=0.05) as server, connect(server, "auto") as client:
        async with client.listen(tools_list_changed=True) as subscription:

            async def hear() -> None:
                async for event in subscription:
                    received.append(event)

            task = asyncio.create_task(hear())
            grow(ex, "a", "b")
            await until(lambda: len(received) == 1)
            await asyncio.sleep(0.15)
            assert len(received) == 1
            task.cancel()


async def test_clients_are_notified_of_what_they_may_see_though_nothing_has_changed() -> None:
    """As when the policy of a running server is another one: tools, resources and prompts are to be listed again."""
    received: list[str] = []

    async def receive(message: Any) -> None:
        received.append(type(message).__name__)

    async with serving(Exec(), list_changed_debounce=0.01) as server:
        async with connect(server, "legacy", message_handler=receive):
            server.notify_changes()
            await until(lambda: len(received) == 3)
    assert set(received) == {
        "ToolListChangedNotification",
        "ResourceListChangedNotification",
        "PromptListChangedNotification",
    }


async def test_changes_from_a_thread() -> None:
    """A change that a thread makes is notified, too."""
    ex, ear = Exec(), Ear()
    async with serving(ex, list_changed_debounce=0.01) as server:
        async with connect(server, "legacy", message_handler=ear):
            thread = threading.Thread(target=grow, args=(ex, "a"))
            thread.start()
            await until(lambda: ear.count == 1)
            thread.join()


@pytest.mark.full
async def test_a_burst_without_end_is_told_of_now_and_then() -> None:
    """Changes that never stop are notified all the same, without a flood."""
    ex, ear = Exec(), Ear()
    async with serving(ex, list_changed_debounce=0.03) as server:
        async with connect(server, "legacy", message_handler=ear):
            number = 0
            while ear.count < 2:
                number += 1
                grow(ex, f"n{number}")
                await asyncio.sleep(0.01)
            assert number > 20


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_switched_off(era: str) -> None:
    """Without notices the server does not promise any, and sends none."""
    ex, ear = Exec(), Ear()
    async with serving(ex, list_changed=False, list_changed_debounce=0.01) as server:
        async with connect(server, era, message_handler=ear) as client:
            assert not client.server_capabilities.tools.list_changed
            grow(ex, "a")
            await asyncio.sleep(0.1)
    assert ear.count == 0
