"""Toolsets in a configuration: written as tables, chosen for a server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.config.commands import call

from toolexec.config.build import build
from toolexec.config.load import load_settings
from toolexec.config.loaded import LoadedConfig
from toolexec.config.toolsets import served_toolset
from toolexec.discovery import Toolset
from toolexec.errors import ConfigurationError, ToolNotFoundError

TOOLS = """
from toolexec import tool

@tool("git:log", read_only=True)
def log() -> int:
    return 1

@tool("git:push")
def push() -> int:
    return 2

@tool("shell:run")
def run() -> int:
    return 3
"""
FILE = """
[sources]
python = ["tools.py"]

[toolsets.safe-read]
description = "What cannot break anything"
read_only = true

[toolsets.Git]
namespaces = ["git"]
deny = ["git:l*"]

[[toolsets.both.any_of]]
allow = ["git:*"]

[[toolsets.both.any_of]]
query = "run"
limit = 1
"""


@pytest.fixture
def file() -> Path:
    """Three tools, three toolsets."""
    Path("tools.py").write_text(TOOLS)
    Path("a.toml").write_text(FILE)
    return Path("a.toml")


def loaded(*files: Path, **more: Any) -> LoadedConfig:
    return load_settings(files, **{"serving": True, **more})


def chosen(*names: str) -> dict[str, Any]:
    return {"server.toolsets": list(names)}


async def shown(what: LoadedConfig, **more: Any) -> list[str]:
    built = build(what, **{"serving": True, **more})
    try:
        async with built.ex as ex:
            return [entry.tool.id for entry in ex.index.tools()]
    finally:
        built.close()


def mistakes(*files: Path, **more: Any) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(*files, **more)
    return caught.value.details["mistakes"]


def test_they_are_read(file: Path) -> None:
    """Each table is a toolset by its name, and says where it comes from."""
    found = loaded(file)
    assert found.toolsets == {
        "safe-read": Toolset("safe-read", description="What cannot break anything", read_only=True),
        "Git": Toolset("Git", namespaces="git", deny="git:l*"),
        "both": Toolset("both", any_of=[Toolset(allow="git:*"), Toolset(query="run", limit=1)]),
    }
    assert found.toolset_origins["safe-read"] == "a.toml:5"
    assert served_toolset(found) is None


async def test_one_or_several_are_served(file: Path) -> None:
    """Without a name there is everything; of several, all that is in any."""
    everything = ["git:log", "git:push", "shell:run"]
    assert await shown(loaded(file)) == everything
    assert await shown(loaded(file, flags=chosen("safe-read"))) == ["git:log"]
    assert await shown(loaded(file, flags=chosen("safe-read", "Git"))) == ["git:log", "git:push"]
    assert await shown(loaded(file, flags=chosen("both"))) == everything
    assert await shown(loaded(file, flags=chosen("safe-read")), serving=False) == everything
    assert served_toolset(loaded(file, flags=chosen("safe-read", "Git"))).name == "safe-read or Git"  # type: ignore[union-attr]


async def test_calls_are_within_it(file: Path) -> None:
    """Only tools that are served can be called."""
    built = build(loaded(file, flags=chosen("safe-read")), serving=True)
    async with built.ex as ex:
        assert (await ex.run_tool("git:log")).value == 1
        with pytest.raises(ToolNotFoundError):
            await ex.run_tool("git:push")
    built.close()


async def test_an_exec_of_a_file_stays_within_its_own(file: Path) -> None:
    """A toolset that a Python file gives its Exec is narrowed, never widened."""
    lines = ["from toolexec import Exec", "from toolexec.discovery import Toolset"]
    for own, expected in (("", ["git:log", "git:push"]), ("toolset=Toolset(read_only=True)", ["git:log"])):
        Path("tools.py").write_text(
            "\n".join([*lines, TOOLS, f"ex = Exec({own})", "ex.add(log), ex.add(push), ex.add(run)"])
        )
        flags = {"server.toolsets": ["all-git"]}
        Path("b.toml").write_text('[toolsets.all-git]\nnamespaces = "git"\n')
        assert await shown(loaded(file, Path("b.toml"), flags=flags)) == expected


async def test_in_every_layer(file: Path) -> None:
    """A later file takes the place of a toolset, and a variable that of a file, whatever its case; it may add one."""
    Path("b.yaml").write_text("toolsets: {Git: {allow: ['shell:*']}}\n")
    assert await shown(loaded(file, Path("b.yaml"), flags=chosen("Git"))) == ["shell:run"]
    variables = {
        "TOOLEXEC_TOOLSETS__SAFE_READ": '{"allow": "git:push"}',
        "TOOLEXEC_TOOLSETS__MINE": '{"allow": "shell:run"}',
        "TOOLEXEC_SERVER__TOOLSETS": '["safe-read", "mine"]',
    }
    found = loaded(file, environment=variables)
    assert await shown(found) == ["git:push", "shell:run"]
    assert found.toolset_origins["mine"] == "TOOLEXEC_TOOLSETS__MINE"
    Path("toolexec.json").write_text('{"toolsets": {"x": {"allow": "git:log"}}, "sources": {"python": ["tools.py"]}}')
    assert await shown(loaded(Path("toolexec.json"), flags=chosen("x"))) == ["git:log"]


def test_an_unknown_one_is_refused(file: Path) -> None:
    """Nothing is served then; the message says where it is named, and which there are."""
    assert mistakes(file, flags=chosen("safe-raed")) == [
        "--set server.toolsets: there is no toolset 'safe-raed'; did you mean safe-read?"
    ]
    Path("b.toml").write_text('[server]\ntoolsets = ["safe-read", "zzz"]\n')
    [mistake] = mistakes(file, Path("b.toml"))
    assert mistake.startswith("b.toml, line 2: there is no toolset 'zzz'; there are safe-read, Git, both")
    [mistake] = mistakes(Path("b.toml"), flags=chosen("a"))
    assert mistake.endswith("write one as [toolsets.a]")
    load_settings([file, Path("b.toml")])  # what is not served does not matter
    with pytest.raises(ConfigurationError, match="there is no toolset"):
        served_toolset(load_settings([file, Path("b.toml")]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[toolsets.a]\n", "a.toml, line 1: toolsets.a: it says nothing of the tools in it"),
        ("[toolsets.a]\ndescription = 'x'\n", "a.toml, line 1: toolsets.a: it says nothing"),
        ("[toolsets.a]\nnamespace = 'x'\n", "did you mean namespaces"),
        ("[toolsets.a]\nallow = []\n", "allow of a toolset is empty"),
        ("toolsets = 5\n", "a.toml, line 1: toolsets must be a table of toolsets"),
        ("[toolsets]\na = 5\n", "a.toml, line 2: toolsets.a: a toolset must be a mapping"),
        ("[toolset.a]\nallow = 'x'\n", "unknown key toolset; did you mean toolsets?"),
    ],
)
def test_mistakes_are_told_with_their_line(text: str, message: str) -> None:
    """Each where it stands; a toolset that would be empty by mistake is one of them."""
    Path("a.toml").write_text(text)
    [mistake] = mistakes(Path("a.toml"))
    assert message in mistake


@pytest.mark.parametrize("text", ["", "5", "[]", "{"])
def test_a_variable_that_is_no_toolset(text: str) -> None:
    """Refuses a variable that is not a toolset."""
    found = mistakes(environment={"TOOLEXEC_TOOLSETS__A": text})
    assert found == ["TOOLEXEC_TOOLSETS__A: it must be one toolset as a JSON object, as in toolsets"]


def test_a_broken_one_that_is_served_is_told_of_once() -> None:
    """Not also as one that there is not."""
    Path("a.toml").write_text('[toolsets.a]\nzzz = 1\n[server]\ntoolsets = ["a"]\n')
    [mistake] = mistakes(Path("a.toml"))
    assert "zzz" in mistake


def test_they_are_shown(file: Path) -> None:
    """`config show` has them as tables, and where they come from."""
    text = call("config", "show", "--origin", "-c", file).stdout
    assert '# a.toml:5\n[toolsets.safe-read]\ndescription = "What cannot break anything"\nread_only = true\n' in text
    document = json.loads(call("config", "show", "--json", "--origin", "-c", file).stdout)
    assert document["toolsets"]["Git"] == {"namespaces": ["git"], "deny": ["git:l*"]}
    assert document["origins"]["toolsets.Git"] == "a.toml:9"
