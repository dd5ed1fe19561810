"""Whether the server can do its work."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Self, TypeAlias

from toolexec.backend.base import BackendStatus
from toolexec.errors import ToolExecError
from toolexec.exec.facade import Exec
from toolexec.model.json_value import JSONDict
from toolexec.model.redaction import redactor

Check: TypeAlias = Callable[[], Awaitable[str] | str]
"""Says what is wrong, or the empty text. One that raises, or takes too long, says that it failed."""

Status: TypeAlias = Literal["ok", "degraded", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one check found: `message` says what is wrong (without secrets), `latency` how many seconds it took."""

    name: str
    ok: bool
    required: bool
    latency: float = 0.0
    message: str = ""

    def to_dict(self) -> JSONDict:
        """Return the finding as JSON-able data."""
        status = "ok" if self.ok else "failed"
        data: JSONDict = {"name": self.name, "status": status, "required": self.required}
        data["latencyMs"] = round(self.latency * 1000, 3)
        return data | ({"message": self.message} if self.message else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReport:
    """What all checks found."""

    findings: tuple[Finding, ...]

    @property
    def status(self) -> Status:
        """`failed` when something that is required is, `degraded` when something else is."""
        wrong = [finding for finding in self.findings if not finding.ok]
        if any(finding.required for finding in wrong):
            return "failed"
        return "degraded" if wrong else "ok"

    def to_dict(self) -> JSONDict:
        """Return the report as JSON-able data."""
        return {"status": self.status, "checks": [finding.to_dict() for finding in self.findings]}


class Health:
    """Asks checks, all at once and each for at most *timeout* seconds.

    *checks* gives them by name, again each time; *required* names those without which the server is not ready (one that
    is not there counts as failed). A report serves for *fresh* seconds, however many ask for it.
    """

    def __init__(
        self,
        checks: Callable[[], Mapping[str, Check]],
        *,
        required: Collection[str] = (),
        timeout: float = 5.0,
        fresh: float = 1.0,
    ) -> None:
        self._checks = checks
        self._required = frozenset(required)
        self._timeout = timeout
        self._fresh = fresh
        self._last: tuple[float, HealthReport] | None = None
        self._lock = asyncio.Lock()

    @classmethod
    def of(
        cls,
        ex: Exec,
        *,
        required: Collection[str] = (),
        timeout: float = 5.0,
        fresh: float = 1.0,
        also: Mapping[str, Check] | None = None,
    ) -> Self:
        """Checks every enabled backend of *ex* under its name, as `sandbox` whether code can run (unless code is
        switched off), and what *also* has."""

        def checks() -> dict[str, Check]:
            found: dict[str, Check] = {"sandbox": _sandbox_check(ex)} if ex.options.enable_code_execution else {}
            found |= {each.name: _backend_check(each) for each in ex.backend_statuses() if each.enabled}
            return found | dict(also or {})

        return cls(checks, required=required, timeout=timeout, fresh=fresh)

    async def report(self) -> HealthReport:
        """Return what the checks find. Never raises."""
        async with self._lock:
            now = time.monotonic()
            if self._last is not None and self._last[0] + self._fresh > now:
                return self._last[1]
            try:
                checks = self._checks()
            except ToolExecError as error:  # the Exec is closed
                failure = Finding(name="exec", ok=False, required=True, message=redactor.text(error.message))
                return HealthReport(findings=(failure,))
            found = [*await asyncio.gather(*(self._ask(name, check) for name, check in checks.items()))]
            found += [
                Finding(name=name, ok=False, required=True, message="there is no such check")
                for name in sorted(self._required - checks.keys())
            ]
            report = HealthReport(findings=tuple(found))
            self._last = time.monotonic(), report
            return report

    async def _ask(self, name: str, check: Check) -> Finding:
        began = perf_counter()
        try:
            async with asyncio.timeout(self._timeout):
                answer = check()
                message = await answer if inspect.isawaitable(answer) else answer
        except TimeoutError:
            message = f"no answer within {self._timeout:g} s"
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
        message = redactor.text(message)
        latency = perf_counter() - began
        return Finding(name=name, ok=not message, required=name in self._required, latency=latency, message=message)


def _backend_check(status: BackendStatus) -> Check:
    return lambda: "" if status.available else status.reason or "unavailable"


def _sandbox_check(ex: Exec) -> Check:
    async def check() -> str:
        reasons: list[str] = []
        for sandbox in ex.runtime.candidates(ex.options.security_profile):
            available = await sandbox.check()
            if available.ok:
                return ""
            reasons.append(f"{sandbox.kind}: {available.reason}")
        return "; ".join(reasons) or f"no sandbox serves the profile {ex.options.security_profile}"

    return check
