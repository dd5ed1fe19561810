"""Journals of other distributions: chosen by their kind, set up by their table, with commands of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.distributions import install, run

from toolexec import Exec
from toolexec.config.load import load_settings
from toolexec.durable.journals import is_journal_kind
from toolexec.errors import ConfigurationError

ENTRY = "[toolexec.journals]\nshelf = shelf_plugin:PLUGIN\n"
PLUGIN = '''
from dataclasses import dataclass
from pathlib import Path

import typer

from toolexec.journal import Bytes, JournalPlugin, PathName, Seconds, Session, SQLiteJournal, checked, perform_command, setting


@checked("ShelfSettings")
@dataclass(frozen=True, kw_only=True)
class ShelfSettings:
    directory: PathName = setting("", "Where the files are.")
    lease: Seconds = setting(30.0, "How long one is kept.", above=0)
    most: Bytes = setting(1024, "How large one may be.", least=1)
    token: str = setting("", "What opens it.", secret=True)


MADE = []


def make(settings):
    MADE.append(settings)
    return SQLiteJournal(Path(settings.directory, "shelf.db"))


def cli():
    app = typer.Typer(no_args_is_help=True, help="The shelf.")

    @app.callback()
    def group() -> None:
        """The shelf."""

    @app.command("where")
    def where(context: typer.Context) -> None:
        """Say where it is."""

        async def work(session: Session) -> int:
            session.screen.exact(str(session.ex.options.journal.path.name))
            return 0

        perform_command(context, work, None, False)

    return app


PLUGIN = JournalPlugin(kind="shelf", api=1, settings=ShelfSettings, make=make, cli=cli)
'''
BOARD = PLUGIN.replace('kind="shelf"', 'kind="board"').replace("token", "pin")

# The programs of the tests of settings, each a function: they run one after the other in one process, as what such a
# process costs is to start. Each prints for itself.
SETTINGS = """
import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from shelf_plugin import MADE

from toolexec.config.build import build
from toolexec.config.load import load_settings
from toolexec.errors import ConfigurationError

HERE = Path(sys.path[0])


def table():
    loaded = load_settings(
        [HERE / "table.toml"],
        environment={"TOOLEXEC_DURABLE__SHELF__LEASE": "3m", "TOOLEXEC_DURABLE__SHELF__MOST": "8K"},
        flags={"durable.shelf.most": "16K"},
    )
    built = build(loaded)
    (made,) = MADE
    print(made.directory == str(HERE / "kept"), made.lease, made.most)
    print([loaded.origins[f"durable.shelf.{name}"].rpartition("/")[2] for name in ("directory", "lease", "most", "token")])
    built.ex.options.journal.close()


def two_kinds():
    for kind, name in (("shelf", "token"), ("board", "pin"), ("board", "token"), ("shelf", "pin")):
        try:
            loaded = load_settings([], environment={}, flags={f"durable.{kind}.{name}": "x"})
            print(kind, [*loaded.journals[kind]], loaded.journals[kind][name].value)
        except ConfigurationError as error:
            print(error.details["mistakes"][0].partition(";")[0])


def named():
    for name in "ab":
        print(build(load_settings([HERE / f"{name}.toml"], environment={})).ex.options.journal)


def mistakes():
    for name in ("wrong", "flat"):
        try:
            load_settings([HERE / f"{name}.toml"], environment={"TOOLEXEC_DURABLE__SHELF__TOKE": "x"})
        except ConfigurationError as error:
            for mistake in error.details["mistakes"]:
                print(mistake.rpartition("/")[2])


printed = {}
for program in (table, two_kinds, named, mistakes):
    with redirect_stdout(StringIO()) as out:
        program()
    printed[program.__name__] = out.getvalue().splitlines()
print(json.dumps(printed))
"""


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A directory with the distribution, for programs that have it on their path."""
    install(tmp_path, "shelf", ENTRY, {"shelf_plugin": PLUGIN})
    return tmp_path


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """What each program of `SETTINGS` prints where two distributions are, each with a kind."""
    directory = tmp_path_factory.mktemp("settings")
    install(directory, "shelf", ENTRY, {"shelf_plugin": PLUGIN})
    install(directory, "board", "[toolexec.journals]\nboard = board_plugin:PLUGIN\n", {"board_plugin": BOARD})
    (directory / "table.toml").write_text('[durable.shelf]\ndirectory = "kept"\nlease = "2m"\nmost = "4K"\n')
    (directory / "kept").mkdir()
    (directory / "a.toml").write_text('[durable]\njournal = "shelf"\n')
    (directory / "b.toml").write_text("[durable.shelf]\n")
    (directory / "wrong.toml").write_text(
        '[durable.shelf]\ntokn = "x"\ntoken = 12345\nlease = "soon"\n[durable.shelv]\nteam = "a"\n'
    )
    (directory / "flat.toml").write_text('[durable]\nshelf = "here"\n')
    (line,) = run(directory, SETTINGS)
    return json.loads(line)


