"""Many backends seen as one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from toolexec import LocalBackend, Tool
from toolexec.backend import Aggregator, BackendRegistry
from toolexec.errors import (
    BackendDisabledError,
    BackendError,
    BackendNotFoundError,
    BackendUnavailableError,
    ConfigurationError,
    InvalidToolIDError,
)
from toolexec.testing.memory import InMemoryBackend


def a_tool(name: str, namespace: str = "", version: str = "") -> Tool:
    """A tool with that ID."""
    return Tool(name=name, namespace=namespace, version=version, input_schema={"type": "object"})


def local(backend: str, *tools: Tool, keys: Sequence[str] = ()) -> LocalBackend:
    """A local backend whose tools answer where they are: backend and key."""
    made = LocalBackend(backend)
    for number, each in enumerate(tools):
        key = keys[number] if keys else each.id
        made.register(key, lambda args, key=key: [backend, key, args], each)
    return made


def registry(*backends: Any) -> BackendRegistry:
    """A registry with these backends."""
    made = BackendRegistry()
    for backend in backends:
        made.register(backend)
    return made


async def ids(aggregator: Aggregator) -> list[str]:
    """The IDs of a listing, in order."""
    return list((await aggregator.list_tools()).tools)


async def test_the_tools_of_all_enabled_backends() -> None:
    """Each tool under its own namespace, or that of its backend; the backends' own lists are as before."""
    a, b, c = local("a", a_tool("x"), a_tool("y", "ns")), local("b", a_tool("x")), local("c", a_tool("z"))
    c.enabled = False
    aggregator = Aggregator(registry(a, b, c))
    assert await ids(aggregator) == ["a:x", "ns:y", "b:x"]
    assert [each.id for each in await a.list_tools()] == ["x", "ns:y"]
    hosted = (await aggregator.list_tools()).tools["a:x"]
    assert hosted.backend is a
    assert hosted.tool.namespace == "a"


async def test_every_listed_id_can_be_called() -> None:
    """Whatever its namespace, version or key."""
    a = local("a", a_tool("x"), a_tool("y", "other"), a_tool("v", "a", "1.0"), a_tool("v", "a", "2.0"))
    b = local("b", a_tool("named"), a_tool("z", "a"), keys=["key", "zed"])
    aggregator = Aggregator(registry(a, b))
    expected = {
        "a:x": "x",
        "other:y": "other:y",
        "a:v:1.0": "a:v:1.0",
        "a:v:2.0": "a:v:2.0",
        "b:named": "key",
        "a:z": "zed",
    }
    assert set(await ids(aggregator)) == set(expected)
    for tool_id, key in expected.items():
        backend = "b" if key in ("key", "zed") else "a"
        assert await aggregator.call(tool_id, {"n": 1}) == [backend, key, {"n": 1}], tool_id


async def test_a_tool_can_be_called_by_its_backends_name() -> None:
    """`backend:tool` finds a tool that is listed under a namespace of its own, by name or by key."""
    a = local("a", a_tool("y", "other"), a_tool("w"), keys=["y-key", "w:1.0"])
    aggregator = Aggregator(registry(a))
    assert (await aggregator.call("a:y"))[1] == "y-key"
    assert (await aggregator.call("a:y-key"))[1] == "y-key"
    assert (await aggregator.call("a:w:1.0"))[1] == "w:1.0"


async def test_a_version_is_tried_before_the_bare_name() -> None:
    """A tool without a version serves any; one with another version does not."""
    a = local("a", a_tool("free"), a_tool("tied", "a", "1.0"))
    aggregator = Aggregator(registry(a))
    assert (await aggregator.call("a:free:3.0"))[1] == "free"
    assert (await aggregator.call("a:tied"))[1] == "a:tied:1.0"
    with pytest.raises(BackendNotFoundError):
        await aggregator.call("a:tied:2.0")


async def test_a_name_that_could_be_several_tools() -> None:
    """Nothing is guessed; the error names them."""
    aggregator = Aggregator(registry(local("a", a_tool("v", "n", "1.0"), a_tool("v", "n", "2.0"))))
    with pytest.raises(BackendError, match=r"a:v could be n:v:1\.0 of a and n:v:2\.0 of a"):
        await aggregator.call("a:v")


async def test_collisions_are_an_error_by_default() -> None:
    """Both owners are named; other tools can be called all the same."""
    aggregator = Aggregator(registry(local("a", a_tool("x", "ns"), a_tool("y")), local("b", a_tool("x", "ns"))))
    with pytest.raises(BackendError, match="of a and ns:x of b; use on_collision='first' or 'prefix'") as caught:
        await aggregator.list_tools()
    assert caught.value.details == {"backends": ["a", "b"]}
    with pytest.raises(BackendError):
        await aggregator.call("ns:x")
    assert (await aggregator.call("a:y"))[0] == "a"
    with pytest.raises(BackendNotFoundError):
        await aggregator.call("ns:z")


