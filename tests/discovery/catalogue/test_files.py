"""Whose file it is, what is in it, and which version: anything that is not ours, or not whole, is refused."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.discovery.catalogue.tools import ODD, assert_same, filled, saved, some_tool, stored
from tests.process.test_database import PATIENCE, in_child

from toolexec.discovery.catalogue import SQLiteCatalogue
from toolexec.discovery.catalogue.rows import read_row, row_of
from toolexec.discovery.search import LexicalSearcher
from toolexec.errors import CatalogueError
from toolexec.model import Binding, MCPBinding, Tool


def change(path: Path, *statements: str) -> None:
    """Do something to the file behind the catalogue's back."""
    database = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        database.execute(statement)
    database.close()


def refuses(path: Path, why: str, use: Callable[[SQLiteCatalogue], object] = SQLiteCatalogue.open) -> CatalogueError:
    """The catalogue cannot be used, and says why."""
    with SQLiteCatalogue(path) as catalogue, pytest.raises(CatalogueError, match=why) as caught:
        use(catalogue)
    assert caught.value.code == "catalogue"
    return caught.value


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
class TestRights:
    """The file is for its owner alone, whatever the umask is."""

    def test_it_is_made_so(self, path: Path) -> None:
        """File and directory belong to the user alone, and so do the files that SQLite puts beside them."""
        before = os.umask(0)
        try:
            with SQLiteCatalogue(path) as catalogue:
                catalogue.save(filled(3))
                modes = {name.name: name.stat().st_mode & 0o777 for name in path.parent.iterdir()}
        finally:
            os.umask(before)
        assert modes == dict.fromkeys(modes, 0o600)
        assert {"tools.db", "tools.db-wal"} <= modes.keys()
        assert path.parent.stat().st_mode & 0o777 == 0o700

    @pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
    @pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
    def test_a_file_that_others_may_write_to(self, path: Path, mode: int, suffix: str) -> None:
        """Its tools would be believed, so it is not read; that others can read it is the owner's affair."""
        saved(path, filled())
        other = Path(f"{path}{suffix}")
        other.touch()
        other.chmod(mode)
        refuses(path, "other users may write")
        other.chmod(0o644)
        assert len(stored(path)) == len(ODD)

    @pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
    def test_a_file_of_somebody_else(self, path: Path) -> None:
        """Refuses a file of another owner, who could have written anything."""
        saved(path, filled())
        os.chown(path, 12345, 12345)
        refuses(path, "other users may write")

    def test_what_is_no_file(self, path: Path) -> None:
        """A directory and a pipe are refused, and nothing waits for the pipe."""
        path.mkdir(parents=True)
        refuses(path, "cannot be used")
        path.rmdir()
        os.mkfifo(path, 0o600)
        refuses(path, "not a file")


def test_what_is_no_database(path: Path) -> None:
    """The message says what to do, and the file stays as it is."""
    path.parent.mkdir()
    path.write_bytes(b"These are my notes. " * 100)
    path.chmod(0o600)
    refuses(path, "not a database; delete the file")
    assert path.read_bytes().startswith(b"These")


def test_a_database_of_something_else(path: Path) -> None:
    """Nothing is written into it."""
    path.parent.mkdir()
    change(path, "CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('mine')")
    path.chmod(0o600)
    refuses(path, "of something else")
    refuses(path, "of something else", SQLiteCatalogue.clear)
    assert sqlite3.connect(path).execute("SELECT * FROM notes").fetchall() == [("mine",)]


@pytest.mark.parametrize("version", [0, 2, 1000])
def test_another_version(path: Path, version: int) -> None:
    """The message names both versions; the file stays as it is."""
    saved(path, filled())
    change(path, f"PRAGMA user_version={version}")
    refuses(path, f"has version {version}, and this toolexec reads 1")
    change(path, "PRAGMA user_version=1")
    assert len(stored(path)) == len(ODD)


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TRIGGER more AFTER INSERT ON tools BEGIN DELETE FROM tools; END",
        "CREATE VIEW more AS SELECT * FROM tools",
        "CREATE TABLE more (a)",
        "ALTER TABLE tools ADD COLUMN more",
        "DROP TABLE pages",
        "DROP INDEX tools_by_home",
    ],
)
def test_other_tables(path: Path, statement: str) -> None:
    """Foreign content of the file is not run, and missing content is noticed."""
    saved(path, filled())
    change(path, statement)
    refuses(path, "other tables than it should")


@pytest.mark.full
@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE tools SET description = 'Deletes all' WHERE id = 'git:yes'", "not those that were written"),
        ("UPDATE tools SET input = '{}' WHERE id = 'space1:tool_1:1.1'", "not those that were written"),
        ("UPDATE tools SET home = x'6d63703a61' WHERE id = 'git:yes'", "not those that were written"),
        ("UPDATE tools SET title = x'ff' WHERE id = 'git:yes'", "not those that were written"),
        ("DELETE FROM tools WHERE id = 'git:yes'", "not those that were written"),
        ("DELETE FROM pages WHERE page = 1", "it has"),
        ("DELETE FROM tools WHERE num >= 1024", "not those that were written"),
        ("UPDATE tools SET num = num + 5000 WHERE id = 'git:yes'", "not those that were written"),
        ("UPDATE pages SET digest = x'00'", "not those that were written"),
        ("UPDATE tools SET title = CAST(x'ff' AS TEXT) WHERE id = 'git:yes'", "cannot be used"),
    ],
)
def test_rows_that_are_not_what_was_written(path: Path, statement: str, why: str) -> None:
    """Every row counts: a changed, missing, additional or moved one is noticed before any tool is taken."""
    saved(path, filled(2000))
    change(path, statement)
    refuses(path, why)
    refuses(path, why, SQLiteCatalogue.verify)
    with SQLiteCatalogue(path) as catalogue:
        catalogue.clear()
        catalogue.save(filled(10))
    assert_same(stored(path), filled(10))


