"""The life of an Exec's backends: added, started, waited for, removed, closed; slow, broken and real ones."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec, LocalBackend, Step, Tool
from toolexec.backend import ProviderBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.errors import (
    BackendError,
    ConfigurationError,
    ToolNotFoundError,
)

ANY = {"type": "object"}
HANGING = [sys.executable, "-c", "import time; time.sleep(60)"]
TIME = [sys.executable, "-m", "mcp_server_time"]
LONG = 60.0


class Slow(ProviderBackend):
    """A provider that waits for a signal before it is ready, and counts its starts and stops."""

    def __init__(self, name: str = "slow", *, ready: bool = False, tools: Sequence[str] = ("t",)) -> None:
        super().__init__(name, lambda tool, args: tool, tools=[Tool(name=t, input_schema=ANY) for t in tools])
        self.ready = asyncio.Event()
        if ready:
            self.ready.set()
        self.starts = self.stops = 0

    async def start(self) -> None:
        self.starts += 1
        await self.ready.wait()

    async def aclose(self) -> None:
        self.stops += 1


class Broken(Slow):
    """A provider that cannot start."""

    async def start(self) -> None:
        raise OSError("no such host")


class TestStarting:
    """When backends are started, and what is waited for."""

    async def test_at_the_beginning(self) -> None:
        """Backends that are added before `async with` are ready inside."""
        backend = Slow(ready=True)
        ex = Exec()
        ex.add_backends(backend)
        async with ex:
            assert (await ex.run_tool("slow:t")).value == "t"
        assert (backend.starts, backend.stops) == (1, 1)

    async def test_by_awaiting_what_was_added(self) -> None:
        """Awaiting gives the statuses; the backends are there at once."""
        async with Exec() as ex:
            added = ex.add_backends(one := Slow("one", ready=True), Slow("two", ready=True))
            assert (len(added), added[0]) == (2, one)
            statuses = await added
            assert [(s.name, s.available) for s in statuses] == [("one", True), ("two", True)]

    @pytest.mark.parametrize(
        "use",
        [
            lambda ex: ex.run_tool("slow:t"),
            lambda ex: ex.search_tools("t"),
            lambda ex: ex.get_tool_doc("slow:t"),
            lambda ex: ex.run_chain([Step(tool_id="slow:t")]),
            lambda ex: anext(ex.stream_tool("slow:t")),
        ],
        ids=["run", "search", "describe", "chain", "stream"],
    )
    async def test_at_the_first_use(self, use: Callable[[Exec], Any]) -> None:
        """Starts the backends when a call needs them before the block was entered."""
        async with Exec() as ex:
            backend = Slow(ready=True)
            ex.add_backends(backend)
            assert await use(ex)
            assert backend.starts == 1

    async def test_not_for_a_tool_that_is_known(self) -> None:
        """A call of a known tool does not wait for anyone."""
        async with Exec() as ex:
            ex.add(lambda: 1, "t")
            backend = Slow()
            ex.add_backends(backend)
            assert (await ex.run_tool("t")).value == 1
            assert backend.starts == 0

    async def test_once_for_many(self) -> None:
        """Callers at the same time share one start."""
        async with Exec() as ex:
            backend = Slow()
            ex.add_backends(backend)
            calls = [asyncio.create_task(ex.run_tool("slow:t")) for _ in range(10)]
            await until(lambda: backend.starts, 0)
            backend.ready.set()
            assert [(await call).value for call in calls] == ["t"] * 10
            assert backend.starts == 1

    async def test_all_at_the_same_time(self) -> None:
        """One backend does not wait for another."""
        one, two = Slow("one"), Slow("two")
        ex = Exec()
        ex.add_backends(one, two)
        task = asyncio.create_task(ex.start())
        await until(lambda: one.starts and two.starts, 0)
        one.ready.set()
        two.ready.set()
        await task
        await ex.aclose()

    async def test_one_that_is_slow(self) -> None:
        """Starting goes on without it after `start_timeout`; it comes in later."""
        async with Exec(start_timeout=0.02) as ex:
            backend = Slow()
            ex.add_backends(backend, Slow("quick", ready=True))
            await ex.start()
            assert (await ex.run_tool("quick:t")).ok
            with pytest.raises(ToolNotFoundError):
                await ex.run_tool("slow:t")
            backend.ready.set()
            await until(lambda: ex.index.find("slow:t") is not None, 0)
            assert (await ex.run_tool("slow:t")).ok
            assert backend.starts == 1

    async def test_one_that_fails(self, caplog: Any) -> None:
        """A backend that fails is unavailable with its reason; the others run."""
        async with Exec() as ex:
            statuses = await ex.add_backends(Broken("broken"), Slow("fine", ready=True))
            assert [status.available for status in statuses] == [False, True]
            assert "no such host" in (statuses[0].reason or "")
            assert [s for s in ex.backend_statuses() if s.name != "local"] == statuses
            assert "broken did not start" in caplog.text

    async def test_cancelled_while_waiting(self) -> None:
        """A start that is given up does not lose the backend: the next one goes on with it."""
        async with Exec(start_timeout=LONG) as ex:
            backend = Slow()
            ex.add_backends(backend)
            task = asyncio.create_task(ex.start())
            await until(lambda: backend.starts, 0)
            task.cancel()
            await asyncio.wait([task])
            backend.ready.set()
            await ex.start()
            assert (await ex.run_tool("slow:t")).ok
            assert backend.starts == 1

    async def test_switched_off(self) -> None:
        """A backend that is switched off brings no tools."""
        async with Exec() as ex:
            backend = Slow(ready=True)
            backend.enabled = False
            await ex.add_backends(backend)
            assert len(ex.index) == 0


class TestNames:
    """Backends have names, and tools of two backends may meet."""

    async def test_one_that_is_taken(self) -> None:
        """None of the new backends is added."""
        async with Exec() as ex:
            ex.add_backends(Slow("one", ready=True))
            with pytest.raises(BackendError, match="one"):
                ex.add_backends(Slow("two", ready=True), Slow("one", ready=True))
            assert ex.backends.get("two") is None

    async def test_the_same_one_twice(self) -> None:
        """Two new backends cannot share a name either."""
        async with Exec() as ex:
            with pytest.raises(BackendError, match="one"):
                ex.add_backends(Slow("one"), Slow("one"))
            assert ex.backends.get("one") is None

    async def test_tools_that_meet(self) -> None:
        """A tool whose ID belongs to another definition is left out, and the status says so."""
        async with Exec() as ex:
            ex.add(lambda a: a, "acme:pay")
            await ex.add_backends(Slow("acme", ready=True, tools=["pay", "refund"]))
            status = next(s for s in ex.backend_statuses() if s.name == "acme")
            assert list(status.skipped) == ["acme:pay"]
            assert (await ex.run_tool("acme:pay", {"a": 1})).value == 1
            assert (await ex.run_tool("acme:refund")).value == "refund"

    async def test_backends_that_are_there_already(self) -> None:
        """A registry of one's own brings its backends along."""
        backends = BackendRegistry()
        backends.register(Slow("acme", ready=True))
        local = LocalBackend()
        backends.register(local)
        async with Exec(backends=backends) as ex:
            assert ex.local is local
            assert (await ex.run_tool("acme:t")).value == "t"

    def test_functions_need_a_local_backend(self) -> None:
        """Another kind of backend under the name `local` is refused, and so are handlers for one that has its own."""
        backends = BackendRegistry()
        backends.register(Slow("local", ready=True))
        with pytest.raises(ConfigurationError, match="LocalBackend"):
            Exec(backends=backends)
        backends = BackendRegistry()
        backends.register(LocalBackend())
        with pytest.raises(ConfigurationError, match="local_handlers"):
            Exec(backends=backends, local_handlers={"h": len})


