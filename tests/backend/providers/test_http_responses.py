"""Responses of endpoints: streams of items, JSON under another name, and headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.backend.providers.service import Service

from toolexec import Exec
from toolexec.backend.providers.backend import SourceBackend
from toolexec.backend.providers.kinds import source_of
from toolexec.backend.secrets import SecretResolver
from toolexec.errors import ConfigurationError, ConnectionLostError, RemoteToolError, ToolTimeoutError
from toolexec.model.call import ToolCall
from toolexec.model.redaction import Redactor


@asynccontextmanager
async def running(url: str, tool: dict[str, Any], **settings: Any) -> AsyncGenerator[Exec, None]:
    """Give an `Exec` with the tool `api:it`."""
    async with Exec(gate=None) as ex:
        source = source_of("http", "api", {"base_url": url, "tools": {"it": tool}, **settings})
        await ex.add_backends(SourceBackend("api", source))
        yield ex


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("ndjson", [{"n": 1}, {"n": 2}, 3]),
        ("sse", [{"data": {"n": 1}}, {"event": "end", "id": "7", "data": "a\nb"}]),
    ],
)
async def test_a_stream_of_items_is_a_list_and_a_stream(service: Service, kind: str, expected: list[Any]) -> None:
    """A call returns all items; a stream gives each as a chunk, and all of them at its end."""
    async with running(service.url, {"path": f"/content/{kind}", "stream": True}) as ex:
        assert (await ex.run_tool("api:it")).value == expected
        events = [(event.kind, event.data) async for event in ex.stream_tool("api:it")]
    assert events == [*(("chunk", each) for each in expected), ("done", expected)]


async def test_items_come_as_they_arrive_and_closing_ends_the_connection(service: Service) -> None:
    """The response never ends: its items are there before, without secrets, and closing the stream hangs up."""
    service.gone.clear()
    tool = {"path": "/lines", "stream": True, "response": "[n, t]"}
    async with running(service.raw, tool, headers={"Authorization": "Bearer hunter2hunter2"}) as ex:
        events = ex.stream_tool("api:it")
        assert (await anext(events)).data == [1, None]
        assert (await anext(events)).data == [2, "[REDACTED]"]
        await events.aclose()
        assert await asyncio.to_thread(service.gone.wait, 20)


async def test_a_cancelled_stream_ends_the_connection(service: Service) -> None:
    """Cancelling the task that waits for the next item hangs up, too."""
    service.gone.clear()
    seen = asyncio.Event()

    async def read(ex: Exec) -> None:
        async for event in ex.stream_tool("api:it"):
            if event.data == {"n": 1}:
                seen.set()

    async with running(service.raw, {"path": "/lines", "stream": True}) as ex:
        task = asyncio.create_task(read(ex))
        await seen.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(service.gone.wait, 20)


async def test_a_stream_is_bounded_by_time_and_bytes(service: Service) -> None:
    """Its last event is the error, after the items until then."""
    async with running(service.raw, {"path": "/lines", "stream": True}, timeout=0.5) as ex:
        assert [event async for event in ex.stream_tool("api:it")][-1].error.__class__ is ToolTimeoutError
    async with running(service.raw, {"path": "/lines", "stream": True}, max_response_bytes=20) as ex:
        last = [event async for event in ex.stream_tool("api:it")][-1].error
    assert isinstance(last, RemoteToolError)
    assert "longer than 20 bytes" in last.message


async def test_a_stream_that_breaks_off_is_not_complete(service: Service) -> None:
    """A connection that is lost in the middle is an error, whose outcome is that of the status."""
    async with running(service.raw, {"path": "/cut-lines", "stream": True}) as ex:
        events = [event async for event in ex.stream_tool("api:it")]
    assert [event.kind for event in events] == ["chunk", "error"]
    assert isinstance(events[-1].error, ConnectionLostError)
    assert events[-1].error.outcome == "done"


async def test_what_is_not_a_stream_is_answered_in_one_piece(service: Service) -> None:
    """A status that is an error, a part that is not JSON, and plain JSON."""
    for path, kinds in (("/status/404", ["error"]), ("/content/bad-lines", ["chunk", "error"]), ("/items", ["done"])):
        async with running(service.url, {"path": path, "stream": True}) as ex:
            assert [event.kind async for event in ex.stream_tool("api:it")] == kinds


@pytest.mark.parametrize("kind", ["json-as-text", "json-as-html", "json-as-bytes"])
async def test_json_under_another_name(service: Service, kind: str) -> None:
    """Settings that say that JSON comes back, by `response` or an output schema, have it read; others do not."""
    schema = {"type": "object", "required": ["a"]}
    async with running(service.url, {"path": f"/content/{kind}", "output_schema": schema}) as ex:
        assert (await ex.run_tool("api:it")).value == {"a": [1]}
    async with running(service.url, {"path": f"/content/{kind}", "response": "a[0]"}) as ex:
        assert (await ex.run_tool("api:it")).value == 1
    async with running(service.url, {"path": f"/content/{kind}"}) as ex:
        assert (await ex.run_tool("api:it")).value in ('{"a": [1]}', None)


async def test_headers_that_are_asked_for(service: Service) -> None:
    """Headers that are there are in the reply's metadata, without secrets."""
    settings: dict[str, Any] = {"response_headers": ["ETag", "x-trace", "location"]}
    settings["headers"] = {"Authorization": "Bearer hunter2hunter2"}
    async with running(service.url, {"path": "/content/json-as-text"}, **settings) as ex:
        result = await ex.run_tool("api:it")
    assert result.value == '{"a": [1]}'
    assert result.reply is not None
    assert result.reply.meta["response_headers"] == {"etag": '"v1"', "x-trace": "[REDACTED]"}


