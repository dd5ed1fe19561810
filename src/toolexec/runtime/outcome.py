"""Whose fault was it? From what is left of a guest to a result or an error. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from toolexec.errors import (
    ProgramFailedError,
    ResourceLimitError,
    SandboxError,
    SandboxFailedError,
    SandboxTimeoutError,
    SandboxViolationError,
)
from toolexec.runtime.gateway.wire import read_code_error

__all__ = ["Ending", "Stopped", "judge"]

Stopped: TypeAlias = Literal["", "deadline", "memory", "cpu", "pids", "disk", "violation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is known about the end of a guest.

    `result` is the payload of its `result` message, None when none came. `stopped` says why the host stopped it, or
    what the sandbox reported that it ran out of. `exit_code` is that of the process, if there was one: negative is a
    signal. `stderr` is what the sandbox itself (not the program) had to say. `memory_limited` tells whether a
    MemoryError of the program means its limit. `seconds` is the time limit.
    """

    result: Mapping[str, Any] | None = None
    stopped: Stopped = ""
    exit_code: int | None = None
    stderr: str = ""
    memory_limited: bool = False
    seconds: float = 0.0


def judge(ending: Ending) -> SandboxError | None:
    """None when the program ran to its end; else the error that tells its failure from the sandbox's death.

    What the host did comes first: a program that was stopped may still have said something. A result that arrived
    counts whatever became of the guest after it. Without one, exit codes speak: 137 (or signal 9) is what the kernel
    does to a process that is out of memory, 152 and signal 24 that it is out of CPU time, 159 and signal 31 that
    it made a forbidden system call.
    """
    if ending.stopped:
        return _stopped(ending)
    if ending.result is not None:
        return _program(ending)
    code = ending.exit_code
    tail = ending.stderr.strip()[-2000:]
    said = f"; it said: {tail}" if tail else ""
    details = {"exit_code": code, "stderr": tail}
    if code in (137, -9):
        return ResourceLimitError(
            f"the sandbox was killed, most likely for using up its memory{said}",
            details={**details, "resource": "memory"},
        )
    if code in (152, -24):
        return ResourceLimitError(f"the CPU time of the run is used up{said}", details={**details, "resource": "cpu"})
    if code in (153, -25):
        return ResourceLimitError(f"a file grew over its limit{said}", details={**details, "resource": "disk"})
    if code in (159, -31):
        return SandboxViolationError(f"the code made a forbidden system call and was killed{said}", details=details)
    how = "without a word" if code is None else f"with exit code {code}" if code >= 0 else f"by signal {-code}"
    return SandboxFailedError(f"the sandbox ended {how} before the program was done{said}", details=details)


def _program(ending: Ending) -> SandboxError | None:
    payload = ending.result or {}
    if "error" not in payload:
        return None
    cause = read_code_error(payload["error"])
    error: SandboxError
    if ending.memory_limited and cause.kind == "MemoryError":
        error = ResourceLimitError("the memory of the run is used up", details={"resource": "memory"})
    else:
        error = ProgramFailedError(str(cause), details=cause.details, retryable=cause.retryable, tool_id=cause.tool_id)
    error.__cause__ = cause
    return error


def _stopped(ending: Ending) -> SandboxError:
    match ending.stopped:
        case "deadline":
            return SandboxTimeoutError(
                f"the code did not end within {ending.seconds:g} s and was stopped; "
                "raise the time limit if it needs more",
                details={"timeout": ending.seconds},
            )
        case "violation":
            return SandboxViolationError(f"the code broke a rule of its sandbox and was stopped: {ending.stderr}")
        case "memory":
            text = "the memory of the run is used up"
        case "cpu":
            text = "the CPU time of the run is used up"
        case "pids":
            text = "the run has as many processes as it may"
        case _:
            text = "the disk space of the run is used up"
    return ResourceLimitError(f"{text}; raise the limit if it needs more", details={"resource": ending.stopped})
