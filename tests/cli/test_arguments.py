"""Words of the command line as arguments, files as chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolexec.cli.arguments import read_args, read_chain
from toolexec.errors import ConfigurationError, InvalidChainError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "$defs": {"size": {"type": "integer"}},
    "properties": {
        "name": {"type": "string"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "count": {"type": "integer"},
        "size": {"$ref": "#/$defs/size"},
        "loud": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "numbers": {"type": "array", "items": {"type": "integer"}},
        "loose": {"type": "array"},
        "box": {"type": "object"},
        "mode": {"enum": ["1", "2"]},
        "free": {},
    },
}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("name=42", {"name": "42"}),
        ("name=", {"name": ""}),
        ("name=a=b", {"name": "a=b"}),
        ("name={not json", {"name": "{not json"}),
        ("maybe=null", {"maybe": "null"}),
        ("count=42", {"count": 42}),
        ("size=7", {"size": 7}),
        ("loud=true", {"loud": True}),
        ("tags=a", {"tags": ["a"]}),
        ('tags=["a", "b"]', {"tags": ["a", "b"]}),
        ("numbers=1", {"numbers": [1]}),
        ("loose=1", {"loose": [1]}),
        ('box={"x": 1}', {"box": {"x": 1}}),
        ("mode=1", {"mode": "1"}),
        ("free=1", {"free": 1}),
        ("free=word", {"free": "word"}),
        ("unknown=1.5", {"unknown": 1.5}),
        ("name:=1", {"name": 1}),
        ("maybe:=null", {"maybe": None}),
        ('{"name": "x"}', {"name": "x"}),
    ],
)
def test_a_value_is_read_as_its_schema_says(word: str, expected: dict[str, Any]) -> None:
    """Text stays text; a number, a list or an object is JSON."""
    assert read_args([word], SCHEMA) == expected


@pytest.mark.parametrize("text", ["ten", "NaN", "Infinity", "[" * 5000])
def test_what_does_not_fit_is_passed_on_as_text(text: str) -> None:
    """Passes such a value on, so that the tool's own check can name everything that is wrong."""
    assert read_args([f"count={text}"], SCHEMA) == {"count": text}


def test_words_of_a_list_add_up() -> None:
    """A list may be given item by item."""
    assert read_args(["tags=a", "name=x", "tags=b"], SCHEMA) == {"tags": ["a", "b"], "name": "x"}


def test_a_key_given_twice_is_a_mistake() -> None:
    """Only lists take more than one word."""
    with pytest.raises(ConfigurationError, match="'count' is given twice"):
        read_args(["count=1", "count=2"], SCHEMA)


def test_later_words_win_over_files(tmp_path: Path) -> None:
    """A file may hold the defaults of a call."""
    file = tmp_path / "args.json"
    file.write_text('\ufeff{"name": "file", "count": 1}', encoding="utf-8")
    assert read_args([f"@{file}", "count=2"], SCHEMA) == {"name": "file", "count": 2}


def test_a_dash_reads_stdin() -> None:
    """`-` stands for JSON on stdin."""
    assert read_args(["-"], SCHEMA, lambda: '{"name": "stdin"}') == {"name": "stdin"}


def test_a_schema_without_names_leaves_values_to_json() -> None:
    """A boolean schema, or one whose properties are not an object, leaves values to JSON as well."""
    assert read_args(["a=1"], True) == {"a": 1}
    assert read_args(["a=1"], {"properties": ["a"]}) == {"a": 1}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("word", "cannot read the argument 'word'; write key=value"),
        ("=1", "cannot read the argument"),
        (":=1", "cannot read the argument"),
        ("{", "the arguments: not JSON"),
        ('{"a": NaN}', "the arguments: NaN is not JSON"),
        ('{"a": 1, "a": 2}', "the arguments: the key 'a' is there twice"),
        ('{"a": ' + "[" * 100_000, "nested too deeply"),
        ("[1]", "arguments are a JSON object, not a list"),
        ("a:=", "the value of a: not JSON"),
        ('a:={"b": 1, "b": 2}', "the value of a: the key 'b' is there twice"),
        ('count={"b": 1, "b": 2}', "the key 'b' is there twice"),
        ("@missing.json", "cannot read missing.json: No such file"),
    ],
)
def test_unreadable_words_are_refused(word: str, message: str) -> None:
    """The message says what can be written."""
    with pytest.raises(ConfigurationError, match=message.replace("[", r"\[")):
        read_args([word], SCHEMA)


