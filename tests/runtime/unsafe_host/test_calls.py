"""Tool calls of code on the host: at the same time, cancelled, capped; and what breaks the protocol."""

from __future__ import annotations

from typing import Any

from toolexec.code.limits import Limits
from toolexec.errors import (
    SandboxFailedError,
    ToolCallLimitError,
)


async def test_gathered_calls_run_at_the_same_time(host: Any) -> None:
    """Twenty calls are under way at once."""
    code = "import asyncio\nreturn await asyncio.gather(*[tools.test.meet(count=20) for _ in range(20)])"
    assert await host.value(code) == [20] * 20
    assert host.most_active == 20


async def test_threads_call_tools_at_the_same_time(host: Any) -> None:
    """Blocking calls from the program's own threads do not wait for each other."""
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    return list(pool.map(lambda _: tools.test.meet(count=8), range(8)))
"""
    assert await host.value(code) == [8] * 8


async def test_asyncio_run_and_create_task_work_with_tools(host: Any) -> None:
    """The program may have its own event loop, and threads beside it."""
    code = """
import asyncio
async def main():
    task = asyncio.create_task(tools.math.add(a=1, b=1))
    other = await asyncio.to_thread(lambda: tools.math.add(a=2, b=2))
    return [await task, other, await tools.math.add(a=3, b=3)]
asyncio.run(main())
"""
    assert await host.value(code) == [2, 4, 6]


async def test_a_result_of_a_call_may_be_used_without_await_in_async_code(host: Any) -> None:
    """Using the result blocks then, as it must."""
    code = """
import asyncio
await asyncio.sleep(0)
first = tools.math.add(a=1, b=1)
late = tools.math.add(a=5, b=5)
await asyncio.sleep(0.05)
return [first + 1, late + 1]
"""
    assert await host.value(code) == [3, 11]


async def test_a_cancelled_call_is_cancelled_on_the_host(host: Any) -> None:
    """asyncio.wait_for in the program ends the tool's work, too."""
    code = """
import asyncio
try:
    await asyncio.wait_for(tools.test.wait(), 0.05)
except asyncio.TimeoutError:
    return await tools.math.add(a=1, b=1)
"""
    assert await host.value(code) == 2
    assert host.cancelled == 1


async def test_a_signal_gets_a_program_out_of_a_blocking_call(host: Any) -> None:
    """signal.alarm works, the call is cancelled, and the line to the host is as good as before."""
    code = """
import signal
def ring(*_):
    raise TimeoutError("alarm")
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    tools.test.wait()
except TimeoutError:
    return tools.math.add(a=1, b=1)
"""
    assert await host.value(code) == 2
    assert host.cancelled == 1


async def test_calls_that_run_when_the_program_ends_are_cancelled(host: Any) -> None:
    """The run is over when the result is there; a thread that calls on has lost."""
    code = """
import threading, time
threading.Thread(target=tools.test.wait, daemon=True).start()
while not tools.math.add(a=1, b=1): pass
time.sleep(0.1)
return "done"
"""
    result = await host.run(code)
    assert result.value == "done"
    assert host.cancelled == 1


async def test_a_call_cap_holds_whatever_the_program_catches(host: Any) -> None:
    """The host counts the calls."""
    code = """
made = 0
for _ in range(10):
    try:
        tools.math.add(a=1, b=1)
        made += 1
    except BaseException as error:
        code = error.code
return [made, code]
"""
    assert await host.value(code, limits=Limits(max_tool_calls=3)) == [3, ToolCallLimitError.code]


async def test_a_large_result_is_what_it_stands_for(host: Any) -> None:
    """A text over the byte budget is a plain string."""
    code = (
        "text = tools.test.large(size=2_000_000)\nreturn [type(text).__name__, len(text), text[:3], text.upper()[-1]]"
    )
    assert await host.value(code) == ["str", 2_000_000, "xxx", "X"]


async def test_a_forked_child_does_not_speak_for_its_parent(host: Any) -> None:
    """A child that runs to the end of the program gives no result, calls nothing and prints as any process does."""
    code = """
import os
if os.fork() == 0:
    try:
        tools.math.add(a=1, b=1)
    except ToolError as error:
        print("child:", error.code, flush=True)
    return "the child's"
os.wait()
return "the parent's"
"""
    result = await host.run(code)
    assert result.value == "the parent's"
    assert result.stdout == "child: connection_closed\n"
    assert result.tool_calls == []


LINE = """
import gc, json, os, struct
def line():
    return next(o for o in gc.get_objects() if type(o).__name__ == "Line")
def raw(data):
    os.write(line()._write_fd, data)
def frame(*messages):
    body = json.dumps(messages).encode()
    raw(struct.pack(">I", len(body)) + body)
"""


async def test_a_forged_result_ends_the_run_and_a_second_one_does_nothing(host: Any) -> None:
    """A program can only forge its own value; answering twice changes nothing."""
    code = (
        LINE
        + """
frame({"type": "result", "id": "1", "payload": {"value": "first"}})
frame({"type": "result", "id": "1", "payload": {"value": "second"}})
import time; time.sleep(60)
"""
    )
    result = await host.run(code)
    assert result.value == "first"


async def test_a_result_for_another_run_is_refused(host: Any) -> None:
    """An ID that the host has not given does not count."""
    code = LINE + "frame({'type': 'result', 'id': '99', 'payload': {'value': 'forged'}})\nreturn 'own'"
    assert await host.value(code) == "own"


async def test_half_a_frame_and_an_exit_is_a_dead_sandbox(host: Any) -> None:
    """The end in the middle of a message is an end."""
    result = await host.run(LINE + "raw(struct.pack('>I', 1000) + b'half')\nos._exit(0)")
    assert type(result.error) is SandboxFailedError
    assert "in the middle of a message" in str(result.error)


async def test_garbage_is_answered_and_forgotten(host: Any) -> None:
    """A frame that is not JSON, one of an unknown type, a request with an ID in use: the run goes on."""
    code = (
        LINE
        + """
raw(struct.pack(">I", 5) + b"{{{{{")
frame({"type": "shutdown", "id": "x"}, {"type": 5}, "text")
frame({"type": "run_tool", "id": "same", "payload": {"id": "test:wait"}})
frame({"type": "run_tool", "id": "same", "payload": {"id": "test:wait"}})
return tools.math.add(a=1, b=1)
"""
    )
    assert await host.value(code) == 2


async def test_a_flood_of_garbage_ends_the_run(host: Any) -> None:
    """A program that breaks the protocol without end is stopped."""
    result = await host.run(LINE + "while True: raw(struct.pack('>I', 1) + b'{')")
    assert result.error is not None
    assert result.error.code == "sandbox_violation"


async def test_an_announced_giant_ends_the_run(host: Any) -> None:
    """A length of 4 GB is not waited for."""
    result = await host.run(LINE + "raw(b'\\xff' * 64)\nimport time\ntime.sleep(60)")
    assert result.error is not None
    assert result.error.code == "sandbox_violation"
