"""The contract suite for gateways: the path from sandboxed code to the tools, in this process or over a connection.

The checks are plain async functions, free of any test framework. `check_gateway` takes them all; to have each one as a
test of its own, go through `GATEWAY_CHECKS` with `run_gateway_check`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

from toolexec.code.types import ToolCallRecord
from toolexec.discovery.docs import DetailLevel
from toolexec.discovery.index import get_tool
from toolexec.errors import (
    ChainStepLimitError,
    HandlerError,
    InputValidationError,
    ToolCallLimitError,
    ToolExecError,
    ToolNotAllowedError,
    ToolNotFoundError,
)
from toolexec.model.binding import LocalBinding
from toolexec.model.json_value import JSONDict
from toolexec.run.steps import Step
from toolexec.testing.gateway_testbed import PATIENCE, GatewayTestbed, MakeGateway
from toolexec.testing.report import Report, checks_of

_BIG: Final = 5 << 20


# -- finding tools ----------------------------------------------------------------------------------------------


async def a_search_honours_its_limit(testbed: GatewayTestbed) -> None:
    """At most as many tools as asked for, none for 0, and each with all that its summary says."""
    async with testbed.gateway() as gateway:
        found, expected = await gateway.search_tools("add numbers", 1), testbed.index.search("add numbers", 1)
        assert [tool.to_dict() for tool in found] == [tool.to_dict() for tool in expected]
        assert [tool.annotations for tool in found] == [tool.annotations for tool in expected]
        assert len(await gateway.search_tools("suite", 3)) == 3
        assert await gateway.search_tools("suite", 0) == []


async def an_empty_query_finds_tools(testbed: GatewayTestbed) -> None:
    """Without words it lists the first tools by ID."""
    async with testbed.gateway() as gateway:
        assert [tool.id for tool in await gateway.search_tools("", 2)] == ["suite:add", "suite:echo"]
        assert await gateway.search_tools("nothing-has-this-word") == []


async def namespaces_are_listed(testbed: GatewayTestbed) -> None:
    """Require all namespaces in alphabetical order."""
    async with testbed.gateway() as gateway:
        assert await gateway.list_namespaces() == ["suite", "vault"]


async def documentation_arrives_whole(testbed: GatewayTestbed) -> None:
    """At each level nothing of it is lost, and the tool and its examples are usable."""
    levels: tuple[DetailLevel, ...] = ("summary", "schema", "full")
    async with testbed.gateway() as gateway:
        for level in levels:
            doc = await gateway.describe_tool("suite:add", level)
            assert doc.to_dict() == testbed.docs.describe("suite:add", level).to_dict(), level
            assert doc.level == level
        full = await gateway.describe_tool("suite:add")
        assert full.tool == get_tool(testbed.index, "suite:add").tool
        assert full.examples == testbed.docs.describe("suite:add").examples


async def examples_are_listed(testbed: GatewayTestbed) -> None:
    """Require all examples, or as many as asked for; none for a tool that has none."""
    async with testbed.gateway() as gateway:
        assert await gateway.list_tool_examples("suite:add") == testbed.docs.list_examples("suite:add")
        assert len(await gateway.list_tool_examples("suite:add", 1)) == 1
        assert await gateway.list_tool_examples("suite:echo") == []


async def describing_an_unknown_tool_is_an_error(testbed: GatewayTestbed) -> None:
    """Require an error that names the tool and similar ones."""
    async with testbed.gateway() as gateway:
        for attempt in (gateway.describe_tool("suite:ad"), gateway.list_tool_examples("suite:ad")):
            error = await _raised(attempt, ToolNotFoundError)
            assert error.tool_id == "suite:ad"
            assert "suite:add" in error.details["close"]


# -- calling tools ----------------------------------------------------------------------------------------------


async def a_tool_runs(testbed: GatewayTestbed) -> None:
    """Require that the value, the canonical ID, the time taken and the binding arrive."""
    async with testbed.gateway() as gateway:
        result = await gateway.run_tool("suite:add", {"a": 2, "b": 3})
        assert result.ok, result.error
        assert (result.value, result.tool_id) == (5, "suite:add")
        assert result.duration >= 0
        assert result.binding == LocalBinding("suite:add")
        assert (await gateway.run_tool("suite:echo")).value is None


async def values_arrive_as_they_are(testbed: GatewayTestbed) -> None:
    """Integers stay exact, strings keep every character, null and empty are different things."""
    values: tuple[Any, ...] = (2**70, 0.1, True, "ä\n€ \U0001f642 \u0000", [], {}, [None, {"": [1]}], "")
    async with testbed.gateway() as gateway:
        for value in values:
            args = {"value": value}
            result = await gateway.run_tool("suite:echo", args)
            assert result.value == value
            assert type(result.value) is type(value)
            assert args == {"value": value}


async def a_failed_tool_is_a_result(testbed: GatewayTestbed) -> None:
    """Require that a tool's exception is the result's error, with its code and the tool's ID."""
    async with testbed.gateway() as gateway:
        result = await gateway.run_tool("suite:fail", {})
        assert not result.ok
        assert result.value is None
        assert isinstance(result.error, HandlerError), result.error
        assert (result.error.code, result.error.tool_id) == ("handler_failed", "suite:fail")
        assert "always fails" in str(result.error)


