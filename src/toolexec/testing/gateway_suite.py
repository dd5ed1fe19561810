"""The exam that every gateway takes: the way from code in a sandbox to the tools, in this process or over a connection.

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
from toolexec.run.chain import ChainStep
from toolexec.testing.gateway_exam import PATIENCE, GatewayExam, MakeGateway
from toolexec.testing.report import Report

__all__ = ["GATEWAY_CHECKS", "GatewayCheck", "check_gateway", "run_gateway_check"]

_BIG: Final = 5 << 20


# -- finding tools ----------------------------------------------------------------------------------------------


async def a_search_honours_its_limit(exam: GatewayExam) -> None:
    """At most as many tools as asked for, none for 0, and each with all that its summary says."""
    async with exam.gateway() as gateway:
        found, expected = await gateway.search_tools("add numbers", 1), exam.index.search("add numbers", 1)
        assert [tool.to_dict() for tool in found] == [tool.to_dict() for tool in expected]
        assert [tool.annotations for tool in found] == [tool.annotations for tool in expected]
        assert len(await gateway.search_tools("exam", 3)) == 3
        assert await gateway.search_tools("exam", 0) == []


async def an_empty_query_finds_tools(exam: GatewayExam) -> None:
    """Without words it lists the first tools by ID."""
    async with exam.gateway() as gateway:
        assert [tool.id for tool in await gateway.search_tools("", 2)] == ["exam:add", "exam:echo"]
        assert await gateway.search_tools("nothing-has-this-word") == []


async def namespaces_are_listed(exam: GatewayExam) -> None:
    """All of them, in alphabetical order."""
    async with exam.gateway() as gateway:
        assert await gateway.list_namespaces() == ["exam", "vault"]


async def documentation_arrives_whole(exam: GatewayExam) -> None:
    """At each level nothing of it is lost, and the tool and its examples are usable."""
    levels: tuple[DetailLevel, ...] = ("summary", "schema", "full")
    async with exam.gateway() as gateway:
        for level in levels:
            doc = await gateway.describe_tool("exam:add", level)
            assert doc.to_dict() == exam.docs.describe("exam:add", level).to_dict(), level
            assert doc.level == level
        full = await gateway.describe_tool("exam:add")
        assert full.tool == get_tool(exam.index, "exam:add").tool
        assert full.examples == exam.docs.describe("exam:add").examples


async def examples_are_listed(exam: GatewayExam) -> None:
    """All, or as many as asked for; none for a tool that has none."""
    async with exam.gateway() as gateway:
        assert await gateway.list_tool_examples("exam:add") == exam.docs.list_examples("exam:add")
        assert len(await gateway.list_tool_examples("exam:add", 1)) == 1
        assert await gateway.list_tool_examples("exam:echo") == []


async def describing_an_unknown_tool_is_an_error(exam: GatewayExam) -> None:
    """The error names the tool and similar ones."""
    async with exam.gateway() as gateway:
        for attempt in (gateway.describe_tool("exam:ad"), gateway.list_tool_examples("exam:ad")):
            error = await _raised(attempt, ToolNotFoundError)
            assert error.tool_id == "exam:ad"
            assert "exam:add" in error.details["close"]


# -- calling tools ----------------------------------------------------------------------------------------------


async def a_tool_runs(exam: GatewayExam) -> None:
    """The value, the canonical ID, the time taken and where it ran arrive."""
    async with exam.gateway() as gateway:
        result = await gateway.run_tool("exam:add", {"a": 2, "b": 3})
        assert result.ok, result.error
        assert (result.value, result.tool_id) == (5, "exam:add")
        assert result.duration >= 0
        assert result.binding == LocalBinding("exam:add")
        assert (await gateway.run_tool("exam:echo")).value is None


async def values_arrive_as_they_are(exam: GatewayExam) -> None:
    """Integers stay exact, texts keep every character, null and empty are different things."""
    values: tuple[Any, ...] = (2**70, 0.1, True, "ä\n€ \U0001f642 \u0000", [], {}, [None, {"": [1]}], "")
    async with exam.gateway() as gateway:
        for value in values:
            args = {"value": value}
            result = await gateway.run_tool("exam:echo", args)
            assert result.value == value
            assert type(result.value) is type(value)
            assert args == {"value": value}


async def a_failed_tool_is_a_result(exam: GatewayExam) -> None:
    """What the tool raised is the result's error, with its code and the tool's ID."""
    async with exam.gateway() as gateway:
        result = await gateway.run_tool("exam:fail", {})
        assert not result.ok
        assert result.value is None
        assert isinstance(result.error, HandlerError), result.error
        assert (result.error.code, result.error.tool_id) == ("handler_failed", "exam:fail")
        assert "always fails" in str(result.error)


async def an_unknown_tool_raises(exam: GatewayExam) -> None:
    """What does not exist cannot be called; similar IDs are suggested."""
    async with exam.gateway() as gateway:
        error = await _raised(gateway.run_tool("exam:ad", {}), ToolNotFoundError)
        assert (error.code, error.tool_id) == ("tool_not_found", "exam:ad")
        assert "exam:add" in error.details["close"]


async def wrong_arguments_raise(exam: GatewayExam) -> None:
    """Every violation is listed, and the tool is not called."""
    async with exam.gateway() as gateway:
        error = await _raised(gateway.run_tool("exam:add", {"b": "x", "c": 1}), InputValidationError)
        assert isinstance(error, InputValidationError)
        assert {violation.keyword for violation in error.violations} == {"required", "type", "additionalProperties"}
        assert error.tool_id == "exam:add"
        assert exam.calls == []


async def large_values_pass(exam: GatewayExam) -> None:
    """5 MiB go in as an argument. 5 MiB come out whole, or as a handle that stands for them as an argument."""
    async with exam.gateway() as gateway:
        assert (await gateway.run_tool("exam:measure", {"text": "x" * _BIG})).value == _BIG
        value = (await gateway.run_tool("exam:grow", {"size": _BIG})).value
        if isinstance(value, dict):
            assert isinstance(value["$handle"], str)
        else:
            assert value == "x" * _BIG
        assert (await gateway.run_tool("exam:measure", {"text": value})).value == _BIG


async def calls_run_at_the_same_time(exam: GatewayExam) -> None:
    """None waits for another one, and each gets its own answer."""
    async with exam.gateway() as gateway:
        tasks = [asyncio.ensure_future(gateway.run_tool("exam:meet", {"number": number})) for number in range(20)]
        await exam.until(lambda: len(exam.calls) == 20)
        exam.release.set()
        assert [result.value for result in await asyncio.gather(*tasks)] == list(range(20))


async def a_cancelled_call_is_stopped(exam: GatewayExam) -> None:
    """The cancellation comes out as one and reaches the tool; the gateway works on."""
    async with exam.gateway() as gateway:
        task = asyncio.ensure_future(gateway.run_tool("exam:wait", {}))
        await exam.until(lambda: exam.calls == ["wait"])
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.cancelled()
        await exam.until(lambda: exam.stopped == ["wait"])
        assert (await gateway.run_tool("exam:add", {"a": 1})).value == 2


async def a_call_cancelled_at_once_does_no_harm(exam: GatewayExam) -> None:
    """It is not made and not counted, whatever was asked for."""
    async with exam.gateway(max_tool_calls=1) as gateway:

        async def cancelled(operation: Awaitable[Any]) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await operation

        for attempt in (
            gateway.run_tool("exam:add", {"a": 1}),
            gateway.run_chain([ChainStep(tool_id="exam:add", args={"a": 1})]),
            gateway.search_tools("add"),
            gateway.list_namespaces(),
            gateway.describe_tool("exam:add"),
            gateway.list_tool_examples("exam:add"),
        ):
            task = asyncio.ensure_future(cancelled(attempt))
            await asyncio.wait([task], timeout=PATIENCE)
            assert task.cancelled()
        assert exam.calls == []
        assert (await gateway.run_tool("exam:add", {"a": 1})).value == 2


# -- chains -----------------------------------------------------------------------------------------------------


async def a_chain_passes_values_on(exam: GatewayExam) -> None:
    """The last value is the chain's; each step tells its arguments, value and place."""
    steps = [
        ChainStep(tool_id="exam:add", args={"a": 1}),
        ChainStep(tool_id="exam:echo", use_previous=True),
    ]
    async with exam.gateway() as gateway:
        result, outcomes = await gateway.run_chain(steps)
        assert result is not None
        assert (result.value, result.tool_id, result.binding) == (2, "exam:echo", LocalBinding("exam:echo"))
        assert [(each.index, each.tool_id, each.value, each.ok) for each in outcomes] == [
            (0, "exam:add", 2, True),
            (1, "exam:echo", 2, True),
        ]
        assert [dict(each.args) for each in outcomes] == [{"a": 1}, {"previous": 2}]


