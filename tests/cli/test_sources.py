"""Where tools come from."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from toolexec import Exec
from toolexec.cli.sources import DEFAULT_FILES, Sources, find_sources, load_exec
from toolexec.errors import ConfigurationError


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def ids(ex: Exec) -> list[str]:
    return [entry.tool.id for entry in ex.index.tools()]


def test_files_given_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Then the environment variable, then the files of the current directory."""
    write(tmp_path / "mcp.json", "{}")
    assert find_sources([]) == Sources((Path("mcp.json"),), implied=True)
    monkeypatch.setenv("TOOLEXEC_CONFIG", os.pathsep.join(["a.py", "", "b.json"]))
    assert find_sources([]) == Sources((Path("a.py"), Path("b.json")))
    assert find_sources([Path("c.py")]) == Sources((Path("c.py"),))


@pytest.mark.parametrize("name", DEFAULT_FILES)
def test_the_usual_file_names_are_found(tmp_path: Path, name: str) -> None:
    """Each of them on its own."""
    write(tmp_path / name, "{}")
    assert find_sources([]).files == (Path(name),)


def test_without_any_file_the_error_says_what_to_do() -> None:
    """The error names the option, the variable and the file names."""
    with pytest.raises(ConfigurationError, match=r"-c app\.py .* TOOLEXEC_CONFIG, .* toolexec\.json"):
        find_sources([])


def test_declared_tools_of_a_file_are_added(tools_file: Path) -> None:
    """Functions with @tool and bare definitions."""
    found = ids(load_exec([tools_file]))
    assert {"math:add", "slow:count", "odd:declared"} <= set(found)


@pytest.mark.parametrize(
    "text",
    [
        "from toolexec import Exec\nanything = Exec()\nanything.add(lambda: 1, 'own:one')\n",
        "from toolexec import Exec\nother = Exec()\nex = Exec()\nex.add(lambda: 1, 'own:one')\n",
        "from toolexec import Exec\nother = Exec()\napp = Exec()\napp.add(lambda: 1, 'own:one')\n",
        "from toolexec import Exec\nsame = ex = Exec()\nex.add(lambda: 1, 'own:one')\n",
    ],
)
def test_an_exec_of_a_file_is_used_as_it_is(tmp_path: Path, text: str) -> None:
    """The only one, or the one called `ex` or `app`."""
    assert ids(load_exec([write(tmp_path / "mine.py", text)])) == ["own:one"]


def test_several_execs_without_the_usual_name_are_refused(tmp_path: Path) -> None:
    """Refuses to guess between several Execs."""
    file = write(tmp_path / "two.py", "from toolexec import Exec\na = Exec()\nb = Exec()\n")
    with pytest.raises(ConfigurationError, match=r"several Execs \(a, b\)"):
        load_exec([file])


def test_files_are_merged(tools_file: Path, servers_file: Path, tmp_path: Path) -> None:
    """Tools and servers go into the Exec that one file has; naming a file twice changes nothing."""
    own = write(tmp_path / "own.py", "from toolexec import Exec\nex = Exec()\nex.add(lambda: 1, 'own:one')\n")
    ex = load_exec([tools_file, own, servers_file, servers_file, own])
    assert {"own:one", "math:add"} <= set(ids(ex))
    assert set(ex.backends.names()) == {"local", "time", "dead"}


def test_two_files_with_an_exec_are_refused(tmp_path: Path) -> None:
    """Only one can be used."""
    text = "from toolexec import Exec\nex = Exec()\n"
    files = [write(tmp_path / name, text) for name in ("one.py", "two.py")]
    with pytest.raises(ConfigurationError, match="both have an Exec"):
        load_exec(files)


def test_clashing_files_are_refused(tmp_path: Path) -> None:
    """The message names the file that came second."""
    text = "from toolexec import tool\n@tool\ndef same(a: {}) -> None:\n    ...\n"
    files = [write(tmp_path / "one.py", text.format("int")), write(tmp_path / "two.py", text.format("str"))]
    with pytest.raises(ConfigurationError, match=r"two\.py: .*same"):
        load_exec(files)


