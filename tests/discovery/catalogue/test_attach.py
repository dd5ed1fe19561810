"""A catalogue that is kept in step with an index."""

from __future__ import annotations

import logging
import random
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.discovery.catalogue.tools import ODD, assert_same, filled, saved, some_tool, stored
from tests.servers import server_environment

from toolexec.discovery import InMemoryIndex
from toolexec.discovery.catalogue import SQLiteCatalogue, tables
from toolexec.errors import CatalogueError, ConfigurationError
from toolexec.model import LocalBinding, MCPBinding


def change_at_random(index: InMemoryIndex, seed: int, count: int = 300) -> None:
    """Tools come, change, get bindings, and go."""
    dice = random.Random(seed)
    for _ in range(count):
        number = dice.randrange(60)
        tool, binding = some_tool(number, f"words {dice.randrange(3)}"), MCPBinding("server", f"tool_{number}")
        known = index.find(tool.id)
        if known is None or known.tool.id != tool.id:
            index.register(tool, binding)
        elif dice.random() < 0.3:
            index.unregister(tool.id)
        elif dice.random() < 0.3:
            index.register(known.tool, LocalBinding(f"extra{dice.randrange(3)}"))
        else:
            index.replace(tool, known.binding) if len(known.bindings) == 1 else index.unregister(tool.id, known.binding)


@pytest.mark.full
def test_changes_are_written(path: Path) -> None:
    """After a flush the file has what the index has; after `close`, too."""
    index = filled()
    with SQLiteCatalogue(path, delay=60) as catalogue:
        catalogue.attach(index)
        assert_same(stored(path), index)
        for seed in range(5):
            change_at_random(index, seed)
            catalogue.flush()
            assert_same(stored(path), index)
            assert catalogue.verify() == len(index)
        change_at_random(index, 99)
    assert_same(stored(path), index)
    change_at_random(index, 7)
    assert len(stored(path).tools()) != 0
    with pytest.raises(AssertionError):
        assert_same(stored(path), index)


def test_they_are_written_by_themselves(path: Path) -> None:
    """A moment later, without a flush, and again for the next changes."""
    index = InMemoryIndex()
    with SQLiteCatalogue(path, delay=0.01) as catalogue:
        catalogue.attach(index)
        for number in range(3):
            index.register(some_tool(number), MCPBinding("a", "b"))
            deadline = time.monotonic() + 30
            while len(stored(path)) != number + 1:
                assert time.monotonic() < deadline, "nobody writes"
                time.sleep(0.01)


def test_an_opened_index_is_not_written_again(path: Path) -> None:
    """Attaching what was just opened writes nothing but what was left out."""
    saved(path, filled(30))
    with SQLiteCatalogue(path) as catalogue:
        index = catalogue.open(local=False)
        before = changes(path)
        catalogue.attach(index, local=False)
        catalogue.flush()
        assert changes(path) == before
        assert len(stored(path)) == len(index)
    with SQLiteCatalogue(path) as catalogue:
        again = catalogue.open(local=False)
        assert_same(again, index)
        catalogue.attach(again, local=False)
    assert changes(path) == before


def test_an_index_that_has_changed_before_it_is_attached(path: Path) -> None:
    """Then all of it is written."""
    saved(path, filled(30))
    with SQLiteCatalogue(path) as catalogue:
        index = catalogue.open()
        index.register(some_tool(77), MCPBinding("a", "b"))
        catalogue.attach(index)
    assert_same(stored(path), index)


def changes(path: Path) -> int:
    """Return how often the file was changed."""
    database = sqlite3.connect(path)
    try:
        return int(database.execute("SELECT value FROM counters WHERE name = 'changes'").fetchone()[0])
    finally:
        database.close()


