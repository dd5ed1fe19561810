"""The router: what the suite of `toolexec.testing.runtime_suite` does not look at."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.waiting import reached

from toolexec import Exec
from toolexec.code.limits import Limits, LimitsEnforced
from toolexec.code.tools import Tools
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.errors import (
    ClosedError,
    CodeError,
    ConfigurationError,
    InvalidLimitsError,
    InvalidRequestError,
    SandboxDeniedError,
    SandboxUnavailableError,
    ToolCallLimitError,
)
from toolexec.run.run_request import PROFILES
from toolexec.runtime.base import Availability, SandboxSession
from toolexec.runtime.contract import ISOLATIONS
from toolexec.runtime.router import CANDIDATES, Runtime, effective_profile
from toolexec.testing.scripted_sandbox import ScriptedSandbox

LARGE = "x" * 2000


class SessionSandbox(ScriptedSandbox):
    """A scripted sandbox with sessions: each of its programs is run as any other."""

    opened: list[ExecuteRequest]

    async def open_session(self, request: ExecuteRequest) -> SandboxSession:
        """A session whose programs are those of the sandbox."""
        self.opened = [*getattr(self, "opened", []), request]
        sandbox = self

        class Session:
            async def execute(self, request: ExecuteRequest) -> CodeResult:
                return await sandbox.execute(request)

            async def aclose(self) -> None:
                sandbox.closed += 1

        return Session()


@pytest.fixture
async def ex() -> AsyncIterator[Exec]:
    """An Exec with two tools."""
    async with Exec() as ex:
        ex.add(lambda a, b=0: a + b, "math:add")
        ex.add(lambda: LARGE, "text:large")
        yield ex


@pytest.fixture
def request_of(ex: Exec) -> Callable[..., ExecuteRequest]:
    """Makes requests with a gateway to the tools of the Exec."""

    def make(code: str = "value", *, result_bytes: int = 1000, **fields: Any) -> ExecuteRequest:
        gateway = Tools(ex.index, ex.docs, ex.runner, result_bytes=result_bytes)
        return ExecuteRequest(code=code, gateway=gateway, **fields)

    return make


Make = Callable[..., ExecuteRequest]


class TestBackends:
    """Which sandboxes there are, and whom they serve."""

    def test_two_of_a_kind_are_refused(self) -> None:
        """With two of a kind it would not be clear which one is meant."""
        with pytest.raises(ConfigurationError, match="kind wasm already"):
            Runtime([ScriptedSandbox(), ScriptedSandbox()])

    @pytest.mark.parametrize(
        "options",
        [{"default_profile": "safe"}, {"deny_unsafe": ["safe"]}, {"order": {"safe": ["wasm"]}}],
        ids=["default_profile", "deny_unsafe", "order"],
    )
    def test_unknown_profiles_are_refused(self, options: dict[str, Any]) -> None:
        """In every setting, with the list of those that there are."""
        with pytest.raises(ConfigurationError, match="unknown security profile 'safe'; use dev, standard, hardened"):
            Runtime([], **options)

    async def test_a_mapping_fixes_who_serves(self, request_of: Make) -> None:
        """One sandbox or several for a profile; kinds and order are then the caller's."""
        mine, other = ScriptedSandbox({"value": 1}, kind="mine"), ScriptedSandbox({"value": 2}, kind="other")
        runtime = Runtime({"standard": mine, "hardened": [other, mine]})
        assert (await runtime.execute(request_of(profile="standard"))).backend.kind == "mine"
        assert (await runtime.execute(request_of(profile="hardened"))).backend.kind == "other"
        other.availability = Availability(ok=False)
        assert (await runtime.execute(request_of(profile="hardened"))).backend.kind == "mine"
        assert runtime.backends == [mine, other]
        with pytest.raises(SandboxUnavailableError, match=r"no backend for profile .dev.*unsafe_opt_in=True"):
            await runtime.execute(request_of(profile="dev"))

    async def test_register_and_unregister(self, request_of: Make) -> None:
        """At any time; the candidates serve the profile again afterwards."""
        wasm, mine = ScriptedSandbox(), ScriptedSandbox(kind="mine")
        runtime = Runtime([wasm])
        runtime.register("standard", mine)
        assert (await runtime.execute(request_of())).backend.kind == "mine"
        runtime.unregister("standard")
        runtime.unregister("standard")
        assert (await runtime.execute(request_of())).backend.kind == "wasm"
        with pytest.raises(ConfigurationError, match="unknown security profile"):
            runtime.register("safe", mine)

    async def test_a_fixed_sandbox_is_judged_too(self, request_of: Make) -> None:
        """The host cannot be declared to be safe by accident."""
        runtime = Runtime({"standard": ScriptedSandbox(kind="mine", isolation="process")})
        with pytest.raises(SandboxDeniedError, match="mine gives the isolation 'process'"):
            await runtime.execute(request_of())

    async def test_the_order_can_be_changed(self, request_of: Make) -> None:
        """By operators who prefer another sandbox."""
        sandboxes = [ScriptedSandbox(), ScriptedSandbox(kind="bubblewrap", isolation="container")]
        runtime = Runtime(sandboxes, order={"standard": ["bubblewrap", "wasm"]})
        assert (await runtime.execute(request_of())).backend.kind == "bubblewrap"
        assert [backend.kind for backend in runtime.candidates("standard")] == ["bubblewrap", "wasm"]
        assert [backend.kind for backend in runtime.candidates("hardened")] == ["wasm"]

    async def test_a_fault_is_not_hidden_by_another_sandbox(self, request_of: Make) -> None:
        """The run is refused with what is wrong; what is only absent makes room for the next one."""
        first, second = ScriptedSandbox(), ScriptedSandbox(kind="bubblewrap", isolation="container")
        runtime = Runtime([first, second])
        first.availability = Availability(ok=False, reason="not built")
        assert (await runtime.execute(request_of())).backend.kind == "bubblewrap"
        first.availability = Availability(ok=False, reason="it was planted", is_fault=True)
        with pytest.raises(SandboxUnavailableError, match="wasm: it was planted"):
            await runtime.execute(request_of())
        assert len(second.requests) == 1

    async def test_a_profile_that_nothing_configured_serves(self, request_of: Make) -> None:
        """The run is refused with the sandboxes that there are; the profile is not lowered to what they serve."""
        runtime = Runtime([ScriptedSandbox(kind="bubblewrap", isolation="container")], order={"hardened": []})
        with pytest.raises(SandboxUnavailableError, match=r"serves profile 'hardened'; there is: bubblewrap"):
            await runtime.execute(request_of(profile="hardened"))

    async def test_what_is_away_for_a_moment_gets_the_run(self, request_of: Make) -> None:
        """Where no other sandbox takes it: that one waits by itself. What it does not know to hold is not risked, and the
        error says that another attempt may succeed."""
        away = SandboxUnavailableError("unreachable", retryable=True, details={"endpoints": {"a": "unreachable"}})
        first, second = ScriptedSandbox(), ScriptedSandbox(kind="bubblewrap", isolation="container")
        first.availability = Availability(ok=False, reason="unreachable", error=away)
        assert (await Runtime([first, second]).execute(request_of())).backend.kind == "bubblewrap"
        second.availability = Availability(ok=False, reason="not built")
        assert (await Runtime([first, second]).execute(request_of())).backend.kind == "wasm"
        with pytest.raises(SandboxUnavailableError, match="not built") as caught:
            await Runtime([first, second]).execute(request_of(limits=Limits(cpus=1.0)))
        assert (caught.value.retryable, caught.value.details) == (True, away.details)
        first.availability = Availability(ok=False, reason="no", error=SandboxUnavailableError("no", details={"a": 1}))
        with pytest.raises(SandboxUnavailableError) as caught:
            await Runtime([first]).execute(request_of())
        assert (caught.value.retryable, caught.value.details) == (False, {"a": 1})

    async def test_wasm_is_a_profile_of_one_sandbox(self, request_of: Make) -> None:
        """No other sandbox serves that profile."""
        runtime = Runtime([ScriptedSandbox(kind="bubblewrap", isolation="container")])
        with pytest.raises(SandboxUnavailableError):
            await runtime.execute(request_of(profile="wasm"))
        wasm = ScriptedSandbox()
        await Runtime([wasm], default_profile="wasm").execute(request_of())
        assert wasm.requests[0].profile == "standard"

    async def test_the_language_may_be_left_to_the_sandbox(self, request_of: Make) -> None:
        """The first one that is available gets it."""
        assert (await Runtime([ScriptedSandbox(languages=["go"])]).execute(request_of())).ok

    async def test_every_reason_is_told(self, request_of: Make) -> None:
        """One sandbox is denied, one speaks another language, one is not there."""
        wasm, shared = (
            ScriptedSandbox(),
            ScriptedSandbox(kind="bubblewrap", isolation="none", languages=["python", "go"]),
        )
        wasm.availability = Availability(ok=False, reason="not built", remedy="toolexec sandbox build")
        other = ScriptedSandbox(kind="remote", isolation="vm", languages=["go"])
        with pytest.raises(SandboxUnavailableError) as caught:
            await Runtime([wasm, shared, other]).execute(request_of(language="python"))
        for reason in (
            "wasm: not built (toolexec sandbox build)",
            "bubblewrap gives the isolation",
            "remote does not run",
        ):
            assert reason in str(caught.value)


