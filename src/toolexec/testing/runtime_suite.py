"""The contract suite for routers of code: `Runtime` itself, and replacements for it.

The checks are plain async functions, free of any test framework. `check_runtime` takes them all; to have each one as a
test of its own, go through `RUNTIME_CHECKS` with `run_runtime_check`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Protocol, TypeAlias

from toolexec.backend.local import LocalBackend
from toolexec.backend.registry import BackendRegistry
from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.discovery.docs import InMemoryDocStore
from toolexec.discovery.memory import InMemoryIndex
from toolexec.errors import (
    ClosedError,
    InvalidLimitsError,
    InvalidRequestError,
    LimitNotEnforceableError,
    SandboxDeniedError,
    SandboxFailedError,
    SandboxUnavailableError,
)
from toolexec.model.binding import LocalBinding
from toolexec.model.declare import declare
from toolexec.model.json_value import JSONDict
from toolexec.run.runner import DefaultRunner
from toolexec.runtime.base import Availability, SandboxBackend
from toolexec.testing.report import Report, checks_of
from toolexec.testing.scripted_sandbox import ScriptedSandbox

_PATIENCE: Final = 30.0


class Router(Protocol):
    """The methods that the suite calls; see `Runtime`."""

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run a program."""
        ...

    async def aclose(self) -> None:
        """Stop every run and close every sandbox."""
        ...


MakeRuntime: TypeAlias = Callable[..., Router]
"""Makes a router from a list of sandboxes; by keyword come `limits`, `default_profile` and `deny_unsafe`."""


class RuntimeTestbed:
    """Scripted sandboxes, and a tool that their programs call; each check gets a fresh one."""

    def __init__(self, make: MakeRuntime) -> None:
        self.begun: asyncio.Event = asyncio.Event()
        """Set once a program waits."""
        self.wasm: ScriptedSandbox = ScriptedSandbox(self._programs(), kind="wasm", isolation="wasm")
        self.bubblewrap: ScriptedSandbox = ScriptedSandbox(
            self._programs(), kind="bubblewrap", isolation="container", languages=["python", "go"]
        )
        self.gvisor: ScriptedSandbox = ScriptedSandbox(self._programs(), kind="gvisor", isolation="gvisor")
        self.unsafe: ScriptedSandbox = ScriptedSandbox(self._programs(), kind="unsafe_host", isolation="none")
        self._make = make
        self._made: list[Router] = []
        self._index = InMemoryIndex()
        self._backends = BackendRegistry()
        local = LocalBackend()
        self._backends.register(local)
        declared = declare(self._double, "suite:double")
        self._index.register(declared.tool, LocalBinding(declared.tool.id))
        local.add(declared)

    def runtime(self, *backends: SandboxBackend, **options: Any) -> Router:
        """Make a router over these sandboxes."""
        self._made.append(self._make([*backends], **options))
        return self._made[-1]

    def tools(self) -> Tools:
        """Return the gateway of one run."""
        return Tools(self._index, InMemoryDocStore(self._index), DefaultRunner(self._index, self._backends))

    def request(self, code: str = "value", tools: Tools | None = None, **fields: Any) -> ExecuteRequest:
        """Return a request as an engine makes it."""
        return ExecuteRequest(code=code, gateway=tools or self.tools(), **fields)

    async def aclose(self) -> None:
        """Close what was made."""
        for router in self._made:
            await router.aclose()
        await self._backends.stop_all()

    def _programs(self) -> JSONDict:
        return {"value": 1, "calls": self._calls, "waits": self._waits, "fails": ValueError("boom"), "dies": _dies}

    async def _calls(self, request: ExecuteRequest) -> Any:
        assert request.gateway is not None
        return (await request.gateway.run_tool("suite:double", {"number": 4})).value

    async def _waits(self, request: ExecuteRequest) -> None:
        self.begun.set()
        await asyncio.Event().wait()

    async def _double(self, number: int) -> int:
        """Twice a number."""
        return 2 * number


async def _dies(request: ExecuteRequest) -> Exception:
    assert request.gateway is not None
    await request.gateway.run_tool("suite:double", {"number": 1})
    return SandboxFailedError("the sandbox died")


def _where(result: CodeResult) -> str:
    """Return the kind of sandbox that a result names."""
    return result.backend.kind if result.backend is not None else ""


async def a_program_is_run(testbed: RuntimeTestbed) -> None:
    """Require that its value, its trace and the sandbox that ran it arrive."""
    result = (await testbed.runtime(testbed.wasm).execute(testbed.request("calls"))).raise_for_error()
    assert (result.value, _where(result)) == (8, "wasm")
    assert [(record.tool_id, record.value) for record in result.tool_calls] == [("suite:double", 8)]