async def an_unknown_tool_raises(testbed: GatewayTestbed) -> None:
    """Require that an unknown tool cannot be called, and that similar IDs are suggested."""
    async with testbed.gateway() as gateway:
        error = await _raised(gateway.run_tool("suite:ad", {}), ToolNotFoundError)
        assert (error.code, error.tool_id) == ("tool_not_found", "suite:ad")
        assert "suite:add" in error.details["close"]


async def wrong_arguments_raise(testbed: GatewayTestbed) -> None:
    """Require that every violation is listed, and that the tool is not called."""
    async with testbed.gateway() as gateway:
        error = await _raised(gateway.run_tool("suite:add", {"b": "x", "c": 1}), InputValidationError)
        assert isinstance(error, InputValidationError)
        assert {violation.keyword for violation in error.violations} == {"required", "type", "additionalProperties"}
        assert error.tool_id == "suite:add"
        assert testbed.calls == []


async def large_values_pass(testbed: GatewayTestbed) -> None:
    """5 MiB go in as an argument. 5 MiB come out whole, or as a handle that stands for them as an argument."""
    async with testbed.gateway() as gateway:
        assert (await gateway.run_tool("suite:measure", {"text": "x" * _BIG})).value == _BIG
        value = (await gateway.run_tool("suite:grow", {"size": _BIG})).value
        if isinstance(value, dict):
            assert isinstance(value["$handle"], str)
        else:
            assert value == "x" * _BIG
        assert (await gateway.run_tool("suite:measure", {"text": value})).value == _BIG


async def calls_run_at_the_same_time(testbed: GatewayTestbed) -> None:
    """Require that no call waits for another one, and that each gets its own answer."""
    async with testbed.gateway() as gateway:
        tasks = [asyncio.ensure_future(gateway.run_tool("suite:meet", {"number": number})) for number in range(20)]
        await testbed.until(lambda: len(testbed.calls) == 20)
        testbed.release.set()
        assert [result.value for result in await asyncio.gather(*tasks)] == list(range(20))


async def a_cancelled_call_is_stopped(testbed: GatewayTestbed) -> None:
    """Require that a cancellation comes out as one and reaches the tool; the gateway works on."""
    async with testbed.gateway() as gateway:
        task = asyncio.ensure_future(gateway.run_tool("suite:wait", {}))
        await testbed.until(lambda: testbed.calls == ["wait"])
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.cancelled()
        await testbed.until(lambda: testbed.stopped == ["wait"])
        assert (await gateway.run_tool("suite:add", {"a": 1})).value == 2


async def a_call_cancelled_at_once_does_no_harm(testbed: GatewayTestbed) -> None:
    """Require that such a call is not made and not counted, whatever it asks for."""
    async with testbed.gateway(max_tool_calls=1) as gateway:

        async def cancelled(operation: Awaitable[Any]) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await operation

        for attempt in (
            gateway.run_tool("suite:add", {"a": 1}),
            gateway.run_chain([Step(tool_id="suite:add", args={"a": 1})]),
            gateway.search_tools("add"),
            gateway.list_namespaces(),
            gateway.describe_tool("suite:add"),
            gateway.list_tool_examples("suite:add"),
        ):
            task = asyncio.ensure_future(cancelled(attempt))
            await asyncio.wait([task], timeout=PATIENCE)
            assert task.cancelled()
        assert testbed.calls == []
        assert (await gateway.run_tool("suite:add", {"a": 1})).value == 2