def test_without_local_tools(path: Path) -> None:
    """Tools of this process are never written, nor are the local bindings of others."""
    index = filled()
    with SQLiteCatalogue(path, delay=60) as catalogue:
        catalogue.attach(index, local=False)
        index.register(some_tool(1), LocalBinding("here"))
        index.register(ODD[2][0], LocalBinding("here, too"))
        catalogue.flush()
        kept = stored(path)
        assert {b.kind for entry in kept.tools() for b in entry.bindings} == {"mcp", "provider"}
        assert kept.get("git:log:1.2.0").bindings == (MCPBinding("git", "log"),)
        index.unregister("git:log:1.2.0", MCPBinding("git", "log"))
    assert stored(path).get("git:log").tool.id == "git:log:1.10.0"
    assert "git:log:1.2.0" not in {entry.tool.id for entry in stored(path).tools()}


def test_one_index_at_a_time(path: Path) -> None:
    """A second one is refused; after `close` there may be another."""
    with SQLiteCatalogue(path) as catalogue:
        catalogue.attach(filled())
        with pytest.raises(ConfigurationError, match="close it first"):
            catalogue.attach(InMemoryIndex())
        catalogue.close()
        catalogue.attach(InMemoryIndex())
    assert len(stored(path)) == 0


def test_the_search_index_is_written_when_much_has_changed(path: Path) -> None:
    """A process that is killed after many changes leaves little work to the next one."""
    index = InMemoryIndex()
    with SQLiteCatalogue(path, delay=60) as catalogue:
        catalogue.attach(index)
        for number in range(150):
            index.register(some_tool(number), MCPBinding("a", "b"))
        catalogue.flush()
        assert unsearchable(path) == 150
        for number in range(150, 300):
            index.register(some_tool(number), MCPBinding("a", "b"))
        catalogue.flush()
        assert unsearchable(path) == 0
        index.unregister("space0:tool_0")
        index.register(some_tool(301), MCPBinding("a", "b"))
        catalogue.flush()
        assert unsearchable(path) == 1
    assert_same(stored(path), index)


def unsearchable(path: Path) -> int:
    """Return how many tools the snapshot of the search index does not know."""
    database = sqlite3.connect(path)
    query = "SELECT count(*) FROM tools WHERE changed > (SELECT value FROM counters WHERE name = 'searchable')"
    try:
        return int(database.execute(query).fetchone()[0])
    finally:
        database.close()