async def a_failed_program_is_a_result(testbed: RuntimeTestbed) -> None:
    """Require that a failed program and a dead sandbox are distinguished; the trace survives both."""
    runtime = testbed.runtime(testbed.wasm)
    failed, dead = [await runtime.execute(testbed.request(code)) for code in ("fails", "dies")]
    assert failed.error is not None
    assert failed.error.code == "code_error"
    assert dead.error is not None
    assert dead.error.code == "sandbox_failed"
    assert len(dead.tool_calls) == 1


async def a_request_needs_gateway_and_code(testbed: RuntimeTestbed) -> None:
    """Without them nothing is run."""
    runtime = testbed.runtime(testbed.wasm)
    error = await _refused(runtime, ExecuteRequest(code="value"), InvalidRequestError)
    assert error.code == "missing_gateway", error.to_dict()
    error = await _refused(runtime, testbed.request(" \n"), InvalidRequestError)
    assert error.code == "missing_code", error.to_dict()
    await _refused(runtime, testbed.request(timeout=0), InvalidRequestError)
    assert testbed.wasm.requests == []


async def an_unknown_profile_is_refused(testbed: RuntimeTestbed) -> None:
    """Require that the error lists the profiles."""
    error = await _refused(testbed.runtime(testbed.wasm), testbed.request(profile="safe"), InvalidRequestError)
    assert "standard" in str(error)


async def a_profile_without_a_sandbox_is_refused(testbed: RuntimeTestbed) -> None:
    """No sandbox of another profile steps in, and the error says which could serve it."""
    testbed.wasm.isolation = "container"
    error = await _refused(testbed.runtime(testbed.wasm), testbed.request(profile="hardened"), SandboxDeniedError)
    assert "container" in str(error)
    error = await _refused(
        testbed.runtime(testbed.gvisor), testbed.request(profile="standard"), SandboxUnavailableError
    )
    assert "bubblewrap" in str(error)
    assert testbed.wasm.requests == testbed.gvisor.requests == []


async def nothing_falls_back_to_the_host(testbed: RuntimeTestbed) -> None:
    """Require that a sandbox without isolation serves `dev` alone."""
    runtime = testbed.runtime(testbed.unsafe)
    for profile in ("", "standard", "hardened"):
        await _refused(runtime, testbed.request(profile=profile), SandboxUnavailableError)
    assert testbed.unsafe.requests == []
    result = await runtime.execute(testbed.request(profile="dev", metadata={"unsafeOptIn": True}))
    assert _where(result) == "unsafe_host"


async def isolation_is_judged_by_what_is_underneath(testbed: RuntimeTestbed) -> None:
    """Require that a sandbox that only looks like a safe one is denied for a safe profile."""
    testbed.bubblewrap.isolation = "none"
    await _refused(testbed.runtime(testbed.bubblewrap), testbed.request(profile="standard"), SandboxDeniedError)
    assert testbed.bubblewrap.requests == []


async def dev_can_be_denied(testbed: RuntimeTestbed) -> None:
    """`deny_unsafe` closes the one way to the host, too."""
    runtime = testbed.runtime(testbed.unsafe, deny_unsafe=("dev", "standard", "hardened"))
    await _refused(runtime, testbed.request(profile="dev"), SandboxDeniedError)
    assert testbed.unsafe.requests == []


async def candidates_are_tried_in_order(testbed: RuntimeTestbed) -> None:
    """Require that the first candidate that is available and runs the language is used, in any order of addition."""
    runtime = testbed.runtime(testbed.bubblewrap, testbed.wasm)
    assert _where(await runtime.execute(testbed.request())) == "wasm"
    assert _where(await runtime.execute(testbed.request(language="go"))) == "bubblewrap"
    testbed.wasm.availability = Availability(ok=False, reason="it is not built", remedy="build it")
    assert _where(await runtime.execute(testbed.request())) == "bubblewrap"
    testbed.bubblewrap.availability = Availability(ok=False, reason="no daemon")
    error = await _refused(runtime, testbed.request(), SandboxUnavailableError)
    assert "build it" in str(error)
    assert "no daemon" in str(error)


async def an_unknown_language_is_refused(testbed: RuntimeTestbed) -> None:
    """Require that the error lists the languages of the profile."""
    error = await _refused(testbed.runtime(testbed.wasm), testbed.request(language="cobol"), InvalidRequestError)
    assert "python" in str(error)