async def a_chain_stops_at_its_first_failure(exam: GatewayExam) -> None:
    """The step that failed has the error, those after it are not run."""
    steps = [
        ChainStep(tool_id=f"exam:{name}", args={"a": 1} if name == "add" else {}) for name in ("add", "fail", "add")
    ]
    async with exam.gateway() as gateway:
        result, outcomes = await gateway.run_chain(steps)
        assert result is None
        assert [each.ok for each in outcomes] == [True, False]
        assert isinstance(outcomes[1].error, HandlerError)
        assert outcomes[1].error.tool_id == "exam:fail"
        assert exam.calls == ["add", "fail"]


async def an_empty_chain_is_nothing(exam: GatewayExam) -> None:
    """No result, no steps, no error."""
    async with exam.gateway(max_tool_calls=1, max_chain_steps=1) as gateway:
        assert await gateway.run_chain([]) == (None, [])


# -- limits and rules -------------------------------------------------------------------------------------------


async def the_call_cap_holds_under_load(exam: GatewayExam) -> None:
    """Of 30 operations of every kind at once exactly as many calls are made as there may be, and the rest is refused
    with nothing run."""
    async with exam.gateway(max_tool_calls=11) as gateway:
        pair = [ChainStep(tool_id="exam:add", args={"a": 1})] * 2
        operations: list[Awaitable[Any]] = []
        for number in range(6):
            operations += [
                gateway.run_tool("exam:add", {"a": number}),
                gateway.run_chain(pair),
                gateway.search_tools("add"),
                gateway.describe_tool("exam:add"),
                gateway.list_namespaces(),
            ]
        outcomes = await asyncio.gather(*operations, return_exceptions=True)
        refused = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        assert refused
        assert all(isinstance(error, ToolCallLimitError) for error in refused), refused
        assert len(exam.calls) >= 10
        while len(exam.calls) < 11:  # a chain of two may have found only one left
            await gateway.run_tool("exam:add", {"a": 1})
        error = await _raised(gateway.run_tool("exam:add", {"a": 1}), ToolCallLimitError)
        assert error.code == "tool_call_limit"
        assert error.details["limit"] == 11
        assert exam.calls == ["add"] * 11


