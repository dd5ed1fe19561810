"""Code as a child process: opt-in, results, errors, files, environment, and that nothing outlives a run."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from toolexec.code.limits import Limits
from toolexec.code.output import Output
from toolexec.errors import (
    CodeError,
    ConfigurationError,
    InvalidRequestError,
    ProgramFailedError,
    ResourceLimitError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxTimeoutError,
    SandboxUnavailableError,
    ToolCallLimitError,
    ToolNotFoundError,
)
from toolexec.runtime.backend.unsafe.backend import UnsafeConfig, UnsafeHostBackend
from toolexec.runtime.base import SandboxBackend, SessionBackend


async def test_it_is_a_sandbox_backend_that_promises_no_isolation(host: Any) -> None:
    """It fits the protocols, and says what it is."""
    assert isinstance(host.backend, SandboxBackend)
    assert isinstance(host.backend, SessionBackend)
    assert (host.backend.kind, host.backend.isolation) == ("unsafe_host", "none")


async def test_a_program_calls_tools_and_gives_a_value(host: Any) -> None:
    """A call crosses to the host and back; value, output, trace and where it ran are in the result."""
    result = await host.run("print('hi')\nreturn tools.math.add(a=1, b=2)")
    assert (result.value, result.stdout, result.stderr, result.error) == (3, "hi\n", "", None)
    assert [(call.tool_id, call.args, call.value) for call in result.tool_calls] == [("math:add", {"a": 1, "b": 2}, 3)]
    assert result.duration > 0
    assert result.backend.to_dict()["kind"] == "unsafe_host"
    assert {"mode": "subprocess", "language": "python"}.items() <= dict(result.backend.details).items()
    assert result.backend.details["version"].startswith("3.")


async def test_without_the_opt_in_nothing_runs(host: Any) -> None:
    """The error says how to opt in; anything but True is no opt-in."""
    for metadata in ({}, {"unsafeOptIn": "yes"}, {"unsafeOptIn": 1}):
        with pytest.raises(SandboxDeniedError, match="unsafe_opt_in=True"):
            await host.run("1", metadata=metadata)


async def test_an_operator_can_do_without_the_opt_in(host: Any) -> None:
    """With require_opt_in=False every request is taken."""
    host.use(require_opt_in=False)
    assert await host.value("2", metadata={}) == 2


async def test_each_execution_is_warned_of_once(host: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One warning that starts with UNSAFE and has mode and length."""
    with caplog.at_level(logging.WARNING):
        await host.run("1 + 1")
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    assert warnings[0].startswith("UNSAFE")
    assert "5 characters" in warnings[0]
    assert "subprocess" in warnings[0]


async def test_interpreter_mode_says_that_it_is_a_subprocess(host: Any) -> None:
    """Nothing pretends to run inside of the host's process."""
    host.use(mode="interpreter")
    result = await host.run("import os\nos.getpid()")
    assert result.value != os.getpid()
    assert result.backend.details["mode"] == "interpreter"
    assert "subprocess" in result.backend.details["note"]


def test_an_unknown_mode_is_refused() -> None:
    """A config that makes no sense cannot be made."""
    with pytest.raises(ConfigurationError, match="unknown mode"):
        UnsafeConfig(mode="container")  # type: ignore[arg-type]


async def test_an_unknown_language_is_refused(host: Any) -> None:
    """The error lists those that there are."""
    with pytest.raises(InvalidRequestError, match="bash, go, javascript, python"):
        await host.run("x", language="cobol")


