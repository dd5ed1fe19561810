"""The first run of a server process."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, sys, tempfile
from pathlib import Path
from packages.remote.tests.servers import Client, runtime_server
from toolexec.testing.scripted_sandbox import ScriptedSandbox

async def main():
    with tempfile.TemporaryDirectory() as directory:
        async with runtime_server(Path(directory), ScriptedSandbox(default=1)) as endpoint:
            async with Client(endpoint) as client:
                before = {*sys.modules}
                await client.execute("first", "1", timeout=60)
                assert (await client.result("first")).value == 1
                print(*sorted({*sys.modules} - before))

asyncio.run(main())
"""


@pytest.mark.full
async def test_it_loads_nothing() -> None:
    """All that it needs was there before the server listened, as no client is answered while modules are loaded."""
    done = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []
