"""The backend of every provider that reads its tools from a definition."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.waiting import until

from toolexec import Exec, Tool
from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.kinds import source_of
from toolexec.backend.providers.source import Definition, ProvidedTool
from toolexec.errors import BackendNotFoundError, BackendUnavailableError, ConfigurationError, HandlerError
from toolexec.model.call import ToolCall


class Scripted:
    """A source that has one reading after the other: the names of tools, or what to raise."""

    kind = "scripted"

    def __init__(self, *readings: Sequence[str] | BaseException) -> None:
        self.readings = list(readings)
        self.loads = 0
        self.closed = 0

    async def load(self) -> Definition:
        """Read; the last reading is repeated."""
        self.loads += 1
        reading = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        if isinstance(reading, BaseException):
            raise reading
        return Definition(tools=[ProvidedTool(_tool(name), self.call) for name in reading], skipped={"odd": "no id"})

    async def call(self, call: ToolCall) -> Any:
        """Answer the arguments, or fail."""
        if call.args and call.args.get("fail"):
            raise ValueError("it failed")
        return dict(call.args or {})

    async def aclose(self) -> None:
        """Count."""
        self.closed += 1

    def info(self) -> Mapping[str, Any]:
        """Say where it is."""
        return {"where": "here"}


def _tool(name: str) -> Tool:
    return Tool(name=name, namespace="api", input_schema={"type": "object"})


async def test_the_tools_of_a_source_are_found_and_called() -> None:
    """Tools are in the index once the Exec has started, with the source's facts in the status."""
    source = Scripted(["get"])
    async with Exec() as ex:
        await ex.add_backends(SourceBackend("api", source))
        assert (await ex.run_tool("api:get", {"a": 1})).value == {"a": 1}
        status = next(each for each in ex.backend_statuses() if each.name == "api")
        assert status.available
        assert status.skipped == {"odd": "no id"}
        assert status.info["provider"] == "scripted"
        assert status.info["where"] == "here"
        assert status.info["calls"] == 1
        assert status.info["latency_ms"] >= 0
    assert source.closed == 1


async def test_a_source_that_cannot_be_read_is_tried_again_by_a_call() -> None:
    """A pause is between two readings, which never fail the start."""
    now = 100.0
    source = Scripted(OSError("no route"), OSError("no route"), ["get"])
    backend = SourceBackend("api", source, clock=lambda: now)
    await backend.start()
    assert backend.status().reason == "OSError: no route"
    assert not backend.status().available
    now += 1.0
    with pytest.raises(BackendUnavailableError, match="no route"):
        await backend.call("get", ToolCall("api:get"))
    with pytest.raises(BackendUnavailableError, match="no route"):
        await backend.call("get", ToolCall("api:get"))
    assert source.loads == 2
    now += 1.0
    assert await backend.call("get", ToolCall("api:get", {"b": 2})) == {"b": 2}
    await backend.aclose()


async def test_a_refresh_publishes_what_changed_and_keeps_tools_when_it_fails() -> None:
    """Listeners are notified of each reading; a failed one changes nothing but the last error."""
    backend = SourceBackend("api", Scripted(["get"], ["get", "put"], OSError("gone")))
    seen: list[list[str]] = []
    stop = backend.on_tools(lambda tools: seen.append([tool.name for tool in tools]))
    await backend.start()
    assert (await backend.refresh()).tools == 2
    status = await backend.refresh()
    assert status.available
    assert status.info["last_error"] == "OSError: gone"
    stop()
    assert seen == [["get"], ["get", "put"]]
    await backend.aclose()


async def test_it_refreshes_by_itself() -> None:
    """With an interval the definition is read again and again until the backend is closed."""
    source = Scripted(["get"])
    backend = SourceBackend("api", source, refresh=0.01)
    await backend.start()
    async with asyncio.timeout(30):
        await until(lambda: source.loads >= 3)
    await backend.aclose()
    loads = source.loads
    await asyncio.sleep(0.05)
    assert source.loads == loads