@pytest.mark.parametrize("name", ["Set-Cookie", "authorization", "WWW-Authenticate", "X-Auth-Token"])
def test_headers_with_credentials_are_refused(name: str) -> None:
    """No answer has them, whatever is asked for."""
    for kind, settings in (("http", {"base_url": "https://x.example", "tools": {}}), ("openapi", {"spec": {"a": 1}})):
        with pytest.raises(ConfigurationError, match="carries credentials"):
            source_of(kind, "api", {**settings, "response_headers": [name]})
    with pytest.raises(ConfigurationError, match="no header can be called"):
        source_of("http", "api", {"base_url": "https://x.example", "response_headers": ["a b"]})


def test_a_stream_without_an_event_loop(service: Service) -> None:
    """The blocking counterpart gives the items as they arrive, too, and hangs up when it is left."""
    service.gone.clear()
    with Exec(gate=None).sync as ex:
        ex.add_http("api", service.raw, tools={"it": {"path": "/lines", "stream": True}})
        events: Any = ex.stream_tool("api:it")
        assert next(events).data == {"n": 1}
        events.close()
        assert service.gone.wait(20)


async def test_the_same_file_is_not_registered_again(service: Service, tmp_path: Path) -> None:
    """Its tools stay as they are; another file, and another secret, make new ones."""
    file = tmp_path / "api.toml"
    file.write_text(f'base_url = "{service.url}"\n[tools.it]\npath = "/a"\n')
    environment = {"KEY": "first-value-of-it"}
    secrets = SecretResolver(environment=environment, redact=Redactor())
    source = source_of("http", "api", {"file": str(file), "headers": {"X-Key": "${KEY}"}}, secrets=secrets)
    first = await source.load()
    assert await source.load() is first
    environment["KEY"] = "second-value-of-it"
    second = await source.load()
    assert second is not first
    file.write_text(file.read_text().replace("/a", "/b"))
    third = await source.load()
    assert third is not second
    await third.tools[0].call(ToolCall("api:it"))
    assert (service.seen[-1].path, service.seen[-1].headers["x-key"]) == ("/b", "second-value-of-it")
    await source.aclose()
