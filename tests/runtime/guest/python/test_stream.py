"""The guest for Python over a stream of bytes."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.engines.programs import has_ended
from tests.waiting import until

SERVE = "toolexec.runtime.guest.python.stream:serve"


async def test_it_runs_one_program_after_the_other_and_leaves_when_told(start: Callable[..., Any]) -> None:
    """Names stay; after bye it ends as any Python does, with what is registered for that."""
    child = start(SERVE)
    code = "import atexit\natexit.register(lambda: open('left', 'w').write('x'))\nx = tools.test.echo(give=1)"
    assert await child.value(code) is None
    assert await child.value("print('hi')\nx + 1") == 2
    assert child.output.text() == "hi\n"
    assert await child.end() == 0
    assert (child.directory / "left").read_text() == "x"


async def test_calls_from_the_loop_and_from_threads_at_the_same_time(start: Callable[..., Any]) -> None:
    """Each answer reaches the one who asked."""
    code = """
import asyncio, threading
answers = []
def work(n):
    for m in range(20):
        answers.append(tools.test.echo(give=[n, m]) == [n, m])
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for n in range(20):
    values = await asyncio.gather(*[tools.test.echo(give=[n, m]) for m in range(10)])
    answers.append(values == [[n, m] for m in range(10)])
    await asyncio.sleep(0)
while any(thread.is_alive() for thread in threads):
    await asyncio.sleep(0.01)
return [len(answers), all(answers)]
"""
    assert await start(SERVE).value(code) == [100, True]


async def test_loops_of_other_threads_hear_their_answers(start: Callable[..., Any]) -> None:
    """Each event loop its own."""
    code = """
import asyncio, threading
found = []
async def main():
    task = asyncio.get_running_loop().create_task(tools.test.echo(give=1))
    found.append(await task + await tools.test.echo(give=2))
