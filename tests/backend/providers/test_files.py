"""Definitions of tools in settings and in files: what is taken, what is refused, and what has precedence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from toolexec.backend.providers.files import read_definition_file
from toolexec.backend.providers.kinds import source_of
from toolexec.errors import ConfigurationError

KINDS: dict[str, dict[str, Any]] = {"http": {"base_url": "https://a.test"}, "command": {}}
TOOL: dict[str, Any] = {"http": {"path": "/a"}, "command": {"argv": ["true"]}}
WANTED = r"tools must map the name of each tool to its settings, \{name: \{\.\.\.\}\}, not be a list"


@pytest.mark.parametrize("kind", KINDS)
def test_a_list_of_tools_is_refused(kind: str, tmp_path: Path) -> None:
    """The message says what is wanted, for a file, too."""
    with pytest.raises(ConfigurationError, match=f"^provider p: {WANTED}"):
        source_of(kind, "p", {**KINDS[kind], "tools": [TOOL[kind]]})
    file = tmp_path / "tools.json"
    file.write_text(json.dumps({"tools": [TOOL[kind]]}))
    with pytest.raises(ConfigurationError, match=f"^provider p: its file: {WANTED}"):
        source_of(kind, "p", {**KINDS[kind], "file": str(file)})


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_that_is_not_a_mapping_is_refused(kind: str) -> None:
    """With its name."""
    with pytest.raises(ConfigurationError, match="tool t: its settings must be a mapping, not a str"):
        source_of(kind, "p", {**KINDS[kind], "tools": {"t": "true"}})


@pytest.mark.parametrize("kind", KINDS)
async def test_settings_have_precedence_over_a_file(kind: str, tmp_path: Path) -> None:
    """Entry by entry; the tools of both are there."""
    file = tmp_path / "tools.json"
    file.write_text(json.dumps({"tools": {"one": TOOL[kind], "two": TOOL[kind]}, "namespace": "file"}))
    own = {**TOOL[kind], "description": "own"}
    settings = {**KINDS[kind], "file": str(file), "tools": {"two": own, "three": own}}
    found = (await source_of(kind, "p", settings).load()).tools
    assert [(each.tool.id, each.tool.description == "own") for each in found] == [
        ("file:one", False),
        ("file:two", True),
        ("file:three", True),
    ]


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("tools.json", '{"tools": {"t": {}, "t": {}}}', "the key 't' is there twice"),
        ("tools.yaml", "tools:\n  t: {}\n  t: {}\n", "the key 't' is there twice, in line 3"),
        ("tools.yaml", "- {a: 1}\n- [{b: 1, 'b': 2}]\n", "the key 'b' is there twice, in line 2"),
    ],
)
def test_a_file_with_a_key_twice_is_refused(name: str, text: str, where: str, tmp_path: Path) -> None:
    """A definition that is there twice is refused, and none of the two is taken."""
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=f"^here: .*{where}"):
        read_definition_file(file, "here")


def test_a_merge_of_yaml_may_be_written_over(tmp_path: Path) -> None:
    """A key beside `<<` takes the place of the merged one, and an alias may be used several times."""
    file = tmp_path / "tools.yaml"
    file.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\nc: [*a, *a]\n")
    assert read_definition_file(file, "here")["b"] == {"x": 3, "y": 2}
