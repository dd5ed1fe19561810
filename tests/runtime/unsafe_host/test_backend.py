"""Code as a child process: opt-in, results, errors, files, environment, and that nothing outlives a run."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from tests.engines.programs import has_ended

from toolexec.code.types import Output
from toolexec.errors import (
    ClosedError,
    CodeError,
    ConfigurationError,
    InvalidRequestError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
    ToolNotFoundError,
)
from toolexec.runtime.base import SandboxBackend, SessionBackend
from toolexec.runtime.unsafe_host.backend import UnsafeConfig


async def test_it_is_a_sandbox_backend_that_promises_no_isolation(host: Any) -> None:
    """The class fits the protocols and describes itself."""
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
    with pytest.raises(ConfigurationError, match="mode must be one of subprocess, interpreter, not 'container'"):
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


async def test_the_programs_own_failure_has_its_line(host: Any) -> None:
    """A CodeError has line, source and traceback; what was printed is there."""
    result = await host.run("print('before')\nx = 1\n1 / 0")
    assert isinstance(result.error, CodeError)
    cause = result.error
    assert (cause.line, cause.source, cause.kind) == (3, "1 / 0", "ZeroDivisionError")
    assert "toolexec" not in cause.traceback
    assert result.stdout == "before\n"
    assert result.error.backend == "unsafe_host"


async def test_an_uncaught_tool_error_is_the_cause(host: Any) -> None:
    """The tool's own error comes back with its class and fields."""
    result = await host.run("tools.math.ad(a=1)")
    assert result.error is not None
    assert isinstance(result.error.__cause__, ToolNotFoundError)
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
        ("import sys\nsys.exit(3)", CodeError, "exit code 3"),
        ("import os\nos._exit(5)", SandboxFailedError, "exit code 5"),
        ("import os\nos._exit(0)", SandboxFailedError, "exit code 0"),
        ("import os\nos.kill(os.getpid(), 9)", SandboxFailedError, "it was killed, and nothing says why"),
        ("import os\nos.abort()", SandboxFailedError, "signal 6"),
        ("def f(:", CodeError, "SyntaxError"),
        ("object()", CodeError, "not JSON"),
        ("float('nan')", CodeError, "nan"),
        ("raise BaseException('odd')", CodeError, "odd"),
        ("raise KeyboardInterrupt", CodeError, "KeyboardInterrupt"),
        ("class E(Exception):\n    def __str__(self): raise self\nraise E", CodeError, "cannot be shown"),
        ("def f(): f()\nf()", CodeError, "RecursionError"),
        ("'x' * (17 << 20)", CodeError, "16 MiB"),
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


async def test_a_caller_that_is_cancelled_takes_the_program_with_it(host: Any) -> None:
    """Program and tool call both end, and the cancellation goes on."""
    output = Output()
    request = host.request("import os\nprint(os.getpid(), flush=True)\ntools.test.wait()", output=output)
    task = asyncio.create_task(host.backend.execute(request))
    await asyncio.wait_for(host.begun.wait(), 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert host.cancelled == 1
    assert has_ended(int(output.text()))


async def test_closing_the_backend_stops_what_runs_and_refuses_the_rest(host: Any) -> None:
    """aclose kills; later requests say that it is closed."""
    output = Output()
    code = "import os\nprint(os.getpid(), flush=True)\ntools.test.wait()"
    task = asyncio.create_task(host.run(code, output=output))
    await asyncio.wait_for(host.begun.wait(), 60)
    await host.backend.aclose()
    with pytest.raises(ClosedError):
        await task
    assert has_ended(int(output.text()))
    with pytest.raises(SandboxUnavailableError, match="closed"):
        await host.run("1")
