"""From what is left of a guest to a result or an error, with the exit codes that kernels and shells really give."""

from __future__ import annotations

from typing import Any

import pytest

from toolexec.errors import (
    CodeError,
    CodeTimeoutError,
    LimitExceededError,
    SandboxFailedError,
    SandboxViolationError,
    ToolNotFoundError,
    ToolTimeoutError,
)
from toolexec.runtime.outcome import Ending, judge
from toolexec.runtime.protocol.wire import error_payload

FAILED = {
    "error": {"message": "ZeroDivisionError: division by zero", "kind": "ZeroDivisionError", "line": 2, "source": "1/0"}
}


class TestTheProgram:
    """It said itself how it ended."""

    @pytest.mark.parametrize("payload", [{"value": 5}, {"value": None}, {}], ids=str)
    def test_it_ran_to_its_end(self, payload: dict[str, Any]) -> None:
        """There is no error."""
        assert judge(Ending(result=payload)) is None

    @pytest.mark.parametrize("code", [0, 1, -9, 137, None])
    def test_what_became_of_the_guest_after_it(self, code: int | None) -> None:
        """A result that arrived counts, even if the guest was killed on its way out."""
        assert judge(Ending(result={"value": 1}, exit_code=code, stderr="Segmentation fault")) is None
        error = judge(Ending(result=FAILED, exit_code=code))
        assert isinstance(error, CodeError)

    def test_it_failed(self) -> None:
        """The cause has the program's line, the error its text and data."""
        error = judge(Ending(result=FAILED))
        assert type(error) is CodeError
        assert str(error) == "ZeroDivisionError: division by zero (line 2, col 0)"
        assert error.details["source"] == "1/0"
        assert not error.retryable
        assert error.line == 2

    def test_a_tool_failed_it(self) -> None:
        """The tool's error is the cause; whose tool it was and whether to try again shows."""
        tool_error = error_payload(ToolTimeoutError("late", tool_id="a:b"))
        error = judge(Ending(result={"error": {"message": "late", "tool_error": tool_error}}))
        assert isinstance(error, CodeError)
        assert (error.tool_id, error.retryable) == ("a:b", True)
        assert isinstance(error.__cause__, ToolTimeoutError)
        again = judge(Ending(result={"error": {"tool_error": error_payload(ToolNotFoundError("a:b"))}}))
        assert again is not None
        assert not again.retryable

    @pytest.mark.parametrize(("limited", "kind"), [(True, LimitExceededError), (False, CodeError)])
    def test_it_ran_out_of_memory(self, limited: bool, kind: type[Exception]) -> None:
        """With a memory limit a MemoryError is that limit; without one it is the program's own."""
        ending = Ending(result={"error": {"message": "MemoryError", "kind": "MemoryError"}}, memory_limited=limited)
        error = judge(ending)
        assert type(error) is kind
        if limited:
            assert isinstance(error.__cause__, CodeError)
            assert error.details["resource"] == "memory"

    @pytest.mark.parametrize("said", [None, 5, "no", [], {}], ids=str)
    def test_nonsense_is_a_failure_of_the_program(self, said: Any) -> None:
        """A guest that reports an error without any form is believed to have failed."""
        error = judge(Ending(result={"error": said}))
        assert isinstance(error, CodeError)
        assert str(error) == "the program failed"


class TestTheHost:
    """It stopped the program."""

    def test_the_deadline(self) -> None:
        """The deadline is a TimeoutError that says how long the code had, and that more can be asked for."""
        error = judge(Ending(stopped="deadline", seconds=1.5))
        assert isinstance(error, CodeTimeoutError)
        assert isinstance(error, TimeoutError)
        assert "within 1.5 s" in str(error)
        assert error.details == {"timeout": 1.5}

    @pytest.mark.parametrize("resource", ["memory", "cpu", "pids", "disk"])
    def test_a_resource(self, resource: Any) -> None:
        """The error says which, and that the limit can be raised."""
        error = judge(Ending(stopped=resource))
        assert isinstance(error, LimitExceededError)
        assert error.details == {"resource": resource}
        assert "raise the limit" in str(error)

    def test_a_violation(self) -> None:
        """With what the sandbox said about it; trying again is of no use."""
        error = judge(Ending(stopped="violation", stderr="forbidden import"))
        assert isinstance(error, SandboxViolationError)
        assert "forbidden import" in str(error)
        assert not error.retryable

    @pytest.mark.parametrize("stopped", ["deadline", "memory", "cpu", "pids", "disk", "violation"])
    @pytest.mark.parametrize("result", [{"value": 1}, FAILED], ids=["value", "error"])
    def test_it_has_the_last_word(self, stopped: Any, result: dict[str, Any]) -> None:
        """A program that was stopped may still have said something; that does not make it one that ended."""
        error = judge(Ending(stopped=stopped, result=result, exit_code=0))
        assert error is not None
        assert not isinstance(error, CodeError)