class TestRemoving:
    """A backend that goes takes its tools along."""

    async def test_its_tools_go(self) -> None:
        """Its tools are unknown afterwards; tools of others stay."""
        async with Exec() as ex:
            ex.add(lambda: 1, "mine")
            backend = Slow(ready=True)
            await ex.add_backends(backend)
            await ex.remove("slow")
            assert backend.stops == 1
            assert ex.index.find("slow:t") is None
            assert (await ex.run_tool("mine")).value == 1

    async def test_one_that_never_started(self) -> None:
        """Such a backend is not started any more."""
        async with Exec() as ex:
            backend = Slow()
            ex.add_backends(backend)
            await ex.remove("slow")
            await ex.start()
            assert backend.starts == 0

    async def test_one_that_is_starting(self) -> None:
        """Its start is given up."""
        async with Exec(start_timeout=LONG) as ex:
            backend = Slow()
            ex.add_backends(backend)
            task = asyncio.create_task(ex.start())
            await until(lambda: backend.starts, 0)
            await ex.remove("slow")
            await task
            assert ex.backends.get("slow") is None

    async def test_its_name_is_free_again(self) -> None:
        """Another backend may take it, and is started."""
        async with Exec() as ex:
            await ex.add_backends(Slow(ready=True, tools=["old"]))
            await ex.remove("slow")
            await ex.add_backends(Slow(ready=True, tools=["new"]))
            assert [registered.tool.id for registered in ex.index.tools()] == ["slow:new"]

    async def test_unknown_names(self) -> None:
        """Ignores unknown names."""
        async with Exec() as ex:
            await ex.remove("nobody")


