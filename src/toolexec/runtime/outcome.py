"""Whose fault was it? From what is left of a guest to a result or an error. Pure: no I/O, no clock."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from toolexec.errors import (
    CodeError,
    CodeTimeoutError,
    LimitExceededError,
    SandboxFailedError,
    SandboxViolationError,
    ToolExecError,
)
from toolexec.errors.outcome import Outcome
from toolexec.model.json_value import JSONObject
from toolexec.model.patterns import lazy_pattern
from toolexec.runtime.protocol.wire import read_code_error

Stopped: TypeAlias = Literal["", "deadline", "memory", "cpu", "pids", "disk", "violation"]

_USED_UP: Final = {
    "memory": "the memory of the run is used up",
    "cpu": "the CPU time of the run is used up",
    "pids": "the run has as many processes as it may",
    "disk": "the disk space of the run is used up",
}
_UNKNOWN_KILL: Final = (
    ": it was killed, and nothing says why; if the program needs much memory, raise its limit, else see what on this "
    "machine kills processes"
)
_TAIL: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What is known about the end of a guest.

    `result` is the payload of its `result` message, None when none came. `stopped` says why the host stopped it, or
    what the sandbox reported that it ran out of. `exit_code` is that of the process, if there was one: negative is a
    signal. `stderr` is what the sandbox itself (not the program) had to say. `memory_limited`, `pids_limited` and
    `disk_limited` say whether an error of the program that speaks of such a want means its limit. `oom` says that the
    kernel has killed something of it for its memory, `oom_told` that the sandbox would know if it had. `lost` is why
    its engine cannot be asked any more, or took it away: then `reason` is a word for it, and `retryable` says whether
    the same run may succeed later. `seconds` is the time limit, and `began` is false when it was over before the
    program ran.
    """

    result: JSONObject | None = None
    stopped: Stopped = ""
    exit_code: int | None = None
    stderr: str = ""
    memory_limited: bool = False
    pids_limited: bool = False
    disk_limited: bool = False
    oom: bool = False
    oom_told: bool = False
    lost: str = ""
    reason: str = ""
    retryable: bool = False
    seconds: float = 0.0
    began: bool = True
    session: Literal["", "kept", "ended"] = ""
    left: str = ""


def judge(ending: Ending) -> ToolExecError | None:
    """Return None when the program ran to its end, else the error: its failure or the sandbox's death.

    What the host did comes first: a program that was stopped may still have said something. A result that arrived
    counts whatever became of the guest after it. Without one, the kernel's own word about memory counts before the
    loss of the engine, and then exit codes speak: 152 and signal 24 mean that it is out of CPU time, 159 and signal 31
    that it made a forbidden system call. 137 and signal 9 mean only that something killed it: the kernel does so when
    memory runs out, and so may anyone else.
    """
    if ending.stopped:
        return _stopped(ending)
    if ending.result is not None:
        return _program(ending)
    code = ending.exit_code
    tail = ending.stderr.strip()[-_TAIL:]
    said = f"; it said: {tail}" if tail else ""
    details = {"exit_code": code, "stderr": tail}
    if ending.oom:
        return _used_up("memory", f"{_more('memory')}{said}", details)
    if ending.lost and ending.reason:
        return SandboxFailedError(
            f"the sandbox was lost before the program was done: {ending.lost[:_TAIL]}; run the program again if it may "
            f"call its tools twice{said}",
            retryable=ending.retryable,
            details={**details, "lost": ending.lost[:_TAIL], "reason": ending.reason},
        )
    if ending.lost:
        return SandboxFailedError(
            f"the engine of the sandbox was lost before the program was done: {ending.lost[:_TAIL]}{said}",
            details={**details, "lost": ending.lost[:_TAIL]},
        )
    if code in (152, -24):
        return _used_up("cpu", f"the CPU time of the run is used up{said}", details)
    if code in (153, -25):
        return _used_up("disk", f"a file grew over its limit{said}", details)
    if code in (159, -31):
        return SandboxViolationError(
            f"code execution error: the code made a forbidden system call and was killed{said}", details=details
        )
    how = "without a word" if code is None else f"with exit code {code}" if code >= 0 else f"by signal {-code}"
    why = "" if ending.oom_told or code not in (137, -9) else _UNKNOWN_KILL
    return SandboxFailedError(f"the sandbox ended {how} before the program was done{why}{said}", details=details)