class TestResults:
    """How a result is completed."""

    async def test_handles_in_a_value_become_what_they_stand_for(self, request_of: Make) -> None:
        """Wherever in the value they are; the code never had to hold it."""

        async def program(request: ExecuteRequest) -> Any:
            gateway: Any = request.gateway
            value = (await gateway.run_tool("text:large")).value
            handle = gateway.handles.keep(value, f'"{value}"')
            return {"whole": {"$handle": handle.id}, "parts": [1, {"$handle": handle.id}]}

        result = await Runtime([ScriptedSandbox({"value": program})]).execute(request_of())
        assert result.value == {"whole": LARGE, "parts": [1, LARGE]}

    async def test_a_handle_that_is_made_up_fails_the_program(self, request_of: Make) -> None:
        """With what was captured until then."""

        async def program(request: ExecuteRequest) -> Any:
            gateway: Any = request.gateway
            gateway.handles.keep(LARGE, f'"{LARGE}"')
            await gateway.run_tool("math:add", {"a": 1})
            request.output.write("before")
            return [{"$handle": "h-AAAAAAAAAAAAAAAA"}]

        result = await Runtime([ScriptedSandbox({"value": program})]).execute(request_of())
        assert isinstance(result.error, CodeError)
        assert "h-AAAAAAAAAAAAAAAA" in str(result.error)
        assert (result.value, result.stdout, len(result.tool_calls)) == (None, "before", 1)

    async def test_a_trace_of_the_sandbox_is_kept(self, request_of: Make) -> None:
        """Where it has its own, that of the gateway is not needed."""
        own = CodeResult(backend=ScriptedSandbox.__name__, tool_calls=["its own"])  # type: ignore[arg-type, list-item]
        result = await Runtime([ScriptedSandbox({"value": own})]).execute(request_of())
        assert result.tool_calls == ["its own"]

    async def test_caps_hold_for_a_gateway_that_counts_nothing(self, ex: Exec) -> None:
        """The router counts then; the sandbox may say that they are enforced."""

        async def program(request: ExecuteRequest) -> Any:
            gateway: Any = request.gateway
            await gateway.run_tool("math:add", {"a": 1})
            with pytest.raises(ToolCallLimitError):
                await gateway.run_tool("math:add", {"a": 1})
            return "refused"

        gateway = Tools(ex.index, ex.docs, ex.runner)
        runtime = Runtime([ScriptedSandbox({"value": program})], limits=Limits(max_tool_calls=1))
        result = await runtime.execute(ExecuteRequest(code="value", gateway=gateway))
        assert (result.value, len(result.tool_calls)) == ("refused", 1)
        assert result.limits_enforced.tool_calls