async def test_a_missing_toolchain_says_what_to_install(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not found means refused, with the remedy, and nothing has run."""
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SandboxUnavailableError, match=r"node is not on the PATH.*install Node"):
        await host.run("1", language="javascript")


async def test_a_toolchain_that_does_not_work_is_not_used(host: Any, tmp_path: Path) -> None:
    """A program that only has the right name is no interpreter."""
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho broken\nexit 1\n")
    fake.chmod(0o700)
    host.use(python=str(fake))
    with pytest.raises(SandboxUnavailableError, match="does not work: broken"):
        await host.run("1")
    assert not (await host.backend.check()).ok


async def test_check_lists_what_runs_and_what_is_missing(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python is enough to be available; the remedy says how to get the others."""
    monkeypatch.setenv("PATH", "/nowhere")
    state = await host.backend.check()
    assert state.ok
    assert "python 3." in state.reason
    assert "install Go" in state.remedy
    assert state.version


async def test_each_language_can_be_asked_for(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its version, or what to install."""
    monkeypatch.setenv("PATH", "/nowhere")
    assert (await host.backend.check_language("python")).version
    missing = await host.backend.check_language("go")
    assert (missing.ok, "install Go" in missing.reason) == (False, True)
    assert not (await host.backend.check_language("cobol")).ok


async def test_a_clock_cannot_be_replayed(host: Any) -> None:
    """A request for what the machine cannot do is refused, unless the caller takes what there is."""
    with pytest.raises(InvalidRequestError, match="cannot replay the clock"):
        await host.run("1", now=0.0)
    with pytest.raises(InvalidRequestError, match="random numbers of bash"):
        await host.run("true", seed=1, language="bash")
    assert await host.value("1", now=0.0, best_effort=True) == 1


async def test_random_numbers_can_be_replayed(host: Any) -> None:
    """The same seed, the same numbers."""
    code = "import random\n[random.random() for _ in range(3)]"
    assert await host.value(code, seed=7) == await host.value(code, seed=7)
    assert await host.value(code, seed=7) != await host.value(code, seed=8)


# -- failures ---------------------------------------------------------------------------------------------------------


async def test_the_programs_own_failure_has_its_line(host: Any) -> None:
    """ProgramFailedError, caused by a CodeError with line, source and traceback; what was printed is there."""
    result = await host.run("print('before')\nx = 1\n1 / 0")
    assert isinstance(result.error, ProgramFailedError)
    cause = result.error.__cause__
    assert isinstance(cause, CodeError)
    assert (cause.line, cause.source, cause.kind) == (3, "1 / 0", "ZeroDivisionError")
    assert "toolexec" not in cause.traceback
    assert result.stdout == "before\n"
    assert result.error.backend == "unsafe_host"


async def test_an_uncaught_tool_error_is_the_cause_of_the_cause(host: Any) -> None:
    """The tool's own error comes back with its class and fields."""
    result = await host.run("tools.math.ad(a=1)")
    assert result.error is not None
    assert isinstance(result.error.__cause__.__cause__, ToolNotFoundError)
    assert result.error.tool_id == "math:ad"


async def test_code_catches_tool_errors(host: Any) -> None:
    """The same names and fields as on the host."""
    code = """
try:
    tools.test.fail()
except HandlerError as error:
    return [error.code, error.tool_id, error.retryable, isinstance(error, ToolError)]
"""
    assert await host.value(code) == ["handler_failed", "test:fail", False, True]


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        ("import sys\nsys.exit(3)", ProgramFailedError, "exit code 3"),
        ("import os\nos._exit(5)", SandboxFailedError, "exit code 5"),
        ("import os\nos._exit(0)", SandboxFailedError, "exit code 0"),
        ("import os\nos.kill(os.getpid(), 9)", ResourceLimitError, "killed"),
        ("import os\nos.abort()", SandboxFailedError, "signal 6"),
        ("def f(:", ProgramFailedError, "SyntaxError"),
        ("object()", ProgramFailedError, "not JSON"),
        ("float('nan')", ProgramFailedError, "nan"),
        ("raise BaseException('odd')", ProgramFailedError, "odd"),
        ("raise KeyboardInterrupt", ProgramFailedError, "KeyboardInterrupt"),
        ("class E(Exception):\n    def __str__(self): raise self\nraise E", ProgramFailedError, "cannot be shown"),
        ("def f(): f()\nf()", ProgramFailedError, "RecursionError"),
        ("'x' * (17 << 20)", ProgramFailedError, "16 MiB"),
    ],
)
async def test_every_way_to_fail_is_told_apart(host: Any, code: str, error: type, text: str) -> None:
    """Whose fault it was, with what was printed before; and the next run is clean."""
    result = await host.run("print('before')\n" + code)
    assert type(result.error) is error
    assert text in str(result.error)
    assert result.stdout in (("",) if "def f(:" in code else ("before\n",))
    assert await host.value("40 + 2") == 42