def test_clashing_servers_are_refused(servers_file: Path, tmp_path: Path) -> None:
    """Two servers cannot have one name."""
    other = write(tmp_path / "other.json", servers_file.read_text())
    with pytest.raises(ConfigurationError, match=r"other\.json: a backend named time"):
        load_exec([servers_file, other])


def test_a_file_without_tools_is_refused(tmp_path: Path) -> None:
    """The message says how to declare one."""
    with pytest.raises(ConfigurationError, match="put @tool above a function"):
        load_exec([write(tmp_path / "empty.py", "x = 1\n")])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = undefined\n", r"bad\.py, line 2: NameError: name 'undefined' .*\(in: y = undefined\)"),
        ("def f():\n    raise ValueError\n\nf()\n", r"bad\.py, line 2: ValueError \(in: raise ValueError\)"),
        ("x = (\n", r"bad\.py, line 1: SyntaxError: .* \(in: x = \(\)"),
        ("import sys\nsys.exit(3)\n", r"bad\.py, line 2: SystemExit: 3"),
        ("import json\njson.loads('x')\n", r"bad\.py, line 2: JSONDecodeError"),
        ("import missing_module_x\n", r"bad\.py, line 1: ModuleNotFoundError"),
        (
            "from toolexec import tool\n@tool\ndef f(a: 5): ...\n",
            r"bad\.py, line [23]: \w+",
        ),
    ],
)
def test_a_failing_file_is_told_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    """Not with the line of the library that noticed."""
    with pytest.raises(ConfigurationError, match=message):
        load_exec([write(tmp_path / "bad.py", text)])


def test_a_file_that_cannot_be_decoded_is_told_by_name(tmp_path: Path) -> None:
    """There is no line to name then."""
    (tmp_path / "bad.py").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match=r"bad\.py"):
        load_exec([tmp_path / "bad.py"])


def test_ctrl_c_while_loading_is_no_error_of_the_file(tmp_path: Path) -> None:
    """A keyboard interrupt passes through."""
    with pytest.raises(KeyboardInterrupt):
        load_exec([write(tmp_path / "slow.py", "raise KeyboardInterrupt\n")])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.py", "cannot read missing.py: no such file"),
        ("directory.py", "cannot read directory.py: it is a directory"),
        ("missing.json", "cannot read missing.json"),
        ("bad.json", "bad.json is not JSON"),
        ("empty.json", 'has no "mcpServers" object'),
    ],
)
def test_unreadable_files_are_refused(tmp_path: Path, name: str, message: str) -> None:
    """The message names the file."""
    (tmp_path / "directory.py").mkdir()
    write(tmp_path / "bad.json", "{")
    write(tmp_path / "empty.json", json.dumps({"other": 1}))
    with pytest.raises(ConfigurationError, match=message):
        load_exec([Path(name)])


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    """As `python app.py` would, and whatever its own name is."""
    write(tmp_path / "neighbour_of_app.py", "from toolexec import tool\n@tool\ndef near() -> int:\n    return 1\n")
    file = write(tmp_path / "json.py", "from neighbour_of_app import near\n")
    assert ids(load_exec([file])) == ["near"]
    assert sys.modules["json"] is json


async def test_a_killable_tool_of_a_file_runs(tmp_path: Path) -> None:
    """Its worker process finds the file again."""
    text = "from toolexec import tool\n@tool(killable=True)\ndef square(n: int) -> int:\n    return n * n\n"
    async with load_exec([write(tmp_path / "killable_app.py", text)]) as ex:
        assert (await ex.run_tool("square", {"n": 7})).raise_for_error().value == 49


async def test_a_bare_definition_can_be_read_but_not_run(tools_file: Path) -> None:
    """The error says that nothing hosts it."""
    from toolexec.errors import BackendError

    async with load_exec([tools_file]) as ex:
        assert (await ex.get_tool_doc("odd:declared")).summary == "Only a definition."
        with pytest.raises(BackendError, match="odd:declared"):
            await ex.run_tool("odd:declared")