class TestSessions:
    """Guests for several programs."""

    async def test_programs_are_held_to_the_limits_of_the_session(self, request_of: Make) -> None:
        """The session's profile and language hold, too; a program can lower limits further, and not raise them."""
        sandbox = SessionSandbox({"value": 1}, enforced=LimitsEnforced(memory=True, cpu=True))
        async with Runtime([sandbox], limits=Limits(memory_bytes=100)) as runtime:
            session = await runtime.open_session(request_of("", limits=Limits(cpu_ms=50), language="python"))
            first = request_of(profile="dev", limits=Limits(cpu_ms=20))
            with pytest.raises(
                InvalidLimitsError, match=r"memory_bytes 200 is above the ceiling of 100; .* the session"
            ):
                await session.execute(request_of(limits=Limits(memory_bytes=200)))
            assert (await session.execute(first)).value == 1
            await session.aclose()
        assert sandbox.opened[0].profile == "standard"
        assert sandbox.requests[0].profile == "standard"
        assert sandbox.requests[0].limits == Limits(memory_bytes=100, cpu_ms=20)

    async def test_another_language_is_refused(self, request_of: Make) -> None:
        """A guest speaks one."""
        async with Runtime([SessionSandbox({"value": 1}, languages=["python", "go"])]) as runtime:
            session = await runtime.open_session(request_of(""))
            with pytest.raises(InvalidRequestError, match="this session speaks python"):
                await session.execute(request_of(language="go"))

    async def test_a_sandbox_without_sessions(self, request_of: Make) -> None:
        """Names the sandbox without sessions."""
        with pytest.raises(InvalidRequestError, match="wasm has no sessions"):
            await Runtime([ScriptedSandbox()]).open_session(request_of())

    async def test_closing_the_runtime_ends_a_program_of_a_session(self, request_of: Make) -> None:
        """Such a program ends as any other, and the task that awaits it is not cancelled."""
        begun = asyncio.Event()

        async def program(request: ExecuteRequest) -> None:
            begun.set()
            await asyncio.Event().wait()

        runtime = Runtime([SessionSandbox({"value": program})])
        session = await runtime.open_session(request_of(""))
        task = asyncio.create_task(session.execute(request_of()))
        await reached(begun, task)
        await runtime.aclose()
        with pytest.raises(ClosedError):
            await task
        with pytest.raises(SandboxUnavailableError, match="this runtime is closed"):
            await session.execute(request_of())