async def test_sys_exit_with_nothing_is_a_normal_end(host: Any) -> None:
    """`sys.exit()` is not a failure; `__out` counts."""
    assert await host.value("import sys\n__out = 1\nsys.exit()") == 1


async def test_a_caller_that_is_cancelled_takes_the_program_with_it(host: Any, alive: Any) -> None:
    """Program and tool call both end, and the cancellation goes on."""
    output = Output()
    request = host.request("import os\nprint(os.getpid(), flush=True)\ntools.test.wait()", output=output)
    task = asyncio.create_task(host.backend.execute(request))
    await asyncio.wait_for(host.begun.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.cancelled == 1
    assert not alive(int(output.text()))


async def test_closing_the_backend_stops_what_runs_and_refuses_the_rest(host: Any, alive: Any) -> None:
    """aclose kills; later requests say that it is closed."""
    output = Output()
    code = "import os\nprint(os.getpid(), flush=True)\ntools.test.wait()"
    task = asyncio.create_task(host.run(code, output=output))
    await asyncio.wait_for(host.begun.wait(), 60)
    await host.backend.aclose()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(int(output.text()))
    with pytest.raises(SandboxUnavailableError, match="closed"):
        await host.run("1")


# -- calls ------------------------------------------------------------------------------------------------------------


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
    """It blocks then, as it must."""
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
    """It is counted on the host."""
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


async def test_a_large_result_is_a_handle(host: Any) -> None:
    """It stays on the host and can be read by parts."""
    code = "handle = tools.test.large(size=2_000_000)\nreturn [len(handle), handle.read(limit=3)]"
    assert await host.value(code) == [2_000_000, "xxx"]


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


# -- the protocol as a weapon -----------------------------------------------------------------------------------------

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
    """A frame that is no JSON, one of an unknown type, a request with an ID in use: the run goes on."""
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
    """Who breaks the protocol without end is stopped."""
    result = await host.run(LINE + "while True: raw(struct.pack('>I', 1) + b'{')")
    assert result.error is not None
    assert result.error.code == "sandbox_violation"


async def test_an_announced_giant_ends_the_run(host: Any) -> None:
    """A length of 4 GB is not waited for."""
    result = await host.run(LINE + "raw(b'\\xff' * 64)\nimport time\ntime.sleep(60)")
    assert result.error is not None
    assert result.error.code == "sandbox_violation"


# -- output -----------------------------------------------------------------------------------------------------------


async def test_prints_and_what_children_write_are_captured(host: Any) -> None:
    """Both streams, also what goes past Python, and half characters."""
    code = """
import os, subprocess, sys
os.write(1, b"low ")
subprocess.run(["sh", "-c", "echo child; echo oops >&2"])
os.write(1, b"\\xff\\n")
print("high", file=sys.stderr)
"""
    result = await host.run(code)
    assert result.stdout == "low child\n\ufffd\n"
    assert sorted(result.stderr.split()) == ["high", "oops"]


async def test_a_frame_on_stdout_is_only_text(host: Any) -> None:
    """What a program writes to its output is never taken for a message."""
    result = await host.run('import os\nos.write(1, b\'[{"type":"result","id":"1","payload":{"value":9}}]\\n\')\n7')
    assert result.value == 7
    assert '"value":9' in result.stdout


@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(1000): print('x' * 100_000)",
        "import os\nfor _ in range(1000): os.write(1, b'x' * 100_000)",
        "print('x' * 50_000_000)",
    ],
)
async def test_a_flood_of_output_is_cut(host: Any, code: str) -> None:
    """A program that prints 100 MB ends as usual, and what is kept is bounded."""
    result = await host.run(code + "\nreturn 1", output=Output(limit=1000))
    assert result.value == 1
    assert len(result.stdout) < 1200
    assert "output limit reached" in result.stdout