class TestClosing:
    """The end of an Exec."""

    async def test_twice(self) -> None:
        """The second time does nothing new."""
        ex = Exec()
        await ex.aclose()
        await ex.aclose()

    async def test_nothing_starts_after_it(self) -> None:
        """A closed Exec cannot be started, and says so."""
        ex = Exec()
        await ex.aclose()
        with pytest.raises(ConfigurationError, match="closed"):
            await ex.start()
        with pytest.raises(ConfigurationError, match="closed"):
            async with ex:
                pass

    async def test_while_it_starts(self) -> None:
        """Closing ends a start that is under way."""
        ex = Exec(start_timeout=LONG)
        backend = Slow()
        ex.add_backends(backend)
        task = asyncio.create_task(ex.start())
        await until(lambda: backend.starts, 0)
        await ex.aclose()
        await task
        assert backend.stops == 1

    async def test_after_an_exception(self) -> None:
        """Leaving the block closes everything, whatever the reason; the exception comes out."""
        backend = Slow(ready=True)
        with pytest.raises(LookupError):
            async with Exec() as ex:
                await ex.add_backends(backend)
                raise LookupError
        assert backend.stops == 1

    async def test_one_that_does_not_stop(self) -> None:
        """All others are stopped all the same; then its failure is told."""

        class Stubborn(Slow):
            async def aclose(self) -> None:
                raise OSError("no")

        other = Slow("other", ready=True)
        ex = Exec()
        await ex.add_backends(Stubborn("stubborn", ready=True), other)
        with pytest.raises(ExceptionGroup) as caught:
            await ex.aclose()
        assert isinstance(caught.value.exceptions[0], OSError)
        assert other.stops == 1

    async def test_two_of_them(self) -> None:
        """Two Execs in one loop do not know of each other."""
        async with Exec() as one, Exec() as two:
            await one.add_backends(Slow("same", ready=True))
            await two.add_backends(Slow("same", ready=True))
            one.add(lambda: 1, "t")
            two.add(lambda: 2, "t")
            await one.aclose()
            assert (await two.run_tool("t")).value == 2
            assert (await two.run_tool("same:t")).value == "t"


def test_closing_on_another_loop_than_the_first() -> None:
    """An Exec that was used in one `asyncio.run` can be closed in the next, where the loop of its start is closed."""
    backend = Slow(ready=True)
    ex = Exec()

    async def use() -> None:
        await ex.add_backends(backend)

    asyncio.run(use())
    asyncio.run(ex.aclose())
    assert backend.stops == 1