class TestTheSandbox:
    """It is gone without a word from the program."""

    @pytest.mark.parametrize(
        ("code", "kind", "resource"),
        [
            (152, LimitExceededError, "cpu"),  # SIGXCPU
            (-24, LimitExceededError, "cpu"),
            (153, LimitExceededError, "disk"),  # SIGXFSZ
            (-25, LimitExceededError, "disk"),
            (159, SandboxViolationError, None),  # SIGSYS: seccomp
            (-31, SandboxViolationError, None),
        ],
    )
    def test_exit_codes_that_mean_a_limit(self, code: int, kind: type[Exception], resource: str | None) -> None:
        """The kernel's way to say what was too much."""
        error = judge(Ending(exit_code=code))
        assert type(error) is kind
        assert error.details.get("resource") == resource
        assert error.details["exit_code"] == code

    @pytest.mark.parametrize(
        ("code", "how"),
        [
            (None, "without a word"),
            (0, "with exit code 0"),
            (1, "with exit code 1"),
            (2, "with exit code 2"),
            (125, "with exit code 125"),
            (126, "with exit code 126"),
            (127, "with exit code 127"),
            (143, "with exit code 143"),
            (-11, "by signal 11"),
            (-6, "by signal 6"),
            (-15, "by signal 15"),
        ],
    )
    def test_everything_else_is_a_dead_sandbox(self, code: int | None, how: str) -> None:
        """Exit code 0 without a result, too: a dead sandbox must not look like a program that ended."""
        error = judge(Ending(exit_code=code))
        assert type(error) is SandboxFailedError
        assert how in str(error)
        assert not error.retryable

    @pytest.mark.parametrize("code", [1, 137, 159])
    def test_what_it_said_last(self, code: int) -> None:
        """The end of its stderr is in the message and the data, at most 2,000 characters."""
        error = judge(Ending(exit_code=code, stderr="x" * 5000 + "exec format error\n"))
        assert error is not None
        assert str(error).endswith("exec format error")
        assert error.details["stderr"].endswith("exec format error")
        assert len(error.details["stderr"]) == 2000

    def test_nothing_said(self) -> None:
        """The message makes no mention of it."""
        assert "it said" not in str(judge(Ending(exit_code=1, stderr=" \n ")))


