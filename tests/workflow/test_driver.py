"""Workflows over the tools of an Exec."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.waiting import until
from tests.workflow.running import drive, program_of, tools_of

from toolexec.code.limits import Limits
from toolexec.errors import (
    CodeError,
    ExecutionError,
    InputValidationError,
    LimitExceededError,
    ToolCallLimitError,
    ToolNotAllowedError,
    ToolNotFoundError,
)
from toolexec.exec import Exec
from toolexec.model.declare import tool
from toolexec.workflow.driver import run_workflow
from toolexec.workflow.machine import Budget


@pytest.fixture
def ex() -> Exec:
    ex = Exec()
    attempts: list[int] = []

    async def add(a: int, b: int) -> int:
        return a + b

    async def wait(seconds: float = 30) -> str:
        await asyncio.sleep(seconds)
        return "waited"

    @tool("t:flaky", idempotent=True)
    async def flaky(until: int) -> int:
        attempts.append(until)
        if len(attempts) < until:
            raise ExecutionError("it is away", retryable=True)
        return len(attempts)

    async def once() -> None:
        raise RuntimeError("broken")

    async def rows(count: int) -> list[dict[str, Any]]:
        return [{"n": (n * 7919) % 100_003, "text": "x" * 20} for n in range(count)]

    ex.add(add, "t:add")
    ex.add(wait, "t:wait")
    ex.add(flaky)
    ex.add(once, "t:once")
    ex.add(rows, "t:rows")
    return ex


def test_calls_print_and_return(ex: Exec) -> None:
    """The value of one call goes into the next; what is printed goes to the output of the run."""
    ran = drive(
        ex, 'input n: integer\nx := run("t:add", {a: n, b: 2})\nprint("sum", x)\nrun("t:add", {a: x, b: x})', n=1
    )
    assert (ran.value, ran.printed, ran.error) == (6, "sum 3\n", None)


def test_retries_count_as_calls(ex: Exec) -> None:
    """Each attempt is a call in the trace, and counts for the cap."""
    source = 'retry 5 delay 1ms { run("t:flaky", {until: 3}) }'
    assert drive(ex, source).value == 3
    ran = drive(ex, 'retry 5 delay 1ms { run("t:flaky", {until: 9}) }', limits=Limits(max_tool_calls=2))
    assert isinstance(ran.error, ToolCallLimitError)


def test_a_call_over_the_cap_is_not_caught(ex: Exec) -> None:
    """A limit ends the workflow, whatever is around the call, and says where."""
    source = 'try { for i in range(9) { run("t:add", {a: 1, b: i}) } } catch { "caught" }'
    error = drive(ex, source, limits=Limits(max_tool_calls=3)).error
    assert isinstance(error, ToolCallLimitError)
    assert error.details["line"] == 1


def test_errors_of_tools_point_at_their_call(ex: Exec) -> None:
    """An uncaught failure has the line and column of the call, and the tool's own error as its cause."""
    error = drive(ex, 'x := 1\n\nif x {\n  y := run("t:once")\n}').error
    assert isinstance(error, CodeError)
    assert (error.line, error.column, error.tool_id) == (4, 8, "t:once")
    assert error.__cause__ is not None
    missing = drive(ex, 'run("t:ad")').error
    assert isinstance(missing, CodeError)
    assert isinstance(missing.__cause__, ToolNotFoundError)
    invalid = drive(ex, 'run("t:add", {a: "x", b: 1})').error
    assert isinstance(invalid, CodeError)
    assert isinstance(invalid.__cause__, InputValidationError)


def test_failures_of_calls_are_caught(ex: Exec) -> None:
    """`catch` sees failures of tools, arguments that do not fit, and tools that are not there."""
    source = """
codes := collect tool in ["t:once", "t:add", "t:nothing"] {
  try { run(tool, {z: 1}) } catch err { err.code }
}
codes
"""
    assert drive(ex, source).value == ["validation_input", "validation_input", "tool_not_found"]


