"""Backends by name."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from tests.waiting import until

from toolexec import LocalBackend, Tool, tool
from toolexec.backend import Backend, BackendRegistry, ProviderBackend
from toolexec.backend.mcp import MCPBackend
from toolexec.errors import (
    BackendError,
    BackendNotFoundError,
    ConfigurationError,
    MissingExtraError,
)
from toolexec.model.binding import LocalBinding, MCPBinding, ProviderBinding
from toolexec.model.call import ToolCall


class Recorder(ProviderBackend):
    """A backend that notes what is done to it, and fails when it is told to."""

    def __init__(self, name: str, log: list[str], fail: Mapping[str, BaseException] | None = None, **rest: Any) -> None:
        super().__init__(name, print, **rest)
        self.log = log
        self.fail = fail or {}

    async def start(self) -> None:
        """Note it."""
        await self._note("start")

    async def aclose(self) -> None:
        """Note it."""
        await self._note("close")

    async def _note(self, what: str) -> None:
        await asyncio.sleep(0)
        self.log.append(f"{what} {self.name}")
        if what in self.fail:
            raise self.fail[what]


@pytest.fixture
def registry() -> BackendRegistry:
    """An empty registry."""
    return BackendRegistry()


@pytest.fixture
def log() -> list[str]:
    """Return the record of all recorder events."""
    return []


def refuse(name: str, args: Any) -> None:
    """A provider that is never called."""
    raise AssertionError


def provider(name: str, **rest: Any) -> ProviderBackend:
    """A provider backend."""
    return ProviderBackend(name, refuse, **rest)


# -- registration ---------------------------------------------------------------------------------------------------


def test_a_backend_is_found_by_its_name(registry: BackendRegistry) -> None:
    """Returns the registered backend; an unknown name gives None."""
    backend = provider("p")
    assert registry.register(backend) is backend
    assert registry.get("p") is backend
    assert registry.get("q") is None


def test_a_name_can_be_used_once(registry: BackendRegistry) -> None:
    """The first stays."""
    first = registry.register(provider("p"))
    with pytest.raises(BackendError) as caught:
        registry.register(provider("p"))
    assert caught.value.backend == "p"
    assert registry.get("p") is first


@pytest.mark.parametrize("backend", [None, 5, provider(""), provider("a:b"), provider("a b")])
def test_what_cannot_be_registered(registry: BackendRegistry, backend: Any) -> None:
    """No backend, no name, or one that is not a part of an ID."""
    with pytest.raises(ConfigurationError):
        registry.register(backend)
    assert registry.names() == []


async def test_a_function_becomes_a_local_backend(registry: BackendRegistry) -> None:
    """A plain function takes a mapping, one that is declared as a tool is listed."""
    registry.register("plain", lambda args: args["a"])

    @tool
    def typed(a: int) -> int:
        return a + 1

    backend = registry.register("typed", typed)
    call = ToolCall("x", {"a": 1})
    for name, answer in (("plain", 1), ("typed", 2)):
        assert await registry.resolve(LocalBinding(name)).call(name, call) == answer
    assert [each.name for each in await backend.list_tools()] == ["typed"]
    with pytest.raises(ConfigurationError, match="needs the function"):
        registry.register("nothing")
    await registry.stop_all()


def test_lists_are_in_order(registry: BackendRegistry) -> None:
    """By registration, filtered by kind and by being enabled; names alphabetically."""
    for name, kind in (("c", "provider"), ("a", "mcp"), ("b", "provider")):
        registry.register(provider(name, kind=kind))
    registry.get("b").enabled = False  # type: ignore[union-attr, misc]
    assert [b.name for b in registry.list()] == ["c", "a", "b"]
    assert [b.name for b in registry.list(kind="provider")] == ["c", "b"]
    assert [b.name for b in registry.list(enabled=True)] == ["c", "a"]
    assert [b.name for b in registry.list(kind="provider", enabled=False)] == ["b"]
    assert registry.names() == ["a", "b", "c"]


async def test_unregistering_closes(registry: BackendRegistry, log: list[str]) -> None:
    """The backend is out of the registry even when closing fails, and an unknown name is ignored."""
    registry.register(Recorder("a", log, {"close": ValueError("stuck")}))
    with pytest.raises(ValueError, match="stuck"):
        await registry.unregister("a")
    assert log == ["close a"]
    assert registry.get("a") is None
    await registry.unregister("a")


async def test_a_retired_backend_is_reached_until_it_is_released(registry: BackendRegistry, log: list[str]) -> None:
    """A retired backend is not listed, is not closed before that, and gives way to another one of its name."""
    first = registry.register(Recorder("a", log))
    binding = ProviderBinding("a", "x")
    assert registry.retire("a") is first
    assert registry.retire("a") is None
    assert registry.names() == []
    assert registry.resolve(binding) is first
    assert registry.register(Recorder("a", log)) is registry.resolve(binding)
    assert log == []
    await registry.release(first)
    assert log == ["close a"]
    second = registry.retire("a")
    assert second is not None
    await registry.stop_all()
    assert log == ["close a", "close a"]
    with pytest.raises(BackendNotFoundError):
        registry.resolve(binding)


@pytest.mark.parametrize("way", ["release", "unregister"])
async def test_what_was_not_closed_to_the_end_is_closed_with_the_others(
    registry: BackendRegistry, log: list[str], way: str
) -> None:
    """Closing a backend that is out is cancelled, as by a server that ends right after a reload: the others wait for
    it, and it ends nowhere else."""
    registry.register(Recorder("a", log))
    backend = registry.retire("a") if way == "release" else registry.get("a")
    assert backend is not None
    closing = asyncio.create_task(registry.release(backend) if way == "release" else registry.unregister("a"))
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    assert log == []
    with pytest.raises(BackendNotFoundError):
        registry.resolve(ProviderBinding("a", "x"))
    await registry.stop_all()
    assert log == ["close a"]
    await registry.stop_all()
    assert log == ["close a"]


def test_many_threads_at_once(registry: BackendRegistry) -> None:
    """Nothing is lost and nothing breaks while others register, list and unregister."""
    failures: list[Exception] = []

    def work(offset: int) -> None:
        try:
            for number in range(100):
                name = f"b{offset}-{number}"
                registry.register(provider(name))
                assert registry.get(name) is not None
                registry.names()
                registry.list(kind="provider", enabled=True)
                if number % 2:
                    asyncio.run(registry.unregister(name))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(offset,)) for offset in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(registry.names()) == 200


# -- factories ------------------------------------------------------------------------------------------------------


def test_a_factory_makes_backends(registry: BackendRegistry) -> None:
    """A factory receives the name and the configuration; the last one registered for a kind wins."""
    made: list[Any] = []

    def factory(name: str, config: Mapping[str, Any]) -> Backend:
        made.append((name, dict(config)))
        return provider(name)

    registry.register_factory("mine", lambda name, config: provider("other"))
    registry.register_factory("mine", factory)
    backend = registry.create("mine", "p", {"a": 1})
    assert registry.get("p") is backend
    registry.create("mine", "q")
    assert made == [("p", {"a": 1}), ("q", {})]


def test_factories_that_cannot_be(registry: BackendRegistry) -> None:
    """No kind, nothing to call, an unknown kind, a factory that fails: nothing is registered."""
    with pytest.raises(ConfigurationError):
        registry.register_factory("", lambda name, config: provider(name))
    with pytest.raises(ConfigurationError):
        registry.register_factory("mine", None)  # type: ignore[arg-type]
    with pytest.raises(BackendNotFoundError, match="no factory for backends of kind 'mine'; there is one for mcp"):
        registry.create("mine", "p")

    def fail(name: str, config: Mapping[str, Any]) -> Backend:
        raise ValueError(name)

    registry.register_factory("mine", fail)
    with pytest.raises(ValueError, match="p"):
        registry.create("mine", "p")
    assert registry.names() == []


def test_the_factory_of_mcp_servers(registry: BackendRegistry) -> None:
    """The factory of MCP servers is there from the start, and lists its configuration keys."""
    backend = registry.create("mcp", "git", {"command": "git-server"})
    assert isinstance(backend, MCPBackend)
    with pytest.raises(ConfigurationError, match=r"MCP server x has no setting 'comand'; did you mean command"):
        registry.create("mcp", "x", {"comand": "y"})


def test_the_factory_of_mcp_servers_without_the_extra(
    registry: BackendRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names what to install."""
    for name in [name for name in sys.modules if name.startswith("toolexec.backend.mcp.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(sys.modules["toolexec.backend.mcp"], "MCPBackend", raising=False)  # looked up before
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtraError, match=r"toolexec\[mcp\]"):
        registry.create("mcp", "git", {"command": "git-server"})


# -- resolving ------------------------------------------------------------------------------------------------------


def test_remote_bindings_lead_to_their_backend(registry: BackendRegistry) -> None:
    """By name and kind, also when it is registered after the binding was made."""
    with pytest.raises(BackendNotFoundError, match="there are none of this kind"):
        registry.resolve(ProviderBinding("p", "t"))
    p, m = provider("p"), provider("m", kind="mcp")
    registry.register(p)
    registry.register(m)
    assert registry.resolve(ProviderBinding("p", "t")) is p
    assert registry.resolve(MCPBinding("m", "t")) is m
    with pytest.raises(BackendNotFoundError, match="no mcp backend named 'p' is registered; there are m") as caught:
        registry.resolve(MCPBinding("p", "t"))
    assert caught.value.backend == "p"


def test_local_bindings_lead_to_who_has_the_handler(registry: BackendRegistry) -> None:
    """First the backend called local, then the one named before the colon, then the only one that has it."""
    with pytest.raises(BackendNotFoundError):
        registry.resolve(LocalBinding("add"))
    main, math, text = LocalBackend(), LocalBackend("math"), LocalBackend("text")
    registry.register(main)
    assert registry.resolve(LocalBinding("whatever")) is main
    for backend in (math, text):
        registry.register(backend)
        backend.register("both", len)
    math.register("add", len)
    math.register("key", len, Tool(name="sub", input_schema={"type": "object"}))
    main.register("own", len)
    text.register("own", len)
    for name, expected in [
        ("own", main),
        ("add", math),
        ("math:add", math),
        ("math:both", math),
        ("text:both", text),
        ("sub", math),
        ("math:sub", math),
        ("both", main),
        ("nobody", main),
    ]:
        assert registry.resolve(LocalBinding(name)) is expected, name


def test_a_local_binding_never_leads_to_another_kind(registry: BackendRegistry) -> None:
    """A provider that happens to be called local is not asked."""
    registry.register(provider("local"))
    with pytest.raises(BackendNotFoundError):
        registry.resolve(LocalBinding("add"))
    mine = provider("mine", kind="local")
    registry.register(mine)
    with pytest.raises(BackendNotFoundError, match="there are mine"):
        registry.resolve(LocalBinding("add"))


async def test_a_stand_in_for_a_backend_that_is_missing(registry: BackendRegistry, log: list[str]) -> None:
    """A stand-in is made once for each name, gives way to a registered backend, and is closed with the others."""
    made: list[str] = []

    def make(name: str) -> Backend:
        made.append(name)
        return Recorder(name, log)

    registry.on_missing("provider", make)
    first = registry.resolve(ProviderBinding("p", "t"))
    assert registry.resolve(ProviderBinding("p", "u")) is first
    registry.resolve(ProviderBinding("q", "t"))
    assert made == ["p", "q"]
    assert registry.names() == []
    real = registry.register(provider("p"))
    assert registry.resolve(ProviderBinding("p", "t")) is real
    await registry.stop_all()
    assert log == ["close p", "close q"]


# -- life -----------------------------------------------------------------------------------------------------------


async def test_all_enabled_backends_are_started_and_all_are_closed(registry: BackendRegistry, log: list[str]) -> None:
    """`async with` does both."""
    for name in ("a", "b", "c"):
        registry.register(Recorder(name, log))
    registry.get("b").enabled = False  # type: ignore[union-attr, misc]
    async with registry:
        assert log == ["start a", "start c"]
    assert log[2:] == ["close a", "close b", "close c"]


async def test_a_failed_start_is_rolled_back(registry: BackendRegistry, log: list[str]) -> None:
    """Everything that this start began is closed again, and every failure is told."""
    registry.register(Recorder("a", log))
    registry.register(Recorder("b", log, {"start": ValueError("no b")}))
    registry.register(Recorder("c", log, {"start": ValueError("no c"), "close": ValueError("nor this")}))
    with pytest.raises(ExceptionGroup, match="some backends did not start") as caught:
        await registry.start_all()
    assert [(str(e), e.__notes__) for e in caught.value.exceptions] == [
        ("no b", ["backend: b"]),
        ("no c", ["backend: c"]),
    ]
    assert sorted(log[3:]) == ["close a", "close b", "close c"]


async def test_a_failed_start_leaves_alone_what_was_running(registry: BackendRegistry, log: list[str]) -> None:
    """Only what is new is rolled back."""
    registry.register(Recorder("a", log))
    await registry.start_all()
    registry.register(Recorder("b", log, {"start": ValueError("no b")}))
    with pytest.raises(ExceptionGroup):
        await registry.start_all()
    assert [each for each in log if each.startswith("close")] == ["close b"]


async def test_a_cancelled_start_is_rolled_back(registry: BackendRegistry, log: list[str]) -> None:
    """A cancelled start closes what had been started, and the cancellation goes on."""

    class Slow(Recorder):
        async def start(self) -> None:
            await asyncio.Event().wait()

    registry.register(Recorder("a", log))
    registry.register(Slow("b", log))
    task = asyncio.ensure_future(registry.start_all())
    await until(lambda: log, 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert log == ["start a", "close a", "close b"]


async def test_closing_goes_through_all(registry: BackendRegistry, log: list[str]) -> None:
    """One that fails to close keeps no other from it, and every failure is told, also one that was interrupted."""
    registry.register(Recorder("a", log, {"close": ValueError("no a")}))
    registry.register(Recorder("b", log))
    registry.register(Recorder("c", log, {"close": asyncio.CancelledError()}))
    with pytest.raises(ExceptionGroup, match="did not stop cleanly") as caught:
        await registry.stop_all()
    assert sorted(log) == ["close a", "close b", "close c"]
    assert [str(error) for error in caught.value.exceptions] == ["no a", "backend c: CancelledError"]
    assert isinstance(caught.value.exceptions[1], BackendError)


async def test_a_backend_that_comes_later_can_be_started_by_itself(registry: BackendRegistry, log: list[str]) -> None:
    """Registering starts nothing."""
    async with registry:
        backend = registry.register(Recorder("late", log))
        assert log == []
        await backend.start()
    assert log == ["start late", "close late"]