async def test_the_first_of_two_may_win() -> None:
    """Listing and calling agree, also when the second bears the name of the namespace."""
    aggregator = Aggregator(registry(local("a", a_tool("x", "b")), local("b", a_tool("x"))), on_collision="first")
    listing = await aggregator.list_tools()
    assert list(listing.tools) == ["b:x"]
    assert listing.tools["b:x"].backend.name == "a"
    assert (await aggregator.call("b:x"))[0] == "a"


async def test_each_of_two_may_get_its_backends_name() -> None:
    """Both can be called by their new IDs."""
    aggregator = Aggregator(
        registry(local("a", a_tool("x", "ns")), local("b", a_tool("x", "ns"))), on_collision="prefix"
    )
    assert await ids(aggregator) == ["a:x", "b:x"]
    assert [(await aggregator.call(each))[0] for each in ("a:x", "b:x")] == ["a", "b"]
    with pytest.raises(BackendNotFoundError):
        await aggregator.call("ns:x")


async def test_new_ids_may_not_collide_either() -> None:
    """A tool never disappears behind another one."""
    a = local("a", a_tool("x", "n"), a_tool("x", "m"))
    b = local("b", a_tool("x", "n"), a_tool("x", "m"))
    aggregator = Aggregator(registry(a, b), on_collision="prefix")
    with pytest.raises(BackendError, match="a:x could be"):
        await aggregator.list_tools()
    with pytest.raises(BackendError):
        await aggregator.call("a:x")


async def test_an_unknown_policy() -> None:
    """Refuses an unknown policy and names the known ones."""
    with pytest.raises(ConfigurationError, match="must be one of error, first, prefix"):
        Aggregator(BackendRegistry(), on_collision="last")  # type: ignore[arg-type]


async def test_a_backend_that_cannot_list_its_tools() -> None:
    """That is an error, unless a partial listing is enough; calls of other backends do not notice."""
    broken = InMemoryBackend("broken", {"x": 1})
    broken.unavailable = "on holiday"
    aggregator = Aggregator(registry(broken, local("a", a_tool("x"), a_tool("y", "ns"))))
    with pytest.raises(BackendUnavailableError, match="on holiday"):
        await aggregator.list_tools()
    listing = await aggregator.list_tools(partial=True)
    assert list(listing.tools) == ["a:x", "ns:y"]
    assert isinstance(listing.failures["broken"], BackendUnavailableError)
    assert (await aggregator.call("ns:y"))[0] == "a"
    with pytest.raises(BackendNotFoundError, match=r"broken cannot list its tools: .*on holiday"):
        await aggregator.call("broken:x")


async def test_a_listing_that_is_interrupted_from_inside() -> None:
    """A backend that was cancelled by itself cancels no other one."""

    class Interrupted(InMemoryBackend):
        async def list_tools(self) -> Sequence[Tool]:
            raise asyncio.CancelledError

    aggregator = Aggregator(registry(Interrupted("broken")))
    with pytest.raises(BackendError, match=r"broken cannot list its tools: CancelledError"):
        await aggregator.list_tools()


async def test_what_cannot_be_called() -> None:
    """No ID, no namespace, no backend, or switched off."""
    a, off = local("a", a_tool("x")), local("off", a_tool("x"))
    off.enabled = False
    aggregator = Aggregator(registry(a, off))
    for wrong in ("", "a:", "a:b:c:d", "x"):
        with pytest.raises(InvalidToolIDError):
            await aggregator.call(wrong)
    with pytest.raises(BackendNotFoundError, match="no enabled backend has b:x; there are a, off"):
        await aggregator.call("b:x")
    with pytest.raises(BackendNotFoundError):
        await aggregator.call("a:y")
    with pytest.raises(BackendDisabledError):
        await aggregator.call("off:x")
    with pytest.raises(BackendNotFoundError, match="there are no backends"):
        await Aggregator(BackendRegistry()).call("a:x")


async def test_a_tool_in_the_namespace_of_a_backend_that_is_switched_off() -> None:
    """Another backend that lists the ID serves it."""
    off = local("off", a_tool("x"))
    off.enabled = False
    aggregator = Aggregator(registry(off, local("a", a_tool("x", "off"))))
    assert await ids(aggregator) == ["off:x"]
    assert (await aggregator.call("off:x"))[0] == "a"