@pytest.mark.parametrize(
    ("text", "kind"), [("[]", "a list"), ('"x"', "text"), ("1", "a number"), ("true", "a boolean"), ("null", "null")]
)
def test_arguments_must_be_an_object(text: str, kind: str) -> None:
    """Whatever else JSON can be is named."""
    with pytest.raises(ConfigurationError, match=f"not {kind}"):
        read_args(["-"], SCHEMA, lambda: text)


def test_a_file_of_bytes_is_refused(tmp_path: Path) -> None:
    """Arguments are UTF-8."""
    file = tmp_path / "args.json"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        read_args([f"@{file}"], SCHEMA)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("chain.json", '[{"tool": "a:b", "args": {"x": 1}}]'),
        ("chain.json", '{"steps": [{"tool": "a:b", "args": {"x": 1}}]}'),
        ("chain.toml", '[[steps]]\ntool = "a:b"\nargs = {x = 1}\n'),
        ("chain", '[[steps]]\ntool = "a:b"\nargs = {x = 1}\n'),
        ("chain", '[{"tool_id": "a:b", "args": {"x": 1}}]'),
    ],
)
def test_a_chain_is_json_or_toml(tmp_path: Path, name: str, text: str) -> None:
    """By the file's ending, or whichever it is."""
    file = tmp_path / name
    file.write_text(text)
    steps = read_chain(str(file))
    assert [(step.tool_id, step.args) for step in steps] == [("a:b", {"x": 1})]


def test_a_chain_may_come_from_stdin() -> None:
    """`-` stands for stdin."""
    assert read_chain("-", lambda: '[{"tool": "a"}]')[0].tool_id == "a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "stdin has no steps"),
        ("{}", "stdin has no steps"),
        ('{"steps": 1}', "stdin has no steps"),
        ('{"steps": [{"tool": "a"}], "stops": 1}', "unknown keys beside steps: stops"),
        ("[1]", "step 0 must be an object with a tool, not a number"),
        ('[{"tool": "a"}, {"tol": "a"}]', "step 1: a step has no setting 'tol'; did you mean tool"),
        ('[{"args": {}}]', "step 0: a step has no tool"),
    ],
)
def test_a_malformed_chain_is_refused(text: str, message: str) -> None:
    """The message names the step and the key."""
    with pytest.raises(InvalidChainError, match=message):
        read_chain("-", lambda: text)


@pytest.mark.parametrize("name", ["c.json", "c.txt"])
def test_a_chain_with_a_key_twice_is_refused(tmp_path: Path, name: str) -> None:
    """Of a step that has a key twice none is taken, whether the file says that it is JSON or not."""
    file = tmp_path / name
    file.write_text('[{"tool": "a:b", "args": {"x": 1, "x": 2}}]')
    with pytest.raises(ConfigurationError, match="the key 'x' is there twice"):
        read_chain(str(file))


@pytest.mark.parametrize(
    ("name", "message"), [("c.json", "not JSON"), ("c.toml", "not TOML"), ("c.txt", "not JSON.*nor is it TOML")]
)
def test_a_chain_file_that_is_neither_is_refused(tmp_path: Path, name: str, message: str) -> None:
    """The message has the parser's words."""
    file = tmp_path / name
    file.write_text("a chain\n")
    with pytest.raises(ConfigurationError, match=message):
        read_chain(str(file))