def test_a_kind_is_chosen_by_its_name(shelf: Path) -> None:
    """`journal="shelf"` makes it with its default settings, once, and closes it; a file of any other name is a file."""
    program = """
    import asyncio, os, sys
    os.chdir(sys.path[0])
    from shelf_plugin import MADE
    from toolexec import Exec

    async def main():
        async with Exec(journal="shelf") as ex:
            ex.add(lambda: 7, "shop:count")
            await ex.run_chain([{"tool": "shop:count"}], durable="one")
            print([(each.id, each.state) for each in await ex.runs.list()], len(MADE))
        async with Exec(journal="shelf.db") as ex:
            print([(each.id, each.state) for each in await ex.runs.list()], len(MADE))

    asyncio.run(main())
    """
    assert run(shelf, program) == ["[('one', 'done')] 1", "[('one', 'done')] 1"]


def test_its_table_is_read_like_every_other(printed: Mapping[str, list[str]]) -> None:
    """Times, sizes and files may be written as everywhere; variables count more, and flags most."""
    assert printed["table"] == [
        "True 180.0 16384",
        "['table.toml:2', 'TOOLEXEC_DURABLE__SHELF__LEASE', '--set durable.shelf.most', 'default']",
    ]


def test_each_kind_has_keys_of_its_own(printed: Mapping[str, list[str]]) -> None:
    """Where there are two, each table is read by the settings of its own kind, whichever came first."""
    assert printed["two_kinds"] == [
        "shelf ['directory', 'lease', 'most', 'token'] x",
        "board ['directory', 'lease', 'most', 'pin'] x",
        "--set durable.board.token: unknown key durable.board.token",
        "--set durable.shelf.pin: unknown key durable.shelf.pin",
    ]


def test_journal_in_a_file_names_it(printed: Mapping[str, list[str]]) -> None:
    """`journal = "shelf"` is the kind, and no file; an empty table, as templates of files have it, chooses nothing."""
    assert printed["named"] == ["shelf", "None"]


def test_what_is_wrong_with_its_table_is_said_where_it_is(printed: Mapping[str, list[str]]) -> None:
    """Unknown keys have the nearest one, and no secret is quoted."""
    unknown_variable = "unknown variable TOOLEXEC_DURABLE__SHELF__TOKE; "
    lines = printed["mistakes"]
    assert lines[:3] == [
        "wrong.toml, line 2: unknown key durable.shelf.tokn; did you mean token?",
        "wrong.toml, line 3: durable.shelf.token must be a text",
        'wrong.toml, line 4: durable.shelf.lease must be a time in seconds, or a text such as "5m" or "2h", not "soon"',
    ]
    assert lines[3].startswith("wrong.toml, line 5: unknown key durable.shelv")
    assert lines[4].startswith(unknown_variable)
    assert lines[5] == "flat.toml, line 2: durable.shelf must be a table of settings"
    assert lines[6].startswith(unknown_variable)


def test_config_show_has_it_without_its_secrets(shelf: Path) -> None:
    """The table is shown with all of its keys, and where they come from."""
    (shelf / "toolexec.toml").write_text('[durable.shelf]\ntoken = "hidden-from-all"\nlease = 5\n')
    program = """
    import sys
    from pathlib import Path
    from typer.testing import CliRunner
    from toolexec.cli.app import app
    done = CliRunner().invoke(app, ["config", "show", "--origin", "-c", str(Path(sys.path[0], "toolexec.toml"))])
    shown = done.output.partition("[durable.shelf]")[2].partition("[")[0] + done.output.partition("[durable.shelf]")[2]
    print("hidden-from-all" in done.output, "token = " in shown, "REDACTED" in shown, "lease = 5" in shown, "most = 1024" in shown)
    """
    assert run(shelf, program) == ["False True True True True"]