# -- chains -----------------------------------------------------------------------------------------------------


async def a_chain_passes_values_on(testbed: GatewayTestbed) -> None:
    """Require that the last value is the chain's, and that each step has its arguments, value and index."""
    steps = [
        Step(tool_id="suite:add", args={"a": 1}),
        Step(tool_id="suite:echo", use_previous=True),
    ]
    async with testbed.gateway() as gateway:
        result, outcomes = await gateway.run_chain(steps)
        assert result is not None
        assert (result.value, result.tool_id, result.binding) == (2, "suite:echo", LocalBinding("suite:echo"))
        assert [(each.index, each.tool_id, each.value, each.ok) for each in outcomes] == [
            (0, "suite:add", 2, True),
            (1, "suite:echo", 2, True),
        ]
        assert [dict(each.args) for each in outcomes] == [{"a": 1}, {"previous": 2}]


async def a_chain_stops_at_its_first_failure(testbed: GatewayTestbed) -> None:
    """Require that the failed step has the error, and that those after it are not run."""
    steps = [Step(tool_id=f"suite:{name}", args={"a": 1} if name == "add" else {}) for name in ("add", "fail", "add")]
    async with testbed.gateway() as gateway:
        result, outcomes = await gateway.run_chain(steps)
        assert result is None
        assert [each.ok for each in outcomes] == [True, False]
        assert isinstance(outcomes[1].error, HandlerError)
        assert outcomes[1].error.tool_id == "suite:fail"
        assert testbed.calls == ["add", "fail"]


async def an_empty_chain_is_nothing(testbed: GatewayTestbed) -> None:
    """No result, no steps, no error."""
    async with testbed.gateway(max_tool_calls=1, max_chain_steps=1) as gateway:
        assert await gateway.run_chain([]) == (None, [])


# -- limits and rules -------------------------------------------------------------------------------------------


async def the_call_cap_holds_under_load(testbed: GatewayTestbed) -> None:
    """Of 30 operations of every kind at once exactly as many calls are made as there may be, and the rest is refused
    with nothing run."""
    async with testbed.gateway(max_tool_calls=11) as gateway:
        pair = [Step(tool_id="suite:add", args={"a": 1})] * 2
        operations: list[Awaitable[Any]] = []
        for number in range(6):
            operations += [
                gateway.run_tool("suite:add", {"a": number}),
                gateway.run_chain(pair),
                gateway.search_tools("add"),
                gateway.describe_tool("suite:add"),
                gateway.list_namespaces(),
            ]
        outcomes = await asyncio.gather(*operations, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert refused
        assert all(isinstance(error, ToolCallLimitError) for error in refused), refused
        assert len(testbed.calls) >= 10
        while len(testbed.calls) < 11:  # a chain of two may have found only one left
            await gateway.run_tool("suite:add", {"a": 1})
        error = await _raised(gateway.run_tool("suite:add", {"a": 1}), ToolCallLimitError)
        assert error.code == "tool_call_limit"
        assert error.details["limit"] == 11
        assert testbed.calls == ["add"] * 11


async def failing_calls_count(testbed: GatewayTestbed) -> None:
    """Code that swallows errors does not get past the cap."""
    async with testbed.gateway(max_tool_calls=2) as gateway:
        assert not (await gateway.run_tool("suite:fail", {})).ok
        await _raised(gateway.run_tool("suite:nothing", {}), ToolNotFoundError)
        await _raised(gateway.run_tool("suite:add", {"a": 1}), ToolCallLimitError)
        assert testbed.calls == ["fail"]


async def a_chain_gives_back_what_it_did_not_use(testbed: GatewayTestbed) -> None:
    """Only the steps that were run count: of four calls a chain of three that fails at once leaves three."""
    async with testbed.gateway(max_tool_calls=4) as gateway:
        failing = [Step(tool_id="suite:fail"), *[Step(tool_id="suite:add", args={"a": 1})] * 2]
        await gateway.run_chain(failing)
        for _ in range(3):
            await gateway.run_tool("suite:add", {"a": 1})
        await _raised(gateway.run_tool("suite:add", {"a": 1}), ToolCallLimitError)
        assert testbed.calls == ["fail", "add", "add", "add"]


async def a_chain_over_a_cap_does_not_begin(testbed: GatewayTestbed) -> None:
    """Too many steps, or more than there are calls left: nothing is run and nothing counted."""
    two = [Step(tool_id="suite:add", args={"a": 1})] * 2
    async with testbed.gateway(max_tool_calls=1, max_chain_steps=2) as gateway:
        error = await _raised(gateway.run_chain([*two, *two]), ChainStepLimitError)
        assert error.details["limit"] == 2
        await _raised(gateway.run_chain(two), ToolCallLimitError)
        assert testbed.calls == []
        assert (await gateway.run_tool("suite:add", {"a": 1})).ok


async def a_tool_that_is_not_allowed_is_not_called(testbed: GatewayTestbed) -> None:
    """Require that such a tool is refused alone and in a chain, and hidden in searches, namespaces and hints."""
    async with testbed.gateway(allowed=["suite:*"]) as gateway:
        error = await _raised(gateway.run_tool("vault:secret", {}), ToolNotAllowedError)
        assert (error.code, error.tool_id) == ("tool_not_allowed", "vault:secret")
        chain = [Step(tool_id="suite:add", args={"a": 1}), Step(tool_id="vault:secret")]
        await _raised(gateway.run_chain(chain), ToolNotAllowedError)
        await _raised(gateway.describe_tool("vault:secret"), ToolNotAllowedError)
        await _raised(gateway.list_tool_examples("vault:secret"), ToolNotAllowedError)
        assert "vault:secret" not in [tool.id for tool in await gateway.search_tools("secret", 100)]
        assert await gateway.list_namespaces() == ["suite"]
        assert testbed.calls == []


async def the_trace_is_a_snapshot(testbed: GatewayTestbed) -> None:
    """Calls in the order of their start, refused ones too; nothing that happens later changes what was given."""
    async with testbed.gateway(allowed=["suite:*"]) as gateway:
        take = getattr(gateway, "tool_calls", None)
        assert take is not None, "the gateway has no trace"
        args: JSONDict = {"value": [1, [2]]}
        await gateway.run_tool("suite:echo", args)
        args["value"][1].append(3)
        await gateway.run_tool("suite:fail", {})
        await _raised(gateway.run_tool("vault:secret", {}), ToolNotAllowedError)
        trace: list[ToolCallRecord] = take()
        assert [record.tool_id for record in trace] == ["suite:echo", "suite:fail", "vault:secret"]
        assert [(r.args, r.value) for r in trace[:1]] == [({"value": [1, [2]]}, [1, [2]])]
        assert [r.error.code for r in trace if r.error] == ["handler_failed", "tool_not_allowed"]
        await gateway.run_tool("suite:add", {"a": 1})
        assert len(trace) == 3
        trace.clear()
        assert len(take()) == 4


GatewayCheck: TypeAlias = Callable[[GatewayTestbed], Awaitable[None]]
GATEWAY_CHECKS: Final[Mapping[str, GatewayCheck]] = checks_of(__name__)
"""Every check by its name."""


async def run_gateway_check(make: MakeGateway, name: str) -> None:
    """Put a gateway that *make* gives through one check; raises AssertionError, or what went wrong, KeyError for an
    unknown name."""
    testbed = GatewayTestbed(make)
    try:
        await GATEWAY_CHECKS[name](testbed)
    finally:
        await testbed.backends.stop_all()


async def check_gateway(make: MakeGateway, *, known_gaps: Collection[str] = ()) -> None:
    """Put the gateways that *make* gives through every check; see `Report` for known gaps and for what is raised.

    A gateway without a trace of its own (`tool_calls`) has the known gap `the_trace_is_a_snapshot`.
    """
    report = Report("gateway", GATEWAY_CHECKS, known_gaps)
    for name in GATEWAY_CHECKS:
        with report.check(name):
            await run_gateway_check(make, name)
    report.conclude()


async def _raised(attempt: Awaitable[Any], kind: type[ToolExecError]) -> ToolExecError:
    try:
        answer = await attempt
    except kind as error:
        return error
    raise AssertionError(f"{answer!r:.200} came instead of {kind.__name__}")