async def test_failures_of_calls_are_distinguished() -> None:
    """An exception of a tool is the call's failure; a name that is gone is said to be gone; a closed one is unavailable."""
    backend = SourceBackend("api", Scripted(["get"]))
    await backend.start()
    with pytest.raises(HandlerError, match="ValueError: it failed"):
        await backend.call("get", ToolCall("api:get", {"fail": True}))
    assert backend.status().info["last_error"] == "api:get raised ValueError: it failed"
    with pytest.raises(BackendNotFoundError, match="no tool put"):
        await backend.call("put", ToolCall("api:put"))
    await backend.aclose()
    with pytest.raises(BackendUnavailableError, match="closed"):
        await backend.call("get", ToolCall("api:get"))


async def test_a_reading_has_a_time_limit() -> None:
    """A source that hangs is given up."""

    class Hanging(Scripted):
        async def load(self) -> Definition:
            await asyncio.Event().wait()
            raise AssertionError

    backend = SourceBackend("api", Hanging([]), timeout=0.01)
    await backend.start()
    assert "within 0.01 s" in (backend.status().reason or "")
    await backend.aclose()


def test_wrong_settings_are_refused() -> None:
    """Names, times and kinds are checked at the door."""
    with pytest.raises(ConfigurationError, match="its name"):
        SourceBackend("a b", Scripted([]))
    with pytest.raises(ConfigurationError, match="above 0"):
        SourceBackend("a", Scripted([]), timeout=0)
    with pytest.raises(ConfigurationError, match="there is no kind 'opnapi'"):
        source_of("opnapi", "a", {})


def _retries() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "toolexec-retry-api"]


class TestRetries:
    """A definition that cannot be read at the start is read as soon as it can be, and not too often."""

    async def test_it_is_tried_again_by_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """No call is needed; the status counts the attempts."""
        monkeypatch.setattr("toolexec.backend.providers.backend._FIRST_PAUSE", 0.001)
        monkeypatch.setattr("toolexec.backend.providers.backend._FIRST_RETRY", 0.01)
        source = Scripted(OSError("no route"), OSError("no route"), ["get"])
        backend = SourceBackend("api", source)
        await backend.start()
        assert backend.status().info["failed_readings"] == 1
        async with asyncio.timeout(30):
            await until(lambda: backend.status().available)
        info = backend.status().info
        assert (info["readings"], info["failed_readings"], info["last_error"]) == (3, 2, "OSError: no route")
        assert "retries_left" not in info
        await backend.aclose()

    async def test_there_is_a_budget(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """After ten attempts only calls and refreshes try again; pauses grow."""
        slept: list[float] = []
        monkeypatch.setattr("toolexec.backend.providers.backend._LONGEST_PAUSE", 0.004)
        monkeypatch.setattr("toolexec.backend.providers.backend._FIRST_PAUSE", 0.001)
        monkeypatch.setattr("toolexec.backend.providers.backend._FIRST_RETRY", 0.001)
        source = Scripted(OSError("no route"))
        backend = SourceBackend("api", source)
        sleep = asyncio.sleep

        async def noted(seconds: float) -> None:
            slept.append(seconds)
            await sleep(seconds)

        with monkeypatch.context() as patch:
            patch.setattr("toolexec.backend.providers.backend.asyncio.sleep", noted)
            await backend.start()
            [retrying] = _retries()
            assert backend.status().info["retries_left"] == 10
            async with asyncio.timeout(30):
                await retrying
        assert source.loads <= 11
        assert slept == sorted(slept)
        assert slept[-1] == 0.004
        assert len(slept) == 10
        assert "retries_left" not in backend.status().info
        assert not (await backend.refresh()).available
        await backend.aclose()

    async def test_settings_that_are_wrong_are_not_tried_again(self) -> None:
        """Waiting does not set them right."""
        source = Scripted(ConfigurationError("its file is not valid"))
        backend = SourceBackend("api", source)
        await backend.start()
        assert _retries() == []
        assert backend.status().reason == "its file is not valid"
        await backend.aclose()

    async def test_closing_ends_it(self) -> None:
        """Nothing is read after that."""
        backend = SourceBackend("api", Scripted(OSError("no route")))
        await backend.start()
        [retrying] = _retries()
        await backend.aclose()
        assert retrying.cancelled()