async def test_output_is_heard_while_the_program_runs(host: Any) -> None:
    """Not only in the end."""
    heard: list[tuple[str, str]] = []
    done = asyncio.Event()

    def tell(stream: str, text: str) -> None:
        heard.append((stream, text))
        done.set()

    code = "import os\nprint('now')\ntools.test.wait()"
    task = asyncio.create_task(host.run(code, output=Output(tell=tell)))
    await asyncio.wait_for(done.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert heard == [("stdout", "now\n")]


# -- what a program is given -------------------------------------------------------------------------------------------


async def test_nothing_of_the_hosts_environment_is_passed_on(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a path, a language, a home, and what the request has; children see the same."""
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    code = """
import os, subprocess
out = subprocess.run(["env"], capture_output=True, text=True).stdout
return [dict(os.environ), "hunter2" in out, os.getcwd()]
"""
    env, leaked, folder = await host.value(code, env={"MINE": "1"})
    assert not leaked
    assert set(env) <= {"PATH", "LANG", "HOME", "TMPDIR", "MINE", "TOOLEXEC_RUN", "LC_CTYPE"}
    assert env["MINE"] == "1"
    assert env["HOME"] == env["TMPDIR"] == folder


async def test_no_descriptor_of_the_host_is_inherited(host: Any, tmp_path: Path) -> None:
    """What the host has open stays its own; children of the program do not get the line to the host either."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        code = """
import os, subprocess
own = [os.path.realpath("/proc/self/fd/" + n) for n in os.listdir("/proc/self/fd")]
theirs = subprocess.run(["ls", "-l", "/proc/self/fd"], capture_output=True, text=True).stdout
return [any("secret" in name for name in own), theirs.count("socket:")]
"""
        assert await host.value(code) == [False, 0]


async def test_arguments_and_input_are_given(host: Any) -> None:
    """sys.argv and stdin, for the program and its children."""
    code = "import sys, subprocess\nreturn [sys.argv[1:], sys.stdin.readline(), sys.stdin.read()]"
    assert await host.value(code, args=["a", "b"], stdin=b"one\ntwo") == [["a", "b"], "one\n", "two"]
    code = "import subprocess\nreturn subprocess.run(['cat'], capture_output=True, text=True).stdout"
    assert await host.value(code, stdin=b"for the child") == "for the child"
    assert await host.value("import sys\nsys.stdin.read()") == ""


async def test_files_go_in_and_come_out(host: Any) -> None:
    """New and changed files come back, the others do not; what was not closed is complete all the same."""
    code = """
import os, pathlib
text = open("data/in.csv").read()
pathlib.Path("new/deep").mkdir(parents=True)
pathlib.Path("new/deep/a.txt").write_text(text.upper())
open("same.txt").read()
with open("more.txt", "a") as f: f.write("!")
unclosed = open("unclosed.txt", "w")
unclosed.write("all of it")
os.symlink("/etc/passwd", "link")
os.mkfifo("pipe")
"""
    files = {"data/in.csv": b"a,b", "same.txt": b"1", "more.txt": b"2"}
    result = (await host.run(code, files=files)).raise_for_error()
    assert result.files == {"new/deep/a.txt": b"A,B", "more.txt": b"2!", "unclosed.txt": b"all of it"}


async def test_files_come_out_of_a_run_that_failed(host: Any) -> None:
    """What was captured until then."""
    result = await host.run("open('a.txt', 'w').write('x')\n1 / 0")
    assert result.files == {"a.txt": b"x"}


async def test_files_over_the_bound_are_left_out_and_named(host: Any) -> None:
    """A sparse giant costs the host nothing."""
    result = await host.run("open('big', 'w').truncate(1 << 40)\nopen('small', 'w').write('x')")
    assert result.files == {"small": b"x"}
    assert result.backend.details["files_left_out"] == ["big"]


async def test_a_file_that_would_leave_the_folder_is_refused(host: Any) -> None:
    """Nothing runs then."""
    with pytest.raises(InvalidRequestError, match="relative and plain"):
        await host.run("1", files={"../x": b""})


async def test_a_program_too_large_for_a_message_is_refused(host: Any) -> None:
    """With what to do instead."""
    with pytest.raises(InvalidRequestError, match="put what is large into files"):
        await host.run("1", stdin=b"x" * (13 << 20))


async def test_a_process_that_cannot_be_started_is_unavailable(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without room for another process says so; nothing has run."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    await host.run("1")
    monkeypatch.setattr("toolexec.runtime.process.subprocess.Popen", refuse)
    with pytest.raises(SandboxUnavailableError, match="cannot be started: Resource temporarily"):
        await host.run("1")
    with pytest.raises(SandboxUnavailableError, match="cannot be started"):
        await host.backend.open_session(host.request("1"))


# -- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time\ntime.sleep(1000)",
        "tools.test.wait()",
        "await tools.test.wait()",
        "import re\nre.match(r'(a+)+$', 'a' * 50 + 'b')",
        "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\nwhile True: pass",
    ],
    ids=["loop", "sleep", "call", "await", "regex", "deaf"],
)
async def test_a_program_is_stopped_at_its_deadline(host: Any, alive: Any, code: str) -> None:
    """Whatever it does; what it printed and called is there, and no process is left."""
    code = "import os\nprint(os.getpid(), flush=True)\ntools.math.add(a=1, b=1)\n" + code
    result = await host.run(code, timeout=0.7)
    assert isinstance(result.error, SandboxTimeoutError)
    assert result.error.retryable
    assert result.tool_calls[0].value == 2
    assert not alive(int(result.stdout))
    assert result.limits_enforced.timeout


async def test_a_deadline_before_the_guest_is_up_is_a_deadline(host: Any) -> None:
    """The whole run has one time limit."""
    result = await host.run("1", timeout=0.001)
    assert isinstance(result.error, SandboxTimeoutError)


async def test_grandchildren_that_hide_are_ended_too(host: Any, alive: Any) -> None:
    """Deaf ones, those in a session of their own, and daemons whose parents are gone."""
    code = """
import os, subprocess, sys
hidden = "import os, signal, time; signal.signal(15, 1); print(os.getpid(), flush=True); time.sleep(1000)"
ask = dict(stdout=subprocess.PIPE, text=True)
plain = subprocess.Popen([sys.executable, "-c", hidden], **ask)
apart = subprocess.Popen([sys.executable, "-c", hidden], start_new_session=True, **ask)
bare = subprocess.Popen([sys.executable, "-c", hidden], start_new_session=True, env={}, **ask)
daemon = subprocess.Popen(
    [sys.executable, "-c", f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {hidden!r}], start_new_session=True)"],
    **ask)
pids = [int(child.stdout.readline()) for child in (plain, apart, bare, daemon)]
daemon.wait()
print(*pids)
while True: pass
"""
    result = await host.run(code, timeout=3)
    pids = [int(word) for word in result.stdout.split()]
    assert len(pids) == 4
    assert [pid for pid in pids if alive(pid)] == []


async def test_a_fork_bomb_ends_with_its_time(host: Any, alive: Any) -> None:
    """The group goes as one."""
    code = """
import os, time
root = os.getpid()
for _ in range(7):
    os.fork()
os.write(1, b"%d\\n" % os.getpid())
while True: time.sleep(10)
"""
    result = await host.run(code, timeout=2)
    assert isinstance(result.error, SandboxTimeoutError)
    pids = [int(line) for line in result.stdout.split()]
    assert len(pids) > 1
    assert [pid for pid in pids if alive(pid)] == []


async def test_background_processes_end_with_the_run(host: Any, alive: Any) -> None:
    """Also when the program itself has ended well."""
    code = "import subprocess\nreturn subprocess.Popen(['sleep', '1000']).pid"
    assert not alive(await host.value(code))


async def test_many_runs_at_once_do_not_mix(host: Any) -> None:
    """Each has its own tools, output and folder."""
    results = await asyncio.gather(*(host.run(f"print({n})\nopen('f', 'w').write('{n}')\n{n}") for n in range(6)))
    assert [(r.value, r.stdout, r.files) for r in results] == [(n, f"{n}\n", {"f": b"%d" % n}) for n in range(6)]


async def test_closing_twice_is_fine() -> None:
    """As with everything that has aclose."""
    backend = UnsafeHostBackend()
    await backend.aclose()
    await backend.aclose()