def test_a_timeout_of_one_call(ex: Exec) -> None:
    """`timeout` stops one call; that is a failure like any other."""
    assert drive(ex, 'try { run("t:wait") timeout 10ms } catch err { err.code }').value == "timeout"


def test_branches_run_at_the_same_time(ex: Exec) -> None:
    """Fifty calls that wait for each other all come to an end."""
    begun: list[int] = []
    all_there = asyncio.Event()

    async def meet(n: int) -> int:
        begun.append(n)
        if len(begun) == 50:
            all_there.set()
        await all_there.wait()
        return n

    ex.add(meet, "t:meet")
    assert drive(ex, 'parallel for n in range(50) limit 50 { run("t:meet", {n}) }').value == [*range(50)]


def test_the_first_failure_stops_the_other_calls(ex: Exec) -> None:
    """A failed branch cancels the calls of the others, and does not wait for them to end by themselves."""
    source = 'try { parallel { run("t:wait", {seconds: 3600})\n run("t:once") } } catch err { err.message }'
    assert "broken" in drive(ex, source).value


def test_allowed_tools(ex: Exec) -> None:
    """A tool that the code may not call is refused; `catch` sees it as any other failure."""
    tools = tools_of(ex, allowed=["t:add"])
    with pytest.raises(CodeError) as caught:
        asyncio.run(run_workflow(program_of('run("t:once")'), None, tools))
    assert isinstance(caught.value.__cause__, ToolNotAllowedError)


def test_cancelling_stops_all_calls(ex: Exec) -> None:
    """Cancellation is not caught, and every call is stopped with it."""
    tools = tools_of(ex)

    async def main() -> None:
        source = 'try { parallel for i in range(3) { run("t:wait", {seconds: 3600}) } } catch { "caught" }'
        work = asyncio.create_task(run_workflow(program_of(source), None, tools))
        await until(lambda: len(tools.tool_calls()) == 3, 0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())
    assert all(not call.is_open and call.error is not None for call in tools.tool_calls())


def test_an_endless_loop_ends_with_its_deadline(ex: Exec) -> None:
    """The event loop gets its turn while a workflow computes, so that it can be stopped."""

    async def main() -> None:
        work = run_workflow(program_of("while true limit 999999999 { 1 }"), None, tools_of(ex), budget=Budget(10**12))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await work

    asyncio.run(main())


def test_large_results_leave_the_event_loop_free(ex: Exec) -> None:
    """Work on a result of twenty thousand rows gives what it should, with steps in a thread."""
    source = """
rows := run("t:rows", {count: 20000})
sorted := sort(rows, "n")
same := sorted == sort(rows, "n")
text := json(sorted)
{first: sorted[0].n, same, size: len(text), found: jmespath(rows, "[?n == `7919`].n | length(@)")}
"""
    ran = drive(ex, source)
    assert ran.error is None
    assert (ran.value["first"], ran.value["same"], ran.value["found"]) == (0, True, 1)
    assert ran.value["size"] > 500_000


def test_steps_of_a_run_can_be_lowered(ex: Exec) -> None:
    """The budget of steps ends the run with an error that says where."""
    error = drive(ex, "for i in range(1000) { x := i }", budget=Budget(100)).error
    assert isinstance(error, LimitExceededError)
    assert error.details["line"] == 1


async def test_a_program_that_is_dropped_half_way_waits_for_nothing() -> None:
    """A coroutine may be closed on the event loop of another run, where its timer would count as one of that run."""
    entered, left = asyncio.Event(), asyncio.Event()

    async def slow() -> None:
        entered.set()
        await left.wait()

    async with Exec() as ex:
        ex.add(slow, "t:slow")
        source = 'return parallel { one: run("t:slow"), other: run("t:slow") }'
        work = run_workflow(program_of(source), None, tools_of(ex))
        work.send(None)
        await entered.wait()
        work.close()  # raises RuntimeError where it waits
        left.set()
