"""The contract suite and the escape battery over a remote runtime: as the sandbox underneath, so the remote one."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
from packages.remote.tests.processes import RemoteServer, settings_for
from tests.contract.afar import parts_from_afar
from tests.held_out.running import escaped
from tests.tiers import missing

from toolexec.sandbox import SandboxBackend
from toolexec.testing.escape_battery import run_battery
from toolexec.testing.escapes import ESCAPES, Escape
from toolexec.testing.sandbox_snippets import JAVASCRIPT, PYTHON, Snippets
from toolexec.testing.sandbox_suite import SANDBOX_CHECKS, MakeSandbox, run_sandbox_check
from toolexec_remote.backend import RemoteBackend

pytestmark = pytest.mark.full

IMAGE = "toolexec-test"


@pytest.fixture(scope="module")
def wasm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteServer]:
    """Start a server with the embedded sandbox."""
    with RemoteServer(tmp_path_factory.mktemp("remote")) as server:
        yield server


@pytest.fixture(scope="module")
def bubblewrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteServer]:
    """Start a server with containers."""
    if os.geteuid():
        pytest.skip("the server's containers need root")
    if shutil.which("bwrap") is None:
        missing("there is no bubblewrap", "apt-get install bubblewrap")
    with RemoteServer(tmp_path_factory.mktemp("remote"), "bubblewrap", image=IMAGE) as server:
        yield server


def maker(server: RemoteServer, kind: str) -> MakeSandbox:
    """Make the sandbox that the suite checks."""

    @asynccontextmanager
    async def make() -> AsyncGenerator[SandboxBackend]:
        backend = RemoteBackend(settings_for(server, sandbox=kind))
        await backend.check()
        try:
            yield backend
        finally:
            await backend.aclose()

    return make


@pytest.mark.parametrize("check", SANDBOX_CHECKS)
async def test_wasm_keeps_the_contract_from_afar(wasm: RemoteServer, check: str) -> None:
    """Each check passes over the connection as it does here."""
    await run_sandbox_check(maker(wasm, "wasm"), check, PYTHON)


@pytest.mark.parametrize("check", SANDBOX_CHECKS)
async def test_javascript_keeps_the_contract_from_afar(wasm: RemoteServer, check: str) -> None:
    """Each check passes in the other language, too."""
    await run_sandbox_check(maker(wasm, "wasm"), check, JAVASCRIPT)


# The other language is that of the test above; what a container is with it, those of containers see.
@pytest.mark.parametrize(
    "snippets", [pytest.param(PYTHON, id="python"), pytest.param(JAVASCRIPT, id="javascript", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("check", SANDBOX_CHECKS)
async def test_containers_keep_the_contract_from_afar(bubblewrap: RemoteServer, check: str, snippets: Snippets) -> None:
    """Each check passes with a container at the other end."""
    await run_sandbox_check(maker(bubblewrap, "bubblewrap"), check, snippets)


@pytest.mark.parametrize("escape", [pytest.param(each, id=each.name) for each in ESCAPES if "python" in each.programs])
async def test_nothing_escapes_from_afar(wasm: RemoteServer, escape: Escape) -> None:
    """Hostile programs harm neither side: not the client that answers for the tools, nor the server."""
    async with maker(wasm, "wasm")() as backend:
        (await run_battery(backend, escapes=[escape])).raise_for_gaps()


@pytest.mark.parametrize("escapes", parts_from_afar())
async def test_nothing_escapes_from_containers_afar(bubblewrap: RemoteServer, escapes: Sequence[Escape]) -> None:
    """The same with containers."""
    async with maker(bubblewrap, "bubblewrap")() as backend:
        (await run_battery(backend, escapes=escapes)).raise_for_gaps()


async def test_no_attack_of_others_gets_out_afar(bubblewrap: RemoteServer) -> None:
    """Attacks that are not of the battery get nothing out of a container at the other end, either."""
    async with maker(bubblewrap, "bubblewrap")() as backend:
        assert await escaped(backend) == {}