class TestClosing:
    """The end of a runtime."""

    async def test_every_failure_is_told(self) -> None:
        """All sandboxes are closed, whatever one of them says."""
        first, second = ScriptedSandbox(), ScriptedSandbox(kind="bubblewrap")
        first.closing_error = OSError("stuck")
        with pytest.raises(ExceptionGroup, match="some sandboxes failed to close") as caught:
            await Runtime([first, second]).aclose()
        assert [str(error) for error in caught.value.exceptions] == ["stuck"]
        assert second.closed == 1

    async def test_as_a_context_manager(self, request_of: Make) -> None:
        """Leaving it closes it."""
        sandbox = ScriptedSandbox({"value": 1})
        async with Runtime([sandbox]) as runtime:
            assert (await runtime.execute(request_of())).value == 1
        assert sandbox.closed == 1

    async def test_a_run_within_a_run(self, request_of: Make) -> None:
        """A tool that runs code itself does not end the tracking of the outer run."""
        inner = request_of("inner")

        async def outer(request: ExecuteRequest) -> Any:
            value = (await runtime.execute(inner)).value
            begun.set()
            await asyncio.Event().wait()
            return value

        begun = asyncio.Event()
        runtime = Runtime([ScriptedSandbox({"value": outer, "inner": 1})])
        task = asyncio.create_task(runtime.execute(request_of()))
        await reached(begun, task)
        await runtime.aclose()
        with pytest.raises(ClosedError):
            await task


def test_every_profile_is_described() -> None:
    """A description says which sandbox may serve the profile, and which isolation it asks for."""
    assert set(CANDIDATES) == set(ISOLATIONS) == set(PROFILES)


def test_only_dev_is_served_by_the_host() -> None:
    """The host serves neither `standard` nor `hardened`, and no other sandbox serves `dev`."""
    assert CANDIDATES["dev"] == ("unsafe_host",)
    assert not any("unsafe_host" in CANDIDATES[profile] for profile in ("standard", "hardened"))
    assert not ISOLATIONS["standard"] & {"none", "process"}


def test_hardened_asks_for_more_than_standard() -> None:
    """A sandbox that is good enough for `hardened` is so for `standard`; a plain container is not."""
    assert ISOLATIONS["hardened"] < ISOLATIONS["standard"] < ISOLATIONS["dev"]
    assert "container" not in ISOLATIONS["hardened"]


@pytest.mark.parametrize(
    ("asked", "default", "expected"),
    [
        ("", "standard", ("standard", "")),
        ("", "hardened", ("hardened", "")),
        ("dev", "hardened", ("dev", "")),
        ("wasm", "dev", ("standard", "wasm")),
        ("", "wasm", ("standard", "wasm")),
    ],
)
def test_the_profile_that_holds(asked: str, default: str, expected: tuple[str, str]) -> None:
    """A requested profile counts before the default; `wasm` is `standard` on one kind of sandbox."""
    assert effective_profile(asked, default) == expected


@pytest.mark.parametrize("profile", ["none", "Standard", "safe ", "unsafe_host"])
def test_an_unknown_profile_is_refused(profile: str) -> None:
    """With the list of those that there are."""
    with pytest.raises(InvalidRequestError, match=r"use dev, standard, hardened or wasm|did you mean standard"):
        effective_profile(profile, "standard")
