"""The contract suite and the escape battery against every container sandbox, in each language of its image."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.engines.backends import KINDS, Make, maker
from tests.engines.containerd import containerd_daemon  # noqa: F401 - a fixture
from tests.engines.docker import docker_daemon  # noqa: F401 - a fixture
from tests.engines.kube.cluster import kube_cluster, kube_namespace  # noqa: F401 - fixtures

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.config import DEFAULT_LIMITS
from toolexec.testing.escape_battery import run_battery
from toolexec.testing.escapes import ESCAPES
from toolexec.testing.sandbox_snippets import BASH, JAVASCRIPT, PYTHON, Snippets
from toolexec.testing.sandbox_suite import SANDBOX_CHECKS, run_sandbox_check

pytestmark = [pytest.mark.full, pytest.mark.anyio]
SNIPPETS: Mapping[str, Snippets] = {"python": PYTHON, "bash": BASH, "javascript": JAVASCRIPT}
PARTS = 9
"""A test of all hostile programs at once would take longer than a test may."""
SLOW = ("qemu",)
"""Kinds whose processor may be software: they fill less memory, and may take `SLOWER` seconds longer."""
SLOWER = 4.0
GAPS: Mapping[str, Mapping[str, str]] = {
    "kubernetes": {
        "cpu_budget": "CPU time can be read only with permissions that would allow much more",
    }
}
"""By kind of sandbox: hostile programs that get out of it, each with the reason."""


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def make(kind: str, request: pytest.FixtureRequest) -> Make:
    return maker(kind, request)


def opened(make: Make, **settings: Any) -> Callable[[], AbstractAsyncContextManager[SandboxBackend]]:
    """Give the suites a backend and close it in the end."""

    @asynccontextmanager
    async def open_backend() -> AsyncIterator[SandboxBackend]:
        backend = make(**settings)
        try:
            yield backend
        finally:
            await backend.aclose()

    return open_backend


@pytest.mark.parametrize("check", SANDBOX_CHECKS)
async def test_the_suite_in_python(make: Make, check: str) -> None:
    await run_sandbox_check(opened(make), check, PYTHON)


@pytest.mark.parametrize("check", SANDBOX_CHECKS)
@pytest.mark.parametrize("language", ["bash", "javascript"])
@pytest.mark.parametrize("kind", ["bubblewrap"], indirect=False)
async def test_the_suite_in_other_languages(make: Make, language: str, check: str) -> None:
    await run_sandbox_check(opened(make), check, SNIPPETS[language])


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        # one part is enough to see that it is held at all; the others take half a minute each
        pytest.param(kind, part, marks=[pytest.mark.soak] if kind in SLOW and part else [])
        for kind in KINDS
        for part in range(PARTS)
    ],
    indirect=["kind"],
)
async def test_it_holds_hostile_python(make: Make, kind: str, part: int) -> None:
    small = {"limits": replace(DEFAULT_LIMITS, memory_bytes=128 << 20)} if kind in SLOW else {}
    await attack(make(**small), kind, "python", part)


@pytest.mark.parametrize("language", ["bash", "javascript"])
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", ["bubblewrap"], indirect=False)
async def test_it_holds_hostile_programs_in_other_languages(make: Make, kind: str, language: str, part: int) -> None:
    await attack(make(), kind, language, part, parts=3)


async def attack(backend: ContainerBackend, kind: str, language: str, part: int, parts: int = PARTS) -> None:
    """Run one part of the hostile programs, one after the other in one backend."""
    escapes = [each for each in ESCAPES if language in each.programs][part::parts]
    if kind in SLOW:
        escapes = [replace(each, timeout=each.timeout + SLOWER) for each in escapes]
    names = {escape.name for escape in escapes}
    gaps = {name: reason for name, reason in GAPS.get(kind, {}).items() if name in names}
    try:
        report = await run_battery(backend, language=language, escapes=escapes, known_gaps=gaps)
    finally:
        await backend.aclose()
    report.raise_for_gaps()
