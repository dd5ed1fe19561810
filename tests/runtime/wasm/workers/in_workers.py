"""Sandboxes whose Python programs all run in worker processes, whatever the load."""

from __future__ import annotations

import asyncio

import pytest

from toolexec.code.types import CodeResult, ExecuteRequest
from toolexec.runtime.wasm.backend import WasmBackend
from toolexec.runtime.wasm.python import PythonLanguage
from toolexec.runtime.wasm.workers.pool import Workers
from toolexec.runtime.wasm.workers.process import can_start


async def have_workers(language: PythonLanguage) -> Workers:
    """Start all workers of *language*, and send every program to one of them."""
    if not can_start():
        pytest.skip("there are no workers on this system")
    await language.start()
    assert language.workers is not None
    await asyncio.to_thread(language.workers.start)
    language.company = 0
    return language.workers


class InWorkers(WasmBackend):
    """A sandbox with two workers for all of its Python programs."""

    def __init__(self) -> None:
        super().__init__(workers=2)

    async def execute(self, request: ExecuteRequest) -> CodeResult:
        """Run it in a worker, if it is Python."""
        language = self._python()
        if language.workers is None:
            await have_workers(language)
        return await super().execute(request)