threads = [threading.Thread(target=lambda: asyncio.run(main())) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
found
"""
    assert await start(SERVE).value(code) == [3, 3, 3]


@pytest.mark.full
async def test_a_call_can_be_used_at_once_in_async_code(start: Callable[..., Any]) -> None:
    """Before its answer is there, after it has come, and twice."""
    code = """
import asyncio, time
early = tools.test.echo(give=1)
first = early + 0
late = tools.test.echo(give=2)
await asyncio.sleep(0)
time.sleep(0.1)
second = late + 0
received = tools.test.echo(give=3)
await asyncio.sleep(0.1)
third = received + 0
return [first, second, third, early + late]
"""
    assert await start(SERVE).value(code) == [1, 2, 3, 3]


async def test_cancelled_calls_are_cancelled_on_the_host(start: Callable[..., Any]) -> None:
    """From the loop, and from a signal in a blocking call."""
    child = start(SERVE)
    code = """
import asyncio
try:
    await asyncio.wait_for(tools.test.hold(), 0.05)
except asyncio.TimeoutError:
    return await tools.test.echo(give="on")
"""
    assert await child.value(code) == "on"
    code = """
import signal
def ring(*_): raise InterruptedError
signal.signal(signal.SIGALRM, ring)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    tools.test.hold()
except InterruptedError:
    return tools.test.echo(give="and on")
"""
    assert await child.value(code) == "and on"
    assert child.cancelled == 2


@pytest.mark.full
async def test_an_answer_for_a_loop_that_is_closed_is_dropped(start: Callable[..., Any]) -> None:
    """The run does not wait for it."""
    code = """
import asyncio, time
async def main():
    tools.test.echo(give=1)
    await asyncio.sleep(0)
asyncio.run(main())
time.sleep(0.1)
return tools.test.echo(give=2)
"""
    assert await start(SERVE).value(code) == 2


async def test_failures_keep_the_session(start: Callable[..., Any]) -> None:
    """With the program's own line, and no frame of the guest."""
    child = start(SERVE)
    error = await child.error("\ntools.test.nope()")
    assert (error["line"], error["tool_error"]["code"]) == (2, "tool_not_found")
    assert await child.value("1") == 1


@pytest.mark.full
async def test_values_and_requests_that_are_too_large_are_refused(start: Callable[..., Any]) -> None:
    """Each with what to do; many that fit one by one travel in several frames."""
    child = start(SERVE)
    error = await child.error("'x' * (17 << 20)")
    assert "put it into a file" in error["message"]
    code = """
import asyncio
text = "x" * (6 << 20)
sizes = [len(h) for h in await asyncio.gather(*[tools.test.echo(give=text) for _ in range(4)])]
try:
    await tools.test.echo(give="x" * (17 << 20))
except ToolError as error:
    return [sizes, error.code]
"""
    assert await child.value(code) == [[6 << 20] * 4, "protocol"]


@pytest.mark.full
async def test_a_print_larger_than_a_frame_arrives(start: Callable[..., Any]) -> None:
    """In parts."""
    child = start(SERVE)
    await child.value("print('ä' * 3_000_000)")
    assert child.output.text().startswith("ä" * (1 << 20))


@pytest.mark.full
async def test_input_is_for_the_program_and_its_children(start: Callable[..., Any]) -> None:
    """Each run has its own; none is empty."""
    child = start(SERVE)
    code = "import subprocess, sys\nreturn [sys.stdin.readline(), subprocess.run(['cat'], stdout=-1).stdout.decode()]"
    first = await child.value("import sys\nsys.stdin.read()", stdin=b"one\n")
    assert (first, await child.value("import sys\nsys.stdin.read()")) == ("one\n", "")
    assert (await child.value(code, stdin=b"two\n"))[0] == "two\n"


@pytest.mark.full
async def test_seeds_make_numbers_repeat(start: Callable[..., Any]) -> None:
    """A seed holds even when random is imported only by the program."""
    code = "import random\nrandom.random()"
    assert await start(SERVE).value(code, seed=1) == await start(SERVE).value(code, seed=1)


async def test_buffers_of_open_files_are_written_out(start: Callable[..., Any]) -> None:
    """A file that the program left open is complete when the run is over."""
    child = start(SERVE)
    await child.value("a = open('a', 'w'); a.write('x')\nb = open('b', 'wb'); b.write(b'y')\nc = open('a')\nc.close()")
    await child.value("import os\nd = open('d', 'w')\nd.write('x')\nos.close(d.fileno())")
    assert ((child.directory / "a").read_text(), (child.directory / "b").read_text()) == ("x", "y")


async def test_forked_children_have_no_line_to_the_host(start: Callable[..., Any]) -> None:
    """Forked children cannot call, and their output and results are their own."""
    code = """
import os
reading, writing = os.pipe()
if os.fork() == 0:
    try:
        tools.test.echo(give=1)
    except ToolError as error:
        os.write(writing, error.code.encode())
    return "the child's"
os.wait()
return os.read(reading, 100).decode()
"""
    assert await start(SERVE).value(code) == "connection_closed"


async def test_frames_over_stdin_and_stdout_do_not_mix_with_prints(start: Callable[..., Any]) -> None:
    """The descriptors are moved away: stdin is empty then, and stdout is stderr."""
    child = start(SERVE, stdio=True)
    code = "import os, subprocess\nos.write(1, b'low')\nsubprocess.run(['echo', 'child'])\nreturn len(os.read(0, 10))"
    assert await child.value(code) == 0
    assert await child.value("tools.test.echo(give=1)") == 1
    assert await child.end() == 0


async def test_it_ends_when_the_host_is_gone(start: Callable[..., Any]) -> None:
    """The guest ends even in the middle of a program."""
    child = start(SERVE)
    await child.value("import threading\nthreading.Thread(target=lambda: tools.test.hold(), daemon=True).start()")
    child.talk._stream._socket.shutdown(socket.SHUT_RDWR)
    assert await child.end() == 0


async def test_a_group_of_its_own_ends_as_one(start: Callable[..., Any]) -> None:
    """Processes that the program has started do not stay behind."""
    text = (
        "import os, sys; os.setsid(); from toolexec.runtime.guest.python.stream import serve; "
        "serve(*map(int, sys.argv[1:]))"
    )
    child = start(command=[sys.executable, "-c", text])
    pid = await child.value("import subprocess\nsleeper = subprocess.Popen(['sleep', '1000'])\nsleeper.pid")
    child.talk._stream._socket.shutdown(socket.SHUT_RDWR)
    assert await child.end() == -9
    await until(lambda: has_ended(pid))
