"""How ready for production a sandbox is, as it was measured here: what it isolates, what it runs, which limits hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from toolexec.code.limits import Limits
from toolexec.code.types import CodeResult, ExecuteRequest, Readiness
from toolexec.errors import CodeError, CodeTimeoutError, LimitExceededError, Outcome, SandboxFailedError, ToolExecError
from toolexec.model.json_value import JSONDict
from toolexec.runtime.base import SandboxBackend

Probe = Callable[[str, Limits, float], Awaitable[tuple[ExecuteRequest, CodeResult]]]
"""Runs a program in Python under limits and a time limit in seconds; gives the request and the result."""

LIMITS: Final = ("timeout", "memory", "cpu", "pids", "disk")
"""The limits that hold in a sandbox that is ready for production."""

_SHORT: Final = 1.0
_LONG: Final = 60.0
_KILLED: Final = (137, -9)
"""How a program ends that the kernel kills for its memory, where no engine reports it as that."""
_PATIENCE: Final = (_SHORT, 10.0, _LONG)
"""Time limits in seconds, each for a sandbox that starts no program within the one before."""
_FOREVER: Final = "while True:\n    pass"
_PROCESSES: Final = """\
import os, time
for number in range(64):
    if not os.fork():
        time.sleep(60)
return number
"""


class _Trial(NamedTuple):
    """A program that goes over a limit: where the limit holds, it does not end by itself with a value."""

    code: str
    limits: Limits
    seconds: float = _LONG


_TRIALS: Final[Mapping[str, _Trial]] = {
    "timeout": _Trial(_FOREVER, Limits(), _SHORT),
    "memory": _Trial("return len(bytearray(512 << 20))", Limits(memory_bytes=128 << 20)),
    "cpu": _Trial(_FOREVER, Limits(cpu_ms=300)),
    "pids": _Trial(_PROCESSES, Limits(pids=32)),
    "disk": _Trial("with open('x', 'wb') as file:\n    return file.write(bytes(48 << 20))", Limits(disk_bytes=8 << 20)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was found out by trying: whether a small program ran (`runs`), what surrounds it (`isolation`), and of each
    limit that was tried whether it held (`limits`, by the names of `LimitsEnforced`)."""

    runs: bool
    isolation: str
    limits: Mapping[str, bool] = field(default_factory=dict[str, bool])
    problems: Sequence[str] = ()

    @property
    def readiness(self) -> Readiness:
        """`prod` when programs run, isolated, and all of `LIMITS` hold; `stub` when nothing runs; `beta` otherwise."""
        if not self.runs:
            return "stub"
        return "beta" if self.reasons else "prod"

    @property
    def reasons(self) -> tuple[str, ...]:
        """What keeps it from `prod`."""
        if not self.runs:
            return ("no program ran in it", *self.problems)
        if self.isolation in ("none", "process"):
            return ("it isolates nothing", *self.problems)
        lacking = [name for name in LIMITS if not self.limits.get(name)]
        untold = [name for name in lacking if name not in self.limits]
        broken = [name for name in lacking if name in self.limits]
        found = [f"the limit on {name} is not enforced here" for name in broken]
        if untold:
            found.append(f"it was not measured whether these limits hold: {', '.join(untold)}")
        return (*found, *self.problems)

    def to_dict(self) -> JSONDict:
        """Return the same as JSON-able data."""
        return {
            "readiness": self.readiness,
            "reasons": list(self.reasons),
            "measured": {"runs": self.runs, "isolation": self.isolation, "limits": dict(self.limits)},
        }


async def measure_limits(backend: SandboxBackend, probe: Probe) -> tuple[dict[str, bool], list[str]]:
    """Return of each of `LIMITS` whether it holds: *backend* says that it enforces it, and a program that goes
    over it is stopped. Also gives what contradicts the backend, for people to read."""
    held: dict[str, bool] = {}
    problems: list[str] = []
    for name in LIMITS:
        try:
            request, result = await _tried(_TRIALS[name], probe)
        except ToolExecError as error:
            problems.append(f"whether the limit on {name} holds could not be tried: {error}")
            continue
        if _never_began(result):
            problems.append(f"whether the limit on {name} holds could not be tried: {result.error}")
            continue
        claimed, stopped = bool(getattr(backend.enforces(request), name)), _was_stopped(name, result)
        held[name] = claimed and stopped
        if claimed and not stopped:
            problems.append(f"it says that it enforces the limit on {name}, and a program that went over it went on")
    return held, problems


async def _tried(trial: _Trial, probe: Probe) -> tuple[ExecuteRequest, CodeResult]:
    """Run a trial, and again with more time where its time was over before the program began: a slow start says nothing
    about a limit."""
    request, result = await probe(trial.code, trial.limits, trial.seconds)
    for seconds in _PATIENCE:
        if seconds > trial.seconds and _never_began(result):
            request, result = await probe(trial.code, trial.limits, seconds)
    return request, result


def _never_began(result: CodeResult) -> bool:
    error = result.error
    return isinstance(error, CodeTimeoutError) and error.outcome is Outcome.NOT_SENT


def _was_stopped(name: str, result: CodeResult) -> bool:
    error = result.error
    if name == "timeout":
        return isinstance(error, CodeTimeoutError)
    if name == "pids":  # where no process can be started, the program fails in a way of its own
        return error is not None and not isinstance(error, CodeTimeoutError)
    if name == "disk" and isinstance(error, CodeError) and error.kind == "OSError":
        return True
    if name == "memory" and isinstance(error, SandboxFailedError) and error.details.get("exit_code") in _KILLED:
        return True
    return isinstance(error, LimitExceededError) and not isinstance(error, CodeTimeoutError)