async def the_sandbox_gets_what_holds(testbed: RuntimeTestbed) -> None:
    """Profile and limits are those that hold: what is asked for below the ceilings, and nothing above them."""
    testbed.wasm.enforced = LimitsEnforced(memory=True, cpu=True)
    runtime = testbed.runtime(
        testbed.wasm, default_profile="hardened", limits=Limits(memory_bytes=100, max_tool_calls=5)
    )
    await _refused(runtime, testbed.request(limits=Limits(memory_bytes=200)), InvalidLimitsError)
    await runtime.execute(testbed.request(limits=Limits(memory_bytes=50, max_tool_calls=3, cpu_ms=7)))
    await runtime.execute(testbed.request(profile="standard"))
    first, second = testbed.wasm.requests
    assert first.profile == "hardened"
    assert first.limits == Limits(memory_bytes=50, max_tool_calls=3, cpu_ms=7)
    assert second.profile == "standard"
    assert second.limits == Limits(memory_bytes=100, max_tool_calls=5)


async def a_limit_that_would_not_hold_is_refused(testbed: RuntimeTestbed) -> None:
    """Unless the caller says `best_effort`."""
    runtime = testbed.runtime(testbed.wasm)
    wanted = testbed.request(limits=Limits(memory_bytes=1 << 20, cpus=1.5))
    error = await _refused(runtime, wanted, LimitNotEnforceableError)
    assert set(error.details["limits"]) == {"memory_bytes", "cpus"}
    assert testbed.wasm.requests == []
    result = await runtime.execute(testbed.request(limits=wanted.limits, best_effort=True))
    assert result.ok
    assert not result.limits_enforced.memory


async def runs_are_concurrent(testbed: RuntimeTestbed) -> None:
    """Twenty of them, each with its own trace."""
    runtime = testbed.runtime(testbed.wasm)
    results = await asyncio.gather(*(runtime.execute(testbed.request("calls")) for _ in range(20)))
    assert [result.value for result in results] == [8] * 20
    assert [len(result.tool_calls) for result in results] == [1] * 20


async def cancelling_stops_the_program(testbed: RuntimeTestbed) -> None:
    """Require that it comes out as a cancellation."""
    task = asyncio.ensure_future(testbed.runtime(testbed.wasm).execute(testbed.request("waits")))
    await asyncio.wait_for(testbed.begun.wait(), _PATIENCE)
    task.cancel()
    await asyncio.wait([task], timeout=_PATIENCE)
    assert task.cancelled()
    assert testbed.wasm.running == 0


async def closing_stops_everything(testbed: RuntimeTestbed) -> None:
    """Runs end, every sandbox is closed, and nothing can be run any more."""
    runtime = testbed.runtime(testbed.wasm, testbed.bubblewrap)
    task = asyncio.ensure_future(runtime.execute(testbed.request("waits")))
    await asyncio.wait_for(testbed.begun.wait(), _PATIENCE)
    await asyncio.wait_for(runtime.aclose(), _PATIENCE)
    await asyncio.wait([task], timeout=_PATIENCE)
    assert not task.cancelled()
    assert isinstance(task.exception(), ClosedError)
    assert testbed.wasm.closed == testbed.bubblewrap.closed == 1
    assert testbed.wasm.running == 0
    await _refused(runtime, testbed.request(), SandboxUnavailableError)


RuntimeCheck: TypeAlias = Callable[[RuntimeTestbed], Awaitable[None]]
RUNTIME_CHECKS: Final[Mapping[str, RuntimeCheck]] = checks_of(__name__)
"""Every check by its name."""


async def run_runtime_check(make: MakeRuntime, name: str) -> None:
    """Put routers that *make* gives through one check; raises AssertionError, or what went wrong, KeyError for an
    unknown name."""
    testbed = RuntimeTestbed(make)
    try:
        await RUNTIME_CHECKS[name](testbed)
    finally:
        await testbed.aclose()


async def check_runtime(make: MakeRuntime, *, known_gaps: Collection[str] = ()) -> None:
    """Put the routers that *make* gives through every check; see `Report` for known gaps and for what is raised."""
    report = Report("runtime", RUNTIME_CHECKS, known_gaps)
    for name in RUNTIME_CHECKS:
        with report.check(name):
            await run_runtime_check(make, name)
    report.conclude()


async def _refused(runtime: Router, request: ExecuteRequest, kind: type[Exception]) -> Any:
    try:
        result = await runtime.execute(request)
    except kind as error:
        return error
    raise AssertionError(f"{request} gave {result} instead of raising {kind.__name__}")
