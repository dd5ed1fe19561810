"""Handlers and how they want to be run."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from toolexec.errors import ConfigurationError
from toolexec.model import Progress, ToolContext, mapping_handler
from toolexec.model.handler import importable_source, kind_of, run_mode


def plain(args: dict[str, Any]) -> Any:
    """Changes its arguments."""
    args["seen"] = True
    return args


async def coroutine(args: dict[str, Any]) -> Any:
    return args


def generator(args: dict[str, Any]) -> Iterator[int]:
    yield 1


async def async_generator(args: dict[str, Any]) -> AsyncIterator[int]:
    yield 1


class Callables:
    def __call__(self, args: dict[str, Any]) -> Any:
        return args

    async def method(self, args: dict[str, Any]) -> Any:
        return args


class AsyncCallable:
    async def __call__(self, args: dict[str, Any]) -> Any:
        return args


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (plain, "sync"),
        (coroutine, "async"),
        (generator, "generator"),
        (async_generator, "async_generator"),
        (functools.partial(coroutine, {}), "async"),
        (functools.partial(functools.partial(generator), {}), "generator"),
        (Callables(), "sync"),
        (Callables().method, "async"),
        (AsyncCallable(), "async"),
        (functools.partial(AsyncCallable()), "async"),
        (len, "sync"),
        (lambda args: args, "sync"),
    ],
)
def test_kind_of(function: Any, kind: str) -> None:
    """Partials, methods and callable objects are looked through."""
    assert kind_of(function) == kind


def test_run_mode() -> None:
    """A thread unless a switch says otherwise."""
    assert run_mode(plain, inline=False, killable=False) == "thread"
    assert run_mode(plain, inline=True, killable=False) == "inline"
    assert run_mode(plain, inline=False, killable=True) == "process"


@pytest.mark.parametrize(
    ("function", "switches", "message"),
    [
        (plain, {"inline": True, "killable": True}, "both inline and killable"),
        (coroutine, {"inline": False, "killable": True}, "only plain sync functions"),
        (generator, {"inline": False, "killable": True}, "only plain sync functions"),
    ],
)
def test_contradicting_switches(function: Any, switches: dict[str, bool], message: str) -> None:
    """Refuses contradicting switches at the declaration."""
    with pytest.raises(ConfigurationError, match=message):
        run_mode(function, **switches)


def test_importable_source() -> None:
    """Only what a worker process can import may be killable."""
    assert importable_source(plain) == (__name__, "plain", False)
    for function in (lambda args: args, functools.partial(plain), Callables()):
        with pytest.raises(ConfigurationError, match="must be able to import it"):
            importable_source(function)


def test_mapping_handler_gives_each_call_its_own_dict() -> None:
    """A handler that changes its arguments changes those of no other caller."""
    handler = mapping_handler(plain)
    args = {"a": 1}
    assert handler.call(args) == {"a": 1, "seen": True}
    assert args == {"a": 1}
    assert (handler.kind, handler.mode, handler.source) == ("sync", "thread", None)
    assert mapping_handler(plain, killable=True).source == (__name__, "plain", False)
    assert mapping_handler(plain, inline=True).mode == "inline"


def test_context_reports_progress() -> None:
    """Reports go to the listener; without one they go nowhere."""
    seen: list[Progress] = []
    context = ToolContext("a:b", seen.append)
    context.report(1, 2, "half")
    ToolContext("a:b").report(1)
    assert seen == [Progress(done=1, total=2, message="half")]
    assert context.tool_id == "a:b"
