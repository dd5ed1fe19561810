"""The contract suite for sandboxes against every sandbox, in each language that it runs."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
from tests.runtime.wasm.workers.in_workers import InWorkers

from toolexec.code.limits import LimitsEnforced
from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.unsafe_host.backend import UnsafeHostBackend
from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.runtime.wasm.workers.process import can_start
from toolexec.testing.sandbox_snippets import BASH, JAVASCRIPT, PYTHON, Snippets
from toolexec.testing.sandbox_suite import SANDBOX_CHECKS, MakeSandbox, check_sandbox, run_sandbox_check


def maker(build: Callable[[], SandboxBackend]) -> MakeSandbox:
    """Make the sandbox that the suite checks; slow parts are loaded once in a process."""

    @asynccontextmanager
    async def make() -> AsyncIterator[SandboxBackend]:
        backend = build()
        try:
            yield backend
        finally:
            await backend.aclose()

    return make


_needs_quickjs = pytest.mark.skipif(find_spec("quickjs_rs") is None, reason="the extra `javascript` is not installed")
_needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")
_needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
_needs_workers = pytest.mark.skipif(not can_start(), reason="there are no workers on this system")
SANDBOXES: list[Any] = [
    pytest.param(WasmBackend, PYTHON, id="wasm-python"),
    pytest.param(InWorkers, PYTHON, id="wasm-python-workers", marks=[_needs_workers, pytest.mark.full]),
    pytest.param(WasmBackend, JAVASCRIPT, id="wasm-javascript", marks=[_needs_quickjs, pytest.mark.full]),
    pytest.param(UnsafeHostBackend, PYTHON, id="unsafe_host-python", marks=pytest.mark.full),
    pytest.param(UnsafeHostBackend, JAVASCRIPT, id="unsafe_host-javascript", marks=[_needs_node, pytest.mark.full]),
    pytest.param(UnsafeHostBackend, BASH, id="unsafe_host-bash", marks=[_needs_bash, pytest.mark.full]),
]


@pytest.mark.parametrize("check", SANDBOX_CHECKS)
@pytest.mark.parametrize(("build", "snippets"), SANDBOXES)
async def test_every_sandbox_keeps_the_contract(
    build: Callable[[], SandboxBackend], snippets: Snippets, check: str
) -> None:
    """Each sandbox passes each check in each language."""
    await run_sandbox_check(maker(build), check, snippets)


@pytest.mark.full
async def test_the_suite_passes_as_a_whole() -> None:
    """`check_sandbox` takes every check at once."""
    await check_sandbox(maker(WasmBackend))


class Liar:
    """A sandbox that hides behind a good one, forgets what was printed, and claims to hold every limit."""

    kind = "liar"
    isolation = "wasm"

    def __init__(self) -> None:
        self._inner = WasmBackend()
        self.languages = self._inner.languages
        self.check = self._inner.check
        self.aclose = self._inner.aclose

    def enforces(self, request: ExecuteRequest) -> LimitsEnforced:
        """All of them."""
        return LimitsEnforced(timeout=True, memory=True, cpu=True, pids=True, disk=True)

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run it without the limits that are claimed."""
        limits = replace(request.limits, cpu_ms=0)
        timeout = min(request.timeout or 2.0, 2.0)
        result = await self._inner.execute(replace(request, limits=limits, timeout=timeout))
        result.stdout = ""
        return result


GAPS = {
    "an_unknown_language_is_refused",  # the error names another sandbox
    "a_run_says_where_it_ran",
    "prints_arrive_while_it_runs",
    "a_failure_keeps_what_there_was",
    "claimed_limits_are_real",
    "concurrent_runs_do_not_mix",
}


KNOWN = {"claimed_limits_are_real", "a_run_says_where_it_ran"}


@pytest.mark.full
async def test_every_breach_is_reported_by_name_unless_it_is_known() -> None:
    """A sandbox that breaks the contract gets one failure for each check, with the check's name as a note; gaps that are
    listed by name are excused, and one that is none is news."""
    with pytest.raises(ExceptionGroup) as caught:
        await check_sandbox(maker(Liar), known_gaps=[*KNOWN, "tools_answer"])
    said = {getattr(error, "__notes__", [str(error)])[0] for error in caught.value.exceptions}
    assert said == {
        *(f"sandbox check: {name}" for name in GAPS - KNOWN),
        "tools_answer is listed as a known gap, but it passes",
    }


async def test_an_unknown_gap_is_refused() -> None:
    """A misspelt gap raises ValueError, with the names there are."""
    with pytest.raises(ValueError, match="it_says_what_it_is"):
        await check_sandbox(maker(WasmBackend), known_gaps=["it_sings"])
