"""How ready a sandbox is for production is measured, never declared."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import toolexec
from toolexec import Exec
from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import CodeTimeoutError, LimitExceededError, Outcome, SandboxUnavailableError
from toolexec.runtime.base import Availability
from toolexec.runtime.doctor import Finding, examine
from toolexec.runtime.readiness import LIMITS, Measurement, Probe, measure_limits
from toolexec.runtime.router import Runtime
from toolexec.runtime.wasm.backend import WasmBackend

ALL = dict.fromkeys(LIMITS, True)


class Python(WasmBackend):
    """The embedded sandbox with one language, and one that can be told to lie.

    Limits in *ignored* are not passed on; of those in *disowned* it says that it does not enforce them.
    """

    languages = frozenset({"python"})

    def __init__(self, *, ignored: tuple[str, ...] = (), disowned: tuple[str, ...] = (), lacks: str = "") -> None:
        super().__init__()
        self.ignored, self.disowned, self.lacks = ignored, disowned, lacks

    async def check_language(self, language: str) -> Availability:
        return await super().check_language(language) if not self.lacks else Availability(ok=False, reason=self.lacks)

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        return replace(super().enforces(request), **dict.fromkeys(self.disowned, False))

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        kept = {name: value for name, value in request.limits.to_dict().items() if name not in self.ignored}
        return await super().execute(replace(request, limits=Limits(**kept)))


async def found(runtime: Runtime) -> Finding:
    return next(finding for finding in await examine(runtime) if finding.kind == "wasm")


@pytest.mark.full
async def test_what_is_measured_is_told() -> None:
    """By the doctor with each limit that was tried, and from then on by each result."""
    backend = Python()
    async with Exec(runtime_backends=[backend]) as ex:
        before = await ex.execute_code("return 1")
        assert before.backend.readiness == "beta"
        data = (await found(ex.runtime)).to_dict()
        assert (data["readiness"], data["reasons"]) == ("prod", [])
        assert data["measured"] == {"runs": True, "isolation": "wasm", "limits": ALL}
        after = await ex.execute_code("return 1")
        assert after.backend.readiness == "prod"
        assert after.to_dict()["backend"]["readiness"] == "prod"
        async with ex.session() as session:
            assert (await session.execute_code("return 1")).backend.readiness == "prod"
        assert ex.runtime.readiness_of(backend, "python") == "prod"
        assert ex.runtime.readiness_of(Python(), "python") == "beta"


@pytest.mark.full
@pytest.mark.parametrize(
    ("backend", "limit", "reason"),
    [
        ({"ignored": ("disk_bytes",)}, "disk", "a program that went over it went on"),
        ({"disowned": ("memory",)}, "memory", "the limit on memory is not enforced"),
    ],
)
async def test_a_limit_that_does_not_hold(backend: dict[str, Any], limit: str, reason: str) -> None:
    """A sandbox's claim is tested, and an unclaimed limit does not count."""
    runtime = Runtime([Python(**backend)])
    try:
        finding = await found(runtime)
    finally:
        await runtime.aclose()
    assert finding.measurement is not None
    assert finding.measurement.readiness == "beta"
    assert finding.measurement.limits == {**ALL, limit: False}
    assert reason in "; ".join(finding.measurement.reasons)


@pytest.mark.full
async def test_what_runs_nothing_is_a_stub() -> None:
    """Whatever it says, and whatever it was before."""
    backend = Python()
    runtime = Runtime([backend])
    try:
        assert (await found(runtime)).to_dict()["readiness"] == "prod"
        backend.lacks = "it was removed"
        data = (await found(runtime)).to_dict()
    finally:
        await runtime.aclose()
    assert (data["readiness"], data["state"]) == ("stub", "unavailable")
    assert runtime.readiness_of(backend, "python") == "stub"


async def test_a_look_measures_nothing() -> None:
    """Then nothing is said of it."""
    runtime = Runtime([Python()])
    try:
        [finding] = [each for each in await examine(runtime, measure=False) if each.language]
    finally:
        await runtime.aclose()
    assert finding.measurement is None
    assert "readiness" not in finding.to_dict()


@pytest.mark.full
async def test_limits_that_cannot_be_tried() -> None:
    """Are not taken for granted."""

    class Shy(Python):
        async def execute(self, request: ExecuteRequest) -> CodeResult:
            if request.limits.cpu_ms:
                raise SandboxUnavailableError("not now")
            return await super().execute(request)

    runtime = Runtime([Shy()])
    try:
        finding = await found(runtime)
    finally:
        await runtime.aclose()
    assert finding.measurement is not None
    assert finding.measurement.readiness == "beta"
    assert "cpu" not in finding.measurement.limits
    assert any("not now" in reason for reason in finding.measurement.reasons)


def slow(start: float) -> tuple[Probe, list[float]]:
    """Return a probe of a sandbox that holds all limits and takes *start* seconds to begin, and the times it was given."""
    asked: list[float] = []

    async def probe(code: str, limits: Limits, seconds: float) -> tuple[ExecuteRequest, CodeResult]:
        asked.append(seconds)
        request: Any = ExecuteRequest(code=code, gateway=None, timeout=seconds)
        if seconds < start:
            return request, CodeResult(error=CodeTimeoutError("late", outcome=Outcome.NOT_SENT))
        if not limits.set_names():
            return request, CodeResult(error=CodeTimeoutError("stopped", outcome=Outcome.UNKNOWN))
        return request, CodeResult(error=LimitExceededError("used up"))

    return probe, asked


async def test_a_slow_start_is_not_a_limit_that_does_not_hold() -> None:
    """The trial of the time limit gets more time where the program had not begun."""
    probe, asked = slow(5)
    assert await measure_limits(WasmBackend(), probe) == (ALL, [])
    assert asked[:2] == [1, 10]


async def test_a_start_that_takes_too_long_measures_nothing() -> None:
    """Says so, and not that the limits do not hold."""
    probe, asked = slow(1000)
    held, problems = await measure_limits(WasmBackend(), probe)
    assert held == {}
    assert asked[:3] == [1, 10, 60]
    assert problems == [f"whether the limit on {name} holds could not be tried: late" for name in LIMITS]


@pytest.mark.parametrize(
    ("runs", "isolation", "limits", "readiness"),
    [
        (True, "container", ALL, "prod"),
        (True, "vm", {**ALL, "cpus": False}, "prod"),
        (True, "container", {**ALL, "memory": False}, "beta"),
        (True, "container", {}, "beta"),
        (True, "none", ALL, "beta"),
        (True, "process", ALL, "beta"),
        (False, "container", ALL, "stub"),
        (False, "none", {}, "stub"),
    ],
)
def test_what_a_measurement_means(runs: bool, isolation: str, limits: Mapping[str, bool], readiness: str) -> None:
    """Only what runs, isolates, and holds every limit is for production; the reasons say what is missing."""
    measurement = Measurement(runs=runs, isolation=isolation, limits=limits)
    assert measurement.readiness == readiness
    assert bool(measurement.reasons) == (readiness != "prod")


def test_nothing_declares_its_readiness() -> None:
    """No code of toolexec's passes a readiness of its own to what results say of a backend."""
    root = Path(toolexec.__file__).parent
    for path in root.rglob("*.py"):
        text = path.read_text("utf-8")
        tree = ast.parse(text) if "readiness=" in text else ast.Module([], [])
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            declared = [word.value for word in call.keywords if word.arg == "readiness"]
            assert not any(isinstance(value, ast.Constant | ast.IfExp) for value in declared), f"{path}:{call.lineno}"