def _program(ending: Ending) -> ToolExecError | None:
    payload = ending.result or {}
    if "error" not in payload:
        return None
    cause = read_code_error(payload["error"])
    resource = _wanted(cause, ending)
    if not resource:
        return cause
    error = _used_up(resource, _more(resource))
    error.__cause__ = cause
    return error


_NO_MEMORY: Final = lazy_pattern(
    r"\[Errno \d+\] Out of memory|Cannot allocate memory|JavaScript heap out of memory|Array buffer allocation failed"
)
_NO_PROCESS: Final = lazy_pattern(
    r"can't start new thread|spawn\S* \S+ EAGAIN|^(Error: )?EAGAIN$|fork: (retry: )?Resource temporarily unavailable"
    r"|fork/exec \S+: resource temporarily unavailable|failed to create new OS thread|Cannot fork"
)
_NO_SPACE: Final = lazy_pattern(r"ENOSPC|[Nn]o space left on device|database or disk is full")
_STARTS_SOMETHING: Final = lazy_pattern(r"fork|subprocess|Popen|spawn|thread|multiprocessing|os\.system", re.IGNORECASE)
_KILLED: Final = lazy_pattern(r"with exit code 137\b|by signal 9\b")


def _wanted(cause: CodeError, ending: Ending) -> str:
    """Return the resource whose limit a failure of the program means; "" if it means none."""
    text = cause.message
    if ending.oom or (
        ending.memory_limited
        and (
            cause.kind == "MemoryError"
            or _NO_MEMORY.search(text)
            or (cause.kind == "ExitStatus" and _KILLED.search(text))
        )
    ):
        return "memory"
    if ending.disk_limited and _NO_SPACE.search(text):
        return "disk"
    if ending.pids_limited:
        if _NO_PROCESS.search(text):
            return "pids"
        # The same error is what a socket that has nothing to read gives; its origin distinguishes them.
        if "[Errno 11]" in text and _STARTS_SOMETHING.search(f"{cause.traceback}\n{cause.source}"):
            return "pids"
    return ""


def _stopped(ending: Ending) -> ToolExecError:
    if ending.stopped == "deadline":
        outcome = Outcome.UNKNOWN if ending.began else Outcome.NOT_SENT
        session = {"session": ending.session} if ending.session else {}
        return CodeTimeoutError(
            f"limit exceeded: {_late(ending)}{_session(ending)}",
            details={"timeout": ending.seconds, **session},
            outcome=outcome,
        )
    if ending.stopped == "violation":
        return SandboxViolationError(
            f"code execution error: the code broke a rule of its sandbox and was stopped: {ending.stderr}"
        )
    return _used_up(ending.stopped, _more(ending.stopped))


def _used_up(resource: str, text: str, details: Mapping[str, object] | None = None) -> LimitExceededError:
    return LimitExceededError(f"limit exceeded: {text}", details={**(details or {}), "resource": resource})


def _late(ending: Ending) -> str:
    if ending.began:
        return (
            f"the code did not end within {ending.seconds:g} s and was stopped; raise the time limit if it needs more"
        )
    return (
        f"the code had not begun after {ending.seconds:g} s, which went into preparing it (starting its process, "
        "compiling it); raise the time limit: the first program on a machine takes longest"
    )


def _session(ending: Ending) -> str:
    """Return what a message says of the session of a run that was stopped."""
    if ending.session == "kept":
        return "; the session is kept, with all that earlier programs and this one made until then"
    if ending.left:
        return f"; it left {ending.left} running, so its session was ended: open a new one"
    return "; its session was ended, as the program did not stop when it was interrupted" if ending.session else ""


def _more(resource: str) -> str:
    return f"{_USED_UP[resource]}; raise the limit if it needs more"