async def failing_calls_count(exam: GatewayExam) -> None:
    """Code that swallows errors does not get past the cap."""
    async with exam.gateway(max_tool_calls=2) as gateway:
        assert not (await gateway.run_tool("exam:fail", {})).ok
        await _raised(gateway.run_tool("exam:nothing", {}), ToolNotFoundError)
        await _raised(gateway.run_tool("exam:add", {"a": 1}), ToolCallLimitError)
        assert exam.calls == ["fail"]


async def a_chain_gives_back_what_it_did_not_use(exam: GatewayExam) -> None:
    """Only the steps that were run count: of four calls a chain of three that fails at once leaves three."""
    async with exam.gateway(max_tool_calls=4) as gateway:
        failing = [ChainStep(tool_id="exam:fail"), *[ChainStep(tool_id="exam:add", args={"a": 1})] * 2]
        await gateway.run_chain(failing)
        for _ in range(3):
            await gateway.run_tool("exam:add", {"a": 1})
        await _raised(gateway.run_tool("exam:add", {"a": 1}), ToolCallLimitError)
        assert exam.calls == ["fail", "add", "add", "add"]


async def a_chain_over_a_cap_does_not_begin(exam: GatewayExam) -> None:
    """Too many steps, or more than there are calls left: nothing is run and nothing counted."""
    two = [ChainStep(tool_id="exam:add", args={"a": 1})] * 2
    async with exam.gateway(max_tool_calls=1, max_chain_steps=2) as gateway:
        error = await _raised(gateway.run_chain([*two, *two]), ChainStepLimitError)
        assert error.details["limit"] == 2
        await _raised(gateway.run_chain(two), ToolCallLimitError)
        assert exam.calls == []
        assert (await gateway.run_tool("exam:add", {"a": 1})).ok


