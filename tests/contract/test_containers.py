"""The contract suite and the escape battery against every container sandbox, in each language of its image."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.engines.backends import (  # noqa: F401 - fixtures
    KINDS,
    Make,
    containerd_daemon,
    kube_cluster,
    kube_namespace,
    maker,
)
from tests.engines.docker import docker_daemon  # noqa: F401 - a fixture
from tests.promises import KNOWN_GAPS

from toolexec.runtime.base import SandboxBackend
from toolexec.runtime.containers.backend import ContainerBackend
from toolexec.runtime.containers.config import DEFAULT_LIMITS
from toolexec.testing.escape_battery import run_battery
from toolexec.testing.escapes import ESCAPES, Escape
from toolexec.testing.escapes.host import HOST_ESCAPES
from toolexec.testing.escapes.kernel import KERNEL_ESCAPES
from toolexec.testing.escapes.processes import PROCESS_ESCAPES
from toolexec.testing.escapes.resources import RESOURCE_ESCAPES
from toolexec.testing.sandbox_snippets import BASH, JAVASCRIPT, PYTHON, Snippets
from toolexec.testing.sandbox_suite import SANDBOX_CHECKS, run_sandbox_check

pytestmark = [pytest.mark.full, pytest.mark.anyio]
SNIPPETS: Mapping[str, Snippets] = {"python": PYTHON, "bash": BASH, "javascript": JAVASCRIPT}
PARTS = 9
"""A test of all hostile programs at once would take longer than a test may. The first `OWN` parts are about what an
engine decides: the host, processes and resources; the others about the guest and the protocol, which all of them share."""
OWN = 4
SAME_WALL = ("containerd", "kubernetes")
"""Kinds that run their containers with runc, as Docker does, which meets every program. The full tier has their own parts
and one of the others, the soak tier all."""
SLOW = ("qemu",)
"""Kinds whose processor may be software: they fill less memory, and may take `SLOWER` seconds longer."""
SLOWER = 4.0


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
        pytest.param(
            kind,
            part,
            marks=[pytest.mark.soak] if (kind in SLOW and part) or (kind in SAME_WALL and part > OWN) else [],
        )
        for kind in KINDS
        for part in range(PARTS)
    ],
    indirect=["kind"],
)
async def test_it_holds_hostile_python(make: Make, kind: str, part: int) -> None:
    """Every program meets each kind of wall: namespaces alone, runc, and a kernel of its own; in the soak tier each engine."""
    small = {"limits": replace(DEFAULT_LIMITS, memory_bytes=128 << 20)} if kind in SLOW else {}
    await attack(make(**small), kind, "python", of_part(part))


@pytest.mark.parametrize("language", ["bash", "javascript"])
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("kind", ["bubblewrap"], indirect=False)
async def test_it_holds_hostile_programs_in_other_languages(make: Make, kind: str, language: str, part: int) -> None:
    await attack(make(), kind, language, [each for each in ESCAPES if language in each.programs][part::3])


def of_part(part: int) -> list[Escape]:
    """Return one of the parts of the hostile programs in Python."""
    own = {escape.name for escape in (*HOST_ESCAPES, *KERNEL_ESCAPES, *PROCESS_ESCAPES, *RESOURCE_ESCAPES)}
    python = [each for each in ESCAPES if "python" in each.programs]
    if part < OWN:
        return [each for each in python if each.name in own][part::OWN]
    return [each for each in python if each.name not in own][part - OWN :: PARTS - OWN]


def test_the_parts_are_all_programs() -> None:
    """Leave none out, and try none twice."""
    names = [escape.name for part in range(PARTS) for escape in of_part(part)]
    assert sorted(names) == sorted(each.name for each in ESCAPES if "python" in each.programs)


async def attack(backend: ContainerBackend, kind: str, language: str, escapes: Sequence[Escape]) -> None:
    """Run hostile programs, one after the other in one backend."""
    if kind in SLOW:
        escapes = [replace(each, timeout=each.timeout + SLOWER) for each in escapes]
    names = {escape.name for escape in escapes}
    gaps = {name: reason for name, reason in KNOWN_GAPS.get(kind, {}).items() if name in names}
    try:
        report = await run_battery(backend, language=language, escapes=escapes, known_gaps=gaps)
    finally:
        await backend.aclose()
    report.raise_for_gaps()