def test_changes_do_not_make_damage_good(path: Path) -> None:
    """A row that was damaged is noticed when its neighbours are written, too."""
    saved(path, filled(20))
    change(path, "UPDATE tools SET title = 'x' WHERE id = 'git:yes'")
    fresh = [(some_tool(1), MCPBinding("server1", "new"))]
    refuses(path, "not those that were written", lambda catalogue: catalogue.replace_tools("server1", fresh))
    refuses(path, "not those that were written", lambda catalogue: catalogue.replace_tools("server1", []))
    change(path, "DELETE FROM pages")
    refuses(path, "not those that were written", lambda catalogue: catalogue.replace_tools("server1", []))


@pytest.mark.full
def test_bytes_that_are_flipped(path: Path) -> None:
    """Whatever byte of the file is changed: it is refused, or comes back as it was."""
    index = filled(150)
    saved(path, index)
    whole = path.read_bytes()
    dice = random.Random(3)
    refused = 0
    for _ in range(150):
        place = dice.randrange(len(whole))
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << dice.randrange(8)]) + whole[place + 1 :])
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        try:
            found = stored(path)
        except CatalogueError:
            refused += 1
        else:
            assert [(e.tool, e.bindings) for e in found.tools()] == [(e.tool, e.bindings) for e in index.tools()]
    assert refused > 10


def test_a_file_that_is_cut_off(path: Path) -> None:
    """Half a file is no catalogue."""
    saved(path, filled(500))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refuses(path, "cannot be used|damaged")


def test_rows_of_a_forger_are_found_by_verify(path: Path) -> None:
    """A forger can make the checksums right; checking each tool as untrusted input still helps."""
    saved(path, filled())
    for number, (column, value) in enumerate(
        [
            (3, '{"$ref": "https://evil.example/x"}'),
            (3, "[" * 100_000),
            (3, "no JSON"),
            (0, "a:b:c:d"),
            (0, ""),
            (5, "----TAG not normal"),
            (5, "??"),
            (6, "ftp:x"),
            (6, "mcp:"),
            (8, "{"),
            (8, '{"bindings": [1]}'),
            (8, '{"icons": 5}'),
            (8, '{"meta": "no JSON"}'),
        ]
    ):
        row = list(row_of(Tool(name=f"t{number}", input_schema={}), [MCPBinding("a", "b")]))
        row[column] = value
        with SQLiteCatalogue(path) as catalogue, catalogue._writing() as database:
            from toolexec.discovery.catalogue import tables

            tables.replace_rows(database, [tuple(row)])  # pyright: ignore[reportArgumentType]
        refuses(path, "stored", SQLiteCatalogue.verify)


def test_a_row_that_cannot_be_read_is_an_error_when_it_is_looked_at(path: Path) -> None:
    """Not before, and not another one's."""
    row = list(row_of(Tool(name="t", input_schema={}), [MCPBinding("a", "b")]))
    row[6] = "ftp:x"
    with pytest.raises(CatalogueError, match="damaged: 't' cannot be read"):
        read_row(tuple(row))  # pyright: ignore[reportArgumentType]


def test_without_counters(path: Path) -> None:
    """A file that does not count its changes cannot be written to."""
    saved(path, filled())
    change(path, "DELETE FROM counters")
    refuses(path, "count its changes", lambda catalogue: catalogue.save(filled()))


def test_verify_finds_what_sqlite_finds(path: Path) -> None:
    """An index of the database that does not fit its table is damage, too."""
    saved(path, filled(400))
    change(
        path,
        "PRAGMA writable_schema=ON",
        "UPDATE sqlite_schema SET rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'tools_by_change') "
        "WHERE name = 'tools_by_home'",
    )
    refuses(path, "damaged|cannot be used", SQLiteCatalogue.verify)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_has_a_connection_of_its_own(path: Path) -> None:
    """Parent and child write in turns, and each reads what the other has written; a child that was forked while a
    thread read the file is refused, and does not wait for it."""
    began, go_on = threading.Event(), threading.Event()

    class Slow(LexicalSearcher):
        def add(self, tool: Tool, bindings: Sequence[Binding] = ()) -> None:
            began.set()
            go_on.wait(PATIENCE)
            super().add(tool, bindings)

    with SQLiteCatalogue(path) as catalogue:
        catalogue.replace_tools("one", [(some_tool(1), MCPBinding("one", "a"))])

        def use() -> str:
            catalogue.replace_tools("two", [(some_tool(2), MCPBinding("two", "a"))])
            catalogue.close()
            return str(len(catalogue))

        assert in_child(use) == "2"
        assert len(catalogue) == 2
        catalogue.replace_tools("three", [(some_tool(3), MCPBinding("three", "a"))])
        assert in_child(lambda: str(len(catalogue))) == "3"
        thread = threading.Thread(target=catalogue.open, kwargs={"searcher": Slow()})
        thread.start()
        began.wait(PATIENCE)
        try:
            assert "forked while a thread of its parent used the file" in in_child(lambda: str(len(catalogue)))
        finally:
            go_on.set()
            thread.join()
        assert len(catalogue) == 3