async def a_tool_that_is_not_allowed_is_not_called(exam: GatewayExam) -> None:
    """It is refused alone and in a chain, and not seen in a search, among the namespaces or in hints."""
    async with exam.gateway(allowed=["exam:*"]) as gateway:
        error = await _raised(gateway.run_tool("vault:secret", {}), ToolNotAllowedError)
        assert (error.code, error.tool_id) == ("tool_not_allowed", "vault:secret")
        chain = [ChainStep(tool_id="exam:add", args={"a": 1}), ChainStep(tool_id="vault:secret")]
        await _raised(gateway.run_chain(chain), ToolNotAllowedError)
        await _raised(gateway.describe_tool("vault:secret"), ToolNotAllowedError)
        await _raised(gateway.list_tool_examples("vault:secret"), ToolNotAllowedError)
        assert "vault:secret" not in [tool.id for tool in await gateway.search_tools("secret", 100)]
        assert await gateway.list_namespaces() == ["exam"]
        assert exam.calls == []


async def the_trace_is_a_snapshot(exam: GatewayExam) -> None:
    """Calls in the order of their start, refused ones too; nothing that happens later changes what was given."""
    async with exam.gateway(allowed=["exam:*"]) as gateway:
        take = getattr(gateway, "tool_calls", None)
        assert take is not None, "the gateway has no trace"
        args: dict[str, Any] = {"value": [1, [2]]}
        await gateway.run_tool("exam:echo", args)
        args["value"][1].append(3)
        await gateway.run_tool("exam:fail", {})
        await _raised(gateway.run_tool("vault:secret", {}), ToolNotAllowedError)
        trace: list[ToolCallRecord] = take()
        assert [record.tool_id for record in trace] == ["exam:echo", "exam:fail", "vault:secret"]
        assert [(r.args, r.value) for r in trace[:1]] == [({"value": [1, [2]]}, [1, [2]])]
        assert [r.error.code for r in trace if r.error] == ["handler_failed", "tool_not_allowed"]
        await gateway.run_tool("exam:add", {"a": 1})
        assert len(trace) == 3
        trace.clear()
        assert len(take()) == 4


GatewayCheck: TypeAlias = Callable[[GatewayExam], Awaitable[None]]
_ALL: Final[tuple[Any, ...]] = (
    a_search_honours_its_limit,
    an_empty_query_finds_tools,
    namespaces_are_listed,
    documentation_arrives_whole,
    examples_are_listed,
    describing_an_unknown_tool_is_an_error,
    a_tool_runs,
    values_arrive_as_they_are,
    a_failed_tool_is_a_result,
    an_unknown_tool_raises,
    wrong_arguments_raise,
    large_values_pass,
    calls_run_at_the_same_time,
    a_cancelled_call_is_stopped,
    a_call_cancelled_at_once_does_no_harm,
    a_chain_passes_values_on,
    a_chain_stops_at_its_first_failure,
    an_empty_chain_is_nothing,
    the_call_cap_holds_under_load,
    failing_calls_count,
    a_chain_gives_back_what_it_did_not_use,
    a_chain_over_a_cap_does_not_begin,
    a_tool_that_is_not_allowed_is_not_called,
    the_trace_is_a_snapshot,
)
GATEWAY_CHECKS: Final[Mapping[str, GatewayCheck]] = {check.__name__: check for check in _ALL}
"""Every check by its name."""


async def run_gateway_check(make: MakeGateway, name: str) -> None:
    """Put a gateway that *make* gives through one check; raises AssertionError, or what went wrong, KeyError for an
    unknown name."""
    exam = GatewayExam(make)
    try:
        await GATEWAY_CHECKS[name](exam)
    finally:
        await exam.backends.stop_all()


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
