"""The embedded sandbox as a backend: its languages, and when they are loaded."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from tests.runtime.wasm.language_kit import Kit

from toolexec.errors import ConfigurationError, InvalidRequestError, SandboxUnavailableError
from toolexec.runtime.base import SandboxBackend, SessionBackend
from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.runtime.wasm.config import WasmConfig


@pytest.fixture
async def backend() -> AsyncIterator[WasmBackend]:
    """A backend without pre-warmed guests."""
    backend = WasmBackend(pool_size=0)
    yield backend
    await backend.aclose()


@pytest.fixture
async def kit() -> Kit:
    """Tools to call."""
    return Kit()


def test_it_is_a_backend_with_sessions() -> None:
    """By the shape of it."""
    assert isinstance(WasmBackend(), SandboxBackend)
    assert isinstance(WasmBackend(), SessionBackend)
    assert {"python", "javascript", "wasm"} <= WasmBackend.languages


@pytest.mark.parametrize(
    "settings",
    [
        {"memory_bytes": 0},
        {"disk_bytes": -1},
        {"max_guests": 0},
        {"pool_size": -1},
        {"idle_memory_bytes": -1},
        {"workers": -1},
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, int]) -> None:
    """Are refused, by name."""
    with pytest.raises(ConfigurationError, match=next(iter(settings))):
        WasmBackend(**settings)


def test_settings_in_either_form() -> None:
    """As one object, or by keyword."""
    config = WasmConfig(pool_size=3)
    assert WasmBackend(config).config == config
    assert WasmBackend(config, disk_bytes=5).config == WasmConfig(pool_size=3, disk_bytes=5)
    assert WasmBackend(pool_size=3).config == config


def test_nothing_is_loaded_before_its_first_use() -> None:
    """Neither wasmtime nor the code of a language, by importing or making it."""
    code = """
import sys
from toolexec.runtime.wasm.backend import WasmBackend
WasmBackend()
print([name for name in ("wasmtime", "toolexec.runtime.wasm.python") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


async def test_an_unknown_language_is_refused(backend: WasmBackend, kit: Kit) -> None:
    """With the list of those that there are, whatever is asked."""
    request = kit.request("1", language="cobol")
    with pytest.raises(InvalidRequestError, match="does not run cobol; it runs javascript, python"):
        await backend.execute(request)
    with pytest.raises(InvalidRequestError):
        backend.enforces(request)
    with pytest.raises(InvalidRequestError):
        await backend.check_language("cobol")


async def test_python_is_the_default(backend: WasmBackend, kit: Kit) -> None:
    """For code that names no language."""
    assert (await backend.execute(kit.request("1 + 1"))).raise_for_error().value == 2
    assert (await backend.check()).ok


async def test_only_python_has_sessions(backend: WasmBackend, kit: Kit) -> None:
    """The error says so."""
    with pytest.raises(InvalidRequestError, match="only python has sessions here, not javascript"):
        await backend.open_session(kit.request("", language="javascript"))
    session = await backend.open_session(kit.request(""))
    await session.execute(kit.request("x = 1"))
    assert (await session.execute(kit.request("x"))).value == 1
    await session.aclose()


async def test_it_can_be_started_ahead(backend: WasmBackend, kit: Kit) -> None:
    """The first run is quick then; closing is not the end of it."""
    await backend.start()
    assert (await backend.execute(kit.request("1"))).value == 1
    await backend.aclose()
    await backend.aclose()
    assert (await backend.execute(kit.request("2"))).value == 2


async def test_a_sandbox_that_cannot_be_had(kit: Kit, tmp_path) -> None:
    """The check says why, and raises nothing; running raises."""
    (tmp_path / "file").write_text("")
    backend = WasmBackend(cache_folder=tmp_path / "file")
    assert not (await backend.check()).ok
    with pytest.raises(SandboxUnavailableError) as caught:
        await backend.execute(kit.request("1"))
    assert caught.value.backend == "wasm"
    await backend.aclose()
