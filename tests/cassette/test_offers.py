"""Resources and prompts beside a cassette, which has tools."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from toolexec import Exec
from toolexec.errors import NotOfferedError

SERVER = str(Path(__file__).parents[1] / "backend" / "mcp" / "hostile_server.py")


async def test_what_is_read_is_not_recorded(tmp_path: Path):
    """A resource is read while a session is recorded, the cassette has no call of it, and a replay has no resources."""
    path = tmp_path / "session.yaml"
    async with Exec(cassette=path, cassette_mode="record") as ex:
        ex.add(lambda: 1, "t:one")
        await ex.add_mcp("docs", command=[sys.executable, SERVER, "plain"], stop_timeout=0.2)
        await ex.run_tool("t:one")
        assert (await ex.read_resource("toolexec://docs/foreign://x")).text == "mine: foreign://x"
    assert "foreign" not in path.read_text()
    async with Exec(cassette=path, cassette_mode="replay") as ex:
        assert (await ex.run_tool("t:one")).value == 1
        with pytest.raises(NotOfferedError):
            await ex.read_resource("toolexec://docs/foreign://x")