def test_what_cannot_be_written_is_kept(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A failure is logged, nothing is forgotten, and the next change tries again."""
    index = InMemoryIndex()
    with SQLiteCatalogue(path, delay=0.001) as catalogue, caplog.at_level(logging.ERROR):
        catalogue.attach(index)
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("CREATE TABLE in_the_way (a)")
        database.execute("DROP TABLE pages")
        index.register(some_tool(1), MCPBinding("a", "b"))
        deadline = time.monotonic() + 30
        while "not in the catalogue yet" not in caplog.text:  # `records` has it a moment before the text does
            assert time.monotonic() < deadline, "nothing was said"
            time.sleep(0.01)
        with pytest.raises(CatalogueError, match="pages"):
            catalogue.flush()
        database.execute("CREATE TABLE pages (page INTEGER PRIMARY KEY, digest BLOB NOT NULL)")
        database.execute("DROP TABLE in_the_way")
        database.close()
        index.register(some_tool(2), MCPBinding("a", "b"))
        catalogue.flush()
        assert_same(stored(path), index)


def test_attaching_to_what_cannot_be_written(path: Path) -> None:
    """Raises, and leaves neither a thread nor a listener behind."""
    path.mkdir(parents=True)
    index = filled()
    catalogue = SQLiteCatalogue(path)
    with pytest.raises(CatalogueError):
        catalogue.attach(index)
    assert index._listeners == {}
    path.rmdir()
    catalogue.attach(index)
    catalogue.close()
    assert_same(stored(path), index)


@pytest.mark.full
def test_changes_from_several_threads(path: Path) -> None:
    """All of them arrive, while others read."""
    index = InMemoryIndex()
    done = threading.Event()

    def add(part: int) -> None:
        for number in range(part * 200, part * 200 + 200):
            index.register(some_tool(number), MCPBinding("a", f"tool_{number}"))
            if number % 3 == 0:
                index.unregister(some_tool(number).id)

    def read() -> int:
        seen = 0
        while not done.is_set():
            with SQLiteCatalogue(path) as other:
                seen = max(seen, other.verify())
        return seen

    with SQLiteCatalogue(path, delay=0.001) as catalogue, ThreadPoolExecutor(6) as pool:
        catalogue.attach(index)
        readers = [pool.submit(read) for _ in range(2)]
        for part in [pool.submit(add, part) for part in range(4)]:
            part.result()
        done.set()
        assert all(reader.result() <= 800 for reader in readers)
    assert_same(stored(path), index)


WRITER = """
import sys
from toolexec import Tool
from toolexec.model import MCPBinding
from toolexec.discovery.catalogue import SQLiteCatalogue, tables

path, part = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
with SQLiteCatalogue(path, delay=0.001) as catalogue:
    index = catalogue.open()
    catalogue.attach(index)
    for number in range(40):
        tool = Tool(name=f"p{part}_{number}", namespace="shared", input_schema={})
        index.register(tool, MCPBinding(f"part{part}", tool.name))
        if number % 10 == 0:
            catalogue.flush()
"""


def test_a_search_index_that_is_ahead_of_the_tools_is_not_stored(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool goes while a change is being written that has the search index written, too; then the process dies. The
    tool is still there for the next one, which has to find it."""
    index = filled(400, odd=False)
    with SQLiteCatalogue(path) as reader, SQLiteCatalogue(path, delay=3600) as catalogue:
        catalogue.attach(index)
        for number in range(300):
            index.replace(some_tool(number, "history"), MCPBinding(f"server{number % 3}", f"tool_{number}"))
        gone = some_tool(7).id
        count = tables.changed_since_search

        def counted(database: sqlite3.Connection) -> list[str]:
            if index.find(gone) is not None:
                index.unregister(gone)
            return count(database)

        with monkeypatch.context() as patch:
            patch.setattr(tables, "changed_since_search", counted)
            catalogue.flush()
        assert index.find(gone) is None
        left = reader.open()
        assert left.find(gone) is not None
        assert gone in left.search("item7", 20).ids()


def test_saving_does_not_undo_what_is_written_meanwhile(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tool that another thread adds while all are saved is there afterwards."""
    index = filled(20, odd=False)
    with SQLiteCatalogue(path, delay=0.0) as catalogue:
        catalogue.attach(index)
        catalogue.flush()
        settled = InMemoryIndex.settled_version
        late = some_tool(1000)
        asked: list[int] = []

        def changed(self: InMemoryIndex) -> int:
            version = settled(self)
            if threading.current_thread() is threading.main_thread():
                asked.append(version)
                if len(asked) == 2:  # the rows to save have been collected
                    index.register(late, MCPBinding("server", late.name))
                    time.sleep(0.2)  # a moment to write it now
            return version

        with monkeypatch.context() as patch:
            patch.setattr(InMemoryIndex, "settled_version", changed)
            catalogue.save(index)
        assert len(asked) == 2
        catalogue.flush()
        assert stored(path).find(late.id) is not None
        assert len(stored(path)) == len(index)


@pytest.mark.full
def test_several_processes_write_to_one_file(path: Path) -> None:
    """Each brings its own tools, none loses another's, from the making of the file on."""
    with ExitStack() as stack:
        writers = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WRITER, str(path), str(part)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env=server_environment(),
                )
            )
            for part in range(5)
        ]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        for writer in writers:
            writer.communicate(b"go\n", timeout=60)
        assert [writer.returncode for writer in writers] == [0] * 5
    with SQLiteCatalogue(path) as catalogue:
        assert catalogue.verify() == 5 * 40
        assert [len(catalogue.tools_of(f"part{part}")) for part in range(5)] == [40] * 5