class TestLimitsThatTheProgramMet:
    """It failed with an error that only a limit of its sandbox explains; the strings are those of real programs."""

    @pytest.mark.parametrize(
        ("error", "resource"),
        [
            ({"kind": "MemoryError", "message": "MemoryError"}, "memory"),
            ({"kind": "OSError", "message": "OSError: [Errno 12] Cannot allocate memory"}, "memory"),
            ({"kind": "ExitStatus", "message": "the program ended with exit code 137"}, "memory"),  # bash, of a child
            ({"kind": "ExitStatus", "message": "the program ended by signal 9"}, "memory"),
            ({"kind": "RangeError", "message": "RangeError: Array buffer allocation failed"}, "memory"),  # node 20
            ({"kind": "RuntimeError", "message": "RuntimeError: can't start new thread"}, "pids"),
            ({"kind": "Error", "message": "Error: spawn sleep EAGAIN"}, "pids"),  # node 20
            ({"kind": "Error", "message": "Error: spawnSync /bin/sh EAGAIN"}, "pids"),  # node 20
            ({"kind": "Error", "message": "Error: EAGAIN"}, "pids"),  # node 20, a worker thread
            ({"kind": "ExitStatus", "message": "bash: fork: retry: Resource temporarily unavailable"}, "pids"),
            ({"kind": "ExitStatus", "message": "dash: 0: Cannot fork"}, "pids"),
            ({"message": "fork/exec /bin/ls: resource temporarily unavailable"}, "pids"),  # go, os/exec
            ({"message": "runtime: failed to create new OS thread (have 5 already; errno=11)"}, "pids"),  # go
            ({"kind": "OSError", "message": "OSError: [Errno 28] No space left on device"}, "disk"),
            ({"kind": "Error", "message": "Error: ENOSPC: no space left on device, write"}, "disk"),  # node 20
            ({"kind": "OperationalError", "message": "sqlite3.OperationalError: database or disk is full"}, "disk"),
            ({"message": "bash: line 1: echo: write error: No space left on device"}, "disk"),
        ],
        ids=lambda value: value["message"][:40] if isinstance(value, dict) else value,
    )
    def test_it_is_the_limit(self, error: dict[str, Any], resource: str) -> None:
        """Where there is such a limit, and only there, it is a LimitExceededError that names it."""
        limited: Any = {f"{resource}_limited": True}
        found = judge(Ending(result={"error": error}, **limited))
        assert type(found) is LimitExceededError
        assert found.details == {"resource": resource}
        assert "raise the limit" in str(found)
        assert isinstance(found.__cause__, CodeError)
        others: Any = {f"{name}_limited": True for name in ("memory", "pids", "disk") if name != resource}
        assert type(judge(Ending(result={"error": error}, **others))) is CodeError
        assert type(judge(Ending(result={"error": error}))) is CodeError

    @pytest.mark.parametrize(
        ("traceback", "source", "kind"),
        [
            ('  File "<program>", line 2, in <module>\n    os.fork()', "", LimitExceededError),
            ('  File "/usr/lib/python3.11/subprocess.py", line 1882, in _execute_child', "", LimitExceededError),
            ("", "pool = multiprocessing.Pool(99)", LimitExceededError),
            ('  File "<program>", line 2, in <module>\n    a.recv(1)', "a.recv(1)", CodeError),
            ("", "", CodeError),
        ],
    )
    def test_a_socket_without_data_is_no_limit(self, traceback: str, source: str, kind: type[Exception]) -> None:
        """Errno 11 is also what a non-blocking read gives: only where something is started does it mean the limit."""
        error = {
            "kind": "BlockingIOError",
            "message": "BlockingIOError: [Errno 11] Resource temporarily unavailable",
            "traceback": traceback,
            "source": source,
        }
        assert type(judge(Ending(result={"error": error}, pids_limited=True))) is kind

    def test_the_kernel_killed_a_child_of_it(self) -> None:
        """The failure that follows is that of the memory, whatever it says."""
        found = judge(Ending(result={"error": {"message": "worker died", "kind": "BrokenProcessPool"}}, oom=True))
        assert isinstance(found, LimitExceededError)
        assert found.details["resource"] == "memory"
        assert judge(Ending(result={"value": 1}, oom=True)) is None


class TestTheEngine:
    """What it knows about the end."""

    @pytest.mark.parametrize("code", [None, 0, 1, 137, -9])
    def test_the_kernel_was_out_of_memory(self, code: int | None) -> None:
        """That is certain, whatever the exit code is, and even if the engine is lost by now."""
        error = judge(Ending(oom=True, exit_code=code, lost="gone", stderr="Killed"))
        assert type(error) is LimitExceededError
        assert error.details == {"exit_code": code, "stderr": "Killed", "resource": "memory"}
        assert "most likely" not in str(error)

    @pytest.mark.parametrize("code", [None, 137])
    def test_it_is_lost(self, code: int | None) -> None:
        """It is unknown what became of the program; a result that came before counts."""
        error = judge(Ending(lost="the daemon hung up", exit_code=code))
        assert type(error) is SandboxFailedError
        assert "the daemon hung up" in str(error)
        assert error.details["lost"] == "the daemon hung up"
        assert not error.retryable
        assert judge(Ending(lost="the daemon hung up", result={"value": 1})) is None


@pytest.mark.parametrize("code", [137, -9])
def test_a_kill_that_was_not_for_memory(code: int) -> None:
    """Memory is the reason only where that is known; where it would be known, any other kill is just that."""
    error = judge(Ending(exit_code=code, memory_limited=True))
    assert type(error) is SandboxFailedError
    assert error.details["exit_code"] == code
    assert "it was killed, and nothing says why; if the program needs much memory, raise its limit" in str(error)
    error = judge(Ending(exit_code=code, oom_told=True))
    assert isinstance(error, SandboxFailedError)
    assert "memory" not in str(error)
    error = judge(Ending(exit_code=code, oom_told=True, oom=True))
    assert isinstance(error, LimitExceededError)
