"""The table `[record]`: runs of a server, and of the library by the same file, are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.harness import connect, serving

from toolexec.config.build import RUNS_FILE, Built, build, state_directory
from toolexec.config.load import load_settings
from toolexec.errors import ConfigurationError
from toolexec.exec.options import Options
from toolexec.journal import Record

TOOLS = "from toolexec import tool\n@tool(namespace='own')\ndef add(a: int, b: int = 1) -> int:\n    return a + b\n"
CALLS = {
    "run_chain": {"steps": [{"tool_id": "own:add", "args": {"a": 1}}]},
    "run_workflow": {"workflow": 'return run("own:add", {a: 2})'},
    "execute_code": {"language": "python", "code": "return tools.own.add(a=3)"},
}


def built(text: str, *, python: str = TOOLS, serving: bool = False) -> Built:
    """Build an Exec of these settings, with a Python file of tools."""
    Path("mine_for_recording.py").write_text(python)
    Path("a.toml").write_text(text)
    return build(load_settings(["a.toml", "mine_for_recording.py"]), serving=serving)


async def test_a_server_records_what_its_clients_run() -> None:
    """Each tool that runs a program leaves a recording in the journal of the state directory, which can be replayed."""
    result = built("[record]\nshare = 1", serving=True)
    async with serving(result.ex) as server, connect(server, "auto") as client:
        for name, args in CALLS.items():
            assert not (await client.call_tool(name, args)).is_error
        runs = await result.ex.runs.list()
        assert [run.kind for run in reversed(runs)] == ["chain", "workflow", "code"]
        assert all([(await result.ex.runs.replay(run.id)).same for run in runs])
    assert (state_directory() / RUNS_FILE).exists()
    result.close()


def test_the_table_says_what_is_kept() -> None:
    """Keys of the table are those of `Record`, and the journal is that of durable runs."""
    options = built("[durable]\njournal = 'mine.db'\n[record]\nshare = 0.5\nkeep = 7\nmax_bytes = 2000").ex.options
    assert options.record == Record(share=0.5, keep=7, max_bytes=2000)
    assert Path(str(options.journal)).name == "mine.db"


def test_without_a_share_nothing_is_recorded() -> None:
    """A table that says how much is kept switches nothing on, and an Exec of a file of Python keeps what it has."""
    assert built("[record]\nkeep = 7").ex.options.record is Options().record is None
    own = "from toolexec import Exec\nex = Exec(journal='own.db', record=0.25)\nex.add(lambda a: a, 'own:same')\n"
    assert built("", python=own).ex.options.record == 0.25


def test_a_share_is_one() -> None:
    """More than all runs cannot be recorded: the table is refused where it says so."""
    with pytest.raises(ConfigurationError, match=r"record\.share"):
        built("[record]\nshare = 2")