def test_its_commands_come_by_its_kind(shelf: Path) -> None:
    """The help lists them, and they have the Exec of the settings."""
    (shelf / "toolexec.toml").write_text('[durable.shelf]\ndirectory = "."\n')
    program = """
    import os, sys
    os.chdir(sys.path[0])
    from typer.testing import CliRunner
    from toolexec.cli.app import app
    print("The shelf." in CliRunner().invoke(app, ["--help"]).output)
    print(CliRunner().invoke(app, ["-c", "toolexec.toml", "shelf", "where"]).output.strip())
    """
    assert run(shelf, program) == ["True", "shelf.db"]


UNUSABLE = {
    "raising": ("raise RuntimeError('of another time')", "cannot be loaded: RuntimeError: of another time"),
    "number": ("PLUGIN = 5", "must be a JournalPlugin, not int"),
    "newer": (
        PLUGIN.replace("api=1", "api=2").replace('"shelf"', '"newer"'),
        "written for the plugin API 2, and this toolexec has 1; update toolexec",
    ),
    "other": (PLUGIN.replace('"shelf"', '"board"'), "is one of the kind 'board'"),
    "failing": (
        PLUGIN.replace("MADE.append(settings)", "raise OSError('t0ken')").replace('"shelf"', '"failing"'),
        "cannot be made with these settings: OSError",
    ),
}
"""Modules with a plugin that cannot be used, by the kind that they are installed as, each with what is said of it."""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[str]]:
    """What a program prints that names each kind of `UNUSABLE`: the value of a call, and the error of a durable one."""
    directory = tmp_path_factory.mktemp("unusable")
    for kind, (module, _) in UNUSABLE.items():
        install(directory, kind, f"[toolexec.journals]\n{kind} = {kind}_plugin:PLUGIN\n", {f"{kind}_plugin": module})
    program = f"""
    import json
    from toolexec import Exec
    from toolexec.errors import ConfigurationError
    refusals = {{}}
    for kind in {[*UNUSABLE]!r}:
        with Exec(journal=kind).sync as sync:
            sync.add(lambda: 7, "shop:count")
            value = str(sync.run_tool("shop:count").value)
            try:
                sync.run_chain([{{"tool": "shop:count"}}], durable="one")
            except ConfigurationError as error:
                refusals[kind] = [value, str(error)]
    print(json.dumps(refusals))
    """
    (line,) = run(directory, program)
    return json.loads(line)


@pytest.mark.parametrize("kind", UNUSABLE)
def test_one_that_cannot_be_used_says_why(refusals: Mapping[str, list[str]], kind: str) -> None:
    """Naming it is an error with the reason; nothing else is harmed."""
    value, said = refusals[kind]
    assert value == "7"
    assert UNUSABLE[kind][1] in said
    assert "t0ken" not in said


def test_a_file_is_no_kind() -> None:
    """A word of no plugin is a file, as is all that is not a plain word."""
    assert [is_journal_kind(name) for name in ("runs.db", "./shelf", "postgresql://a/b", "unknown", "")] == [False] * 5


@pytest.mark.parametrize("address", ["mysql://db/app", "sqlite:///runs.db", "mysql://me:t0ken@db/app"])
def test_an_address_is_no_file(address: str) -> None:
    """The address of something that keeps no journal is refused at once; as a file's name it made directories."""
    with pytest.raises(ConfigurationError, match="postgresql://") as refused:
        Exec(journal=address)
    assert "t0ken" not in refused.value.message


@pytest.mark.parametrize("address", ["postgresql://me:t0ken@db/app", "mysql://db/app", "secretref:env:JOURNAL"])
def test_a_file_of_settings_names_databases_by_another_key(tmp_path: Path, address: str) -> None:
    """Neither an address nor a secret reference is taken for the path of a file; the error has the key for them."""
    path = tmp_path / "toolexec.toml"
    path.write_text(f'[durable]\njournal = "{address}"\n')
    with pytest.raises(ConfigurationError, match="postgres") as refused:
        load_settings([path])
    assert "t0ken" not in refused.value.message


async def test_a_worker_needs_an_engine_that_has_workers() -> None:
    """A journal in a file has none; the error says what to set."""
    async with Exec(journal=":memory:") as ex:
        with pytest.raises(ConfigurationError, match="whose runs it works on"):
            ex.worker()
